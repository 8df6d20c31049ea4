"""The list of reward functions without a browser: names and kinds, saving and loading, what is said under a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.drafts import draft_of, own_row
from workbench.config import RewardConfig
from workbench.rewards import BUILTINS, Sandbox
from workbench.rewards.source import saved_rewards
from workbench.rewards.watch import CallTimes
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.example import first_group
from workbench.ui.handlers.fields import with_settings
from workbench.ui.handlers.page_state import PageState, RewardRow, builtin_row, row_of
from workbench.ui.handlers.scoring import Note, ScoringView, message, rescore

STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
OUTCOME = "def whole(prompts, completions, **columns):\n    return [0.0] * len(prompts)\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[Sandbox]:
    with Sandbox(deadline=60.0) as worker:
        yield worker


def own(code: str, name: str = "mine") -> RewardRow:
    return own_row(code, name)


def form(*rows: RewardRow) -> PageState:
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
    assert row.with_edits({"code": row.code}).config() == config  # and stays what it is until it is edited
    edited = row.with_edits({"code": row.code.replace("80", "90")})
    assert "target_length: int = 90," in (edited.config().code or "")
    assert edited.config().options == {}


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_previews_on_the_group_on_screen(name: str, worker: Sandbox) -> None:
    of_a_file = {"reward": 1.0, "labelled_steps": ["Step 1"], "labels": [1.0]}  # what imported rollouts have
    of_a_file |= {"calls": ["7+3"]}  # what the task of episodes has
    group = first_group()
    draft = form(builtin_row("step_correctness"), builtin_row(name))
    view = rescore(draft.but(group=replace(group, columns={**group.columns, **of_a_file})), worker)
    if name == "step_correctness":
        assert view.rows[0] is not None
        assert "there twice" in view.rows[0].text
    else:
        assert view.rows == (None, None)
        assert view.credit is not None


def test_saving_and_loading(tmp_path: Path) -> None:
    assert handlers.save_row(tmp_path, own(STEP)).text.endswith("rewards/mine.py")
    assert handlers.save_row(tmp_path, builtin_row("trl:accuracy_reward")).level == "info"
    assert saved_rewards(tmp_path) == ["accuracy_reward", "mine"]

    draft = form(builtin_row("step_correctness"))
    added = handlers.add_file(draft, "mine", tmp_path)
    assert isinstance(added, PageState)
    assert [(row.name, row.code) for row in added.rows[1:]] == [("mine", STEP)]
    listed = draft.with_row(
        own("def mine(prompt, step, **c):\n    return 0.0\n").with_edits({"on": False, "weight": 0.5})
    )
    again = handlers.add_file(listed, f"{tmp_path}/rewards/mine.py::mine", tmp_path)
    assert isinstance(again, PageState)
    row = again.rows[1]
    assert (len(again.rows), row.code, row.weight, row.on) == (2, STEP, 0.5, False)  # in its namesake's place
    assert row.key != listed.rows[1].key

    (tmp_path / "rewards" / "mine.py").write_bytes(b"\xff")
    broken = handlers.add_file(draft, "mine", tmp_path)
    assert isinstance(broken, Note)
    assert "UTF-8" in broken.text


def test_a_template_is_added_under_a_name_that_is_free() -> None:
    draft: PageState | Note = form(builtin_row("step_correctness"))
    for _ in range(14):  # there is no most
        assert isinstance(draft, PageState)
        draft = handlers.add_reward(draft, handlers.OWN_STEP)
    assert isinstance(draft, PageState)
    assert [row.name for row in draft.rows[1:3]] == ["my_step_reward", "my_step_reward_2"]
    assert len({row.name for row in draft.rows}) == 15
    assert isinstance(handlers.add_reward(draft, "step_correctness"), Note)  # it is in the list


def said(draft: PageState, view: ScoringView, editing: str = "") -> Any:
    watched = None if view.credit is None else handlers.watch_group(draft, view.credit.scored, CallTimes())
    return handlers.rewards_said(draft, view, watched, editing)


def test_under_each_row_stands_what_its_function_returned(worker: Sandbox) -> None:
    off = replace(builtin_row("tag_format"), on=False)
    draft = form(builtin_row("step_correctness"), own(STEP), off)
    view = rescore(draft, worker)
    assert view.credit is not None
    right, mine, tags = said(draft, view)["rows"].values()
    # The group that comes with the embedded policy: 48 steps, 7 of them wrong.
    assert right["text"] == "each step · 85 % of steps right"
    assert right["detail"].startswith("judged by the line before  ·  ")
    assert right["detail"].endswith(" a call  ·  0 to 1  ·  chain-arithmetic task")
    assert mine["text"] == "each step · mean 1.00"
    assert tags["text"] == "final answer · off"
    watched = handlers.watch_group(draft, view.credit.scored, CallTimes())
    payload = json.loads(message(**handlers.watch_payload(watched)))
    assert [one["name"] for one in payload["functions"]] == ["step_correctness", "mine"]
    assert payload["functions"][1]["rows"] == [1.0] * 8


def test_beside_the_code_stands_what_each_step_got(worker: Sandbox) -> None:
    draft = form(
        builtin_row("step_correctness"),
        builtin_row("answer_correctness"),
        own(STEP.replace("1.0", "1 / 0")),
    )
    steps, answers, broken = (row.key for row in draft.rows)
    view = rescore(draft.with_edits({broken: {"on": False}}), worker)
    editor = said(draft, view, steps)["editor"]
    assert editor["said"] == "step_correctness scores 41 of 48 steps 1 and 7 steps 0"
    third = editor["rollouts"][2]
    assert (third["name"], third["verdict"]) == ("Rollout 3", "wrong")
    assert third["steps"][:2] == [("Step 1: 7 + 3 = 0", 0.0, True), ("Step 2: 0 * 8 = 0", 1.0, False)]
    assert said(draft, view, answers)["editor"]["said"] == "answer_correctness scores 4 of 8 answers 1 and 4 answers 0"
    wrong = said(draft, rescore(draft, worker), broken)
    assert (wrong["editor"]["wrong"]["line"], list(wrong["rows"])) == (2, [broken])  # the others stay as they were


PRINTS = """def mine(prompt, step, **columns):
    if step.strip().endswith("88"):
        print("saw", step.split()[0], end="")
    return 1.0
"""
AT_ONCE = "def mine(prompts, completions, **columns):\n    print(len(completions))\n    return [1.0] * len(prompts)\n"


def test_what_a_reward_printed_stands_under_the_rollout_it_was_scoring(worker: Sandbox) -> None:
    draft = form(builtin_row("step_correctness"), own(PRINTS))
    view = rescore(draft, worker)
    editor = said(draft, view, draft.rows[1].key)["editor"]
    # Rollout 1: steps 3 (80 + 8 = 88), 5 (81 + 7 = 88) and its answer, 88.
    printed = [one["printed"] for one in editor["rollouts"]]
    texts = [rollout.text.split("\n") for rollout in first_group().rollouts]
    assert printed[0] == "saw Stepsaw Stepsaw Answer:"
    assert printed == ["".join(f"saw {line.split()[0]}" for line in row if line.endswith("88")) for row in texts]
    assert editor["printed"] == ""
    assert said(draft, view)["rows"][draft.rows[1].key]["text"] == "each step · mean 1.00 · printed: see Edit"

    whole = form(builtin_row("step_correctness"), own(AT_ONCE))
    editor = said(whole, rescore(whole, worker), whole.rows[1].key)["editor"]
    assert (editor["printed"], {one["printed"] for one in editor["rollouts"]}) == ("8", {""})

    fails = PRINTS.replace("return 1.0", "return 1 / (': 0 * 8' not in step)")  # at rollout 3, step 2
    failing = form(builtin_row("step_correctness"), own(fails))
    wrong = said(failing, rescore(failing, worker), failing.rows[1].key)["editor"]
    assert wrong["wrong"]["line"] == 4
    assert [(one["name"], one["printed"]) for one in wrong["rollouts"]] == [
        ("Rollout 1", "saw Stepsaw Stepsaw Answer:"),
        ("Rollout 2", "saw Stepsaw Stepsaw Answer:"),
    ]


def test_a_row_says_that_the_scheme_does_not_use_it(worker: Sandbox) -> None:
    """The page opens with both kinds of rewards under ``process`` with outcome weight 0."""
    both = form(builtin_row("step_correctness"), builtin_row("answer_correctness"))

    def notes(draft: PageState) -> list[str]:
        rows = said(draft, rescore(draft, worker))["rows"].values()
        assert {note["level"] for note in rows} == {"plain"}
        return [note["text"] for note in rows]

    steps, answers = "each step · 85 % of steps right", "final answer · 4 of 8 answers right"
    assert notes(both) == [steps, f"{answers} · shown, not counted"]
    alpha = both.but(credit=with_settings(both.credit, {"outcome_weight": 1.0}))
    assert notes(alpha) == [steps, answers]
    outcome = both.but(credit=with_settings(both.credit, {"scheme": "outcome"}))
    assert notes(outcome) == [f"{steps} · shown, not counted", answers]
    beside = both.but(compare={"scheme": "outcome"})
    assert notes(beside) == [f"{steps} · not counted by B", f"{answers} · not counted by A"]
    step = both.but(compare={"scheme": "step"})
    assert notes(step) == [steps, f"{answers} · shown, not counted"]
