"""Rewards that a credit does not use, and why a group has no spread."""

import pytest

from tests.credits import WORKED_ENDS, WORKED_REWARDS, make_credit, make_rollout
from workbench.credit import NO_SPREAD, NoSpread, unused_rewards, what_counts, why_no_spread
from workbench.schema import Credit

FLAT = [[1.0, 1.0, 1.0], [1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]


def credited(
    rewards: list[list[float]], outcomes: list[float | None] | None, scheme: str = "process", weight: float = 0.0
) -> Credit:
    rollouts = [make_rollout(["t"] * length) for length in (10, 9, 9)]
    return make_credit(rollouts, WORKED_ENDS, rewards, outcomes, scheme=scheme, outcome_weight=weight)


@pytest.mark.parametrize(
    ("scheme", "weight", "unused"),
    [
        ("process", 0.0, {"right": "outcome weight is 0"}),
        ("process", -0.5, {}),
        ("sum", 0.0, {"right": "outcome weight is 0"}),  # a sum of steps is no outcome
        ("outcome", 0.0, {"rule": "outcome reads outcomes alone"}),
        ("outcome", 1.0, {"rule": "outcome reads outcomes alone"}),
    ],
)
def test_a_scheme_reads_one_kind_of_rewards_and_the_outcome_by_its_weight(
    scheme: str, weight: float, unused: dict[str, str]
) -> None:
    assert unused_rewards(credited(WORKED_REWARDS, [1.0, 0.0, 0.0], scheme, weight)) == unused


@pytest.mark.parametrize(
    ("scheme", "weight", "is_in"), [("process", 0.0, False), ("step", 0.5, True), ("outcome", 0.0, True)]
)
def test_whether_the_outcome_is_in_an_advantage_is_said(scheme: str, weight: float, is_in: bool) -> None:
    said = what_counts(credited(WORKED_REWARDS, [1.0, 0.0, 0.0], scheme, weight))
    assert ("outcome" in said, "not in it" in said) == (True, not is_in)


def test_a_group_with_spread_needs_no_reason() -> None:
    assert why_no_spread(credited(WORKED_REWARDS, [1.0, 1.0, 1.0])) is None


@pytest.mark.parametrize(
    ("rewards", "outcomes", "scheme", "said", "remedies"),
    [
        (
            FLAT,
            [1.0, 0.0, 0.0],
            "process",
            "the outcome reward (right) differs",
            ["Outcome weight 1", "Scheme outcome"],
        ),
        (FLAT, [1.0, 0.0, 0.0], "step", "and step with outcome weight 0", ["Outcome weight 1", "Scheme outcome"]),
        (WORKED_REWARDS, [1.0, 1.0, 1.0], "outcome", "the step reward (rule) differs", ["Scheme process"]),
    ],
)
def test_the_rewards_left_out_are_named_with_what_would_use_them(
    rewards: list[list[float]], outcomes: list[float | None], scheme: str, said: str, remedies: list[str]
) -> None:
    flat = why_no_spread(credited(rewards, outcomes, scheme))
    assert flat is not None
    assert said in flat.cause
    assert [remedy.label for remedy in flat.remedies] == remedies
    for remedy in flat.remedies:  # each does what it says
        settings = {"scheme": scheme, "outcome_weight": 0.0} | dict(remedy.settings)
        assert credited(rewards, outcomes, settings["scheme"], settings["outcome_weight"]).spread


@pytest.mark.parametrize("outcomes", [None, [1.0, 1.0, 1.0], [1.0, None, None]])  # none, equal, one alone
def test_where_all_rewards_are_equal_no_setting_helps(outcomes: list[float | None] | None) -> None:
    flat = why_no_spread(credited(FLAT, outcomes))
    assert flat == NoSpread()
    assert (str(flat), flat.remedies if flat else None) == (NO_SPREAD, ())
