"""Credit assignment: hand-worked numbers, a slow obvious second implementation, and the invariants by name."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.credit import SCHEMES, Pool, assign_credit, credit_group, explain
from workbench.errors import CreditError
from workbench.schema import Group, RewardSummary, Rollout, ScoredGroup, Step, StepScores

# One group of three completions, worked by hand. The pool is 1 1 0 1 0 0 0 0 1: mean 4/9 = 0.444444; the squared
# deviations are 4 * (5/9)^2 + 5 * (4/9)^2 = 20/9, over n - 1 = 8 is 5/18, std = 0.527046. So a 1 normalises to
# (5/9) / 0.527146 = 1.0539 and a 0 to -(4/9) / 0.527146 = -0.8431.
REWARDS = [[1, 1, 0], [1, 0], [0, 0, 0, 1]]
ENDS = [[3, 7, 9], [4, 8], [2, 4, 6, 8]]
LENGTHS = [10, 9, 9]


def rows(advantages):
    return [advantages[i, :length].tolist() for i, length in enumerate(LENGTHS)]


def test_process_gives_a_token_the_sum_over_steps_that_end_at_or_after_it():
    first, second, third = rows(assign_credit(REWARDS, ENDS, LENGTHS, "process"))
    # 1.0539 + 1.0539 - 0.8431 = 1.2647; 1.0539 - 0.8431 = 0.2108; -3 * 0.8431 + 1.0539 = -1.4754
    assert first == pytest.approx([1.2647] * 4 + [0.2108] * 4 + [-0.8431] * 2, abs=1e-4)
    assert second == pytest.approx([0.2108] * 5 + [-0.8431] * 4, abs=1e-4)
    assert third == pytest.approx([-1.4754] * 3 + [-0.6323] * 2 + [0.2108] * 2 + [1.0539] * 2, abs=1e-4)


def test_step_gives_a_token_its_own_steps_value():
    first, second, third = rows(assign_credit(REWARDS, ENDS, LENGTHS, "step"))
    assert first == pytest.approx([1.0539] * 8 + [-0.8431] * 2, abs=1e-4)
    assert second == pytest.approx([1.0539] * 5 + [-0.8431] * 4, abs=1e-4)
    assert third == pytest.approx([-0.8431] * 7 + [1.0539] * 2, abs=1e-4)


def test_sum_normalises_the_summed_rewards():
    # sums 2, 1, 1: mean 4/3, std sqrt((4/9 + 1/9 + 1/9) / 2) = 0.57735; (2/3) / 0.57745 = 1.1545
    first, second, third = rows(assign_credit(REWARDS, ENDS, LENGTHS, "sum"))
    assert first == pytest.approx([1.1545] * 10, abs=1e-4)
    assert second == third == pytest.approx([-0.5773] * 9, abs=1e-4)


def test_outcome_is_trls_advantage():
    # R = 1, 0, 0: mean 1/3, std 0.57735; (2/3) / 0.57745 = 1.1545
    advantages = assign_credit(REWARDS, ENDS, LENGTHS, "outcome", outcome_rewards=[1, 0, 0])
    assert rows(advantages)[0] == pytest.approx([1.1545] * 10, abs=1e-4)
    assert rows(advantages)[2] == pytest.approx([-0.5773] * 9, abs=1e-4)


def test_rescaled_shares_the_sum_out_by_step_reward():
    # Completion 1: rewards 1, 1, 0 over 4, 4, 2 tokens: mean 0.8; z(sum) 1.1545; a 1 gets 1.1545 / 0.80001 = 1.4431.
    # Completion 2: 1, 0 over 5, 4 tokens: mean 5/9; z -0.5773: a 1 gets -0.5773 / 0.555566 = -1.0391.
    advantages = assign_credit(REWARDS, ENDS, LENGTHS, "rescaled")
    assert rows(advantages)[0] == pytest.approx([1.4431] * 8 + [0.0] * 2, abs=1e-4)
    assert rows(advantages)[1] == pytest.approx([-1.0391] * 5 + [0.0] * 4, abs=1e-4)


def test_rescaled_warns_when_the_mean_is_near_zero():
    credit = credit_group(scored([[1.0, -1.0], [1.0, 1.0]], [[1, 3], [1, 3]], [4, 4]), "rescaled")
    assert "too near 0" in credit.warnings[0]


def test_scale_off_only_centres():
    advantages = assign_credit([[1.0], [0.0]], [[1], [1]], [2, 2], "process", scale=False)
    assert advantages.tolist() == [[0.5, 0.5], [-0.5, -0.5]]


def test_outcome_weight_adds_the_normalised_outcome_to_every_token():
    plain = assign_credit(REWARDS, ENDS, LENGTHS, "process")
    both = assign_credit(REWARDS, ENDS, LENGTHS, "process", outcome_rewards=[1, 0, 0], outcome_weight=0.5)
    assert (both - plain)[0] == pytest.approx([0.5 * 1.1545] * 10, abs=1e-4)


def test_clip_bounds_the_advantage():
    assert np.abs(assign_credit(REWARDS, ENDS, LENGTHS, "process", clip=1.0)).max() == 1.0


def test_preamble_belongs_to_no_step_but_gets_the_suffix_sum():
    starts, ends = [[2, 4], [0]], [[3, 5], [5]]
    process = assign_credit([[1, 0], [1]], ends, [6, 6], "process", step_starts=starts)
    own = assign_credit([[1, 0], [1]], ends, [6, 6], "step", step_starts=starts)
    assert process[0, 0] == process[0, 3]
    assert own[0, :2].tolist() == [0.0, 0.0]
    assert own[0, 2] > 0


def test_invariant_unscored_is_not_zero():
    """None is left out of mean and std and adds nothing to any token: removing the step changes no other number."""
    with_none = assign_credit([[1, None, 0], [0, 1]], [[1, 3, 5], [2, 5]], [6, 6], "process")
    without = assign_credit([[1, 0], [0, 1]], [[1, 5], [2, 5]], [6, 6], "process")
    assert with_none.tolist() == without.tolist()
    as_zero = assign_credit([[1, 0, 0], [0, 1]], [[1, 3, 5], [2, 5]], [6, 6], "process")
    assert with_none.tolist() != as_zero.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rewards", [[[1, 1], [1, 1]], [[None, None], [None, None]], [[1, None], [None, None]]])
def test_invariant_a_group_with_no_spread_gets_zero(scheme, rewards):
    outcomes = [0.5, 0.5]
    if scheme in ("sum", "rescaled") and rewards[0] == [1, None]:
        outcomes = [1.0, None]
    advantages = assign_credit(rewards, [[1, 3], [1, 3]], [4, 4], scheme, outcome_rewards=outcomes)
    assert not advantages.any()
    credit = credit_group(scored(rewards, [[1, 3], [1, 3]], [4, 4], outcomes), scheme)
    assert not credit.spread


def test_a_completion_without_a_scored_step_gets_zero_and_stays_out_of_the_pool():
    advantages = assign_credit([[1, 0], [None], [0, 0]], [[1, 3], [3], [1, 3]], [4, 4, 4], "process")
    assert not advantages[1].any()
    kept = assign_credit([[1, 0], [0, 0]], [[1, 3], [1, 3]], [4, 4], "process")
    assert advantages[[0, 2]].tolist() == kept.tolist()


def test_invariant_padding_is_zero():
    advantages = assign_credit([[1], [0]], [[9], [2]], [10, 3], "process")
    assert advantages.shape == (2, 10)
    assert advantages.dtype == np.float32
    assert not advantages[1, 3:].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1]], [[1], [2]], [3]), "step_ends has 2 completions and lengths has 1"),
        (([[1, 1]], [[1]], [3]), "completion 0 has 2 step rewards"),
        (([[1, 1]], [[2, 1]], [3]), r"step_ends \[2, 1\] go backwards"),
        (([[1]], [[3]], [3]), "do not lie within its 3 tokens"),
        (([[math.inf]], [[1]], [3]), "reward inf is not finite"),
        (([[1]], [[1]], [3], "outcome"), "needs an outcome reward"),
        (([[1]], [[1]], [3], "sums"), "unknown credit scheme 'sums'; choose one of process"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(CreditError, match=message):
        assign_credit(*arguments)


def test_outcome_weight_needs_an_outcome():
    with pytest.raises(CreditError, match="no outcome reward is set"):
        assign_credit(REWARDS, ENDS, LENGTHS, "process", outcome_weight=1.0)


# -- Two implementations ---------------------------------------------------------------------------------------------

reward = st.one_of(
    st.none(), st.integers(-3, 3).map(float), st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))
)


@st.composite
def groups(draw):
    """(rewards, starts, ends, lengths, outcomes) of a random group; steps partition a part of each completion."""
    rewards, starts, ends, lengths = [], [], [], []
    for _ in range(draw(st.integers(1, 5))):
        widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
        preamble, tail = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        borders = np.cumsum([preamble, *widths]).tolist()
        starts.append(borders[:-1])
        ends.append([b - 1 for b in borders[1:]])
        lengths.append(borders[-1] + tail)
        rewards.append([draw(reward) for _ in widths])
    outcomes = [draw(reward) for _ in rewards]
    return rewards, starts, ends, lengths, outcomes


def z(value, pool):
    values = [x for x in pool if x is not None]
    if value is None or len(values) < 2 or max(values) == min(values):
        return 0.0
    return (value - statistics.fmean(values)) / (statistics.stdev(values) + 1e-4)


def obvious(scheme, rewards, starts, ends, lengths, outcomes):
    """Token by token, straight from the formulas."""
    everything = [r for row in rewards for r in row]
    sums = [sum(r for r in row if r is not None) if any(r is not None for r in row) else None for row in rewards]
    result = []
    for i, length in enumerate(lengths):
        row = []
        for t in range(length):
            if scheme == "outcome":
                row.append(z(outcomes[i], outcomes))
            elif scheme == "sum":
                row.append(z(sums[i], sums))
            elif scheme == "process":
                row.append(sum(z(r, everything) for r, e in zip(rewards[i], ends[i], strict=True) if e >= t))
            else:
                own = [r for r, s, e in zip(rewards[i], starts[i], ends[i], strict=True) if s <= t <= e]
                row.append(z(own[0], everything) if own else 0.0)
        result.append(row)
    return result


@given(groups(), st.sampled_from(["outcome", "sum", "process", "step"]))
def test_two_implementations_agree(group, scheme):
    rewards, starts, ends, lengths, outcomes = group
    fast = assign_credit(rewards, ends, lengths, scheme, step_starts=starts, outcome_rewards=outcomes)
    slow = obvious(scheme, *group)
    for i, length in enumerate(lengths):
        assert fast[i, :length].tolist() == pytest.approx(slow[i], rel=1e-5, abs=1e-4)
        assert not fast[i, length:].any()


def scored(rewards, ends, lengths, outcomes=None, starts=None):
    """A scored group whose text is one letter a token."""
    starts = starts or [[0, *(e + 1 for e in row[:-1])] for row in ends]
    group = Group("?", tuple(Rollout(tuple(range(n)), ("x",) * n, finished=False) for n in lengths))
    one = tuple(
        StepScores(
            steps=tuple(Step(s, e + 1) for s, e in zip(starts[i], ends[i], strict=True)),
            spans=tuple(zip(starts[i], ends[i], strict=True)),
            scores={"mine": tuple(rewards[i])},
            rewards=tuple(rewards[i]),
            outcome_scores={"whole": None if outcomes is None else outcomes[i]},
            outcome=None if outcomes is None else outcomes[i],
        )
        for i in range(len(lengths))
    )
    summaries = (RewardSummary("mine", "step", 1.0),)
    if outcomes is not None:
        summaries += (RewardSummary("whole", "outcome", 1.0),)
    return ScoredGroup(group, one, summaries)


@given(groups(), st.sampled_from(list(SCHEMES)), st.sampled_from([0.0, 0.7]))
def test_an_explanation_adds_up_to_the_advantage_exactly(group, scheme, outcome_weight):
    rewards, starts, ends, lengths, outcomes = group
    credit = credit_group(scored(rewards, ends, lengths, outcomes, starts), scheme, outcome_weight=outcome_weight)
    for i, length in enumerate(lengths):
        for t in range(length):
            explanation = explain(credit, i, t)
            assert np.float32(explanation.total) == explanation.advantage == credit.advantages[i, t]


def test_credit_group_and_assign_credit_give_the_same_tensor():
    credit = credit_group(scored(REWARDS, ENDS, LENGTHS), "process")
    assert credit.advantages.tobytes() == assign_credit(REWARDS, ENDS, LENGTHS, "process").tobytes()
    assert credit.mean == pytest.approx(4 / 9)
    assert credit.std == pytest.approx(0.527046, abs=1e-6)


def test_an_explanation_names_the_steps_and_what_they_were_given():
    explanation = explain(credit_group(scored(REWARDS, ENDS, LENGTHS), "process"), 0, 4)
    assert [(term.step, term.reward) for term in explanation.terms] == [(1, 1), (2, 0)]
    assert explanation.terms[0].scores == {"mine": 1}
    assert [term.value for term in explanation.terms] == pytest.approx([1.0539, -0.8431], abs=1e-4)
    with pytest.raises(IndexError, match="tokens 0 to 9, not 10"):
        explain(credit_group(scored(REWARDS, ENDS, LENGTHS), "process"), 0, 10)


def test_a_pool_without_spread_normalises_to_zero():
    assert Pool.of([2.0]).z(2.0) == 0.0
    assert Pool.of([2.0, 2.0, None]).z(2.0) == 0.0
    assert Pool.of([]).z(None) is None
