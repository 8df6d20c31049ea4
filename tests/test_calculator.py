"""The task ``calculator``: its environment, its problems and its noisy teacher."""

import random
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.tiny_tools.teacher import lessons, noisy_episode
from workbench.data import load_task
from workbench.data.chain_arithmetic import is_held_out
from workbench.data.chain_arithmetic import large_chain as chain
from workbench.rewards.answers import work_out_call
from workbench.rewards.environments import ERROR, Calculator
from workbench.training.methods import fill_from_task

# -- the environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "observation"),
    [
        ("call: 37*8\n", "= 296\n"),
        ("call: (37+5)*8 - -4", "= 340\n"),
        ("call: 7/2\n", "= 3.5\n"),
        ("call: 1/3\n", "= 0.333333\n"),
        ("call: 007*3\n", "= 21\n"),
        ("Answer: 296", None),
        ("Answer: 296\n", None),
        ("call: 1/0\n", ERROR),
        ("call: 2**64\n", ERROR),
        ("call: 37 8\n", ERROR),
        ("call: (37\n", ERROR),
        ("call: __import__('os')\n", ERROR),
        ("call:\n", ERROR),
        ("call: 999999999*999999999\n", ERROR),  # over 10**15
        (f"call: {'(' * 90}1{')' * 90}\n", "= 1\n"),
        (f"call: {'(' * 100_000}\n", ERROR),
        ("Let me see.\n", ERROR),
        ("", ERROR),
    ],
)
def test_the_calculator_answers_arithmetic_and_nothing_else(turn: str, observation: str | None) -> None:
    calculator = Calculator()
    calculator.reset("Start with 37, multiply by 8.\n", answer="296")
    assert calculator.reply(turn) == observation


sums = st.recursive(
    st.integers(0, 999).map(str),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from("+-*/"), part).map("".join), part.map("({})".format), part.map("-{}".format)
    ),
    max_leaves=8,
)


@given(sums)
def test_sums_are_worked_out_as_python_works_them_out(text: str) -> None:
    try:
        expected = eval(re.sub(r"\d+", lambda number: f"Fraction({int(number[0])})", text))
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            work_out_call(text)
        return
    if len(text) <= 200:
        assert work_out_call(text) == expected


# -- the task ------------------------------------------------------------------------------------------------------


def test_the_calls_of_a_problem_lead_to_its_answer() -> None:
    task = load_task("calculator")
    for rows in (task.examples, task.held_out):
        for row in rows[:50]:
            results = [work_out_call(call) for call in row.columns["calls"]]
            assert str(results[-1]) == row.columns["answer"]
            assert all(0 <= result <= 99_999 for result in results)
            for call, before in zip(row.columns["calls"][1:], results, strict=False):
                assert call.startswith(str(before))


def test_held_out_problems_are_never_trained_on_nor_taught() -> None:
    assert not any(is_held_out(chain(i)) for i in range(300))
    assert all(is_held_out(chain(i, held_out=True)) for i in range(300))
    held_out = {row.prompt for row in load_task("calculator").held_out}
    taught = lessons(0)
    assert held_out.isdisjoint(next(taught)[0][0] for _ in range(300))


def test_the_noisy_teacher_is_right_in_six_of_ten_episodes() -> None:
    rng = random.Random(2)
    right = [noisy_episode(chain(i), rng)[-1][0] == f"Answer: {chain(i).answer}" for i in range(600)]
    assert sum(right) / len(right) == pytest.approx(0.63, abs=0.06)
    assert all(Fraction(chain(i).answer) <= 99_999 for i in range(600))


def test_the_task_brings_its_environment_its_policy_and_a_step_a_turn() -> None:
    data: dict[str, Any] = {"task": {"name": "calculator"}}
    fill_from_task(data)
    assert (data["environment"]["name"], data["policy"]["path"]) == ("calculator", "tiny-tools")
    assert data["method"]["pattern"]["kind"] == "turns"
    assert [reward["name"] for reward in data["method"]["rewards"]] == [
        "call_needed", "observation_used", "answer_correctness"
    ]  # fmt: skip
    stated: dict[str, Any] = {"task": {"name": "calculator"}, "policy": {"path": "run:mine"}}
    fill_from_task(stated)
    assert stated["policy"]["path"] == "run:mine"
