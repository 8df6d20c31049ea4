"""Generalised advantage estimation: numbers worked out by hand, a slow second implementation, and its explanations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credits import make_credit, make_rollout
from workbench.credit import GAEOptions, Measured, credit_by_gae, gae, unused_rewards, why_no_spread
from workbench.schema import RewardSummary, ScoredGroup

PLAIN = GAEOptions(gamma=0.5, lam=0.5, kl_coef=0.1, score_clip=2.0, whiten=False)


def test_numbers_worked_out_by_hand():
    """delta = 0 + .5*2 - 1 = 0, 0 + .5*4 - 2 = 0, 1 + 0 - 4 = -3; with gamma lam = 1/4: A = -3/16, -3/4, -3."""
    advantages, returns = gae([0, 0, 1], [1, 2, 4], gamma=0.5, lam=0.5)
    assert (advantages.dtype, advantages.tolist()) == (np.float32, [-0.1875, -0.75, -3.0])
    assert (returns.dtype, returns.tolist()) == (np.float32, [0.8125, 1.25, 1.0])
    # lambda = 1: what follows less the value; lambda = 0: the temporal differences alone.
    assert gae([0, 0, 1], [1, 2, 4], gamma=1, lam=1)[0].tolist() == [0, -1, -3]
    assert gae([0, 0, 1], [1, 2, 4], gamma=1, lam=0)[0].tolist() == [1, 2, -3]
    assert [len(row) for row in gae([], [])] == [0, 0]


numbers = st.floats(-5, 5, allow_nan=False, width=32)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_double_sum(pairs, gamma, lam):
    rewards, values = zip(*pairs, strict=True)
    following = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    slow = [sum((gamma * lam) ** (j - t) * deltas[j] for j in range(t, len(deltas))) for t in range(len(deltas))]
    advantages, returns = gae(rewards, values, gamma, lam)
    np.testing.assert_allclose(advantages, slow, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(returns, np.add(slow, values), rtol=1e-6, atol=1e-5)


def two_rollouts() -> ScoredGroup:
    """Four and three tokens, steps that end at 1 and 3 and at 2; outcomes 3 and None."""
    rollouts = [make_rollout(["a", "b", "c", "d"]), make_rollout(["e", "f", "g"], finished=False)]
    scored = make_credit(rollouts, [[1, 3], [2]], [[1.0, 0.5], [None]], outcomes=[3.0, 0.0]).scored
    second = replace(scored.scored[1], outcome=None)
    return replace(scored, scored=(scored.scored[0], second))


MEASURED = [Measured([1.0, 2.0, 4.0, 0.0], [0.0, 1.0, 0.0, -1.0]), Measured([0.5, 0.5, 0.5], [0.0, 0.0, 2.0])]


def test_token_rewards_of_a_rollout():
    """KL 0.1 a token; step rewards 1 and 0.5 at tokens 1 and 3; the outcome 3 clamped to 2 at token 3."""
    (credit,) = credit_by_gae([two_rollouts()], MEASURED, PLAIN)
    rewards = credit.values["token_reward"]
    np.testing.assert_allclose(rewards[0], [0, -0.1 + 1, 0, 0.1 + 0.5 + 2], atol=1e-7)
    np.testing.assert_allclose(rewards[1], [0, 0, -0.2], atol=1e-7)  # unscored is not zero: nothing is added
    for i in (0, 1):
        advantages, returns = gae(rewards[i].astype(float), MEASURED[i].values, 0.5, 0.5)
        np.testing.assert_allclose(credit.of(i), advantages, atol=1e-6)
        np.testing.assert_allclose(credit.values["return"][i], returns, atol=1e-6)
    assert credit.advantages.shape == (2, 4)
    assert credit.advantages[1, 3] == 0  # padding
    assert credit.spread


def test_whitening_is_over_all_tokens_of_the_batch_that_the_loss_sees():
    plain = credit_by_gae([two_rollouts(), two_rollouts()], [*MEASURED, *MEASURED], PLAIN)
    whitened = credit_by_gae([two_rollouts(), two_rollouts()], [*MEASURED, *MEASURED], replace(PLAIN, whiten=True))
    pool = np.concatenate([credit.of(i) for credit in plain for i in (0, 1)]).astype(float)
    expected = (plain[1].of(0) - pool.mean()) / (pool.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(whitened[1].of(0), expected, atol=1e-6)
    (finished,) = credit_by_gae([two_rollouts()], MEASURED, replace(PLAIN, whiten=True), finished_only=True)
    first = plain[0].of(0).astype(float)
    assert (finished.mean, finished.std) == pytest.approx((first.mean(), first.std(ddof=1)), abs=1e-6)


def test_tokens_that_were_not_sampled_are_passed_over():
    """Tokens 1 and 2 were written by a tool: the step's reward goes to token 0, whose next token is 3."""
    group = two_rollouts()
    rollout = replace(group.group.rollouts[0], mask=(1, 0, 0, 1))
    group = replace(group, group=replace(group.group, rollouts=(rollout, group.group.rollouts[1])))
    (credit,) = credit_by_gae([group], MEASURED, PLAIN)
    expected, _ = gae([1.0, 0.1 + 0.5 + 2], [1.0, 0.0], 0.5, 0.5)
    np.testing.assert_allclose(credit.of(0), [expected[0], 0, 0, expected[1]], atol=1e-6)
    assert credit.explain(0, 1).terms == ()
    assert [term.token for term in credit.explain(0, 0).terms] == [0, 3]


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_an_explanation_adds_up_to_the_advantage_exactly(whiten, decay):
    options = replace(PLAIN, gamma=1.0, lam=decay, whiten=whiten)
    (credit,) = credit_by_gae([two_rollouts()], MEASURED, options)
    for i, length in enumerate((4, 3)):
        for t in range(length):
            for at_most in (None, 1, 2):
                why = credit.explain(i, t, at_most)
                assert np.float32(why.total) == why.advantage == credit.of(i)[t]
                assert sum(term.value for term in why.terms) == pytest.approx(why.total, abs=1e-12)
            deltas = [term for term in credit.explain(i, t).terms if term.source == "delta"]
            assert [term.token for term in deltas] == list(range(t, length))
            assert [term.factor for term in deltas] == pytest.approx([decay**j for j in range(length - t)])
            for term in deltas:
                assert np.float32(term.raw) == credit.values["delta"][i][term.token]
    short = credit.explain(0, 0, 1).terms
    assert [(term.source, term.token) for term in short][:2] == [("delta", 0), ("later", 1)]


def test_a_batch_without_spread_teaches_nothing_and_says_so():
    group = two_rollouts()
    bare = replace(group, rewards=(RewardSummary("right", "outcome", 1.0),))
    flat = replace(PLAIN, kl_coef=0.0, whiten=True)
    none = tuple(replace(scored, rewards=(None,) * len(scored.rewards), outcome=None) for scored in bare.scored)
    (credit,) = credit_by_gae([replace(bare, scored=none)], [Measured([0.0] * n, [0.0] * n) for n in (4, 3)], flat)
    assert not credit.advantages.any()
    assert not credit.spread
    assert str(why_no_spread(credit)).startswith("No spread")
    assert unused_rewards(credit) == {}
