"""Text environments: built-in classes in this process, users' code in the sandbox, and all that can go wrong."""

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.tiny_tools.teacher import lessons
from workbench.config import EnvironmentSection
from workbench.data import load_task
from workbench.data.chain_arithmetic import is_held_out
from workbench.data.chain_arithmetic import large_chain as chain
from workbench.errors import EpisodeError
from workbench.rewards import RewardConfig, Sandbox, load_reward
from workbench.rewards.answers import work_out_call
from workbench.rewards.builtin.steps import call_needed, call_parses, observation_used, turns_penalty
from workbench.rewards.environments import ERROR, Calculator, Environment, load_environment
from workbench.rewards.reward import score_completions, score_split
from workbench.schema import Group, Rollout, Step, Turn
from workbench.steps import Split, StepPattern
from workbench.training.methods import fill_from_task

CODE = """
class Counter:
    stop = ("\\n",)

    def reset(self, prompt, **columns):
        self.count = columns.get("start", 0)
        if columns.get("broken"):
            raise KeyError(prompt)

    def reply(self, turn):
        self.count += 1
        if "hang" in turn:
            while True:
                pass
        if "raise" in turn:
            raise ValueError("no such turn")
        if "leave" in turn:
            raise SystemExit
        if "die" in turn:
            import os
            os._exit(3)
        if "print" in turn:
            print("counted", self.count)
        if "number" in turn:
            return self.count
        if "much" in turn:
            return "x" * 2**20
        return None if "end" in turn else f"= {self.count}\\n"

    def state(self):
        return str(self.count)
"""
DICE = """
import random
class Dice:
    stop = ["!"]
    def reset(self, prompt, **columns): pass
    def reply(self, turn): return str(random.SystemRandom().random())
"""


def counter(worker: Sandbox, **settings: Any) -> Environment:
    return load_environment(EnvironmentSection(name="Counter", code=CODE, **settings), lambda: worker)


def test_one_instance_a_row_runs_in_the_worker(worker):
    environment = counter(worker)
    assert environment.stop == ("\n",)
    first, second = environment.begin("Count.", {"start": 5, "left out": object()}), environment.begin("Count.", {})
    assert (first.state, second.state) == ("5", "0")
    assert [first.reply("go").text, second.reply("go").text, first.reply("go").text] == ["= 6\n", "= 1\n", "= 7\n"]
    assert (first.state, second.state) == ("7", "1")
    over = first.reply("end")
    assert (over.text, over.error, over.state) == (None, None, None)


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("raise", r"ValueError at line 16"),
        ("leave", r"SystemExit at line 18"),
        ("number", r"returned 2, a int"),
        ("die", r"exited 3"),
        ("hang", r"deadline of 0.2 s at line 1[34] .* environment.deadline"),
    ],
)
def test_an_environment_that_fails_says_so_and_other_episodes_go_on(worker, turn, said):
    """Also where its process was replaced: the other row's turns are played again."""
    environment = counter(worker, deadline=0.2)
    failing, other = environment.begin("", {}), environment.begin("", {"start": 3})
    assert (failing.reply("go").text, other.reply("go").text) == ("= 1\n", "= 4\n")
    reply = failing.reply(turn)
    assert re.search(said, reply.error), reply.error
    assert (reply.text, failing.reply("go").error) == (None, reply.error)
    assert other.reply("go").text == "= 5\n"


def test_an_environment_of_chance_is_not_played_again(worker):
    environment = load_environment(EnvironmentSection(name="Dice", code=DICE), lambda: worker)
    episode = environment.begin("", {})
    assert episode.reply("roll!").error is None
    worker.close()
    assert "when its turns were played again it answered otherwise" in (episode.reply("roll!").error or "")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "class Counter:\n  stop = 3\n  def reset(self, prompt, **c): ...\n  def reply(self, turn): ...",
            "stop is 3; give",
        ),
        ("class Counter:\n  stop = ()\n  def reply(self, turn): ...", "has no method 'reset'; write 'def reset"),
        ("class Counter:\n  stop = ()\n  def reset(self): ...\n  def reply(self, turn): ...", "cannot take the data's"),
        ("def reply(turn): ...", "the code defines no class"),
        ("class Counter:", "environment 'Counter' does not compile: .* at line 1"),
        ("1 / 0", "the code of environment 'Counter' raised ZeroDivisionError at line 1"),
    ],
)
def test_code_that_defines_no_environment_is_refused(worker, code, said):
    with pytest.raises(EpisodeError, match=said):
        load_environment(EnvironmentSection(name="Counter", code=code), lambda: worker)


class Parrot:
    """Answers with the turn until it is silent."""

    stop = (".",)

    def reset(self, prompt: str, **columns: Any) -> None:
        self.prompt = prompt

    def reply(self, turn: str) -> str | None:
        if "raise" in turn:
            raise ValueError("no")
        return None if turn == "." else f"{self.prompt} {turn}" if "wrong" not in turn else 7  # type: ignore[return-value]


def test_a_class_of_this_process_is_asked_directly():
    environment = load_environment(Parrot)
    assert environment.stop == (".",)
    episode = environment.begin([{"role": "user", "content": "Say"}], {"prompt": "hidden"})
    assert [episode.reply("a.").text, episode.reply(".").text] == ["user: Say a.", None]
    for turn, said in (("raise", "reply raised ValueError: no"), ("wrong", "reply returned 7, a int")):
        failing = environment.begin("Say", {})
        assert (failing.reply(turn).error or "").startswith(said)


# --- what an episode records --------------------------------------------------------------------------------------


RECORDED = Rollout(
    (1, 2, 3, 4, 5, 6),
    ("a", "b", ".", "c", "d", "e"),
    finished=False,
    mask=(1, 1, 1, 0, 0, 1),
    stop=".",
    turns=(
        Turn("assistant", 0, 3, seconds=0.5),
        Turn("environment", 3, 5, seconds=0.1, note="cut"),
        Turn("assistant", 5, 6, state="here"),
    ),
)
"""\"ab.\" sampled, "cd" answered, "e" sampled: two turns."""


def test_turns_are_read_off_records_and_off_a_mask_alike():
    bare = Rollout.from_json({key: value for key, value in RECORDED.to_json().items() if key != "turns"})
    assert bare.turns == ()
    plain = Rollout((1, 2), ("a", "b"), True)
    for row, expected in (
        (RECORDED, (True, [(0, 2), (5, 5)], ["cd", None])),
        (bare, (True, [(0, 2), (5, 5)], ["cd", None])),
        (plain, (False, [(0, 1)], [None])),
    ):
        assert (row.is_episode, row.turn_spans, row.observations) == expected
    assert (RECORDED.turn_states, plain.turn_states) == (["", "here"], [""])
    assert [len(state) for state in bare.turn_states] == [0, 16]
    assert "turns" not in plain.to_json()


def test_turns_travel_as_json_and_must_cover_the_completion():
    data = RECORDED.to_json()
    assert Rollout.from_json(data) == RECORDED
    assert [turn.seconds for turn in Rollout.from_json(data).turns] == [0.5, 0.1, 0.0]
    first, second, third = data["turns"]
    for turns in ([first, third], [first, second]):
        with pytest.raises(ValueError, match="gap"):
            Rollout.from_json(data | {"turns": turns})


# --- rewards of turns -------------------------------------------------------------------------------------------------

TEXTS = ["call: 37*8\n", "= 296\n", "call: ", "296+4\n", "= 300\n", "Answer: 300"]
EPISODE = Rollout(tuple(range(6)), tuple(TEXTS), finished=False, stop="\n", mask=(1, 0, 1, 1, 0, 1))
STEPS = [Step(0, 11), Step(17, 29), Step(35, 46)]
PLAIN = Rollout((7,), ("Answer: 5",), finished=False, stop="\n")
GROUP = Group("Start with 37.", (EPISODE, PLAIN), {"calls": ["37*8", "296+4"], "answer": "300"})
TOLD = "def told(prompt, step, observation, turn, **columns):\n    return turn + len(observation) / 100\n"


def told(prompt: object, step: str, observation: str, turn: int, **columns: Any) -> float:
    assert not {"observation", "turn"} & columns.keys()
    return turn + len(observation) / 100


def told_at_once(
    prompts: object, completions: object, steps: object, observation: Any, turn: Any, **columns: Any
) -> list[list[float]]:
    rows = zip(turn, observation, strict=True)
    return [[n + len(text) / 100 for n, text in zip(*row, strict=True)] for row in rows]


def not_told(prompt: object, step: str, **columns: Any) -> float:
    assert not {"observation", "turn"} & columns.keys()
    return 0.0


def test_a_step_reward_that_names_them_gets_the_observation_before_its_turn_and_the_turns_number(
    worker: Sandbox,
) -> None:
    """In either form, in this process and in the worker, and by the training's call as by the preview's."""
    pasted = load_reward(RewardConfig(name="pasted", kind="step", code=TOLD), worker)
    rewards = [load_reward(told), load_reward(told_at_once), pasted, load_reward(not_told)]
    scored = score_split(GROUP, [Split(STEPS, []), Split([Step(0, 9)], [])], rewards).scored
    expected = [(0.0, 1.06, 2.06), (0.0,)]
    for name in ("told", "told_at_once", "pasted"):
        assert [row.scores[name] for row in scored] == expected, name
    columns = [dict(GROUP.columns)] * 2
    trained, _ = score_completions([GROUP.prompt] * 2, GROUP.rollouts, columns, StepPattern("", "turns"), rewards)
    assert trained[1].scores == scored[1].scores


def test_the_built_in_turn_rewards_of_an_episode() -> None:
    assert [turns_penalty("", "s", turn=turn, free_turns=2) for turn in range(4)] == [0.0, 0.0, -1.0, -1.0]
    names = ["call_parses", "call_needed", "observation_used", "turns_penalty"]
    scores = score_split(GROUP, [Split(STEPS, []), Split([Step(0, 9)], [])], names).scored[0].scores
    assert scores == {
        "call_parses": (1.0, 1.0, None),
        "call_needed": (1.0, 1.0, None),
        "observation_used": (None, 1.0, 1.0),
        "turns_penalty": (-1.0, -1.0, -1.0),
    }


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("call: 37*8\n", 1.0),
        ("call: 37**8\n", 0.0),
        ("call: \n", 0.0),
        ("call: open('x')\n", 0.0),
        ("Let me see.\ncall: 1+1\ncall: 1+\n", 0.0),
        ("Answer: 5", None),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', 1.0),
        ('<tool_call>{"name": "now"}</tool_call>', 1.0),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}', 0.0),
        ('<tool_call>{"arguments": {}}</tool_call>', 0.0),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', 0.0),
    ],
)
def test_call_parses_reads_every_call_of_the_step(step: str, expected: float | None) -> None:
    assert call_parses("", step) == expected


def test_call_needed_counts_a_call_once() -> None:
    steps = [["call: 37 * 8\n", "call: 37*8\n", "call: 37*9\n", "call: 296+4\n", "Answer: 300"], ["call: 1+1\n"]]
    assert call_needed(["", ""], ["", ""], steps, calls=[["37*8", "296+4"], None]) == [[1, 0, 0, 1, None], [None]]


@pytest.mark.parametrize(
    ("step", "observation", "expected"),
    [
        ("call: 296+4\n", "= 296\n", 1.0),
        ("call: 0296+4\n", "= 296\n", 1.0),
        ("call: 2961+4\n", "= 296\n", 0.0),
        ("Answer: 1,296", "= 1296\n", 1.0),
        ("call: 37*8\n", "= 296\n", 0.0),
        ("call: 37*8\n", "= error\n", None),
        ("call: 37*8\n", "", None),
        ("It is 3.5", "= 3.5\n", 1.0),
        ("It is 3", "= 3.5\n", 0.0),
    ],
)
def test_observation_used_looks_for_a_whole_number(step: str, observation: str, expected: float | None) -> None:
    assert observation_used("", step, observation=observation) == expected


# --- the task `calculator`: its environment, its problems and its noisy teacher ---------------------------------------

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


written_sums = st.recursive(
    st.integers(0, 999).map(str),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from("+-*/"), part).map("".join), part.map("({})".format), part.map("-{}".format)
    ),
    max_leaves=8,
)


@given(written_sums)
def test_sums_are_worked_out_as_python_works_them_out(text: str) -> None:
    try:
        expected = eval(re.sub(r"\d+", lambda number: f"Fraction({int(number[0])})", text), {"Fraction": Fraction})
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


def test_the_task_brings_its_environment_its_policy_and_a_step_a_turn() -> None:
    data: dict[str, Any] = {"task": {"name": "calculator"}}
    stated: dict[str, Any] = {"task": {"name": "calculator"}, "policy": {"path": "run:mine"}}
    for filled in (data, stated):
        fill_from_task(filled)
    assert (data["environment"]["name"], data["policy"]["path"]) == ("calculator", "tiny-tools")
    assert data["method"]["pattern"]["kind"] == "turns"
    assert [reward["name"] for reward in data["method"]["rewards"]] == [
        "call_needed", "observation_used", "answer_correctness"
    ]  # fmt: skip
    assert stated["policy"]["path"] == "run:mine"
