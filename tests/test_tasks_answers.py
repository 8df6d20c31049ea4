"""Golds of a task's rows: which are compared, by which reader, and what is said where none can be."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

import workbench as wb
from workbench.data import Task, preview_of
from workbench.errors import TaskError, WorkbenchError
from workbench.rewards import score_group
from workbench.runs.check import checked
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig

OWN = [{"problem": f"{n} trays of 402?", "answer": str(402 * n)} for n in range(1, 13)]
COUNTDOWN = {
    "data_source": "countdown",
    "prompt": [{"role": "user", "content": "Make 6 of 1, 2, 3."}],
    "reward_model": {"style": "rule", "ground_truth": {"numbers": [1, 2, 3], "target": 6}},
}


def put(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def by_reward(task: Task, index: int, text: str) -> float | None:
    """What the task's own reward gives an answer."""
    rollout = Rollout(tuple(range(len(text))), tuple(text), finished=False)
    group = Group(task[index].prompt, (rollout,), task[index].columns)
    return score_group(group, StepPattern(r"\n", kind="ends"), task.rewards).scored[0].outcome


@pytest.mark.parametrize(
    "text", [r"so $3\cdot402=\boxed{1206}$", "The answer is 1206.", "**1206**", "Answer: 1206", "#### 1206"]
)
@pytest.mark.parametrize("checker", [None, "math_equality"])
def test_own_rows_are_right_in_any_form(tmp_path: Path, text: str, checker: str | None) -> None:
    task = wb.load_task(put(tmp_path / "own.jsonl", OWN), checker=checker)
    assert task.checked(text, task[2].columns) == (True, "1206")
    assert task.checked(text.replace("1206", "1205"), task[2].columns) == (False, "1205")
    assert by_reward(task, 2, text) == 1.0
    assert by_reward(task, 1, text) == 0.0


def test_which_reader_checks_can_be_chosen(tmp_path: Path) -> None:
    path = put(tmp_path / "own.jsonl", OWN)
    assert wb.load_task(path, checker="gsm8k_answer").checked("**402**", {"answer": "402"}) == (False, "")
    assert wb.load_task("chain-arithmetic", checker="gsm8k_answer").checker == "gsm8k_answer"
    assert not wb.load_task(path).answer_is_right("I do not know.", {"answer": "402"})
    assert wb.load_task(path).checked("I do not know.", {"answer": "402"}) == (False, "")
    latex = wb.load_task(put(tmp_path / "latex.jsonl", [{"prompt": "p", "answer": r"\frac{x}{2}"}] * 2))
    assert (latex.checker, latex.rewards[0].name) == ("math_equality", "math_equality")
    assert latex.answer_is_right(r"\boxed{x/2}", latex[0].columns)


def test_any_of_a_list_of_golds_is_right(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "answer": [5, "five"]}] * 3
    task = wb.load_task(put(tmp_path / "lists.jsonl", rows))
    assert task[0].columns["answer"] == ["5", "five"]
    assert [by_reward(task, 0, f"Answer: {claim}") for claim in ("5.0", "Five", "6")] == [1.0, 1.0, 0.0]


def test_an_object_is_compared_with_no_text_and_that_is_said(tmp_path: Path) -> None:
    row = {**COUNTDOWN, "reward_model": {"ground_truth": {"cells": [1, 2, 3]}}}
    path = put(tmp_path / "grid.jsonl", [row] * 12)
    policy = {"prompt": {"apply_template": "never"}, "method": {"prompts_per_step": 2}}
    task = wb.load_task(path)
    assert (task.can_check, task.rewards) == (False, ())
    assert task[0].columns["answer"] == {"cells": [1, 2, 3]}
    assert "a reward must be chosen" in preview_of(task).said
    with pytest.raises(TaskError, match=r"object.*choose a reward"):
        checked(RunConfig.parse({"task": str(path), **policy}))


def test_a_target_with_numbers_is_judged_by_its_equation(tmp_path: Path) -> None:
    task = wb.load_task(put(tmp_path / "countdown.jsonl", [COUNTDOWN] * 12))
    assert (task.checker, task.can_check) == ("countdown_equation", True)
    assert [reward.name for reward in task.rewards] == ["countdown_equation"]
    assert task.answer_is_right("<answer>1 + 2 + 3</answer>", task[0].columns)
    assert not task.answer_is_right("<answer>6</answer>", task[0].columns)


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"gold_answer": "2", "model_answer": "3", "extracted_answer": "3"}, "2"),
        ({"solution": "One more than 1.", "final_answer": ["2"], "answer_type": "Numerical"}, ["2"]),
        ({"solution": "One more than 1, so \\boxed{2}"}, "One more than 1, so \\boxed{2}"),
        ({"label": 2}, "2"),
        ({"meta": {"ground_truth": 2}}, "2"),
        ({"gold_answer": "2", "target": "3"}, None),
        ({"extracted_answer": "3", "response": {"id": "r1"}}, None),
    ],
)
def test_the_right_answer_is_told_by_the_columns_names(row: dict[str, Any], gold: Any) -> None:
    task = wb.load_task([{"problem": "1 + 1?", **row}] * 2)
    assert (task[0].columns.get("answer"), task.can_check) == (gold, gold is not None)
    assert gold is None or task.answer_is_right(r"\boxed{2}", task[0].columns)
    none = wb.load_task([{"problem": "1 + 1?", **row}] * 2, columns={"answer": ""})
    assert (none[0].columns["answer"], none.can_check) == (None, False)


def test_completions_labelled_false_are_no_demonstrations() -> None:
    rows = [{"prompt": f"{n} + 1?", "completion": str(n + n % 2), "label": n % 2 == 1} for n in range(8)]
    task = wb.load_task(rows, held_out_rows=1, sample_seed=None)
    assert [row.prompt for row in task.rows("demonstrations")] == ["1 + 1?", "3 + 1?", "5 + 1?"]
    assert task.skipped == {"label": 4}
    assert "4 left out by label" in preview_of(task).said
    with pytest.raises(TaskError, match="none of the 4 rows"):
        wb.load_task(rows[::2])
    assert len(wb.load_task([{**row, "label": "2"} for row in rows])) == 7  # of another kind


def test_a_row_without_an_answer_is_named_and_no_other_tasks_reward_is_taken(tmp_path: Path) -> None:
    path = put(tmp_path / "mixed.jsonl", [OWN[0], {"problem": "2?"}, *OWN])
    with pytest.raises(WorkbenchError, match="line 2 has no 'answer'") as caught:
        checked(RunConfig.parse({"task": str(path), "method": {"prompts_per_step": 2}}))
    assert "start" not in str(caught.value)


def test_worked_answers_are_offered_cut_and_whole(tmp_path: Path) -> None:
    """What the GSM8K recipe's own correctness function compares with is the result."""
    task = wb.load_task("gsm8k")

    def correctness(prompts: Any, completions: Any, answer: Any, **columns: Any) -> list[float]:
        claims = [text.split("<answer>")[-1].split("</answer>")[0].strip() for text in completions]
        return [2.0 if claim == right else 0.0 for claim, right in zip(claims, answer, strict=True)]

    rollout = Rollout((1,), ("<answer>72</answer>",), finished=False)
    group = Group(task[0].prompt, (rollout,), task[0].columns)
    assert score_group(group, StepPattern(), [correctness]).scored[0].outcome == 2.0
    own = wb.load_task([{"question": "1 + 1?", "answer": "1 + 1 = 2\n#### 2"}] * 2)
    assert own[0].columns == {"answer": "2", "solution": "1 + 1 = 2\n#### 2"}


@pytest.mark.parametrize("rows", [OWN, Dataset.from_list(OWN)])
def test_rows_in_memory_are_a_task(rows: Any) -> None:
    task = wb.load_task(rows, columns={"prompt": "problem"}, held_out_rows=2, sample_seed=None)
    assert (len(task), len(task.held_out), task[0].prompt) == (10, 2, "1 trays of 402?")
    with pytest.raises(TaskError, match="row 2"):
        wb.load_task([{"prompt": "a"}, {"promt": "b"}])


def test_what_was_extracted_stands_beside_the_score() -> None:
    texts = ("so \\boxed{5}", "no idea")
    rollouts = tuple(Rollout((1,), (text,), finished=False) for text in texts)
    scored = score_group(Group("p", rollouts, {"answer": "5"}), StepPattern(), ["answer_correctness"])
    credit = wb.credit_group(scored, scheme="outcome")
    assert [row["extracted_answers"] for row in credit.to_json()["rollouts"]] == [
        {"answer_correctness": "5"},
        {"answer_correctness": ""},
    ]
    from workbench.views import html, text
    from workbench.views.heatmap import credit_payload

    for shown in (text(credit), html(scored)):
        assert "answer read: 5" in shown
        assert "no answer found" in shown
    assert [rollout["extracted"] for rollout in credit_payload(credit)["rollouts"]] == [
        "answer read: 5",
        "no answer found",
    ]
