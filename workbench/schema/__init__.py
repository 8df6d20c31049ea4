"""Frozen dataclasses that all modules share: Example, Step, Rollout, Group, StepScores, ScoredGroup, Credit and more.

They hold data and answer simple questions about it. They do not know how an answer is split (``steps``), scored
(``rewards``), credited (``credit``), sampled (``policies``) or drawn (``figures``), and they import nothing of ours.
Rollouts and scores are plain enough to travel as JSON, which is how they cross the process boundaries.
"""

from workbench.schema.credit import (
    Carry,
    Credit,
    CreditPart,
    Explanation,
    LossPass,
    LossSettings,
    OnCredit,
    OnPass,
    PartKind,
    RolloutPass,
    Term,
)
from workbench.schema.rollouts import ASSISTANT, ENVIRONMENT, TOOL, Example, Group, Prompt, Rollout, Step, Turn
from workbench.schema.scores import (
    HeldOutAnswer,
    OnAnswers,
    OnRows,
    RewardKind,
    RewardSummary,
    ScoredGroup,
    StepScores,
    TokenMeasure,
    WatchedRow,
    WatchedText,
)

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
