"""ProcessBench's F1 of a step reward: finding the first wrong step, or that there is none.

First-error F1 (Zheng et al. 2024, arXiv 2412.06559) is the harmonic mean of two accuracies: of finding exactly the
first wrong step in completions that have one, and of finding none in those that have none. This module knows neither
groups nor rewards, only scores and where the first wrong step is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_THRESHOLDS = 200
"""Thresholds tried for the best first-error F1, evenly spread over the scores where there are more."""


@dataclass(frozen=True)
class FirstError:
    """ProcessBench's numbers at ``threshold``: a step below it is wrong, and the first such is the prediction.

    ``erroneous`` and ``correct`` are accuracies over ``erroneous_count`` and ``correct_count`` completions, None where
    there are none; ``f1`` is their harmonic mean.
    """

    threshold: float
    erroneous: float | None
    correct: float | None
    f1: float | None
    erroneous_count: int
    correct_count: int


@dataclass(frozen=True)
class Chain:
    """A completion's step scores and its first wrong step by the labels, -1 for none."""

    scores: tuple[float | None, ...]
    first: int
    lost: bool = False
    """Whether a wrong step of the labels is not among the completion's steps."""


def first_error(chains: Sequence[Chain], threshold: float) -> FirstError:
    """ProcessBench's numbers for ``chains`` (step ``scores`` and ``first`` wrong step, -1 for none) at a threshold.

    The prediction is the first step that scores below it; a step without a score is never predicted. A chain without
    any score, or whose wrong step is not among its steps (``lost``), is left out.
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for chain in chains:
        if chain.lost or all(score is None for score in chain.scores):
            continue
        low = (k for k, score in enumerate(chain.scores) if score is not None and score < threshold)
        hits[chain.first >= 0].append(next(low, -1) == chain.first)
    erroneous, correct = (sum(hit) / len(hit) if hit else None for hit in (hits[True], hits[False]))
    f1 = None
    if erroneous is not None and correct is not None:
        total = erroneous + correct
        f1 = 2 * erroneous * correct / total if total else 0.0
    return FirstError(threshold, erroneous, correct, f1, len(hits[True]), len(hits[False]))


def best_first_error(chains: Sequence[Chain], scores: npt.NDArray[np.float64]) -> FirstError:
    """``first_error`` at the one of the thresholds that ``scores`` offer where the F1 is highest."""
    values = np.unique(scores)
    if len(values) > MAX_THRESHOLDS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, MAX_THRESHOLDS), method="nearest"))
    tried = [first_error(chains, float(value)) for value in [*values, np.inf]]
    return max(tried, key=lambda measured: -1.0 if measured.f1 is None else measured.f1)


def threshold_text(threshold: float) -> str:
    return "with nothing counted right" if threshold == float("inf") else f"from {threshold:g} on"


def first_error_text(error: FirstError) -> str:
    f1 = "undefined" if error.f1 is None else f"{error.f1:.1%}"
    parts = [
        f"{'–' if share is None else f'{share:.1%}'} of {count:,} {what}"
        for share, count, what in (
            (error.erroneous, error.erroneous_count, "with an error"),
            (error.correct, error.correct_count, "without"),
        )
    ]
    return f"{f1} {threshold_text(error.threshold)} ({', '.join(parts)})"
