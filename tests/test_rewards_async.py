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


async def of_step(prompt: str, step: str, **columns: Any) -> float:
    await asyncio.sleep(0)
    return float(len(step))


async def of_steps(prompts: Any, completions: Any, steps: Any, **columns: Any) -> list[list[float]]:
    return [[float(len(step)) for step in texts] for texts in steps]


async def of_all(completions: Any, **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


def test_all_three_forms_may_wait() -> None:
    scored = score_group(GROUP, PATTERN, [of_step, of_steps, of_all])
    assert [row.scores for row in scored.scored] == [
        {"of_step": (2.0, 2.0), "of_steps": (2.0, 2.0)},
        {"of_step": (3.0,), "of_steps": (3.0,)},
    ]
    assert [row.outcome for row in scored.scored] == [4.0, 3.0]


def test_the_worker_runs_them_too(worker: Sandbox) -> None:
    """In the seal there is no socket, and an event loop needs none."""
    step = "import asyncio\nasync def f(prompt, step, **c):\n    await asyncio.sleep(0)\n    return len(step)"
    outcome = "import asyncio\nasync def g(completions, **c):\n    return await asyncio.to_thread(lambda: [1, 2])"
    mine, other = coded(worker, "step", step), coded(worker, "outcome", outcome)
    assert mine.waits
    assert other.waits
    assert mine.score(Batch(["p"], ["ab"], steps=[["a", "b"]]))[0] == [[1.0, 1.0]]
    assert other.score(Batch(["p", "p"], ["a", "b"]))[0] == [1.0, 2.0]


def test_steps_and_functions_wait_together() -> None:
    """Each of three steps, and another function, goes on only when all four are under way."""
    under_way = 0
    everybody = asyncio.Event()

    async def meet() -> None:
        nonlocal under_way
        under_way += 1
        if under_way == 4:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 30)

    async def one(prompt: str, step: str, **columns: Any) -> float:
        await meet()
        return 1.0

    async def two(completions: Any, **columns: Any) -> list[float]:
        await meet()
        return [2.0, 2.0]

    scored = score_group(GROUP, PATTERN, [one, two])
    assert (scored.step_rewards, scored.outcomes) == ([[1.0, 1.0], [1.0]], [2.0, 2.0])


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
OF_STEP = """
def f(prompt, step, log_extra, **columns):
    if step == "bb":
        log_extra("note", "odd")
    return 1
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

    rewards = [loaded("outcome", TELLING, "a"), loaded("step", OF_STEPS, "b"), loaded("step", OF_STEP, "c")]
    scored = score_group(GROUP, PATTERN, rewards)
    assert scored.outcomes == [0.0, 0.0]
    assert [row.logged for row in scored.scored] == [
        {"a": {"why": "A;BB"}, "b": {"first": ("a", "b")}, "c": {"note": (None, "odd")}},
        {"a": {"why": "CCC"}, "b": {"first": ("c",)}},
    ]
    assert scored.rewards[0].metrics == {"half": [1.0]}
    assert [row.get("logged") for row in scored.rows(0)] == [
        {"b": {"first": "a"}},
        {"b": {"first": "b"}, "c": {"note": "odd"}},
    ]


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
