"""Rows made here: steps labelled by hand, pairs and demonstrations of scored groups."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workbench.checks.reward_check import check_reward
from workbench.cli import main
from workbench.config import SamplingConfig
from workbench.data import group_of, load_groups, load_task
from workbench.data.labelled import HandLabels
from workbench.data.made import demonstrations_of, pairs_of, write_made
from workbench.data.rows import Demonstration, Pair
from workbench.policies.load import Policy
from workbench.policies.sampler import sample_groups
from workbench.rewards import score_group
from workbench.schema import Example, Group, Rollout, ScoredGroup, StepScores
from workbench.steps import StepPattern
from workbench.ui.handlers import scoring as handlers

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


def test_labels_are_kept_undone_and_stay_with_their_span(tmp_path: Path, labels: HandLabels) -> None:
    assert HandLabels(tmp_path).of(PROMPT, TEXT).ratings == [1, -1, None]
    labels.mark(PROMPT, TEXT, STEPS, 1, 0)
    labels.mark(PROMPT, TEXT, [(0, 37), (37, 49)], 1, 1)  # a pattern that cuts otherwise, and back
    assert labels.of(PROMPT, TEXT).ratings == [None, 1]
    labels.mark(PROMPT, TEXT, STEPS, 2, None)
    assert labels.of(PROMPT, TEXT).ratings == [1, 0, None]
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
    columns = group.rollouts[0].columns
    assert (group.prompt, columns["labelled_steps"]) == (PROMPT, [TEXT[a:b].strip() for a, b in STEPS])
    assert columns["labels"] == load_task(str(path))[0].columns["labels"] == [1.0, 0.0, 1.0]  # neutral is not wrong


def test_the_table_is_what_a_reward_is_checked_against(labels: HandLabels) -> None:
    """Two steps have a label. A length of at least 0.5 says "right" of both, so it agrees on one of two."""
    (group,) = load_groups(str(labels.table))
    check = check_reward([group], lambda prompt, step, **columns: float(len(step)), threshold=0.5)
    assert (check.items, check.count, check.right, check.given.share) == ("steps", 2, 1, 0.5)


def test_a_damaged_file_hides_no_other(tmp_path: Path, labels: HandLabels) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"prompt": "", "completion": "", "steps": 3, "labels": []}')):
        (tmp_path / "labels" / f"{name}.json").write_text(text)
    assert [labelled.prompt for labelled in labels.completions()] == [PROMPT]


def test_the_page_asks_marks_and_saves(tmp_path: Path, labels: HandLabels) -> None:
    asked = (tmp_path, PROMPT, TEXT, STEPS)
    answer = handlers.mark_step(*asked, 2, 0)
    assert (answer["error"], answer["completions"][0][2]) == ("", {"start": 37, "end": 49, "label": 0})
    listed = handlers.labels_of(tmp_path, PROMPT, ["another", TEXT])["completions"]
    assert list(map(len, listed)) == [0, 3]
    file = handlers.labels_file(tmp_path, "prm800k")
    assert json.loads(file["text"])["label"]["steps"][1]["completions"][0]["rating"] == -1
    assert "there is no step 10" in handlers.mark_step(*asked, 9, 0)["error"]
    with pytest.raises(ValidationError):
        handlers.labels_file(tmp_path, "csv")


# ── pairs and demonstrations ─────────────────────────────────────────────────────────────────────────────────────────


def rollout(text: str, finished: bool = True) -> Rollout:
    return Rollout(token_ids=(5, 1), texts=(text, "") if finished else (text, "…"), finished=finished)


def group_scored(
    *completions: tuple[str, float | None] | tuple[str, float | None, bool], **columns: Any
) -> ScoredGroup:
    group = Group("7 + 5?", tuple(rollout(text, *finished) for text, _, *finished in completions), columns)
    scores = tuple(
        StepScores(steps=(), spans=(), scores={}, rewards=(), outcome_scores={}, outcome=outcome)
        for _, outcome, *_ in completions
    )
    return ScoredGroup(group, scores, ())


FIVE = group_scored(("a", 0.2), ("b", 1.0), ("c", 0.5), ("d", 0.9), ("e", 0.2), answer="12")


def test_pairs_by_hand() -> None:
    """Best over worst, second best over second worst: b over e and d over a; the middle one is in none."""
    best = {"prompt": "7 + 5?", "chosen": "b", "rejected": "e", "chosen_outcome": 1.0, "rejected_outcome": 0.2}
    second = {"prompt": "7 + 5?", "chosen": "d", "rejected": "a", "chosen_outcome": 0.9, "rejected_outcome": 0.2}
    assert pairs_of([FIVE], most=5).rows == [best | {"answer": "12"}, second | {"answer": "12"}]
    assert pairs_of([FIVE], most=1).rows == [best | {"answer": "12"}]
    assert pairs_of([FIVE], most=5, margin=0.75).rows == [best | {"answer": "12"}]  # 0.9 - 0.2 is less


def test_ties_repeats_and_unfinished_completions_make_no_pair() -> None:
    tie = group_scored(("a", 1.0), ("b", 1.0))
    left_out = group_scored(("a", 1.0), ("b", 0.0, False), ("a ", 0.0), (" ", 0.0), ("c", None))
    made = pairs_of([tie, left_out], most=3)
    assert made.rows == []
    assert dict(made.counts) == {
        "groups": 2,
        "completions": 7,
        "groups without a pair": 2,
        "truncated completions": 1,
        "repeated completions": 1,
        "completions without text or outcome": 2,
        "pairs": 0,
    }


def test_demonstrations_are_the_right_completions() -> None:
    made = demonstrations_of([FIVE, group_scored(("a", 0.0))], most=2, threshold=0.5)
    assert [(row["completion"], row["outcome"]) for row in made.rows] == [("b", 1.0), ("c", 0.5)]
    assert made.counts["groups without a demonstration"] == 1
    assert [row["completion"] for row in demonstrations_of([FIVE], most=9).rows] == ["b"]


def test_a_task_is_kept_out_of_the_columns_that_say_a_rows_kind(tmp_path: Path) -> None:
    made = pairs_of([group_scored(("a", 1.0), ("b", 0.0), completion="x", labels=[1], question="y", start=7)], most=1)
    write_made(made, tmp_path / "pairs.jsonl", {})
    task = load_task(str(tmp_path / "pairs.jsonl"))
    assert list(task.rows("pairs")) == [Pair("7 + 5?", "a", "b")]
    assert task[0].columns["start"] == 7


def test_groups_do_not_depend_on_how_many_rows_are_sampled_at_once(random_policy: Policy) -> None:
    examples = [Example(f"Start with {i}, add 5.\n", {"i": i}) for i in range(5)]
    sampling = SamplingConfig(num_generations=2, max_completion_length=6)
    whole = list(sample_groups(random_policy, examples, sampling, seed=3))
    parts = list(sample_groups(random_policy, examples, sampling, seed=3, rows_at_once=4))
    ids, again = ([[one.token_ids for one in group.rollouts] for group in groups] for groups in (whole, parts))
    assert ids == again
    assert [group.columns["i"] for group in parts] == [0, 1, 2, 3, 4]
    assert len(set(map(tuple, ids))) > 1


def test_the_commands_write_rows_that_a_run_can_have_as_its_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group("Start with 7, add 5.\n", tuple(map(rollout, ("Answer: 12", "Answer: 13"))), {"answer": "12"})
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group.to_json()))

    def made(command: str, *argv: str) -> Any:
        assert main([command, "--out", f"{tmp_path}/{command}.jsonl", "--group", str(file), "--json", *argv]) == 0
        return json.loads(capsys.readouterr().out)

    result = made("pairs", "--margin", "0.5")
    assert (result["rows"], result["counts"]["completions"]) == (1, 2)
    assert list(load_task(result["file"]).rows("pairs")) == [Pair(group.prompt, "Answer: 12", "Answer: 13")]
    provenance = json.loads(Path(result["provenance"]).read_text())
    assert (provenance["policy"]["path"], len(provenance["sha256"])) == ("tiny", 64)
    assert {name: provenance[name] for name in ("rewards", "completions_sampled", "limits")} == {
        "rewards": [{"name": "answer_correctness", "kind": "outcome"}],
        "completions_sampled": 0,  # the group was there
        "limits": {"per_group": 1, "margin": 0.5},
    }

    result = made("demonstrations")
    task = load_task(result["file"])
    assert (task.kind, list(task.rows("demonstrations"))) == (
        "demonstrations",
        [Demonstration(group.prompt, "Answer: 12")],
    )
    for wrong, said in (
        (["--out", result["file"], "--group", str(file)], "there already"),
        (["--out", str(tmp_path / "x"), "--reward", "step_correctness"], "'outcome'"),
    ):
        assert main(["pairs", *wrong]) == 2
        assert said in capsys.readouterr().err
