"""Rewards of turns: what a step reward is told of its turn, here and in the worker, and the built-in ones."""

from typing import Any

import pytest

from workbench.rewards import RewardConfig, Sandbox, load_reward
from workbench.rewards.builtin.steps import call_needed, call_parses, observation_used, turns_penalty
from workbench.rewards.reward import score_completions, score_split
from workbench.schema import Group, Rollout, Step
from workbench.steps import Split, StepPattern

TEXTS = ["call: 37*8\n", "= 296\n", "call: ", "296+4\n", "= 300\n", "Answer: 300"]
EPISODE = Rollout(tuple(range(6)), tuple(TEXTS), finished=False, stop="\n", mask=(1, 0, 1, 1, 0, 1))
STEPS = [Step(0, 11), Step(17, 29), Step(35, 46)]
PLAIN = Rollout((7,), ("Answer: 5",), finished=False, stop="\n")
GROUP = Group("Start with 37.", (EPISODE, PLAIN), {"calls": ["37*8", "296+4"], "answer": "300"})
CODE = "def told(prompt, step, observation, turn, **columns):\n    return turn + len(observation) / 100\n"


def told(prompt: object, step: str, observation: str, turn: int, **columns: Any) -> float:
    assert "observation" not in columns
    assert "turn" not in columns
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
    pasted = load_reward(RewardConfig(name="pasted", kind="step", code=CODE), worker)
    rewards = [load_reward(told), load_reward(told_at_once), pasted, load_reward(not_told)]
    scored = score_split(GROUP, [Split(STEPS, []), Split([Step(0, 9)], [])], rewards).scored
    expected = [(0.0, 1.06, 2.06), (0.0,)]
    for name in ("told", "told_at_once", "pasted"):
        assert [row.scores[name] for row in scored] == expected, name
    columns = [dict(GROUP.columns), dict(GROUP.columns)]
    trained, _ = score_completions([GROUP.prompt] * 2, GROUP.rollouts, columns, StepPattern("", "turns"), rewards)
    assert trained[1].scores == scored[1].scores


def test_the_built_in_turn_rewards_of_an_episode() -> None:
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
    scores = call_needed(["", ""], ["", ""], steps, calls=[["37*8", "296+4"], None])
    assert scores == [[1.0, 0.0, 0.0, 1.0, None], [None]]


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


def test_turns_penalty_has_free_turns() -> None:
    assert [turns_penalty("", "s", turn=turn, free_turns=2) for turn in range(4)] == [0.0, 0.0, -1.0, -1.0]
