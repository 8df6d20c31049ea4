"""``benchmarks blame``: rows worked out by hand, culprits held against the tasks' own rewards, and what it writes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import blame
from benchmarks.__main__ import main
from benchmarks.planted import KINDS, Truth, check_culprits, planted_groups, write
from workbench.assets import BLAME
from workbench.credit import SCHEMES, assign_credit
from workbench.rewards.answers import goes_wrong_at

SPANS = ((0, 1), (2, 3))
RIGHT = Truth("right", SPANS, (True, True), (), (0, 1, 2, 3))
EARLY = Truth("early", SPANS, (False, True), (1,), (0, 1, 2, 3))


def _row(scheme: str) -> dict[str, float]:
    """Of one group of two answers, two steps of two tokens each: the second begins with an error, at its token 1."""
    ends = [[1, 3], [1, 3]]
    advantages = assign_credit([[1, 1], [0, 1]], ends, [4, 4], scheme, outcome_rewards=[1, 0])
    return blame.row_of([advantages], [(RIGHT, EARLY)])


def test_the_row_of_step_by_hand() -> None:
    # r = 1, 1, 0, 1: mean 0.75, std 0.5, so A = 0.5 0.5 0.5 0.5 and -1.5 -1.5 0.5 0.5; mean |A| = 6 / 8.
    expected = {
        "step": 1.0,
        "token": 0.5,
        "auc": (0.5 + 1 + 1) / 3,  # token 0 has the culprit's advantage, tokens 2 and 3 a higher one
        "wrong_down": 1.0,
        "right_up": 1.0,
        "push": -1.5 / 0.75,
        "variance": 0.0,
        "position": 0.0,
        "length": 0.0,
    }
    assert _row("step") == pytest.approx(expected, abs=1e-6)


def test_the_rows_of_outcome_and_process_by_hand() -> None:
    # outcome: A = z and -z everywhere, so the second right step of the wrong answer goes down, too.
    expected = {"step": 0.5, "token": 0.25, "auc": 0.5, "wrong_down": 1.0, "right_up": 2 / 3, "push": -1.0}
    row = _row("outcome")
    assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    # process: A = 1 1 0.5 0.5 and -1 -1 0.5 0.5; mean |A| = 6 / 8.
    row = _row("process")
    assert (row["step"], row["push"], row["position"]) == pytest.approx((1.0, -1 / 0.75, 0.5 / 0.75), abs=1e-6)


@pytest.mark.parametrize(
    ("before", "step", "at"),
    [
        ("", "Step 1: 7 + 5 = 12\n", None),
        ("", "Step 1: 7 + 5 = 13\n", 17),
        ("", "Step 1: 7 + 5 = 1\n", 17),  # too short: the end of the line is wrong
        ("", "Step 1: 7 + 5 = 121\n", 18),  # too long
        ("", "Step 1: 7 + 6 = 13\n", 12),
        ("Step 1: 7 + 5 = 13\n", "Step 2: 13 * 2 = 26\n", None),  # a wrong result is blamed once
        ("Step 1: 7 + 5 = 12\n", "Step 3: 12 * 2 = 24\n", None),  # not the line that is due
        ("Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\n", "Answer: 25", 9),
    ],
)
def test_where_a_step_goes_wrong_by_hand(before: str, step: str, at: int | None) -> None:
    assert goes_wrong_at(before, step, 7, [["+", "5"], ["*", "2"]]) == at


def test_tokens_of_the_environment_count_for_nothing_and_a_line_twice_is_compared() -> None:
    clean = Truth("right", ((0, 0),), (True,), (), (0,))
    detour = Truth("detour", ((0, 0), (2, 2)), (True, True), (), (0, 2))
    wrong = Truth("late", ((0, 0), (2, 2)), (True, False), (2,), (0, 2))
    advantages = np.array([[1.0, 0, 0], [2.0, 0, 1.0], [-1.0, 0, -3.0]])
    row = blame.row_of([advantages], [(clean, detour, wrong)])
    scale = 8 / 5  # of the five sampled tokens
    assert (row["step"], row["token"], row["auc"]) == pytest.approx((0.75, 0.75, 1.0))
    assert (row["length"], row["push"]) == pytest.approx(((1.5 - 1.0) / scale, -3 / scale))


OUTCOMES = {
    "early": (False, True),
    "late": (False, True),
    "two": (False, False),
    "repaired": (True, True),
    "lucky": (True, False),
}
"""Whether the answer is right as it stands, and with one culprit changed."""


@pytest.mark.parametrize("task", KINDS)
def test_changing_a_culprit_makes_its_step_right_and_no_earlier_token_differs(task: str) -> None:
    for planted in planted_groups(task, 3):
        for checked in check_culprits(planted):
            assert (checked.step, checked.answer) == ((False, True), OUTCOMES[checked.kind])
        for answer, truth, rollout in zip(planted.answers, planted.truths, planted.group.rollouts, strict=True):
            assert truth.labels.count(False) == len(truth.culprits) == len(answer.culprits)
            wrong = [number for number, right in enumerate(answer.labels) if not right]
            for number, token in zip(wrong, truth.culprits, strict=True):
                first, last = truth.spans[number]
                assert first <= token <= last
                plan = (*answer.plan[:number], (answer.plan[number][0], 0))
                before = "".join(rollout.texts[:token])
                changed = "".join(write(task, planted.chain, plan).written)
                assert changed.startswith(before)
                assert not changed.startswith(before + rollout.texts[token])


def test_ranks_correlate_as_worked_out_by_hand() -> None:
    assert blame.spearman([1, 2, 3, 4], [10, 30, 20, 40])[0] == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert blame.spearman([1, 1, 2, 3], [1, 2, 3, 4])[0] == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_the_json_has_a_row_for_each_scheme(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blame, "GROUPS", 2)
    assert main(["blame", "--only", "right,outcome", "--stored", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for task in blame.TASKS:
        assert {row["scheme"] for row in result["rows"] if row["task"] == task} == {*SCHEMES, blame.EVEN}
    assert {row["kind"] for row in result["counterfactuals"]} == set(OUTCOMES)
    assert {row["number"] for row in result["learning"]} == set(blame.NUMBERS)


def test_a_call_for_all_writes_rows_the_pages_file_and_two_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"RESULTS": tmp_path / "blame.jsonl", "BLAME": tmp_path / "blame.json", "PICTURES": tmp_path}
    few = {"GROUPS": 2, "LABELS": ("right", "noise30", "outcome"), "OF_TURNS": ("right", "outcome")}
    for name, value in (kept | few).items():
        monkeypatch.setattr(blame, name, value)
    rows = blame.measure(1)
    assert sum(map(len, blame.stored_rows().values())) == len(rows)
    page, shipped = json.loads(kept["BLAME"].read_text()), json.loads(BLAME.read_text())
    assert page["schemes"].keys() == SCHEMES.keys() >= shipped["schemes"].keys() > {"process", "outcome"}
    assert page.keys() == shipped.keys()
    for name in ("blame.svg", "blame-learning.svg"):
        words = {text.text for text in ElementTree.parse(tmp_path / name).iter("{http://www.w3.org/2000/svg}text")}
        assert {"process", "outcome"} <= words
