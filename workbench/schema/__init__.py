"""Frozen dataclasses that all modules share: Example, Step, Rollout, Group, StepScores, ScoredGroup, Credit and more.

They hold data and answer simple questions about it. They do not know how an answer is split (``steps``), scored
(``rewards``), credited (``credit``), sampled (``policies``) or drawn (``figures``), and they import nothing of ours.
Rollouts and scores are plain enough to travel as JSON, which is how they cross the process boundaries.
"""

from workbench.schema.credit import Carry, Credit, CreditPart, Explanation, OnCredit, PartKind, Term
from workbench.schema.held_out import HeldOutAnswer, OnAnswers
from workbench.schema.loss import LossPass, LossSettings, OnPass, RolloutPass
from workbench.schema.rollouts import Example, Group, Prompt, Rollout, Step
from workbench.schema.scores import RewardKind, RewardSummary, ScoredGroup, StepScores
from workbench.schema.turns import ASSISTANT, ENVIRONMENT, TOOL, Turn
from workbench.schema.watched import OnRows, TokenMeasure, WatchedRow, WatchedText

__all__ = [
    "ASSISTANT",
    "ENVIRONMENT",
    "TOOL",
    "Carry",
    "Credit",
    "CreditPart",
    "Example",
    "Explanation",
    "Group",
    "HeldOutAnswer",
    "LossPass",
    "LossSettings",
    "OnAnswers",
    "OnCredit",
    "OnPass",
    "OnRows",
    "PartKind",
    "Prompt",
    "RewardKind",
    "RewardSummary",
    "Rollout",
    "RolloutPass",
    "ScoredGroup",
    "Step",
    "StepScores",
    "Term",
    "TokenMeasure",
    "Turn",
    "WatchedRow",
    "WatchedText",
]
