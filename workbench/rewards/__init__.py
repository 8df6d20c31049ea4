"""Rewards: the protocol of reward functions, those built in, users' own in the sandbox, and scoring with them."""

from workbench.rewards.builtin import BUILTINS, Builtin, find_builtin
from workbench.rewards.reward import Reward, load_reward
from workbench.rewards.sandbox import Sandbox, SandboxPool
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
    "Sandbox",
    "SandboxPool",
    "find_builtin",
    "load_reward",
    "score_both",
    "score_completions",
    "score_group",
    "score_split",
    "split_group",
]
