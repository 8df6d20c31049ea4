"""What surrounds reward code: how many sandboxes live, and how many errors a run survives."""

from typing import Any

import psutil
import pytest

from workbench.errors import RewardError
from workbench.rewards import ErrorBudget, Sandbox, SandboxPool, load_reward
from workbench.rewards.protocol import Batch
from workbench.rewards.reward import FAILED
from workbench.steps import StepPattern

BATCH = Batch(["p"] * 3, ["ab", "c", "d"], {}, [["a", "b"], ["c"], ["d"]])
PATTERN = StepPattern("S")


# --- the pool -----------------------------------------------------------------------------------------------------


@pytest.fixture
def pool():
    pool = SandboxPool(kept=2)
    yield pool
    pool.close()


def pid(worker: Sandbox) -> int:
    worker.split([], PATTERN)
    assert worker.pid is not None
    return worker.pid


def test_the_longest_unused_worker_ends_when_there_are_too_many(pool: SandboxPool) -> None:
    first, second = pool.of("a"), pool.of("b")
    pids = pid(first), pid(second)
    assert pool.of("a") is first
    third = pool.of("c")
    assert psutil.pid_exists(pids[0])
    assert not psutil.pid_exists(pids[1])
    assert pool.of("c") is third
    assert pool.of("b") is not second


# --- the budget ---------------------------------------------------------------------------------------------------


def picky(prompt: Any, step: str, **columns: Any) -> float:
    if step in "bd":
        raise ValueError(step)
    return 1.0


def all_at_once(prompts: Any, completions: Any, steps: Any, **columns: Any) -> Any:
    return [[1.0] * len(texts) for texts in steps[:-1]] + [["no score"]]


def outcome(prompts: Any, completions: Any, **columns: Any) -> Any:
    return [1.0] * (len(prompts) - 1)


def test_a_function_called_by_step_loses_only_the_rollouts_it_failed_on() -> None:
    told: list[RewardError] = []
    budget = ErrorBudget(2, told.append)
    assert budget.score(load_reward(picky), BATCH) == ([[FAILED, FAILED], [1.0], [FAILED]], "")
    assert [(error.rollout, error.step) for error in told] == [(0, 1), (2, 0)]
    assert (budget.spent, budget.new(), budget.new()) == (2, 2, 0)


def test_a_function_that_sees_all_leaves_all_unscored() -> None:
    budget = ErrorBudget(2)
    assert budget.score(load_reward(all_at_once), BATCH) == ([[None, None], [None], [None]], "")
    assert budget.score(load_reward(outcome), BATCH) == ([None] * 3, "")
    with pytest.raises(RewardError, match=r"^3 errors of reward functions; method.max_reward_errors is 2. The last"):
        budget.score(load_reward(outcome), BATCH)


def test_the_budget_is_all_ranks_together() -> None:
    budget = ErrorBudget(2)
    budget.score(load_reward(outcome), BATCH)
    budget.check(2)  # one here, one on another rank
    with pytest.raises(RewardError, match=r"3 errors .* returned 2 values; return a list of 3"):
        budget.check(3)
