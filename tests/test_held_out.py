"""Answers to held-out rows: stored at the first and newest measure, and compared on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stored_runs import store
from workbench.config.run import RunConfig
from workbench.errors import RunError
from workbench.rundir import RunDir
from workbench.rundir.rollouts import MOST_ANSWERS, MOST_CHARACTERS
from workbench.runs import open_run
from workbench.schema import HeldOutAnswer
from workbench.ui.handlers.run_rollouts import problems


def answers(*right: bool) -> list[HeldOutAnswer]:
    return [HeldOutAnswer(f"problem {n}", f"it is {is_right}", is_right, "7") for n, is_right in enumerate(right)]


def test_the_first_and_the_newest_measure_are_kept(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    assert run.answers.steps() == []
    for step in (0, 10, 20):
        run.answers.write(step, answers(step > 0, False))
    assert run.answers.steps() == [0, 20]
    assert run.answers.read(20) == answers(True, False)
    run.answers.write(20, answers(False, False))  # measured once more
    assert run.answers.read(20) == answers(False, False)
    run.drop_rollouts(after=15)  # resumed
    assert run.answers.steps() == [0]


def test_what_is_stored_is_bounded_and_a_damaged_file_is_said(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    run.answers.write(0, [HeldOutAnswer("p" * 9000, "\ud800" * 9000, True)] * 900)
    stored = run.answers.read(0)
    assert (len(stored), len(stored[0].prompt), len(stored[0].text)) == (MOST_ANSWERS, MOST_CHARACTERS, MOST_CHARACTERS)
    (run.path / "answers" / "step-000000.json").write_text('[{"prompt": "p", "text": "7", "right": true}]')
    assert run.answers.read(0) == [HeldOutAnswer("p", "7", True, None)]  # of an earlier version
    (run.path / "answers" / "step-000000.json").write_text('[{"prompt": 1}]')
    with pytest.raises(RunError, match="step 0 cannot be read"):
        run.answers.read(0)


def test_the_page_is_told_both_answers_of_each_problem_or_why_not(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    run.answers.write(0, answers(False, True))
    assert problems(tmp_path, "a")["error"] == (  # type: ignore[typeddict-item]
        "run 'a' has measured accuracy 1 times; answers are compared from 2 on"
    )
    run.answers.write(8, answers(True, True))
    told = problems(tmp_path, "a")
    assert "error" not in told
    assert (told["before"], told["now"], [row["prompt"] for row in told["rows"]]) == (0, 8, ["problem 0", "problem 1"])
    assert told["rows"][0]["before"] == {"text": "it is False", "right": False, "answer": "7"}
    assert told["rows"][0]["now"] == {"text": "it is True", "right": True, "answer": "7"}
    run.answers.write(8, answers(True))
    assert "measured on other rows at step 0 than at 8" in problems(tmp_path, "a")["error"]  # type: ignore[typeddict-item]
    assert "no run 'gone'" in problems(tmp_path, "gone")["error"]  # type: ignore[typeddict-item]


def test_damaged_answers_leave_a_run_without_sentences_and_readable(tmp_path):
    run = RunDir.create(tmp_path, RunConfig(name="told"))
    for step, right in ((0, False), (4, True)):
        run.append_metrics({"step": step, "accuracy": float(right)})
        run.answers.write(step, [HeldOutAnswer("p", "t", right, "1")] * 8)
    said = open_run("told", tmp_path).sentences()
    assert str(said[0]).startswith("Held-out accuracy 0 % → 100 % (+100 ± 0 points): eight newly right")
    (run.path / "answers" / "step-000004.json").write_text("{")
    assert open_run("told", tmp_path).sentences() == []
