"""Answers to held-out rows: stored at the first and newest measure, and compared on the page."""

from pathlib import Path

from tests.stored_runs import store
from workbench.schema import HeldOutAnswer
from workbench.ui.handlers.run_follow import problems


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


def test_the_page_is_told_both_answers_of_each_problem_or_why_not(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    run.answers.write(0, answers(False, True))
    assert problems(tmp_path, "a")["error"] == (  # type: ignore[typeddict-item]
        "run 'a' has measured accuracy 1 times; answers are compared from 2 on"
    )
    run.answers.write(8, answers(True, True))
    told = problems(tmp_path, "a")
    assert "error" not in told
    assert (told["before"], told["now"], [row["now"].prompt for row in told["rows"]]) == (
        0,
        8,
        ["problem 0", "problem 1"],
    )
    assert told["rows"][0] == {"before": answers(False)[0], "now": answers(True)[0]}
    run.answers.write(8, answers(True))
    assert "measured on other rows at step 0 than at 8" in problems(tmp_path, "a")["error"]  # type: ignore[typeddict-item]
    assert "no run 'gone'" in problems(tmp_path, "gone")["error"]  # type: ignore[typeddict-item]
