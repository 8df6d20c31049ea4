"""Supervised fine-tuning as a second method: from a run's start to its end, resumed, measured, with an adapter."""

from pathlib import Path
from typing import Any

import pytest

from tests.in_this_process import numbers, trained
from workbench.checks.metrics import find_metric
from workbench.data import load_task
from workbench.data.rows import Demonstration
from workbench.errors import TaskError
from workbench.policies.load import load_policy
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.sft import token_rows
from workbench.ui.handlers.run_follow import describe

SMALL: dict[str, Any] = {
    "seed": 3,
    "method": {"name": "sft", "batch_size": 4, "sampling": {"max_completion_length": 24}},
    "optimiser": {"warmup_steps": 0},
    "run": {"steps": 4, "eval_steps": 2, "eval_prompts": 6, "save_steps": 2, "device": "cpu"},
}


@pytest.mark.training
def test_a_run_by_sft_measures_its_answers(tmp_path: Path) -> None:
    run = trained(RunConfig.parse(SMALL), tmp_path)
    assert run.status().state == "finished", run.status().reason
    rows = numbers(run.dir)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["step"] for row in rows if "accuracy" in row] == [0, 2, 4]
    assert all(row["loss"] > 0 and 0 < row["mean_token_accuracy"] <= 1 for row in rows[1:])
    assert "rollouts" not in rows[1]
    assert run.rollout_steps() == []
    assert run.dir.answers.steps() == [0, 4]  # the first measure and the newest
    answers = run.dir.answers.read(4)
    assert (len(answers), sum(row.right for row in answers) / 6) == (6, rows[4]["accuracy"])
    assert ("rollouts", "none: sft trains on demonstrations") in describe(tmp_path, run.name)["settings"]
    assert run.summary().scheme == "sft"
    load_policy(str(run.dir.checkpoints / "final"))


def test_only_the_completion_has_labels_and_prompts_are_those_of_sampling() -> None:
    from workbench.policies.prompts import encode_prompt

    tokenizer = load_policy("tiny").tokenizer
    (row,) = token_rows(tokenizer, [Demonstration("Start with 7, add 5.\n", "Step 1: 7 + 5 = 12\nAnswer: 12")])
    prompt = encode_prompt(tokenizer, "Start with 7, add 5.\n")
    assert row["input_ids"][: len(prompt)] == prompt
    assert row["labels"][: len(prompt)] == [-100] * len(prompt)
    assert row["labels"][len(prompt) :] == row["input_ids"][len(prompt) :]
    assert tokenizer.decode(row["input_ids"][len(prompt) : -1]) == "Step 1: 7 + 5 = 12\nAnswer: 12"
    assert row["input_ids"][-1] == tokenizer.eos_token_id


def test_every_method_shows_metrics_that_are_explained() -> None:
    shown = [metric for method in METHODS.values() for metric in method.metrics]
    assert [metric for metric in shown if find_metric(metric) is None] == []
    assert METHODS["sft"].summary.startswith("Supervised fine-tuning")


# -- kinds of rows -------------------------------------------------------------------------------------------------


def test_chain_arithmetic_gives_its_teachers_right_answers() -> None:
    task = load_task("chain-arithmetic")
    row = task.rows("demonstrations")[3]
    assert row.prompt == task[3].prompt
    assert task.answer_is_right(row.completion, task[3].columns)
    assert load_task("chain-arithmetic-tags").rows("demonstrations")[0].completion.startswith("<reasoning>")
    with pytest.raises(TaskError, match="labelled steps"):
        load_task("chain-arithmetic-tags").rows("labelled_steps")
