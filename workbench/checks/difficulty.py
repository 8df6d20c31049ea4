"""The difficulty of prompts for a policy, and the group size that it asks for.

A group whose answers are all right, or all wrong, has no spread of outcomes and teaches nothing by them: it is dead.
With a pass rate p, G answers are dead with probability p^G + (1 - p)^G. A prompt with s right answers of n has a p that
is not known; with every p equally likely beforehand it is Beta(s + 1, n - s + 1) distributed, and

    P(dead | G) = [B(s + 1 + G, n - s + 1) + B(s + 1, n - s + 1 + G)] / B(s + 1, n - s + 1).

Groups are scored elsewhere; nothing is sampled here. Below stand two measures of scores against labels: calibration
and AUC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workbench.data.made import right_of
from workbench.errors import CreditError
from workbench.schema import ScoredGroup

SIZES = (2, 4, 8, 16, 32, 64)
BINS = 10
ENOUGH = 0.05
"""Share of all groups that a doubled size must bring to life to be worth its samples."""


@dataclass(frozen=True)
class Difficulty:
    """Right answers and answers with an outcome, of each prompt."""

    right: Sequence[int]
    answers: Sequence[int]

    @classmethod
    def of(cls, groups: Iterable[ScoredGroup], right_from: float = 1.0) -> Difficulty:
        """An answer is right from this outcome on; one without an outcome does not count.

        Raises CreditError where no answer has an outcome.
        """
        counts = [right_of(group, right_from) for group in groups]
        if not any(answers for _, answers in counts):
            raise CreditError(
                "no answer has an outcome reward, which says whether it is right; add one (answer_correctness, say)"
            )
        right, answers = zip(*((s, n) for s, n in counts if n), strict=True)
        return cls(right, answers)

    @property
    def rates(self) -> list[float]:
        return [s / n for s, n in zip(self.right, self.answers, strict=True)]

    def histogram(self) -> list[int]:
        """Prompts by pass rate, in tenths; the last one holds a rate of 1."""
        tenths = [min(s * BINS // n, BINS - 1) for s, n in zip(self.right, self.answers, strict=True)]
        return [tenths.count(place) for place in range(BINS)]

    def dead_share(self, size: int) -> float:
        """Expected share of groups of ``size`` answers that are all right or all wrong."""
        chances = []
        for s, n in zip(self.right, self.answers, strict=True):
            a, b = s + 1, n - s + 1
            all_right, all_wrong = _log_beta(a + size, b), _log_beta(a, b + size)
            chances.append(math.exp(all_right - _log_beta(a, b)) + math.exp(all_wrong - _log_beta(a, b)))
        return sum(chances) / len(chances)

    @property
    def proposed(self) -> int:
        """The least size whose double would bring fewer than ``ENOUGH`` of all groups to life."""
        for size, double in pairwise(SIZES):
            if self.dead_share(size) - self.dead_share(double) < ENOUGH:
                return size
        return SIZES[-1]

    def to_json(self) -> dict[str, object]:
        rates = self.rates
        return {
            "prompts": len(rates),
            "answers": sum(self.answers),
            "mean_pass_rate": sum(rates) / len(rates),
            "never_right": sum(rate == 0 for rate in rates),
            "always_right": sum(rate == 1 for rate in rates),
            "histogram": self.histogram(),
            "dead_share": {str(size): self.dead_share(size) for size in SIZES},
            "proposed_group_size": self.proposed,
        }


def _log_beta(a: int, b: int) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


# --- scores against labels ----------------------------------------------------------------------------------------

CALIBRATION_BINS = 10


def calibration_error(probabilities: Sequence[float], labels: Sequence[float], bins: int = CALIBRATION_BINS) -> float:
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


def auc(scores: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """Area under the ROC curve (Mann and Whitney's U, ties count half); NaN if all labels are alike."""
    import pandas as pd

    ranks, is_right = pd.Series(scores).rank().to_numpy(), np.asarray(right) == 1
    n, m = int(is_right.sum()), int((~is_right).sum())
    return float((ranks[is_right].sum() - n * (n + 1) / 2) / (n * m)) if n and m else float("nan")
