"""The list of reward functions without a browser: names and kinds, saving and loading, what is said under a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.drafts import draft_of, own_row
from workbench.config import RewardConfig
from workbench.rewards import BUILTINS, Sandbox
from workbench.rewards.source import saved_rewards
from workbench.rewards.watch import CallTimes
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.credit import with_settings
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.example import first_group
from workbench.ui.handlers.reward_rows import SLOTS, RewardRow, builtin_row, code_row, row_of
from workbench.ui.handlers.scoring import rescore, unused_notes

STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
OUTCOME = "def whole(prompts, completions, **columns):\n    return [0.0] * len(prompts)\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[Sandbox]:
    with Sandbox(deadline=60.0) as worker:
        yield worker


def own(code: str, name: str = "mine") -> RewardRow:
    return own_row(code, name)


def form(*rows: RewardRow) -> Draft:
    return draft_of(*rows)


def test_a_rows_kind_is_what_its_code_says() -> None:
    assert own(OUTCOME).kind == "outcome"
    assert own("def mine(").kind == "step"  # half typed: as before
    assert handlers.row_label(own(OUTCOME)) == "whole"
    assert own(OUTCOME).config().kind == "outcome"


def test_a_configuration_with_options_is_shown_as_its_code() -> None:
    config = RewardConfig(name="length_target", kind="outcome", options={"target_length": 80})
    row = row_of(config)
    assert "target_length: int = 80," in row.code
    assert row.with_values(True, 1.0, row.code).config() == config  # and stays what it is until it is edited
    edited = row.with_values(True, 1.0, row.code.replace("80", "90"))
    assert "target_length: int = 90," in (edited.config().code or "")
    assert edited.config().options == {}


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_previews_on_the_group_on_screen(name: str, worker: Sandbox) -> None:
    of_a_file = {"reward": 1.0, "labelled_steps": ["Step 1"], "labels": [1.0]}  # what imported rollouts have
    of_a_file |= {"calls": ["7+3"]}  # what the task of episodes has
    group = first_group()
    draft = form(builtin_row("step_correctness"), builtin_row(name))
    view = rescore(replace(draft, group=replace(group, columns={**group.columns, **of_a_file})), worker)
    if name == "step_correctness":
        assert view.rows[0] is not None
        assert "there twice" in view.rows[0].text
    else:
        assert view.rows == (None,) * SLOTS
        assert view.credit is not None


def test_saving_and_loading(tmp_path: Path) -> None:
    assert handlers.save_row(tmp_path, own(STEP)).text.endswith("rewards/mine.py")
    assert handlers.save_row(tmp_path, builtin_row("trl:accuracy_reward")).level == "info"
    assert saved_rewards(tmp_path) == ["accuracy_reward", "mine"]

    rows = form(builtin_row("step_correctness")).rows
    place, row = handlers.load_choice(tmp_path, rows, "mine")  # type: ignore[misc]
    assert (place, row.code, row.name) == (1, STEP, "mine")
    listed = form(builtin_row("step_correctness"), own(STEP).with_values(False, 0.5, STEP)).rows
    place, row = handlers.load_choice(tmp_path, listed, "mine")  # type: ignore[misc]
    assert (place, row.weight, row.on) == (1, 0.5, False)  # in its namesake's place
    full = tuple(code_row(f"f{i}", "step", "") for i in range(SLOTS))
    assert "remove one first" in handlers.load_choice(tmp_path, full, "mine").text  # type: ignore[union-attr]

    (tmp_path / "rewards" / "mine.py").write_bytes(b"\xff")
    assert "mine.py): 'utf-8'" in handlers.load_choice(tmp_path, rows, "mine").text  # type: ignore[union-attr]


def test_under_each_row_stands_what_its_function_gave(worker: Sandbox) -> None:
    off = replace(builtin_row("tag_format"), on=False)
    shown = form(builtin_row("step_correctness"), own(STEP), off)
    view = rescore(shown, worker)
    assert view.credit is not None
    watched = handlers.watch_group(shown, view.credit.scored, CallTimes())
    right, mine, tags, empty = handlers.row_notes(shown.rows, watched, {}, view.credit.scored)[:4]
    assert right is not None
    assert mine is not None
    assert tags is not None
    # The group that comes with the embedded policy: 48 steps, 9 of them wrong.
    assert right.text == "85 % of steps right"
    assert right.detail.startswith("judged by the line before  ·  ")
    assert right.detail.endswith(" a call  ·  0 to 1  ·  chain-arithmetic task")
    assert mine.text == "mean 1.00"
    assert mine.detail.endswith("ms a call")
    assert tags.text == "off"
    assert empty is None
    assert {right.level, mine.level, tags.level} == {"plain"}
    said = [replace(summary, printed="a\nb\n") for summary in view.credit.scored.rewards]
    *_, spoke = handlers.row_notes(shown.rows[:2], watched, {}, replace(view.credit.scored, rewards=tuple(said)))
    assert spoke is not None
    assert (spoke.text, spoke.detail.partition("printed:")[2]) == (mine.text, "\na\nb")
    same = handlers.row_notes(form(replace(own(STEP), on=False), own(STEP)).rows, watched, {}, view.credit.scored)
    assert same[0] is not None
    assert (same[0].text, same[1]) == ("off", mine)  # of two rows of one name, the one that ran
    payload = json.loads(handlers.watch_message(watched))
    assert [one["name"] for one in payload["functions"]] == ["step_correctness", "mine"]
    assert payload["functions"][1]["rows"] == [1.0] * 8


def test_a_row_says_that_the_scheme_does_not_use_it(worker: Sandbox) -> None:
    """The page opens with both kinds of rewards under ``process`` with outcome weight 0."""
    both = form(builtin_row("step_correctness"), builtin_row("answer_correctness"))

    def notes(draft: Draft) -> list[str]:
        view = rescore(draft, worker)
        assert view.credit is not None
        watched = handlers.watch_group(draft, view.credit.scored, CallTimes())
        gave = handlers.row_notes(draft.rows, watched, unused_notes(view), view.credit.scored)[:2]
        assert {note.level for note in gave if note} == {"plain"}
        return [note.text for note in gave if note]

    steps, answers = "85 % of steps right", "4 of 8 answers right"
    assert notes(both) == [steps, f"Shown, not counted: {answers}"]
    alpha = replace(both, credit=with_settings(both.credit, {"outcome_weight": 1.0}))
    assert notes(alpha) == [steps, answers]
    outcome = replace(both, credit=with_settings(both.credit, {"scheme": "outcome"}))
    assert notes(outcome) == [f"Shown, not counted: {steps}", answers]
    beside = replace(both, compare={"scheme": "outcome"})
    assert notes(beside) == [f"Not counted by B: {steps}", f"Not counted by A: {answers}"]
    step = replace(both, compare={"scheme": "step"})
    assert notes(step) == [steps, f"Shown, not counted: {answers}"]
