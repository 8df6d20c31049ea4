"""Rewards: the protocol of reward functions, those built in, users' own in a worker, and scoring with them."""

from workbench.rewards.builtin import BUILTINS, Builtin, find_builtin
from workbench.rewards.client import RewardWorker, WorkerPool
from workbench.rewards.reward import Reward, load_reward
from workbench.rewards.score import (
    ErrorBudget,
    score_both,
    score_completions,
    score_group,
    score_split,
    split_group,
)

__all__ = [
    "BUILTINS",
    "Builtin",
    "ErrorBudget",
    "Reward",
    "RewardWorker",
    "WorkerPool",
    "find_builtin",
    "load_reward",
    "score_both",
    "score_completions",
    "score_group",
    "score_split",
    "split_group",
]
