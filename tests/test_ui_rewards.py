"""The list of reward functions without a browser: names and kinds, saving and loading, what is said under a row."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.drafts import draft_of, own_row
from tests.waiting import wait_for
from workbench.rewards import BUILTINS, RewardConfig, Sandbox
from workbench.rewards.source import saved_rewards
from workbench.rewards.statistics import CallTimes
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.example import first_group
from workbench.ui.handlers.page_state import PageState, Tab, builtin_row, row_of
from workbench.ui.handlers.reward_forms import add
from workbench.ui.handlers.scoring import ScoringView, View, message, rescore
from workbench.ui.handlers.session import Services

STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
JUDGE = RewardConfig(name="judge", kind="step", judge={"base_url": "http://127.0.0.1:1/v1", "model": "small"})
OUTCOME = "def whole(prompts, completions, **columns):\n    return [0.0] * len(prompts)\n"


def test_a_configuration_with_options_is_shown_as_its_code() -> None:
    config = RewardConfig(name="length_target", kind="outcome", options={"target_length": 80})
    row = row_of(config)
    assert "target_length: int = 80," in row.code
    assert row.with_edits({"code": row.code}).config() == config  # and stays what it is until it is edited
    edited = row.with_edits({"code": row.code.replace("80", "90")}).config()
    assert ("target_length: int = 90," in edited.code, edited.options) == (True, {})


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_previews_on_the_group_on_screen(name: str, worker: Sandbox) -> None:
    columns = {"reward": 1.0, "labelled_steps": ["Step 1"], "labels": [1.0]}  # what imported rollouts have
    columns |= {"calls": ["7+3"], **first_group().columns}  # what the task of episodes has
    draft = draft_of(builtin_row("step_correctness"), builtin_row(name))
    view = rescore(draft.but(group=replace(first_group(), columns=columns)), worker)
    if name == "step_correctness":
        assert "twice" in view.rows[0].text
    else:
        assert (view.rows, view.credit is None) == ((None, None), False)


def test_saving_and_loading(tmp_path: Path, services: Services) -> None:
    assert handlers.save_code(services, name="mine", code=STEP)["text"].endswith("rewards/mine.py")
    handlers.save_code(services, name="trl:accuracy_reward", code=builtin_row("trl:accuracy_reward").code)
    assert handlers.saved_names(services) == saved_rewards(tmp_path) == ["accuracy_reward", "mine"]

    def added(path: str, draft: PageState) -> View:
        return next(add("file", {"path": path}, "", draft, services, "tab"))

    draft = draft_of(builtin_row("step_correctness"))
    row, instead = added("mine", draft).made
    assert (row.name, row.code, instead) == ("mine", STEP, "")
    before = own_row("def mine(prompt, step, **c):\n    return 0.0\n").with_edits({"on": False, "weight": 0.5})
    row, instead = added(f"{tmp_path}/rewards/mine.py::mine", draft.with_row(before)).made
    assert (row.code, row.weight, row.on) == (STEP, 0.5, False)  # in its namesake's place
    assert instead == before.key != row.key

    (tmp_path / "rewards" / "mine.py").write_bytes(b"\xff")
    assert "UTF-8" in added("mine", draft).note.text


def sent(draft: PageState, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """The list as the page sends it, with some fields of rows changed, by their names."""
    listed = json.loads(handlers.list_value(draft))
    rows = [row | changes.get(row["name"], {}) for row in listed["rows"]]
    return {**listed, "rows": rows, "editing": "", "number": 1}


def test_the_list_that_the_page_sends_is_the_list() -> None:
    draft = draft_of(builtin_row("step_correctness"), builtin_row("answer_correctness"), own_row(STEP), row_of(JUDGE))
    assert draft.with_rewards(sent(draft), {}) == draft  # nothing was changed
    code = "def other(prompt, step, **columns):\n    return 0.5\n"
    changed = sent(
        draft,
        step_correctness={"on": False, "weight": 0.5},
        answer_correctness={"schedule": "0:2, 60:0"},
        mine={"code": code, "weight": None},
    )
    after = draft.with_rewards({**changed, "outcome_weight": 0.25}, {})
    steps, answer, mine, judge = after.rows
    assert (steps.on, steps.weight, steps.is_builtin) == (False, 0.5, True)
    assert (answer.schedule, answer.weight, answer.config().points) == ("0:2,60:0", 2.0, ((0, 2.0), (60, 0.0)))
    assert (mine.name, mine.code, mine.weight, mine.config().weight) == ("other", code, None, 1.0)
    assert (judge.config(), after.credit["outcome_weight"]) == (JUDGE, 0.25)
    outcome = draft.but(credit={"scheme": "outcome"}).with_rewards({**changed, "outcome_weight": 0.25}, {})
    assert outcome.credit == {"scheme": "outcome"}  # which is the final answer, and weighs nothing beside it


def test_what_replaces_the_list_keeps_the_keys_of_rows_that_stay() -> None:
    """The page keeps its own version of a key it knows: an edit that is on its way survives, one before an undo not."""
    tab = Tab(draft_of(builtin_row("step_correctness"), builtin_row("answer_correctness")))
    before = tab.draft
    steps, answer = before.rows
    tab.set_rewards({**sent(before, step_correctness={"weight": 0.5}), "number": 7, "editing": ""}, {})
    assert [row.key for row in tab.draft.rows] == [steps.key, answer.key]
    edited = tab.draft
    tab.hold(edited, edited.with_row(own_row(STEP)))
    assert [row.key for row in tab.draft.rows[:2]] == [steps.key, answer.key]
    tab.hold(tab.draft, before)  # undo
    assert (tab.draft.rows, tab.draft.rows[1].key) == (before.rows, answer.key)
    assert tab.draft.rows[0].key != steps.key


def test_a_list_that_a_later_one_overtook_changes_nothing() -> None:
    tab = Tab(draft_of(builtin_row("step_correctness"), builtin_row("answer_correctness")))
    older, newer = (sent(tab.draft, step_correctness={"weight": weight}) for weight in (0.25, 0.5))
    tab.set_rewards({**newer, "number": 2, "editing": "a"}, {})
    tab.set_rewards({**older, "number": 1, "editing": ""}, {})
    assert (tab.draft.rows[0].weight, tab.rewards_told, tab.editing) == (0.5, 2, "a")
    # A button brings the list as well: what its own event has yet to bring, never what was replaced since.
    tab.hold(tab.draft, tab.draft.but(rows=()))
    for listed in ({**newer, "number": 2, "editing": "a"}, json.loads(handlers.list_value(tab.draft, 3))):
        tab.set_rewards(listed, {})
        assert tab.draft.rows == ()
    tab.set_rewards({**older, "number": 3, "editing": ""}, {})
    assert tab.draft.rows[0].weight == 0.25


def test_the_weight_of_the_answer_outlasts_a_scheme_that_has_none() -> None:
    tab = Tab(draft_of())
    tab.set_rewards({**sent(tab.draft), "outcome_weight": 0.5, "number": 1, "editing": ""}, {})
    tab.choose("method.credit.scheme", "outcome")
    assert "outcome_weight" not in tab.draft.credit
    tab.choose("method.credit.scheme", "position")
    assert tab.draft.credit == {"scheme": "position", "outcome_weight": 0.5}


def test_a_call_that_is_cancelled_says_so(services: Services) -> None:
    with ThreadPoolExecutor() as pool:
        assert handlers.rewards_running(services, tab="t") == ""
        loops = draft_of(own_row("def mine(prompt, step, **columns):\n    while True:\n        pass\n"))
        scoring = pool.submit(rescore, loops, services.reward_worker("t", 120.0))
        wait_for(lambda: handlers.rewards_running(services, tab="t").startswith("reward 'mine' running"), "its call")
        handlers.cancel_rewards(services, tab="t")
        assert "cancelled" in scoring.result().rows[0].text
        assert rescore(draft_of(own_row(STEP)), services.reward_worker("t")).credit is not None


def said(draft: PageState, view: ScoringView, editing: str = "") -> Any:
    watched = None if view.credit is None else handlers.watch_group(draft, view.credit.scored, CallTimes())
    return handlers.rewards_said(draft, view, watched, editing)


def test_under_each_row_stands_what_its_function_returned(worker: Sandbox) -> None:
    off = replace(builtin_row("tag_format"), on=False)
    draft = draft_of(builtin_row("step_correctness"), own_row(STEP), off)
    view = rescore(draft, worker)
    right, mine, tags = said(draft, view)["rows"].values()
    # The group that comes with the embedded policy: 48 steps, 7 of them wrong.
    assert ["85 %" in right["text"], "1.00" in mine["text"], "off" in tags["text"]] == [True] * 3
    watched = handlers.watch_group(draft, view.credit.scored, CallTimes())
    functions = json.loads(message(**handlers.watch_payload(watched)))["functions"]
    assert [one["name"] for one in functions] == ["step_correctness", "mine"]
    assert functions[1]["rows"] == [1.0] * 8


def test_beside_the_code_stands_what_each_step_got(worker: Sandbox) -> None:
    draft = draft_of(
        builtin_row("step_correctness"),
        builtin_row("answer_correctness"),
        own_row(STEP.replace("1.0", "1 / 0")),
    )
    steps, answers, broken = (row.key for row in draft.rows)
    working = draft.but(rows=(*draft.rows[:2], draft.rows[2].with_edits({"on": False})))
    view = rescore(working, worker)
    editor = said(draft, view, steps)["editor"]
    assert editor["said"] == "step_correctness scores 41 of 48 steps 1 and 7 steps 0"
    third = editor["rollouts"][2]
    assert (third["name"], third["verdict"]) == ("Rollout 3", "wrong")
    assert third["steps"][:2] == [("Step 1: 7 + 3 = 0", 0.0, True), ("Step 2: 0 * 8 = 0", 1.0, False)]
    assert "4 of 8 answers 1" in said(draft, view, answers)["editor"]["said"]
    wrong = said(draft, rescore(draft, worker), broken)
    assert (wrong["editor"]["wrong"]["line"], list(wrong["rows"])) == (2, [broken])  # the others stay as they were


PRINTS = """def mine(prompt, step, **columns):
    if step.strip().endswith("88"):
        print("saw", step.split()[0], end="")
    return 1.0
"""
AT_ONCE = "def mine(prompts, completions, **columns):\n    print(len(completions))\n    return [1.0] * len(prompts)\n"


def test_what_a_reward_printed_stands_under_the_rollout_it_was_scoring(worker: Sandbox) -> None:
    draft = draft_of(builtin_row("step_correctness"), own_row(PRINTS))
    view = rescore(draft, worker)
    editor = said(draft, view, draft.rows[1].key)["editor"]
    # Rollout 1: steps 3 (80 + 8 = 88), 5 (81 + 7 = 88) and its answer, 88.
    printed = [one["printed"] for one in editor["rollouts"]]
    texts = [rollout.text.split("\n") for rollout in first_group().rollouts]
    assert printed[0] == "saw Stepsaw Stepsaw Answer:"
    assert printed == ["".join(f"saw {line.split()[0]}" for line in row if line.endswith("88")) for row in texts]
    assert editor["printed"] == ""

    whole = draft_of(builtin_row("step_correctness"), own_row(AT_ONCE))
    editor = said(whole, rescore(whole, worker), whole.rows[1].key)["editor"]
    assert (editor["printed"], {one["printed"] for one in editor["rollouts"]}) == ("8", {""})

    fails = PRINTS.replace("return 1.0", "return 1 / (': 0 * 8' not in step)")  # at rollout 3, step 2
    failing = draft_of(builtin_row("step_correctness"), own_row(fails))
    wrong = said(failing, rescore(failing, worker), failing.rows[1].key)["editor"]
    assert wrong["wrong"]["line"] == 4
    assert [(one["name"], one["printed"]) for one in wrong["rollouts"]] == [
        ("Rollout 1", "saw Stepsaw Stepsaw Answer:"),
        ("Rollout 2", "saw Stepsaw Stepsaw Answer:"),
    ]
