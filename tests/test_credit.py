"""Credit assignment: hand-worked numbers, a slow obvious second implementation, and the invariants by name."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credits import make_scored, worked_credit
from tests.slow_credit import SlowGroup, slow_credit
from workbench.config import CreditConfig
from workbench.credit import (
    NORMALISATIONS,
    SCHEMES,
    Batch,
    Part,
    Scheme,
    assign_credit,
    compare_credits,
    credit_group,
    credit_groups,
    importance_weights,
    length_normalisers,
    loss_weights,
    pooled,
)
from workbench.errors import CreditError
from workbench.schema import Rollout
from workbench.ui.handlers.fields import for_scheme

# One group of three completions, worked by hand. The pool is 1 1 0 1 0 0 0 0 1: mean 4/9 = 0.444444; the squared
# deviations are 4 * (5/9)^2 + 5 * (4/9)^2 = 20/9, over n - 1 = 8 is 5/18, std = 0.527046. So a 1 normalises to
# (5/9) / 0.527146 = 1.0539 and a 0 to -(4/9) / 0.527146 = -0.8431.
REWARDS = [[1, 1, 0], [1, 0], [0, 0, 0, 1]]
ENDS = [[3, 7, 9], [4, 8], [2, 4, 6, 8]]
LENGTHS = [10, 9, 9]


def rows(advantages):
    return [advantages[i, :length].tolist() for i, length in enumerate(LENGTHS)]


# Per scheme and options: what the tokens of each completion get, worked by hand; None for one that is not looked at.
WORKED = [
    # A token gets the sum over steps that end at or after it: 1.0539 + 1.0539 - 0.8431 = 1.2647; 1.0539 - 0.8431 =
    # 0.2108; -3 * 0.8431 + 1.0539 = -1.4754.
    (
        "process",
        {},
        [1.2647] * 4 + [0.2108] * 4 + [-0.8431] * 2,
        [0.2108] * 5 + [-0.8431] * 4,
        [-1.4754] * 3 + [-0.6323] * 2 + [0.2108] * 2 + [1.0539] * 2,
    ),
    # gamma discounts the steps ahead: 1.0539 + 0.5 * 1.0539 - 0.25 * 0.8431 = 1.37008; 1.0539 - 0.5 * 0.8431 = 0.63234.
    ("process", {"gamma": 0.5}, [1.37008] * 4 + [0.63234] * 4 + [-0.84312] * 2, None, None),
    # Equal steps in a row count once: 1 0 | 1 0 | 0 1, mean 1/2, std 0.547723; z = +-0.5 / 0.547823 = +-0.91270.
    (
        "process",
        {"merge_equal": True},
        [0.0] * 8 + [-0.9127] * 2,
        [0.0] * 5 + [-0.9127] * 4,
        [0.0] * 7 + [0.9127] * 2,
    ),
    # A token gets its own step's value.
    (
        "step",
        {},
        [1.0539] * 8 + [-0.8431] * 2,
        [1.0539] * 5 + [-0.8431] * 4,
        [-0.8431] * 7 + [1.0539] * 2,
    ),
    # Sums 2, 1, 1: mean 4/3, std sqrt((4/9 + 1/9 + 1/9) / 2) = 0.57735; (2/3) / 0.57745 = 1.1545.
    ("sum", {}, [1.1545] * 10, [-0.5773] * 9, [-0.5773] * 9),
    # R = 1, 0, 0: mean 1/3, std 0.57735; (2/3) / 0.57745 = 1.1545: TRL's advantage.
    ("outcome", {"outcome_rewards": [1, 0, 0]}, [1.1545] * 10, [-0.5773] * 9, [-0.5773] * 9),
    # (1 - 1/3) / (1/3) = 2 and (0 - 1/3) / (1/3) = -1: one right answer in three.
    ("max_rl", {"outcome_rewards": [1, 0, 0]}, [2.0] * 10, [-1.0] * 9, [-1.0] * 9),
    # The votes' mean and std are those of "per_completion" below: a 1 gets 0.86305, a 0 -0.77220; R 1.1545, -0.5773.
    (
        "adca",
        {"outcome_rewards": [1, 0, 0]},
        [0.95390 + 1.15450] * 4 + [0.09085 + 1.15450] * 4 + [-0.77220 + 1.15450] * 2,
        [0.09085 - 0.57725] * 5 + [-0.77220 - 0.57725] * 4,
        None,
    ),
    # Unscaled and compared with the others: 1 - 0 = 1, 0 - 1/2, 0 - 1/2: RLOO.
    (
        "outcome",
        {"outcome_rewards": [1, 0, 0], "normalise": "leave_one_out", "scale": False},
        [1.0] * 10,
        [-0.5] * 9,
        [-0.5] * 9,
    ),
    # gamma 1/2: completion 1: 0, 1 + 0, 1 + 1/2 -> 1.5 1 0; completion 2: 1 0; completion 3: 1/8 1/4 1/2 1.
    # Nine returns, sum 5.375, mean 0.597222; squares 2.25 + 1 + 1 + 1/64 + 1/16 + 1/4 + 1 = 5.578125, less 9 mean^2
    # = 3.210069 leaves 2.368056, over 8 is 0.296007, std 0.544065. (1.5 - 0.597222) / 0.544165 = 1.65902.
    (
        "return",
        {"gamma": 0.5},
        [1.65902] * 4 + [0.74018] * 4 + [-1.09750] * 2,
        None,
        [-0.86779] * 3 + [-0.63808] * 2 + [-0.17867] * 2 + [0.74018] * 2,
    ),
    # Step 1: 1 1 0, mean 2/3, std 0.57735: 0.57725 and -1.15450. Step 2: 1 0 0: 1.15450 and -0.57725. Step 3: 0 0, no
    # spread. Step 4: one completion alone. Both 0.
    (
        "position",
        {},
        [0.57725] * 4 + [1.15450] * 4 + [0.0] * 2,
        [0.57725] * 5 + [-0.57725] * 4,
        [-1.15450] * 3 + [-0.57725] * 2 + [0.0] * 4,
    ),
    # From process: 1.2647 / 3, 0.2108 / 2, -0.8431; -1.4754 / 4, -0.6323 / 3, 0.2108 / 2, 1.0539.
    (
        "mean_suffix",
        {},
        [0.42157] * 4 + [0.10539] * 4 + [-0.84312] * 2,
        None,
        [-0.36885] * 3 + [-0.21078] * 2 + [0.10539] * 2 + [1.05390] * 2,
    ),
    # Differences 1 0 -1 | 1 -1 | 0 0 0 1: mean 1/9, squares 5 - 9/81 = 4.888889, over 8 0.611111, std 0.781736.
    # z(1) = (8/9) / 0.781836 = 1.13692, z(0) = -0.14212, z(-1) = -1.42115.
    (
        "progress",
        {},
        [-0.42635] * 4 + [-1.56327] * 4 + [-1.42115] * 2,
        [-0.28423] * 5 + [-1.42115] * 4,
        [0.71057] * 3 + [0.85269] * 2 + [0.99481] * 2 + [1.13692] * 2,
    ),
    # Kept: 1 1 0 | 1 0 | 0: mean 1/2, std sqrt(6/4 / 5) = 0.547723; z = +-0.5 / 0.547823 = +-0.91270.
    (
        "first_error",
        {},
        [0.91270] * 4 + [0.0] * 4 + [-0.91270] * 2,
        [0.0] * 5 + [-0.91270] * 4,
        [-0.91270] * 3 + [0.0] * 6,
    ),
    # Means 2/3, 1/2, 1/4: their mean 17/36 = 0.472222. Variance: completion 1 (2 * (19/36)^2 + (17/36)^2) / 3,
    # 2 ((19/36)^2 + (17/36)^2) / 2, 3 (3 * (17/36)^2 + (19/36)^2) / 4, added 0.260031 + 0.250772 + 0.236883 = 0.747685,
    # over 2 is 0.373843, std 0.611427. (1 - 0.472222) / 0.611527 = 0.86305; -0.472222 / 0.611527 = -0.77220.
    ("step", {"normalise": "per_completion"}, None, [0.86305] * 5 + [-0.77220] * 4, None),
    # Completion 1: rewards 1, 1, 0 over 4, 4, 2 tokens: mean 0.8; z(sum) 1.1545; a 1 gets 1.1545 / 0.80001 = 1.4431.
    # Completion 2: 1, 0 over 5, 4 tokens: mean 5/9; z -0.5773: a 1 gets -0.5773 / 0.555566 = -1.0391.
    ("rescaled", {}, [1.4431] * 8 + [0.0] * 2, [-1.0391] * 5 + [0.0] * 4, None),
    # Of the first completion 4, 1 and 2 tokens are sampled: mean 5/7; a 1 gets 1.1545 / 0.714296 = 1.6163.
    ("rescaled", {"masks": [[1] * 5 + [0] * 3 + [1] * 2, None, None]}, [1.6163] * 5 + [0.0] * 5, None, None),
    # (1 - 0.5) / sqrt(1/24) = 0.5 * 4.898979 = 2.449490, and -2.449490 for a 0; R less its mean: 1/3, -2/3, 1/3.
    (
        "prpo",
        {"outcome_rewards": [1, 0, 1]},
        [2.782823] * 8 + [-2.116157] * 2,
        [1.782823] * 5 + [-3.116157] * 4,
        [-2.116157] * 7 + [2.782823] * 2,
    ),
    # The answers' means are 2/3, 1/2 and 1/4, their mean 17/36. 3/2 * (1 - 17/36) = 19/24, 3/2 * (0 - 17/36) = -17/24;
    # R: 3/2 * (1 - 2/3) = 1/2, which is 1 less the others' mean 1/2, and 3/2 * (0 - 2/3) = -1 for the second.
    (
        "prime",
        {"outcome_rewards": [1, 0, 1]},
        [21 / 24 + 0.5] * 4 + [2 / 24 + 0.5] * 4 + [-17 / 24 + 0.5] * 2,
        [2 / 24 - 1] * 5 + [-17 / 24 - 1] * 4,
        [-32 / 24 + 0.5] * 3 + [-15 / 24 + 0.5] * 2 + [2 / 24 + 0.5] * 2 + [19 / 24 + 0.5] * 2,
    ),
    # z(1, 0, 1): mean 2/3, std sqrt(1/3) = 0.57735: 1/3 / 0.57745 = 0.57725 and -1.15450. The right answers' means are
    # 2/3 and 1/4: mean 11/24, std 5/12 / sqrt(2) = 0.294628, z = +-5/24 / 0.294728 = +-0.70687.
    (
        "papo",
        {"outcome_rewards": [1, 0, 1]},
        [0.57725 + 0.70687] * 10,
        [-1.15450] * 9,
        [0.57725 - 0.70687] * 9,
    ),
    # One right answer has none to compare its steps with.
    ("papo", {"outcome_rewards": [1, 0, 0]}, [1.1545] * 10, [-0.5773] * 9, [-0.5773] * 9),
    # Means 2/3, 1/2 and 1/4: two wrong answers come to 1/8 and -1/8 around their mean 3/8, a right one keeps its 2/3.
    # 5/3, 1/8 and -1/8: mean 5/9, deviations 80/72, -31/72 and -49/72, std 0.970335.
    ("progrs", {"outcome_rewards": [1, 0, 0]}, [1.14496] * 10, [-0.44367] * 9, [-0.70129] * 9),
    # Without a right answer 0.1944, 0.0278 and -0.2222 around the mean 0.4722 of all three.
    (
        "progrs",
        {"outcome_rewards": [0, 0, 0], "scale": False},
        [7 / 36] * 10,
        [1 / 36] * 9,
        [-2 / 9] * 9,
    ),
    # 2r - 1: x is 0 0 -1 | 0 -1 | -1/3 -1/3 -1/3 0 but for exp(-20); means -1/3, -1/2, -1/4; baselines -0.375, -7/24
    # and -5/12. What a step carries: 0.375 0.375 -0.625 | 7/24 -17/24 | 1/12 three times and 5/12.
    (
        "min",
        {"signed": True, "gamma": 0.0},
        [0.375] * 8 + [-0.625] * 2,
        [7 / 24] * 5 + [-17 / 24] * 4,
        [1 / 12] * 7 + [5 / 12] * 2,
    ),
    ("min", {"signed": True}, [0.125] * 4 + [-0.25] * 4 + [-0.625] * 2, None, None),
    # alpha adds 0.5 z(R) to every token: 1.2647 + 0.57725 and so on.
    (
        "process",
        {"outcome_rewards": [1, 0, 0], "outcome_weight": 0.5},
        [1.2647 + 0.57725] * 4 + [0.2108 + 0.57725] * 4 + [-0.8431 + 0.57725] * 2,
        None,
        None,
    ),
]


@pytest.mark.parametrize(("scheme", "options", "first", "second", "third"), WORKED)
def test_a_scheme_gives_what_was_worked_by_hand(scheme, options, first, second, third):
    found = rows(assign_credit(REWARDS, ENDS, LENGTHS, scheme, **options))
    for row, expected in zip(found, (first, second, third), strict=True):
        assert expected is None or row == pytest.approx(expected, abs=1e-4)


def test_a_scheme_without_options_has_the_outcome_added_as_the_others_have(monkeypatch):
    def bare(batch: Batch) -> Part:
        return Part("step", "own", pooled(batch, batch.rewards, "none", scale=False))

    monkeypatch.setitem(SCHEMES, "bare", Scheme("bare", formula="A = r", reference="a test", compute=bare))
    outcomes = [1.0, 0.0, 0.0]  # z: (2/3) / 0.57745 = 1.1545, -0.5773
    first, second, _ = rows(assign_credit(REWARDS, ENDS, LENGTHS, "bare", outcome_rewards=outcomes, outcome_weight=1.0))
    assert first == pytest.approx([1 + 1.1545] * 8 + [1.1545] * 2, abs=1e-4)
    assert second == pytest.approx([1 - 0.5773] * 5 + [-0.5773] * 4, abs=1e-4)


def test_min_credits_the_worst_step():
    # softmax(-r / 0.1): a step of 1 beside a 0 weighs exp(-10) = 4.54e-5. Completion 1: 4.5396e-5, 4.5396e-5, 0: mean
    # 3.0264e-5. Completion 2: 4.5398e-5, 0: mean 2.2699e-5. Completion 3: 0 0 0 1.5133e-5: mean 3.7833e-6.
    # Completion 1's baseline is (2.2699e-5 + 3.7833e-6) / 2 = 1.3241e-5: suffix sums 5.1069e-5, 1.8914e-5, -1.3241e-5.
    first = rows(assign_credit(REWARDS, ENDS, LENGTHS, "min"))[0]
    assert first == pytest.approx([5.1069e-5] * 4 + [1.8914e-5] * 4 + [-1.3241e-5] * 2, abs=2e-9)
    # Rewards that are all clear of 0: -1 weighs 1 / (1 + exp(-20)), so the wrong step alone counts.
    worst = assign_credit([[1.0, -1.0], [1.0, 1.0]], [[0, 1], [0, 1]], [2, 2], "min")
    # x = [2e-9, -1] and [0.5, 0.5]; baselines 0.5 and -0.5: suffix sums -2, -1.5 and 2, 1.
    assert worst.tolist() == [pytest.approx([-2.0, -1.5], abs=1e-6), pytest.approx([2.0, 1.0], abs=1e-6)]


def test_progress_without_normalising_telescopes():
    """Splitting a step of the same reward changes no token's advantage."""
    whole = assign_credit([[0.2, 0.8], [0.5]], [[1, 7], [3]], [8, 4], "progress", normalise="none")
    split = assign_credit([[0.2, 0.8, 0.8, 0.8], [0.5]], [[1, 3, 5, 7], [3]], [8, 4], "progress", normalise="none")
    assert whole[0, :3].tolist() == pytest.approx([0.8, 0.8, 0.6])
    assert split[0, 0] == pytest.approx(whole[0, 0])


def test_rescaled_counts_a_token_in_which_two_steps_end_once():
    # The second step owns the last token: mean (1 * 3 + 0 * 1) / 4 = 0.75; z(1; 1, 2) = -0.5 / (sqrt(0.5) + 1e-4).
    given = {"step_starts": [[0, 3], [0, 2]]}
    advantages = assign_credit([[1, 0], [1, 1]], [[3, 3], [1, 3]], [4, 4], "rescaled", **given)
    assert advantages[0].tolist() == pytest.approx([-0.70701 / 0.75001] * 3 + [0.0], abs=1e-5)


@pytest.mark.parametrize("scheme", ["outcome", "max_rl", "prpo", "turn_credit"])
def test_a_scheme_that_is_of_the_outcome_does_not_count_it_twice(scheme):
    once = worked_credit(scheme, [1.0, 0.0, 0.0])
    weighed = credit_group(once.scored, scheme, outcome_weight=1.0)
    assert weighed.advantages.tobytes() == once.advantages.tobytes()
    assert len(weighed.warnings) == len(once.warnings) + 1
    assert CreditConfig(scheme=scheme, outcome_weight=1.0).outcome_weight == 0
    kept = for_scheme({"scheme": "process", "outcome_weight": 1.0, "clip": 2.0}, scheme)
    assert kept == {"scheme": scheme, "clip": 2.0}


def test_oar_weighs_tokens_by_importance():
    """Scores 0, 1/4, 1/2, 3/4 and 1 with the border at their median 1/2: weights 0.1, 1/2, 1, 3/2 and 2, times 5/5.1.

    A token of no importance (the answer's own, one that was not sampled) keeps its advantage, and so does a completion
    without any.
    """
    importances, expected = np.expm1([2.0, 0.0, 4.0, 1.0, 3.0]), np.array([1, 0.1, 2, 0.5, 1.5]) * 5 / 5.1
    assert importance_weights(importances, 0.5, 1.0) == pytest.approx(expected)
    assert importance_weights(importances, 0.5, 3.0) == pytest.approx(np.array([1, 0.1, 4, 0.5, 2.5]) * 5 / 8.1)
    assert importance_weights(np.full(3, 0.7)) == pytest.approx(np.ones(3))
    judged = [*importances[:3], -1, *importances[3:], -1]
    given = {"outcome_rewards": [1.0, 0.0], "masks": [[1, 1, 1, 0, 1, 1, 1], None], "importances": [judged, None]}
    advantages = assign_credit([[], []], [[], []], [7, 2], "outcome", **given, oar=True, oar_threshold=0.5)
    z = 0.5 / (0.5**0.5 + 1e-4)
    assert advantages[0] == pytest.approx(z * np.array([*expected[:3], 0, *expected[3:], 1]), rel=1e-6)
    assert advantages[1, :2] == pytest.approx(-z, rel=1e-6)


def test_tokens_that_were_not_sampled_get_zero():
    """A tool wrote tokens 5 to 7 of the first completion; steps ahead of it still count for the tokens before it."""
    masks = [[1] * 5 + [0] * 3 + [1] * 2, None, None]
    plain = assign_credit(REWARDS, ENDS, LENGTHS, "process")
    masked = assign_credit(REWARDS, ENDS, LENGTHS, "process", masks=masks)
    assert masked[0].tolist() == [*plain[0, :5].tolist(), 0.0, 0.0, 0.0, *plain[0, 8:].tolist()]
    assert masked[1:].tolist() == plain[1:].tolist()
    credit = credit_group(scored(REWARDS, ENDS, LENGTHS, masks=masks), "process")
    assert credit.advantages.tobytes() == masked.tobytes()
    assert (credit.explain(0, 6).terms, credit.explain(0, 6).total) == ((), 0.0)
    # 7 + 9 + 9 sampled tokens, 7 of them in the first completion.
    assert loss_weights(credit, "dapo")[0, :8] == pytest.approx([*plain[0, :5] / 25, 0, 0, 0])
    assert loss_weights(credit, "grpo")[0, 0] == pytest.approx(plain[0, 0] / (3 * 7))
    assert loss_weights(credit, "dr_grpo")[0, 0] == pytest.approx(plain[0, 0] / (3 * 10))


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
    if scheme in ("return", "progress"):  # they normalise returns and differences, which spread over equal rewards
        rewards = [[row[0], None] for row in rewards]
    if scheme == "gigpo":  # to whose returns an unscored step adds 0
        rewards = [rewards[0]] * 2
    more = {"outcome_rewards": outcomes, "token_ids": [[1, 2, 3, 4], [1, 2, 5, 6]], "states": [["", "a"]] * 2}
    assert not assign_credit(rewards, [[1, 3], [1, 3]], [4, 4], scheme, **more).any()
    assert not credit_group(scored(rewards, [[1, 3], [1, 3]], [4, 4], outcomes), scheme).spread


def test_invariant_padding_is_zero():
    advantages = assign_credit([[1], [0]], [[9], [2]], [10, 3], "process")
    assert (advantages.shape, advantages.dtype) == ((2, 10), np.float32)
    assert not advantages[1, 3:].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1]], [[1], [2]], [3]), "step_ends"),
        (([[1, 1]], [[1]], [3]), "2 step rewards"),
        (([[1, 1]], [[2, 1]], [3]), r"\[2, 1\] go"),
        (([[1]], [[3]], [3]), "its 3 tokens"),
        (([[math.inf]], [[1]], [3]), "inf"),
        (([[10**400]], [[1]], [3]), "finite"),
        (([[1e160], [0.0]], [[0], [0]], [1, 1]), r"1e\+160"),
        (([[1e308], [1e308], [0.0]], [[0]] * 3, [1] * 3), "too large"),
        (([[1e308, 1e308], [0.0]], [[0, 1], [0]], [2, 1], "sum"), "inf are"),
        (([[1]], [[1]], [3], "outcome"), "outcome reward"),
        (([[1]], [[1]], [3], "sums"), "'sums'.*'sum'"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(CreditError, match=message):
        assign_credit(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalise": "group"}, "'group'.*pooled, per_completion"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"gamma": math.nan}, "gamma is nan"),
        ({"gamma": "much"}, "gamma is 'much'"),
        ({"gamma": True}, "gamma is True"),
        ({"gamma": 10**400}, "gamma"),
        ({"outcome_weight": 10**400}, "outcome_weight"),
        ({"scale": 1}, "scale is 1"),
        ({"threshold": 0.5}, "'threshold'.*normalise, scale, gamma, merge_equal,"),
        ({"clip": -1}, "clip is -1"),
        ({"outcome_weight": math.inf}, "outcome_weight is inf"),
        ({"outcome_weight": 1.0}, "outcome reward"),
        ({"masks": [[1, 0], None, None]}, "masks: completion 0 has"),
        ({"masks": [[1, 2, *[0] * 8], None, None]}, "masks: completion 0 has"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(CreditError, match=message):
        assign_credit(REWARDS, ENDS, LENGTHS, "process", **options)


def test_the_options_of_a_scheme_are_its_signature():
    assert [(option.name, option.kind, option.default) for option in SCHEMES["min"].options] == [
        ("normalise", "choice", "leave_one_out"),
        ("scale", "switch", False),
        ("gamma", "number", 1.0),
        ("temperature", "number", 0.1),
        ("signed", "switch", False),
    ]
    assert all(option.help for scheme in SCHEMES.values() for option in scheme.options)


def test_schemes_of_one_advantage_a_completion_are_those_that_say_so():
    """On the worked group: the loss then takes TRL's (B,) form, which would mix the steps' credit of any other."""
    ids = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 11, 12, 13, 14, 15], [1, 2, 16, 17, 18, 3, 4, 19, 20]]
    more = {"token_ids": ids, "states": [["a", "b", "c"], ["a", "b"], ["a", "c", "d", "b"]]}
    for name, scheme in SCHEMES.items():
        advantages = assign_credit(REWARDS, ENDS, LENGTHS, name, outcome_rewards=[1.0, 0.0, 1.0], **more)
        assert all(len(set(row)) == 1 for row in rows(advantages)) == scheme.per_completion, name


# -- Step rewards and outcomes together ------------------------------------------------------------------------------


def test_turn_credit_gives_each_gain_to_the_steps_that_led_to_it():
    # gamma 1/2, one answer of scores 0, 1, 1, 0 in steps of 1, 1, 1 and 2 tokens: gains 0, 1, 0, -1. Gain 1 of step 2
    # is shared 1 : 1/2 among steps 2 and 1, gain -1 of step 4 as 1 : 1/2 : 1/4 : 1/8 (over 15/8) from step 4 back:
    # c = 1/3 - 1/15, 2/3 - 2/15, -4/15, -8/15 = 4/15, 8/15, -4/15, -8/15. Mean over 5 tokens: (8 - 16) / 75 = -8/75.
    # The other answer's one step gains nothing, so that R + gains is 0 + 0 and 1 + 0: level -1/2 and 1/2.
    scores, ends = [[0, 1, 1, 0], [5]], [[0, 1, 2, 4], [2]]
    advantages = assign_credit(scores, ends, [5, 3], "turn_credit", outcome_rewards=[0, 1], gamma=0.5)
    shares = [4 / 15, 8 / 15, -4 / 15, -8 / 15, -8 / 15]
    assert advantages[0].tolist() == pytest.approx([c + 8 / 75 - 0.5 for c in shares], abs=1e-6)
    assert advantages[1, :3].tolist() == [0.5] * 3
    assert advantages[0].sum() == pytest.approx(5 * -0.5, abs=1e-6)  # the shares only move credit
    # An unscored step's gain is the next scored one's: 0, -, 1 gains 1 at the third step.
    gapped = assign_credit([[0, None, 1], [0]], [[0, 1, 2], [2]], [3, 3], "turn_credit", gamma=1.0)
    assert gapped[0].tolist() == pytest.approx([0.5] * 3)  # a third each, no more than the mean
    # Without gamma a gain is its own step's: c = 0, 0, 1, mean 1/3; the level is (1 - 0) / 2.
    alone = assign_credit([[0, None, 1], [0]], [[0, 1, 2], [2]], [3, 3], "turn_credit", gamma=0.0)
    assert alone[0].tolist() == pytest.approx([0.5 - 1 / 3, 0.5 - 1 / 3, 0.5 + 2 / 3])


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
    return rewards, starts, ends, lengths, [draw(reward) for _ in rewards]


OPTIONS = {
    "gamma": st.sampled_from([1.0, 0.9, 0.0]),
    "temperature": st.sampled_from([0.1, 2.0]),
    "signed": st.booleans(),
    "merge_equal": st.booleans(),
    "across_steps": st.booleans(),
    "threshold": st.sampled_from([0.5, -1.0]),
    "right_from": st.sampled_from([1.0, 0.0]),
    "prior_mean": st.sampled_from([0.5, -1.0]),
    "prior_std": st.sampled_from([24**-0.5, 2.0]),
    **dict.fromkeys(
        ("process_weight", "token_weight", "state_weight", "outcome_weight"), st.sampled_from([1.0, -0.5, 0.0])
    ),
    "clip": st.sampled_from([None, 0.75]),
}


def taken(scheme, **options):
    """Those of the options that the scheme has: it may have none of its own."""
    return {name: value for name, value in options.items() if name in {o.name for o in SCHEMES[scheme].options}}


def drawn_options(data, scheme, *more):
    """A value of each of the scheme's own options, and of ``more``."""
    own = [option.name for option in SCHEMES[scheme].options if option.name not in ("normalise", "scale")]
    return {name: data.draw(OPTIONS[name], name) for name in (*own, "outcome_weight", *more)}


@settings(max_examples=200, deadline=None)
@given(
    groups(),
    st.sampled_from(list(SCHEMES)),
    st.sampled_from(list(NORMALISATIONS)),
    st.booleans(),
    st.data(),
)
def test_two_implementations_agree(group, scheme, how, scale, data):
    """Every scheme with every option of its own, and with those that all have; "batch" is of this one group."""
    rewards, starts, ends, lengths, outcomes = group
    needs = {*SCHEMES[scheme].needs}
    options = drawn_options(data, scheme, "clip")
    seed = data.draw(st.integers(0, 10**6), "seed of ids and states") if needs & {"token_ids", "states"} else 0
    draw = random.Random(seed)
    ids = [draw.choices(range(4), k=n) for n in lengths]
    states = [draw.choices("abc", k=len(row)) for row in ends]
    where = {"step_starts": starts, "outcome_rewards": outcomes, "token_ids": ids, "states": states}
    own = taken(scheme, normalise=how, scale=scale)
    how, scale = own.get("normalise", "pooled"), own.get("scale", True)  # of the outcome, where the scheme has none
    fast = assign_credit(rewards, ends, lengths, scheme, **where, **own, **options)
    slow = slow_credit(scheme, SlowGroup(*group, ids, states), how, scale, **options)
    for i, length in enumerate(lengths):
        assert fast[i, :length].tolist() == pytest.approx(slow[i], rel=1e-4, abs=1e-3)
        assert not fast[i, length:].any()


@settings(max_examples=50)
@given(groups(), groups(), st.sampled_from(list(SCHEMES)), st.sampled_from(["pooled", "leave_one_out"]))
def test_groups_of_a_batch_do_not_see_each_other(one, other, scheme, how):
    """A batch gives every group the bytes it gets alone, unless it is asked to normalise over the batch."""
    groups = [
        scored(rewards, ends, lengths, outcomes, starts) for rewards, starts, ends, lengths, outcomes in (one, other)
    ]
    own = taken(scheme, normalise=how)
    together = credit_groups(groups, scheme, **own)
    for group, credit in zip(groups, together, strict=True):
        assert credit.advantages.tobytes() == credit_group(group, scheme, **own).advantages.tobytes()


def scored(rewards, ends, lengths, outcomes=None, starts=None, masks=None):
    """A scored group whose text is one letter a token."""
    starts = starts or [[0, *(e + 1 for e in row[:-1])] for row in ends]
    masks = [None if mask is None else tuple(mask) for mask in masks or [None] * len(lengths)]
    rows = zip(lengths, masks, strict=True)
    rollouts = [Rollout(tuple(range(n)), ("x",) * n, finished=False, mask=mask) for n, mask in rows]
    spans = [list(zip(*row, strict=True)) for row in zip(starts, ends, strict=True)]
    return make_scored(rollouts, spans, {"mine": rewards}, None if outcomes is None else {"whole": outcomes})


@settings(max_examples=100, deadline=None)
@given(
    groups(),
    st.sampled_from(list(SCHEMES)),
    st.sampled_from(list(NORMALISATIONS)),
    st.data(),
)
def test_an_explanation_adds_up_to_the_advantage_exactly(group, scheme, how, data):
    rewards, starts, ends, lengths, outcomes = group
    group = scored(rewards, ends, lengths, outcomes, starts)
    credit = credit_group(group, scheme, **taken(scheme, normalise=how), **drawn_options(data, scheme))
    for i, length in enumerate(lengths):
        for t in range(length):
            explanation = credit.explain(i, t)
            assert np.float32(explanation.total) == explanation.advantage == credit.advantages[i, t]
            assert sum(term.value for term in explanation.terms) == pytest.approx(explanation.total, rel=1e-9, abs=1e-9)
            for term in explanation.terms:
                assert term.value == pytest.approx(term.normalised * term.factor)
                if term.mean is not None and term.normalised:
                    divisor = 1.0 if term.std is None else term.std + 1e-4
                    assert term.normalised == pytest.approx((term.raw - term.mean) / divisor)


def test_an_explanation_names_the_steps_and_what_they_were_given():
    credit = credit_group(scored(REWARDS, ENDS, LENGTHS), "process")
    assert credit.advantages.tobytes() == assign_credit(REWARDS, ENDS, LENGTHS, "process").tobytes()
    assert (credit.mean, credit.std) == pytest.approx((4 / 9, 0.527046), abs=1e-6)
    explanation = credit.explain(0, 4)
    assert [(term.step, term.reward) for term in explanation.terms] == [(1, 1), (2, 0)]
    assert explanation.terms[0].scores == {"mine": 1}
    assert [term.value for term in explanation.terms] == pytest.approx([1.0539, -0.8431], abs=1e-4)
    with pytest.raises(IndexError, match="10"):
        credit.explain(0, 10)


def test_batch_normalisation_takes_its_std_from_all_groups():
    # Group means 0.5 and 5. The batch is 1 0 0 10: mean 2.75, squared deviations 3.0625 + 7.5625 + 7.5625 + 52.5625 =
    # 70.75, over 3 is 23.5833, std 4.85627. 0.5 / 4.85637 = 0.10296; 5 / 4.85637 = 1.02958.
    batch = [scored([[1.0], [0.0]], [[0], [0]], [1, 1]), scored([[0.0], [10.0]], [[0], [0]], [1, 1])]
    first, second = credit_groups(batch, "process", normalise="batch")
    assert first.advantages[:, 0].tolist() == pytest.approx([0.10296, -0.10296], abs=1e-4)
    assert second.advantages[:, 0].tolist() == pytest.approx([-1.02958, 1.02958], abs=1e-4)
    assert second.std == pytest.approx(4.85627, abs=1e-5)
    assert np.float32(second.explain(1, 0).total) == second.advantages[1, 0]
    assert credit_groups([]) == []


# -- The loss's own weight, and two schemes side by side --------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss_types", "masked", "expected"),
    [
        (["grpo", "sapo"], None, [1 / 4, 1 / 12]),
        (["dapo", "bnpo", "cispo"], None, [1 / 8, 1 / 8]),
        (["dr_grpo"], None, [1 / 20, 1 / 20]),
        (["luspo"], None, [1 / 2, 1 / 2]),
        (["dapo"], [False, True], [1 / 2, 0.0]),
        (["grpo"], [False, True], [1 / 4, 0.0]),
    ],
)
def test_length_normalisers_are_the_losses_own(loss_types, masked, expected):
    """Lengths 2 and 6, G = 2, at most 10 tokens."""
    for loss_type in loss_types:
        found = length_normalisers([2, 6], loss_type, max_completion_length=10, masked=masked)
        assert found.tolist() == pytest.approx(expected), loss_type


def test_comparing_two_schemes_of_a_group():
    # process against step on the worked group: row 1's second step is 0.2108 and 1.0539, row 3's first -1.4754 and
    # -0.8431. Signs: row 1 + + - and + + -, row 2 + - and + -, row 3 - - + + and - - - +: two tokens of 28 flip.
    group = scored(REWARDS, ENDS, LENGTHS)
    found = compare_credits(credit_group(group, "process"), credit_group(group, "step"))
    assert found.flipped_share == pytest.approx(2 / 28)
    assert np.argwhere(found.flipped).tolist() == [[2, 5], [2, 6]]
    assert (found.steps[1].mean_a, found.steps[1].mean_b) == pytest.approx((0.2108, 1.0539), abs=1e-4)
    assert [step.flipped for step in found.steps] == [0, 0, 0, 0, 0, 0, 0, 2, 0]
    assert found.difference[0, 4] == pytest.approx(1.0539 - 0.2108, abs=1e-4)
    assert compare_credits(found.a, found.a).correlation == pytest.approx(1.0)
    flat = credit_group(scored([[1.0], [1.0]], [[1], [1]], [2, 2]), "process")
    assert compare_credits(flat, flat).correlation is None
