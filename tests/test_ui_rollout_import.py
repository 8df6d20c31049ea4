"""Opening people's own rollouts on the page, without a browser."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from tests.drafts import draft_of, own_row
from workbench.rewards import Sandbox
from workbench.ui.handlers import rollout_import as importing
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.reward_rows import SLOTS, builtin_row
from workbench.ui.handlers.rollout_import import (
    ImportForm,
    Readings,
    check_rewards,
    choose_group,
    group_rows,
    open_file,
    suggested_task,
    with_suggestions,
)
from workbench.ui.handlers.scoring import Note, rescore

ROWS = [{"prompt": "2 + 2?", "completion": f"Step 1: 2 + 2 = {n}"} for n in (4, 5)]
LINES = {"regex": r"\n+", "kind": "ends"}


@pytest.fixture(scope="module")
def worker():
    with Sandbox() as worker:
        yield worker


def opened(tmp_path, **form):
    readings = Readings()
    views = list(open_file(ImportForm(**{"path": "gsm8k", **form}), tmp_path, readings, "tab"))
    assert readings.begin("tab") is not None  # whatever happened, the tab is free again
    return views


def scoring_form(imported) -> Draft:
    """The page with the rewards that fit the data, and a pattern of lines."""
    return with_suggestions(draft_of(None), imported).with_pattern(**LINES)


def test_data_that_comes_along_is_opened_with_progress_and_scored(tmp_path, worker):
    views = opened(tmp_path)
    assert [view.running for view in views] == [True] * (len(views) - 1) + [False]
    imported = views[-1].imported
    assert views[-1].note.text == "300 groups, 300 rows · format gsm8k · tokenizer tiny"
    assert "treated as complete" in views[-1].note.detail
    assert group_rows(imported)[1][:3] == ["2", "4", "3 of 4"]
    assert with_suggestions(draft_of(), imported).regex == r"\n+"
    chosen = choose_group(scoring_form(imported), imported, 1)
    assert chosen.where == "group 2 of 300"
    draft = chosen.draft
    assert draft.group == imported.groups[1]
    assert draft.text == imported.groups[1].prompt
    assert [row.name for row in draft.rows if row] == ["calculator_notes", "gsm8k_answer"]
    assert len(draft.rows) == SLOTS
    view = rescore(draft, worker)
    assert (view.note, view.pattern) == (None, None)
    drawn = json.loads(view.drawing)
    assert drawn["other"] == ""
    assert drawn["about"] == "read from model-solutions-300.jsonl, tokenizer tiny"
    assert [rollout["outcome"] for rollout in drawn["show"]["rollouts"]] == [1.0, 1.0, 0.0, 1.0]


def test_groups_go_round_at_the_ends(tmp_path):
    imported = opened(tmp_path)[-1].imported
    assert choose_group(draft_of(), imported, 0, by=-1).index == 299
    assert choose_group(draft_of(), imported, 299, by=1).index == 0
    assert choose_group(draft_of(), None, 0) == Note("Open a file first.", level="info")


@pytest.mark.parametrize("path", ["mine.jsonl", "sub/../mine.jsonl"])
def test_a_file_of_the_workspace_is_opened(tmp_path, path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.jsonl").write_text('{"prompt": "a", "completion": "1", "reward": 0.5}\n')
    imported = opened(tmp_path, path=path)[-1].imported
    assert group_rows(imported) == [["1", "1", "⌀ 0.50", "a"]]
    assert [reward.name for reward in suggested_task(imported).rewards] == ["given_reward"]


def test_a_log_with_outcome_rewards_alone_opens_in_colour(tmp_path, worker):
    """Under ``outcome``: ``process`` reads step rewards, and gives none any advantage."""
    lines = [json.dumps({**row, "reward": reward}) + "\n" for row, reward in zip(ROWS, (1.0, 0.0), strict=True)]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    imported = opened(tmp_path, path="log.jsonl")[-1].imported
    draft = choose_group(with_suggestions(draft_of(), imported), imported, 0).draft
    assert draft.credit["scheme"] == "outcome"
    drawn = json.loads(rescore(draft, worker).drawing)["show"]["rollouts"]
    assert [rollout["advantages"][0] > 0 for rollout in drawn] == [True, False]
    steps = draft_of(builtin_row("step_correctness")).with_scheme_for_rewards()
    assert steps.credit["scheme"] == "process"
    weighted = replace(draft_of(builtin_row("given_reward")), credit={"scheme": "process", "outcome_weight": 1.0})
    assert weighted.with_scheme_for_rewards() is weighted


def test_bad_rows_of_a_file_can_be_skipped(tmp_path):
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS) + "[1]\n")
    assert "line 3" in opened(tmp_path, path="log.jsonl")[-1].note.text
    view = opened(tmp_path, path="log.jsonl", skip_bad_rows=True)[-1]
    assert len(view.imported.groups[0]) == 2
    assert "1 bad row left out" in view.note.detail


def test_rewards_that_a_file_cannot_feed_are_switched_off(tmp_path, worker):
    """A file with ``reward``, one without anything, one of chain arithmetic, one after the other."""
    mine = own_row("def mine(prompt, step, **columns):\n    return float('4' in step)\n")
    draft = draft_of(builtin_row("step_correctness"), builtin_row("tag_format"), mine)

    def after(draft, **columns):
        (tmp_path / "f.jsonl").write_text("".join(f"{json.dumps(columns | row)}\n" for row in ROWS))
        imported = opened(tmp_path, path="f.jsonl")[-1].imported
        draft = choose_group(with_suggestions(draft, imported), imported, 0).draft
        assert "show" in json.loads(rescore(draft, worker).drawing)
        return draft, [(row.name, row.on) for row in draft.rows if row]

    draft, rows = after(draft, reward=1.0)
    assert rows == [("given_reward", True), ("mine", True)]
    draft, rows = after(draft)
    assert rows == [("given_reward", False), ("mine", True)]
    draft, rows = after(draft, start=2, operations=[["+", 2]], answer="4")
    assert rows == [("step_correctness", True), ("answer_correctness", True), ("mine", True)]
    draft, rows = after(draft)
    assert rows == [("step_correctness", False), ("answer_correctness", False), ("mine", True)]
    draft, rows = after(draft, start=2, operations=[["+", 2]], answer="4")
    assert rows == [("step_correctness", True), ("answer_correctness", True), ("mine", True)]


def test_a_chosen_reward_that_one_file_cannot_feed_is_on_again_with_the_next():
    """Unless somebody has switched it off meanwhile."""
    chosen = builtin_row("math_equality")
    assert chosen.for_data({"answer"}) == chosen
    off = chosen.for_data(set())
    assert (off.on, off.for_data(set()).for_data({"answer", "level"})) == (False, chosen)
    switched = off.with_values(True, 1.0, off.code).with_values(False, 1.0, off.code)
    assert not switched.for_data(set()).for_data({"answer"}).on


def test_one_tab_reads_one_file_at_a_time_and_can_cancel_it(tmp_path, monkeypatch):
    readings = Readings()
    started, go_on = threading.Event(), threading.Event()

    def slow(source, *, on_event, cancelled, **how):
        on_event({"done": 1, "of": 2})
        started.set()
        assert go_on.wait(60)
        assert cancelled()
        return importing.Imported((), importing.Facts("plain", 0))

    monkeypatch.setattr(importing, "read_groups", slow)
    views = open_file(ImportForm("gsm8k"), tmp_path, readings, "tab")
    assert next(views).note.text == "reading …"
    assert next(views).note.text.startswith("1 of 2 groups · ")
    assert started.wait(60)
    [busy] = open_file(ImportForm("gsm8k"), tmp_path, readings, "tab")
    assert "reading or checking already" in busy.note.text
    assert busy.running is None  # the buttons stay as the first one set them
    readings.cancel("another tab")
    readings.cancel("tab")
    go_on.set()
    last = list(views)[-1]
    assert (last.note.text, last.imported) == ("Cancelled; nothing was opened.", None)
    assert readings.opened("tab") is None


# ── checking rewards ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_pages_rewards_are_held_against_the_labels(tmp_path, worker):
    imported = opened(tmp_path)[-1].imported
    views = list(check_rewards(imported, scoring_form(imported), "0.5", worker, Readings(), "tab"))
    assert [view.running for view in views] == [True] * (len(views) - 1) + [False]  # it can be cancelled till its end
    notes, answer = views[-1].rows
    assert notes == ("calculator_notes", "completions", "1192", "8", "0.510", "40.7% from 0.5", "–")
    assert answer == ("gsm8k_answer", "completions", "1200", "0", "1.000", "100.0% from 0.5", "–")
    assert len(views[-1].worst) == len(views[-1].places) == 20
    group, rollout = views[-1].places[0]
    row = views[-1].worst[0]
    assert (row[1], row[2]) == (str(group + 1), str(rollout + 1))
    text = imported.groups[group].rollouts[rollout].text
    assert row[6].split(" ↵ ")[0] == text.split("\n")[0][: importing.SHOWN - 1] or row[6].endswith("…")


def test_labels_of_steps_give_a_first_error_f1(tmp_path, worker):
    imported = opened(tmp_path, path="chain-arithmetic", tokenizer="words")[-1].imported
    view = list(check_rewards(imported, scoring_form(imported), "", worker, Readings(), "tab"))[-1]
    assert [(row[0], row[1], row[4], row[6]) for row in view.rows] == [
        ("step_correctness", "steps", "1.000", "100.0%"),
        ("answer_correctness", "completions", "1.000", "–"),
    ]
    assert view.worst == ()
