"""Normalisation inside a pool of rewards: z(x) = (x - mean) / (std + 1e-4), std with ddof = 1.

The constants are those of TRL's ``GRPOTrainer`` and of DeepSeekMath (arXiv 2402.03300, section 4.1), so that a group
scored by outcome only gets TRL's own numbers. Everything is float64 here; the one rounding to float32 happens when
advantages are laid out in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

EPSILON = 1e-4


@dataclass(frozen=True)
class Pool:
    """The statistics of the scored values of a pool; ``None`` values are left out, never counted as 0."""

    count: int
    mean: float | None
    std: float | None
    spread: bool
    """False where nothing can be learnt: fewer than two values, or all of them equal."""

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Pool:
        scored = np.array([value for value in values if value is not None], dtype=np.float64)
        if scored.size == 0:
            return cls(0, None, None, False)
        spread = bool(scored.size > 1 and scored.max() > scored.min())
        std = float(scored.std(ddof=1)) if spread else 0.0
        return cls(int(scored.size), float(scored.mean()), std, spread)

    def z(self, value: float | None, *, scale: bool = True) -> float | None:
        """The normalised value; 0 in a pool without spread, None for None. ``scale=False`` only centres (Dr. GRPO)."""
        if value is None:
            return None
        if not self.spread or self.mean is None or self.std is None:
            return 0.0
        return (value - self.mean) / (self.std + EPSILON) if scale else value - self.mean
