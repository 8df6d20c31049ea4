"""Reward statistics against numbers worked by hand."""

import json

import pytest

from tests.credits import make_rollout, make_scored
from workbench.rewards.statistics import describe_rewards, distribution
from workbench.schema import ScoredGroup
from workbench.ui.handlers.rewards import watch_payload


def group(*scored: tuple[list[float | None], float | None]) -> ScoredGroup:
    """The scores of each completion's steps, of one token, and of the whole."""
    rollouts = [make_rollout(["a"] * len(steps)) for steps, _ in scored]
    spans = [[(k, k) for k in range(len(steps))] for steps, _ in scored]
    outcomes = {"answer": [outcome for _, outcome in scored]}
    return make_scored(rollouts, spans, {"right": [steps for steps, _ in scored]}, outcomes, {"answer": 0.5})


GROUP = group(([1.0, 1.0], 1.0), ([1.0, 0.0, None], 0.0), ([0.0], 0.0), ([None], None))


def test_scores_are_counted_and_described() -> None:
    right, answer = describe_rewards(GROUP, {}).functions
    # 1, 1, 1, 0, 0: mean 3/5, variance 3/5 * 2/5 = 0.24.
    scores = right.scores
    assert (scores.count, scores.unscored, scores.low, scores.high) == (5, 2, 0.0, 1.0)
    assert (scores.mean, scores.std, scores.zeros) == pytest.approx((0.6, 0.24**0.5, 0.4))
    assert (scores.edges, scores.counts) == ((0.0, 0.5, 1.0), (2, 3))
    assert right.rows == (1.0, 0.5, 0.0, None)
    assert right.positions == (pytest.approx(2 / 3), 0.5, None)
    assert (answer.scores.count, answer.scores.unscored, answer.scores.zeros) == (3, 1, pytest.approx(2 / 3))
    assert (answer.positions, answer.weight) == ((), 0.5)


def test_functions_are_compared_completion_by_completion() -> None:
    (correlation,) = describe_rewards(GROUP, {}).correlations
    # (1, 1), (.5, 0), (0, 0): deviations .5, 0, -.5 and 2/3, -1/3, -1/3; r = .5 / sqrt(.5 * 2/3).
    assert correlation.r == pytest.approx(0.5 / (0.5 * 2 / 3) ** 0.5)
    assert (correlation.first, correlation.second, correlation.count) == ("right", "answer", 3)
    flat = group(([1.0], 1.0), ([1.0], 0.0))
    assert describe_rewards(flat, {}).correlations[0].r is None
    assert describe_rewards(group(([1.0], 1.0)), {}).correlations[0].r is None


def test_a_function_slower_than_the_sampler_is_named() -> None:
    watched = describe_rewards(GROUP, {"right": [0.25], "answer": [0.5, 1.5]}, sampler_seconds=0.3)
    assert (watched.functions[1].calls, watched.functions[1].p50) == (2, 1.0)
    assert watched.functions[1].p99 == pytest.approx(1.49)  # between 0.5 and 1.5 at 0.99 of the way
    payload = json.loads(json.dumps(watch_payload(watched), allow_nan=False))
    assert (payload["functions"][0]["positions"][2], len(payload["slow"])) == (None, 1)


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([], ()),
        ([None], ()),
        ([2.0], (1,)),
        ([0.1 + 0.2, 0.3], (2,)),  # one score, but for its rounding
        ([float(i) for i in range(96)], (6,) * 16),  # as many bins as values, up to 16
    ],
)
def test_scores_are_counted_in_bins(values: list[float | None], counts: tuple[int, ...]) -> None:
    assert distribution(values).counts == counts
