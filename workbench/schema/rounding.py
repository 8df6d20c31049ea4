"""Equality of numbers up to rounding: 0.1 + 0.2 and 0.3 are the same reward."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ROUNDING = 1e-9
"""Scores that are nearer to each other than this, in relation to 1 or their size, are equal."""


def differ(low: npt.ArrayLike, high: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether ``high`` is above ``low`` by more than rounding, elementwise."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # a pool without values: inf - inf
        return np.asarray(high - low > ROUNDING * np.maximum(1.0, np.maximum(np.abs(high), np.abs(low))))
