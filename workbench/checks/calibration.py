"""Calibration: whether what is said with probability p is right a share p of the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BINS = 10


def calibration_error(probabilities: Sequence[float], labels: Sequence[float], bins: int = BINS) -> float:
    """Expected calibration error (Guo et al., arXiv 1706.04599, eq. 5): sum over bins of n_b/n |accuracy - confidence|.

    The confidence of an answer is max(p, 1 - p), and it is right where the likelier label is the true one; at p = 0.5
    both are likely, which counts half. The bins divide 0.5 to 1 evenly. ``labels`` are 0 or 1. NaN for no answers.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if not len(p):
        return float("nan")
    confidence = np.maximum(p, 1 - p)
    right = np.where(p == 0.5, 0.5, (p > 0.5) == (y > 0.5))
    place = np.minimum(((confidence - 0.5) * 2 * bins + 1e-9).astype(int), bins - 1)  # 0.9 and 1 - 0.1 in one bin
    gaps = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))
