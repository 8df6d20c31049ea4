"""Reward statistics: score distribution by position, correlation of functions, and time per call.

From scored groups to plain records; drawing them is for ``ui.handlers.rewards``. A score that was not given (None) is
counted as unscored and enters nothing else. Two functions are compared completion by completion, a step function by the
mean of its scored steps.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest

import numpy as np
import numpy.typing as npt

from workbench.schema import RewardKind, RewardSummary, ScoredGroup, StepScores, differ

KEPT_CALLS = 500
"""Calls of a function whose times are remembered."""
_KINDS: tuple[RewardKind, ...] = ("step", "outcome")
BINS = 16
"""Bins of a histogram, at most: as many as there are distinct scores where those are fewer."""


@dataclass(frozen=True)
class Distribution:
    """Scores of one function: ``count`` given and ``unscored`` not; the rest is None or empty where none was given.

    ``std`` has ddof=0. ``zeros`` is the share of scores that are 0. Bin i of ``counts`` reaches from ``edges[i]`` to
    ``edges[i + 1]``, the last one inclusive.
    """

    count: int
    unscored: int
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    zeros: float | None = None
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class FunctionStatistics:
    """One function. ``positions[k]`` is the mean of its scores of each completion's k-th step, none for an outcome
    function; ``rows`` are its scores, one a completion. ``p50`` and ``p99`` are of ``calls`` calls' seconds.
    """

    name: str
    kind: RewardKind
    weight: float
    scores: Distribution
    positions: tuple[float | None, ...]
    rows: tuple[float | None, ...]
    calls: int
    p50: float | None
    p99: float | None


@dataclass(frozen=True)
class Correlation:
    """Pearson's r between two functions over ``count`` completions that both scored; None where one does not vary."""

    first: str
    second: str
    r: float | None
    count: int


@dataclass(frozen=True)
class RewardStatistics:
    """``sampler_seconds`` is what sampling the group took."""

    functions: tuple[FunctionStatistics, ...]
    correlations: tuple[Correlation, ...]
    sampler_seconds: float | None


@dataclass(frozen=True)
class Telling:
    """The power of one function to tell a group's answers apart, over all groups.

    ``zero_std`` is the share of groups whose scores (of all their steps, for a function of steps) are all equal;
    ``unscored`` the share of scores that are None. ``variance`` is the share of its weight · score in the variance
    within groups, of all functions of its kind; None for one that is alone or where nothing varies.
    """

    zero_std: float
    unscored: float
    variance: float | None


DROWNED = 0.05
"""The share of the variance below which a function hardly counts in the sum."""


def tell_apart(groups: Sequence[ScoredGroup]) -> dict[str, Telling]:
    """Return what each reward function of ``groups``, which all have the same, tells apart."""
    zero_std, unscored, variance = {}, {}, {}
    rewards = groups[0].rewards
    for reward in rewards:
        of_groups = [group.scores(reward) for group in groups]
        given = [np.array([score for score in row if score is not None], dtype=np.float64) for row in of_groups]
        scores = sum(map(len, of_groups))
        zero_std[reward.name] = float(np.mean([not len(row) or not differ(row.min(), row.max()) for row in given]))
        unscored[reward.name] = 1 - sum(map(len, given)) / scores if scores else 0.0
        variance[reward.name] = reward.weight**2 * sum(float(np.var(row)) for row in given if len(row))
    total = {kind: sum(variance[reward.name] for reward in rewards if reward.kind == kind) for kind in _KINDS}
    alone = {kind: sum(reward.kind == kind for reward in rewards) < 2 for kind in _KINDS}
    return {
        reward.name: Telling(
            zero_std[reward.name],
            unscored[reward.name],
            None if alone[reward.kind] or not total[reward.kind] else variance[reward.name] / total[reward.kind],
        )
        for reward in rewards
    }


def correlate_with_trained(groups: Sequence[ScoredGroup], name: str, trained: Mapping[str, float]) -> float | None:
    """Pearson's r, over completions and within groups, of a function's scores and the weighted sum of ``trained`` ones.

    ``trained`` are the weights by name. A step function counts by the mean of a completion's scored steps. None where
    one of the two does not differ within any group.
    """
    centred = [np.empty((0, 2))]
    for group in groups:
        rewards = {reward.name: reward for reward in group.rewards}
        rows = []
        for row in group.scored:
            given = {one: _of_completion(row, rewards[one]) for one in (name, *trained)}
            if None not in given.values():
                rows.append((given[name], sum(weight * (given[one] or 0.0) for one, weight in trained.items())))
        if rows:
            both = np.array(rows, dtype=np.float64)  # (N, 2)
            centred.append(both - both.mean(axis=0))
    return correlation(np.concatenate(centred))


class CallTimes:
    """Seconds that reward functions took, by call; one whose code changes begins anew, one that goes is forgotten."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], deque[float]] = {}

    def add(self, rewards: Sequence[RewardSummary], codes: Mapping[str, str]) -> dict[str, list[float]]:
        """Note one call of each function, whose code is ``codes[name]``; all that are known of them, in seconds."""
        keys = {(reward.name, codes.get(reward.name, "")): reward for reward in rewards}
        self._calls = {key: self._calls.get(key, deque(maxlen=KEPT_CALLS)) for key in keys}
        for key, reward in keys.items():
            self._calls[key].append(reward.seconds)
        return {name: list(times) for (name, _), times in self._calls.items()}


def describe_rewards(
    group: ScoredGroup, calls: Mapping[str, Sequence[float]], sampler_seconds: float | None = None
) -> RewardStatistics:
    """Return statistics of a group's reward functions.

    ``calls`` are the seconds of each function's calls, by name; ``sampler_seconds`` is what sampling the group took.
    """
    functions = tuple(_watch(group, reward, calls.get(reward.name, ())) for reward in group.rewards)
    correlations = []
    for first, second in combinations(functions, 2):
        pairs = [pair for pair in zip(first.rows, second.rows, strict=True) if None not in pair]
        both = np.array(pairs, dtype=np.float64).reshape(-1, 2)  # (N, 2)
        correlations.append(Correlation(first.name, second.name, correlation(both), len(both)))
    return RewardStatistics(functions, tuple(correlations), sampler_seconds)


def distribution(scores: Sequence[float | None]) -> Distribution:
    """With a histogram of at most ``BINS``. Raises nothing: no scores at all have a count of 0."""
    values = np.array([score for score in scores if score is not None], dtype=np.float64)  # (N,)
    unscored = len(scores) - len(values)
    if not len(values):
        return Distribution(0, unscored)
    shown = values if differ(values.min(), values.max()) else np.full_like(values, values[0])
    counts, edges = np.histogram(shown, bins=min(BINS, len(np.unique(shown))))
    return Distribution(
        len(values),
        unscored,
        float(values.mean()),
        float(values.std()),
        float(values.min()),
        float(values.max()),
        float((values == 0).mean()),
        tuple(map(float, edges)),
        tuple(map(int, counts)),
    )


def _watch(group: ScoredGroup, reward: RewardSummary, seconds: Sequence[float]) -> FunctionStatistics:
    steps = [row.scores[reward.name] for row in group.scored if reward.kind == "step"]
    return FunctionStatistics(
        reward.name,
        reward.kind,
        reward.weight,
        distribution(group.scores(reward)),
        tuple(_mean(position) for position in zip_longest(*steps)),
        tuple(_of_completion(row, reward) for row in group.scored),
        len(seconds),
        float(np.quantile(seconds, 0.5)) if seconds else None,
        float(np.quantile(seconds, 0.99)) if seconds else None,
    )


def _mean(scores: Sequence[float | None]) -> float | None:
    values = [score for score in scores if score is not None]
    return sum(values) / len(values) if values else None


def _of_completion(scored: StepScores, reward: RewardSummary) -> float | None:
    if reward.kind == "outcome":
        return scored.outcome_scores.get(reward.name)
    return _mean(scored.scores.get(reward.name, ()))


def correlation(both: npt.NDArray[np.float64]) -> float | None:
    """Pearson's r of two columns, (N, 2); None where one does not vary."""
    varies = len(both) > 1 and bool(differ(both.min(axis=0), both.max(axis=0)).all())
    return round(float(np.corrcoef(both[:, 0], both[:, 1]).item(0, 1)), 9) + 0.0 if varies else None  # 0, not −1e-33
