"""One group scored with two lists of rewards: in Python and on the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.assets import FIRST_GROUP
from workbench.cli import main
from workbench.credit import compare_credits, credit_group
from workbench.rewards import Reward, score_both, score_group
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern

PATTERN = StepPattern("S")
GROUP = Group(
    "p",
    (Rollout((1, 2, 3), ("S1", "S22", "S333"), False), Rollout((1, 4), ("S1", "S4444"), False)),
)


def counting() -> tuple[Reward, list[int]]:
    calls: list[int] = []

    def length(prompt: Any, step: str, **columns: Any) -> float:
        calls.append(len(step))
        return float(len(step))

    return Reward("length", "step", length), calls


def first(prompt: Any, step: str, **columns: Any) -> float:
    return float(step == "S1")


def test_a_function_of_both_lists_is_called_once_and_weighed_twice() -> None:
    """Lengths 2 3 4 and 2 5; ``first`` is 1 on S1. With 1 · length, and with -0.5 · length + 3 · first."""
    length, calls = counting()
    a, b = score_both(GROUP, PATTERN, [length], [replace(length, weight=-0.5), Reward("first", "step", first, 3.0)])
    assert calls == [2, 3, 4, 2, 5]
    assert [row.rewards for row in a.scored] == [(2.0, 3.0, 4.0), (2.0, 5.0)]
    assert [row.rewards for row in b.scored] == [(2.0, -1.5, -2.0), (2.0, -2.5)]
    assert [(reward.name, reward.weight) for reward in b.rewards] == [("length", -0.5), ("first", 3.0)]
    assert b.scored[0].scores == {"length": (2.0, 3.0, 4.0), "first": (1.0, 0.0, 0.0)}
    # And each side is what score_group makes of its list alone, times of calls apart.
    alone = score_group(GROUP, PATTERN, [replace(length, weight=-0.5), Reward("first", "step", first, 3.0)])
    assert (alone.scored, alone.group) == (b.scored, b.group)
    compared = compare_credits(credit_group(a, "step"), credit_group(b, "step"))
    assert compared.names == ("step on length", "step on length × -0.5, first × 3")
    # Means 3.2 and -0.4: the steps of length 2, 4 and 5 change sides, that of length 3 is below both.
    assert compared.flipped_share == pytest.approx(0.8)


# ── on the command line ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_compares_with_a_files_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("method: {rewards: [{name: step_correctness, weight: -1}]}\n")
    command = ["score", "--group", str(FIRST_GROUP), "--other", str(file)]
    assert main([*command, "--json", "--html", str(tmp_path / "two.html")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["compared"]["correlation"] == pytest.approx(-1)
    assert data["compared"]["names"][1] == "process on step_correctness × -1"
    assert r"process on step_correctness \u00d7 -1" in (tmp_path / "two.html").read_text()
