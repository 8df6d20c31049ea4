"""Rewards: the protocol of reward functions, those built in, users' own in the sandbox, and scoring with them."""

from workbench.rewards.builtin import BUILTINS, Builtin, find_builtin
from workbench.rewards.others import ARGUMENTS
from workbench.rewards.protocol import Batch, Score, columns_left_out
from workbench.rewards.reward import (
    ErrorBudget,
    Reward,
    load_reward,
    score_both,
    score_completions,
    score_group,
    score_split,
    settle,
    split_group,
    texts_after_thinking,
)
from workbench.rewards.source import RewardConfig
from workbench.sandbox.client import Sandbox, SandboxPool

__all__ = [
    "ARGUMENTS",
    "BUILTINS",
    "Batch",
    "Builtin",
    "ErrorBudget",
    "Reward",
    "RewardConfig",
    "Sandbox",
    "SandboxPool",
    "Score",
    "columns_left_out",
    "find_builtin",
    "load_reward",
    "score_both",
    "score_completions",
    "score_group",
    "score_split",
    "settle",
    "split_group",
    "texts_after_thinking",
]
