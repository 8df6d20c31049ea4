"""Reward statistics against numbers worked by hand."""

import json

import pytest

from workbench.rewards.statistics import describe_rewards, distribution
from workbench.schema import Group, RewardSummary, Rollout, ScoredGroup, Step, StepScores
from workbench.ui.handlers.rewards import watch_payload


def rollout(*steps: float | None, outcome: float | None) -> StepScores:
    spans = tuple((k, k) for k in range(len(steps)))
    return StepScores(
        steps=tuple(Step(k, k + 1) for k in range(len(steps))),
        spans=spans,
        scores={"right": steps},
        rewards=steps,
        outcome_scores={"answer": outcome},
        outcome=outcome,
    )


def group(*scored: StepScores) -> ScoredGroup:
    rollouts = tuple(Rollout((1,) * len(one.steps), ("a",) * len(one.steps), False) for one in scored)
    summaries = (RewardSummary("right", "step", 1.0, 0.25), RewardSummary("answer", "outcome", 0.5, 0.5))
    return ScoredGroup(Group("p", rollouts), tuple(scored), summaries)


GROUP = group(
    rollout(1.0, 1.0, outcome=1.0),
    rollout(1.0, 0.0, None, outcome=0.0),
    rollout(0.0, outcome=0.0),
    rollout(None, outcome=None),
)


def test_scores_are_counted_and_described() -> None:
    right, answer = describe_rewards(GROUP, {}).functions
    # 1, 1, 1, 0, 0: mean 3/5, variance 3/5 * 2/5 = 0.24.
    assert (right.scores.count, right.scores.unscored) == (5, 2)
    assert right.scores.mean == pytest.approx(0.6)
    assert right.scores.std == pytest.approx(0.24**0.5)
    assert right.scores.zeros == pytest.approx(0.4)
    assert (right.scores.low, right.scores.high) == (0.0, 1.0)
    assert (right.scores.edges, right.scores.counts) == ((0.0, 0.5, 1.0), (2, 3))
    assert right.rows == (1.0, 0.5, 0.0, None)
    assert (answer.scores.count, answer.scores.unscored, answer.scores.zeros) == (3, 1, pytest.approx(2 / 3))
    assert answer.positions == ()
    assert answer.weight == 0.5


def test_each_step_position_has_its_own_mean() -> None:
    assert describe_rewards(GROUP, {}).functions[0].positions == (pytest.approx(2 / 3), 0.5, None)


def test_functions_are_compared_completion_by_completion() -> None:
    (correlation,) = describe_rewards(GROUP, {}).correlations
    # (1, 1), (.5, 0), (0, 0): deviations .5, 0, -.5 and 2/3, -1/3, -1/3; r = .5 / sqrt(.5 * 2/3).
    assert correlation.r == pytest.approx(0.5 / (0.5 * 2 / 3) ** 0.5)
    assert (correlation.first, correlation.second, correlation.count) == ("right", "answer", 3)
    flat = group(rollout(1.0, outcome=1.0), rollout(1.0, outcome=0.0))
    assert describe_rewards(flat, {}).correlations[0].r is None
    assert describe_rewards(group(rollout(1.0, outcome=1.0)), {}).correlations[0].r is None


def test_a_function_slower_than_the_sampler_is_named() -> None:
    watched = describe_rewards(GROUP, {"right": [0.25], "answer": [0.5, 1.5]}, sampler_seconds=0.3)
    assert (watched.functions[1].calls, watched.functions[1].p50) == (2, 1.0)
    assert watched.functions[1].p99 == pytest.approx(1.49)  # between 0.5 and 1.5 at 0.99 of the way
    payload = json.loads(json.dumps(watch_payload(watched), allow_nan=False))
    assert (payload["functions"][0]["positions"][2], len(payload["slow"])) == (None, 1)


def test_nothing_scored_is_no_error() -> None:
    assert distribution([]).count == 0
    assert distribution([None]).unscored == 1
    assert distribution([2.0]).counts == (1,)
    assert distribution([0.1 + 0.2, 0.3]).counts == (2,)  # one score, but for its rounding
    # Far-away scores: as many bins as values, up to 16.
    assert sum(distribution([float(i) for i in range(100)]).counts) == 100
    assert len(distribution([float(i) for i in range(100)]).counts) == 16
