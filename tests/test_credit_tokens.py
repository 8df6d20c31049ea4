"""Schemes that compare a group's completions token by token: hand-worked numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import fisher_exact
from sklearn.metrics import mutual_info_score

from tests.credits import make_credit
from workbench.credit import assign_credit
from workbench.errors import CreditError
from workbench.schema import Rollout

# Three answers: the first two share their first two tokens, all three the first. R = 1, 0, 0: z = 1.15450 and -0.57725.
IDS = [[7, 8, 9, 4], [7, 8, 5], [7, 6, 9]]
LENGTHS = [4, 3, 3]
STEPS, ENDS = [[None]] * 3, [[3], [2], [2]]
HIGH, LOW = (2 / 3) / (3**-0.5 + 1e-4), (-1 / 3) / (3**-0.5 + 1e-4)


def assigned(scheme, outcomes=(1.0, 0.0, 0.0), ids=IDS, **options):
    lengths = [len(row) for row in ids]
    ends, rewards = [[n - 1] for n in lengths], [[None]] * len(ids)
    return assign_credit(rewards, ends, lengths, scheme, outcome_rewards=outcomes, token_ids=ids, **options)


def test_lambda_grpo_divides_by_the_answers_that_share_the_start():
    advantages = assigned("lambda_grpo")
    assert advantages[0].tolist() == pytest.approx([HIGH / 3, HIGH / 2, HIGH, HIGH])
    assert advantages[1].tolist() == pytest.approx([LOW / 3, LOW / 2, LOW, 0.0])
    # Its 9 is another one than the first answer's, which comes after other tokens.
    assert advantages[2].tolist() == pytest.approx([LOW / 3, LOW, LOW, 0.0])


def test_lambda_grpo_counts_equal_answers_and_leaves_out_unscored_ones():
    twice = assigned("lambda_grpo", (1.0, 1.0, 0.0), [[1, 2], [1, 2], [3, 4]])
    assert twice[0].tolist() == pytest.approx([LOW / -2, LOW / -2])
    unscored = assigned("lambda_grpo", (1.0, None, 0.0), [[1, 2], [1, 2], [3, 4]])
    half = 0.5 / (0.5**0.5 + 1e-4)
    assert unscored.tolist() == [pytest.approx([half, half]), [0.0, 0.0], pytest.approx([-half, -half])]


def test_ktae_adds_what_a_token_has_to_do_with_right_answers():
    # One right answer of 4 tokens, two wrong ones of 6: T / mean T is 0.8 and 1.2. The entropy of 1 in 3 is 0.918296.
    # Token 4, in the right answer alone: p = 1/3, IG = 0.918296, h = pi/2, f+ = 0.75 / 2.05 = 0.365854, f- = 0:
    #   x is 36585 and more, w = 1.
    # Token 5, in one wrong answer: p = 1 gives F = 0; IG = 0.918296 - 2/3 = 0.251629; h = -pi/4; f- = 0.5 / (1/6 + 2.2)
    #   = 0.211268, f+ = 0: x = -21127.5 and less, w = -1.
    # Token 8, in the right answer and one wrong: p = 1, IG = 0.251629, h = pi/2 - pi/4 = 0.785398; f+ = 0.365854,
    #   f- = 0.211268: x = 0.785398 + 1.731620 - 0.577446 = 1.939572, w = tanh(x * 0.251629 / 4) = 0.121413.
    # Token 7, in all: p = 1, IG = 0, w = 0. f- of it is 1 / (1/3 + 2.2).
    advantages = assigned("ktae")
    assert advantages[0].tolist() == pytest.approx([HIGH, HIGH + 0.121413, HIGH + 0.121413, HIGH + 1], abs=1e-5)
    assert advantages[1, :3].tolist() == pytest.approx([LOW, LOW + 0.121413, LOW - 1], abs=1e-5)
    assert advantages[2, :3].tolist() == pytest.approx([LOW, LOW - 1, LOW + 0.121413], abs=1e-5)
    halved = assigned("ktae", token_weight=0.5)
    assert halved[0, 3] == pytest.approx(HIGH + 0.5)


def test_ktae_without_right_or_without_wrong_answers_is_the_outcome():
    shaped = (0.9, 0.1, 0.1)  # none is right from 1 on
    assert assigned("ktae", shaped).tolist() == assigned("outcome", shaped).tolist()
    assert assigned("ktae", shaped, right_from=0.5)[0, 3] == pytest.approx(HIGH + 1, abs=2e-4)


def by_libraries(right, wrong):
    """ktae's weight of every token id, by scipy's test and scikit-learn's information."""
    answers, weights = [(ids, True) for ids in right] + [(ids, False) for ids in wrong], {}
    totals = [sum(map(len, kind)) for kind in (right, wrong)]
    for token in {token for ids, _ in answers for token in ids}:
        has, is_right = [token in ids for ids, _ in answers], [kind for _, kind in answers]
        a, b = (sum(token in ids for ids in kind) for kind in (right, wrong))
        p = fisher_exact([[a, b], [len(right) - a, len(wrong) - b]]).pvalue
        strength = (0 if p > 1 - 1e-6 else np.exp(-2 * p)) + mutual_info_score(has, is_right) / np.log(2)
        saturated = []
        for kind, total in zip((right, wrong), totals, strict=True):
            q = sum(ids.count(token) for ids in kind) / total
            saturated.append(3 * q / (q + 1 + total / np.mean(totals)))
        plus, minus = saturated
        h = np.arcsin(np.sqrt(a / len(right))) - np.arcsin(np.sqrt(b / len(wrong)))
        x = h + plus / (minus + 1e-5) - minus / (plus + 1e-5)
        weights[token] = 2 * expit(x * strength / 2) - 1
    return weights


@settings(max_examples=50, deadline=None)
@given(*[st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=6), min_size=1, max_size=5)] * 2)
def test_two_implementations_of_ktae_agree(right, wrong):
    ids, outcomes = [*right, *wrong], [1.0] * len(right) + [0.0] * len(wrong)
    weights = by_libraries(right, wrong)
    given = assigned("ktae", outcomes, ids) - assigned("outcome", outcomes, ids)
    for row, values in zip(ids, given, strict=True):
        assert values[: len(row)].tolist() == pytest.approx([weights[token] for token in row], abs=1e-5)


def credit_of(ids, scheme="ktae", *, finished=(False,) * 3, masks=(None,) * 3):
    """Three answers, R = 1, 0, 0."""
    rollouts = [
        Rollout(tuple(row), tuple("abcdefgh"[: len(row)]), finished=end, mask=mask)
        for row, end, mask in zip(ids, finished, masks, strict=True)
    ]
    return make_credit(rollouts, [[len(row) - 1] for row in ids], [[None]] * 3, [1.0, 0.0, 0.0], scheme=scheme)


def test_an_end_of_sequence_token_tells_nothing_of_right_answers():
    """Only the right answer was not cut off: its last token would otherwise be the surest sign of all."""
    credit = credit_of([[7, 8, 2], [7, 8], [7, 5]], finished=(True, False, False))
    assert credit.of(0)[2] == pytest.approx(HIGH)
    assert credit.of(0)[1] != pytest.approx(HIGH)


def test_tokens_that_a_tool_wrote_are_compared_but_get_nothing():
    ids, masks = [[7, 1, 8], [7, 2, 8], [7, 1, 9]], ((1, 0, 1), (1, 0, 1), None)
    credit = credit_of(ids, "lambda_grpo", masks=masks)
    assert credit.of(0).tolist() == pytest.approx([HIGH / 3, 0.0, HIGH])
    assert credit.of(1).tolist() == pytest.approx([LOW / 3, 0.0, LOW])
    assert credit.explain(0, 1).terms == ()
    assert credit_of(ids, masks=masks).of(0).astype(bool).tolist() == [True, False, True]


def test_the_terms_of_a_token_say_what_it_shares_and_what_it_tells():
    (shared,) = credit_of(IDS, "lambda_grpo").explain(0, 1).terms
    assert (shared.source, shared.step, shared.reward, shared.factor) == ("outcome", None, 1.0, 0.5)
    assert shared.scores == {"right": 1.0}
    whole, token = credit_of(IDS).explain(1, 2).terms
    assert (whole.source, whole.normalised) == ("outcome", pytest.approx(LOW))
    assert (token.source, token.token, token.reward, token.scores) == ("token", 2, None, {})
    assert token.value == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("scheme", ["lambda_grpo", "ktae"])
def test_a_group_without_token_ids_is_refused(scheme):
    with pytest.raises(CreditError, match=f"'{scheme}'"):
        assign_credit(STEPS, ENDS, LENGTHS, scheme, outcome_rewards=[1, 0, 0])
    with pytest.raises(CreditError, match="token_ids: "):
        assign_credit(STEPS, ENDS, LENGTHS, scheme, outcome_rewards=[1, 0, 0], token_ids=[[1] * 4, [1] * 2, [1] * 3])
