"""``ProcessGRPOConfig``: TRL's ``GRPOConfig`` and the few fields that process supervision adds.

Which modes of TRL's loss are refused, and why, is in ``methods.modes``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from workbench.steps import PatternKind
from workbench.training.methods.modes import LossModes

_log = logging.getLogger(__name__)


@dataclass
class ProcessGRPOConfig(LossModes, GRPOConfig):
    """Arguments of ``ProcessGRPOTrainer``; everything of ``GRPOConfig`` keeps its meaning.

    ``scale_rewards`` ("group", "batch" or "none") says which standard deviation normalised rewards are divided by,
    unless ``credit_options`` say otherwise, and ``reward_weights`` weighs the outcome rewards, as in TRL.
    """

    step_pattern: str = field(
        default=r"(?m)^Step \d+:",
        metadata={"help": "Regular expression that finds the steps of a completion, or numbers, by the kind."},
    )
    step_pattern_kind: PatternKind = field(
        default="starts",
        metadata={
            "help": "What a match is: it 'starts' a step, 'ends' one, or 'is' one; every turn of an episode is one, "
            "'turns'; or how tokens cut: by 'surprise', 'entropy' or number, 'tokens'."
        },
    )
    leave_out_thinking: bool = field(
        default=False,
        metadata={"help": "Leave <think> blocks out of the steps, and out of what reward functions read."},
    )
    stop: list[str] | None = field(
        default=None, metadata={"help": "Texts that end a completion, whose tokens belong to it."}
    )
    credit_scheme: str | None = field(
        default=None,
        metadata={
            "help": "How rewards become token advantages, a name in credit.SCHEMES; by default 'process', or 'outcome' "
            "where there are no step rewards."
        },
    )
    outcome_weight: float = field(
        default=0.0, metadata={"help": "Weight of the normalised outcome reward added to every token."}
    )
    credit_clip: float | None = field(default=None, metadata={"help": "Bound on the size of an advantage."})
    drop_duplicates: bool = field(
        default=False,
        metadata={
            "help": "Compare each distinct completion of a group once: an exact copy has advantage 0 and no part in "
            "the loss."
        },
    )
    each_reward: bool = field(
        default=False,
        metadata={"help": "Normalise each reward function's scores on their own before they are summed (GDPO)."},
    )
    credit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "Other options of the scheme (normalise, scale, gamma, …); see credit.SCHEMES[…].options."},
    )
    resample_flat: int = field(
        default=0,
        metadata={"help": "Rounds in which groups without spread are replaced by other prompts' groups, at most."},
    )
    disable_dropout: bool = field(
        default=True,
        metadata={"help": "Whether the loss is computed without dropout, as completions are sampled."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_type == "cispo" and (cap := self.epsilon if self.epsilon_high is None else self.epsilon_high) < 1:
            _log.warning(
                "loss_type 'cispo' caps the ratio itself at epsilon_high, here %g, and so scales every gradient down; "
                "set epsilon_high to 5",
                cap,
            )
        self.check_modes()
