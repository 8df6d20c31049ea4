"""Coroutine functions as rewards, and TRL's ``trainer_state``, ``log_extra`` and ``log_metric``, in every place."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import RewardError
from workbench.rewards import RewardConfig, Sandbox, load_reward, score_group
from workbench.rewards.protocol import Batch
from workbench.schema import Group, RewardKind, Rollout
from workbench.steps import StepPattern
from workbench.training.generation import Member, Share
from workbench.training.trainer import ProcessGRPOTrainer

PATTERN = StepPattern(r";", kind="ends")
GROUP = Group("p", (Rollout((1, 2), ("a;", "bb"), False), Rollout((3,), ("ccc",), False)), {"level": 3})


def coded(worker: Sandbox, kind: RewardKind, code: str) -> Any:
    return load_reward(RewardConfig(name="mine", kind=kind, code=code), worker)


# --- coroutine functions ------------------------------------------------------------------------------------------


AWAITED: dict[RewardKind, tuple[str, list[Any]]] = {
    "step": ("f(prompt, step, **c):\n    await asyncio.sleep(0)\n    return len(step)", [[2.0, 1.0], [3.0]]),
    "outcome": ("f(completions, **c):\n    return await asyncio.to_thread(lambda: [1, 2])", [1.0, 2.0]),
}


@pytest.mark.parametrize("kind", AWAITED)
def test_the_sandbox_awaits_them(worker: Sandbox, kind: RewardKind) -> None:
    code, expected = AWAITED[kind]
    mine = coded(worker, kind, f"import asyncio\nasync def {code}")
    assert mine.waits
    assert mine.score(Batch(["p", "p"], ["a;b", "ccc"], steps=[["a;", "b"], ["ccc"]]))[0] == expected


def test_steps_and_functions_wait_together() -> None:
    """Each of three steps, and two other functions, go on only when all five are under way."""
    under_way = 0
    everybody = asyncio.Event()

    async def meet() -> None:
        nonlocal under_way
        under_way += 1
        if under_way == 5:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 30)

    async def one(prompt: str, step: str, **columns: Any) -> float:
        await meet()
        return 1.0

    async def two(completions: Any, **columns: Any) -> list[float]:
        await meet()
        return [2.0, 2.0]

    async def three(completions: Any, steps: Any, **columns: Any) -> list[list[float]]:
        await meet()
        return [[3.0] * len(texts) for texts in steps]

    scored = score_group(GROUP, PATTERN, [one, two, three])
    assert (scored.step_rewards, scored.outcomes) == ([[4.0, 4.0], [4.0]], [2.0, 2.0])


def test_the_first_step_that_fails_is_named_with_its_line() -> None:
    code = "async def f(prompt, step, **c):\n    if step != 'a;':\n        raise SystemExit('no ' + step)\n    return 1"
    with Sandbox() as worker:
        with pytest.raises(RewardError, match=r"raised SystemExit for rollout 1, step 2 \('bb'\) at line 3") as caught:
            coded(worker, "step", code).score(Batch(["p"], ["a;bb"], steps=[["a;", "bb"]]))
    assert (caught.value.line, caught.value.rollout, caught.value.step) == (3, 0, 1)


# --- what TRL's trainer passes ------------------------------------------------------------------------------------

TELLING = """
def f(prompts, completions, trainer_state, log_extra, log_metric, **columns):
    log_extra("why", [text.upper() for text in completions])
    log_metric("half", len(completions) / 2)
    return [trainer_state.global_step / trainer_state.max_steps for _ in completions]
"""
OF_STEPS = """
def f(prompts, completions, steps, log_extra, **columns):
    log_extra("first", [[step[0] for step in texts] for texts in steps])
    return [[1 for step in texts] for texts in steps]
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_a_preview_is_before_the_first_step_and_keeps_what_is_logged(worker: Sandbox, sealed: bool) -> None:
    def loaded(kind: RewardKind, code: str, name: str) -> Any:
        if sealed:
            return load_reward(RewardConfig(name=name, kind=kind, code=code), worker)
        space: dict[str, Any] = {}
        exec(code, space)
        space["f"].__name__ = name
        return space["f"]

    rewards = [loaded("outcome", TELLING, "a"), loaded("step", OF_STEPS, "b")]
    scored = score_group(GROUP, PATTERN, rewards)
    assert scored.outcomes == [0.0, 0.0]
    assert [row.logged for row in scored.scored] == [
        {"a": {"why": "A;BB"}, "b": {"first": ("a", "b")}},
        {"a": {"why": "CCC"}, "b": {"first": ("c",)}},
    ]
    assert scored.rewards[0].metrics == {"half": [1.0]}
    assert [row.get("logged") for row in scored.rows(0)] == [{"b": {"first": "a"}}, {"b": {"first": "b"}}]


def test_a_trainers_state_reaches_the_worker(worker: Sandbox) -> None:
    state = SimpleNamespace(global_step=3, max_steps=4, callback=print, log_history=[{"step": i} for i in range(99)])
    reward = coded(worker, "outcome", TELLING)
    assert reward.score(Batch(["p"], ["a"], trainer_state=state))[0] == [0.75]
    history = "def f(completions, trainer_state, **c): return [trainer_state.log_history[-1]['step']]"
    assert coded(worker, "outcome", history).score(Batch(["p"], ["a"], trainer_state=state))[0] == [98.0]


def test_a_rank_tells_trl_what_was_logged_of_its_completions() -> None:
    scored = score_group(GROUP, PATTERN, [_twice("a"), _twice("b")])
    members = [Member("p", {}, r, s) for r, s in zip(GROUP.rollouts, scored.scored, strict=True)]
    told: list[Any] = []
    trainer = SimpleNamespace(
        _log_completion_extra=lambda column, values: told.append((column, values)),
        _log_metric=lambda name, value: told.append((name, value)),
    )
    ProcessGRPOTrainer._tell_logs(trainer, Share(members, scored.rewards))
    # Two functions' columns of one name are told apart, where TRL would make one of twice the length.
    assert told == [("a: n", [4, 3]), ("b: n", [4, 3]), ("m", 1.0), ("m", 1.0)]


def _twice(name: str) -> Any:
    def function(completions: Any, log_extra: Any, log_metric: Any, **columns: Any) -> list[float]:
        log_extra("n", [len(text) for text in completions])
        log_metric("m", 1.0)
        return [float(len(text)) for text in completions]

    function.__name__ = name
    return function
