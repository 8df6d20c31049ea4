"""Rewards that a credit does not use, and why a group has no spread."""

import pytest

from tests.credits import WORKED_ENDS, WORKED_REWARDS, make_credit, make_rollout
from workbench.credit import NO_SPREAD, SCHEMES, NoSpread, unused_rewards, what_counts, why_no_spread
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


SUMMED = "step rewards above or below the mean, summed over this step and all later ones"


@pytest.mark.parametrize(
    ("scheme", "weight", "outcomes", "said"),
    [
        ("process", 0.0, None, SUMMED),
        ("process", 0.0, [1.0, 0.0, 0.0], f"{SUMMED}; the outcome R is not in it"),
        ("step", 0.5, [1.0, 0.0, 0.0], "this step's own reward, and the outcome R"),
        ("outcome", 0.0, [1.0, 0.0, 0.0], "the outcome of the whole answer"),
    ],
)
def test_what_an_advantage_is_made_of_is_said(
    scheme: str, weight: float, outcomes: list[float | None] | None, said: str
) -> None:
    assert what_counts(credited(WORKED_REWARDS, outcomes, scheme, weight)) == said


def test_every_scheme_says_what_an_advantage_is_made_of() -> None:
    assert [name for name, scheme in SCHEMES.items() if not scheme.counts] == []


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
