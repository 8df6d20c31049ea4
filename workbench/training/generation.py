"""What one generation comes to on its way into groups: what TRL scored here, and what a rank puts to the groups of all.

It does not know how ranks exchange it, nor what becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.schema import Rollout, StepScores


@dataclass(frozen=True)
class Scored:
    """What TRL scored in one generation: this rank's rows, and the outcome rewards of every rank's, (B_all, F)."""

    inputs: Sequence[Mapping[str, Any]]
    rollouts: Sequence[Rollout]
    outcomes: torch.Tensor

    def against(self, reference: torch.Tensor | None, *, whole: bool) -> Scored:
        """With the reference policy's log-probabilities, (B, T), where the loss has them.

        ``whole``: those of unfinished completions are masked, and 0 in the place of a log-probability is none.
        """
        if reference is None:
            return self
        rollouts = [
            one if whole and not one.finished else replace(one, ref_logprobs=tuple(row[: len(one)]))
            for one, row in zip(self.rollouts, reference.tolist(), strict=True)
        ]
        return replace(self, rollouts=rollouts)


@dataclass(frozen=True)
class Share:
    """What one rank puts to the groups: its rows, or why it has none."""

    rows: list[tuple[Any, Mapping[str, Any], Rollout, StepScores]]
    failure: Exception | None
    reward_errors: int = 0
