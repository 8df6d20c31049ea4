"""Rewards normalised function by function before they are summed (GDPO): by hand, and against a slow second way."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credits import make_rollout, make_scored
from workbench.credit import credit_group

WEIGHTS = {"right": 1.0, "short": 2.0}


def scored(rows, wholes=None):
    """``rows[i][k]`` are the scores of a step by function; each step is one token."""
    rollouts = [make_rollout(["t"] * len(row), finished=False) for row in rows]
    spans = [[(k, k) for k in range(len(row))] for row in rows]
    steps = {name: [[step[name] for step in row] for row in rows] for name in WEIGHTS}
    outcomes = {f"{name}_whole": [of[f"{name}_whole"] for of in wholes] for name in WEIGHTS} if wholes else None
    weights = WEIGHTS | {f"{name}_whole": weight for name, weight in WEIGHTS.items()}
    return make_scored(rollouts, spans, steps, outcomes, weights)


def of(right, short):
    return {"right": right, "short": short}


def test_a_function_with_a_small_spread_counts_by_its_weight():
    # right is 1 0 1 0, short 0 0 100 100: z of each is +-0.5 / (0.577350 + 1e-4) = +-0.865875 (times 100 for short, and
    # 1e-4 is less beside it: +-50 / (57.735 + 1e-4) = +-0.866024). Sums: 0.865875 - 2 * 0.866024 = -0.866173,
    # -2.597923, 2.597923, 0.866173; plainly they would be 1, 0, 201, 200.
    group = scored([[of(1, 0)], [of(0, 0)], [of(1, 100)], [of(0, 100)]])
    credit = credit_group(group, "step", normalise="none", each_reward=True)
    assert credit.advantages[:, 0].tolist() == pytest.approx([-0.866173, -2.597923, 2.597923, 0.866173], abs=1e-5)
    assert credit.options["each_reward"] is True
    # The group keeps what its functions gave; the term says what the scheme made of it.
    (term,) = credit.explain(2, 0).terms
    assert (term.reward, term.scores) == (201.0, of(1, 100))
    assert term.raw == pytest.approx(2.597923, abs=1e-5)
    # And normalised once more: the sums' mean is 0, their std sqrt((2 * 0.866173^2 + 2 * 2.597923^2) / 3) = 2.236.
    again = credit_group(group, "step", each_reward=True).advantages[:, 0]
    assert again.tolist() == pytest.approx([-0.38733, -1.16173, 1.16173, 0.38733], abs=1e-4)


def test_sums_that_hide_what_differs_no_longer_do():
    """One right and long, one wrong and short: both sum to 1. On their own z is +-0.7071, short's weighed twice."""
    group = scored([[of(1, 0)], [of(0, 0.5)]])
    credit = credit_group(group, "process", each_reward=True)
    assert credit.advantages[:, 0].tolist() == pytest.approx([-0.7071, 0.7071], abs=2e-4)
    assert credit_group(group, "process").spread is False  # 1 + 0 and 0 + 2 * 0.5


def test_an_unscored_step_stays_unscored_and_one_score_is_enough():
    group = scored([[of(1, None), of(None, None)], [of(0, 3)], [of(0, 1)]])
    credit = credit_group(group, "step", normalise="none", each_reward=True)
    # right: 1 0 0, z = 1.154501 and -0.577250; short: 3 1, z = +-1 / 1.414314 = +-0.707057, twice.
    assert credit.advantages[0].tolist() == [pytest.approx(1.154501, abs=1e-5), 0.0]
    assert credit.advantages[1:, 0].tolist() == pytest.approx([-0.577250 + 1.414114, -0.577250 - 1.414114], abs=1e-5)
    assert credit.normalised[0][1] is None


def test_outcomes_are_summed_so_too():
    wholes = [{"right_whole": 1.0, "short_whole": 0.0}, {"right_whole": 0.0, "short_whole": 10.0}]
    group = scored([[of(None, None)]] * 2, wholes)
    credit = credit_group(group, "outcome", normalise="none", each_reward=True)
    z = 0.5 / (math.sqrt(0.5) + 1e-4), 5 / (math.sqrt(50) + 1e-4)
    assert credit.advantages[:, 0].tolist() == pytest.approx([z[0] - 2 * z[1], 2 * z[1] - z[0]])


score = st.one_of(st.none(), st.integers(-3, 3).map(float))


def z(value, values):
    known = [x for x in values if x is not None]
    if value is None or len(set(known)) < 2:
        return 0.0
    mean = sum(known) / len(known)
    return (value - mean) / (math.sqrt(sum((x - mean) ** 2 for x in known) / (len(known) - 1)) + 1e-4)


@settings(max_examples=75, deadline=None)
@given(st.lists(st.lists(st.builds(of, score, score), min_size=1, max_size=4), min_size=1, max_size=5))
def test_two_implementations_agree(rows):
    credit = credit_group(scored(rows), "step", normalise="none", each_reward=True)
    steps = [step for row in rows for step in row]
    expected = [
        [
            None if step == of(None, None) else sum(w * z(step[f], [s[f] for s in steps]) for f, w in WEIGHTS.items())
            for step in row
        ]
        for row in rows
    ]
    known = [x for row in expected for x in row if x is not None]
    if len(known) < 2 or max(known) - min(known) < 1e-9:
        assert not credit.advantages.any()
        return
    for i, row in enumerate(expected):
        assert credit.of(i).tolist() == pytest.approx([x or 0.0 for x in row], abs=1e-5)
