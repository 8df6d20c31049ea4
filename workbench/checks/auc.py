"""AUC: the chance that what is right scores higher than what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def auc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Area under the ROC curve (Mann and Whitney's U, ties count half); NaN where all labels are alike."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    positive, negative = values[labels], np.sort(values[~labels])
    if not len(positive) or not len(negative):
        return float("nan")
    below = np.searchsorted(negative, positive, side="left") + np.searchsorted(negative, positive, side="right")
    return float(below.sum() / 2 / (len(positive) * len(negative)))
