"""Steps labelled by hand: kept in the workspace, written in layouts that our own readers read back, held to rewards."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.checks.reward_check import check_reward
from workbench.data import group_of, load_groups, load_task
from workbench.data.hand_labels import HandLabelled, HandLabels
from workbench.errors import ConfigError
from workbench.rewards import score_group
from workbench.steps import StepPattern
from workbench.ui.handlers import labels as handlers

PROMPT = "Start with 3. Add 4. Double it."
TEXT = "Step 1: 3 + 4 = 7\nStep 2: 7 * 2 = 15\nAnswer: 15 \U0001f642"
STEPS = [(0, 18), (18, 37), (37, 49)]  # one character beyond the basic plane, which is one here


@pytest.fixture
def labels(tmp_path: Path) -> HandLabels:
    """Right, wrong, and nothing said of the last step."""
    labels = HandLabels(tmp_path)
    labels.mark(PROMPT, TEXT, STEPS, 0, 1)
    labels.mark(PROMPT, TEXT, STEPS, 1, -1)
    return labels


def kept(labels: HandLabels) -> HandLabelled:
    labelled = labels.of(PROMPT, TEXT)
    assert labelled is not None
    return labelled


def test_labels_are_kept_undone_and_stay_with_their_span(tmp_path: Path, labels: HandLabels) -> None:
    assert kept(HandLabels(tmp_path)).ratings == [1, -1, None]
    labels.mark(PROMPT, TEXT, STEPS, 1, None)
    assert kept(labels).ratings == [1, None, None]
    labels.mark(PROMPT, TEXT, STEPS, 1, 0)
    labels.mark(PROMPT, TEXT, [(0, 37), (37, 49)], 1, 1)  # a pattern that cuts otherwise, and back
    assert kept(labels).ratings == [None, 1]
    labels.mark(PROMPT, TEXT, STEPS, 2, None)
    assert kept(labels).ratings == [1, 0, None]
    for k in (0, 1):
        labels.mark(PROMPT, TEXT, STEPS, k, None)
    assert labels.of(PROMPT, TEXT) is None
    assert labels.table.read_text() == ""


def test_a_scored_group_takes_the_labels_of_the_same_spans(labels: HandLabels) -> None:
    group = group_of(PROMPT, [TEXT, TEXT.replace("15", "14")])
    pattern = StepPattern(r"(?m)^(?:Step \d+|Answer):")
    scored = score_group(group, pattern, [])
    assert labels.of_group(scored).labels == ((True, False, None), (None, None, None))
    labels.mark(PROMPT, TEXT, STEPS, 1, 0)
    assert labels.of_group(scored).steps_right[0][:2] == [True, True]
    other = score_group(group, StepPattern(r"\n", "ends"), [])
    assert labels.of_group(other).labels[0][:2] == (True, True)
    assert labels.of_group(replace(scored, group=replace(group, prompt="another"))).labels == ()


@pytest.mark.parametrize("layout", ["stepwise", "prm800k"])
def test_what_is_written_is_read_back_by_our_own_readers(tmp_path: Path, labels: HandLabels, layout: str) -> None:
    labels.mark(PROMPT, TEXT, STEPS, 2, 0)
    path = tmp_path / "labels.jsonl"
    path.write_text(labels.text(layout))
    (group,) = load_groups(str(path))
    assert group.prompt == PROMPT
    assert group.rollouts[0].columns["labels"] == [1.0, 0.0, 1.0]  # neutral is not wrong
    assert group.rollouts[0].columns["labelled_steps"] == [TEXT[a:b].strip() for a, b in STEPS]
    (row,) = [load_task(str(path))[0].columns]
    assert row["labels"] == [1.0, 0.0, 1.0]


def test_the_table_is_what_a_reward_is_checked_against(labels: HandLabels) -> None:
    """Two steps have a label. A length of at least 0.5 says "right" of both, so it agrees on one of two."""
    (group,) = load_groups(str(labels.table))
    check = check_reward([group], lambda prompt, step, **columns: float(len(step)), threshold=0.5)
    assert (check.items, check.count, check.right) == ("steps", 2, 1)
    assert check.given is not None
    assert check.given.share == 0.5


def test_a_damaged_file_hides_no_other(tmp_path: Path, labels: HandLabels) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"prompt": "", "completion": "", "steps": 3, "labels": []}')):
        (tmp_path / "labels" / f"{name}.json").write_text(text)
    assert [labelled.prompt for labelled in labels.completions()] == [PROMPT]


def test_the_page_asks_marks_and_saves(tmp_path: Path, labels: HandLabels) -> None:
    asked = (tmp_path, PROMPT, TEXT, STEPS)
    answer = handlers.mark_step(*asked, 2, 0)
    assert answer["error"] == ""
    assert answer["completions"][0][2] == {"start": 37, "end": 49, "label": 0}
    group = handlers.labels_of(tmp_path, PROMPT, ["another", TEXT])
    assert [len(listed) for listed in group["completions"]] == [0, 3]
    file = handlers.labels_file(tmp_path, "prm800k")
    assert json.loads(file["text"])["label"]["steps"][1]["completions"][0]["rating"] == -1
    assert "there is no step 10" in handlers.mark_step(*asked, 9, 0)["error"]
    with pytest.raises(ConfigError, match="layout 'csv' is unknown"):
        handlers.labels_file(tmp_path, "csv")
