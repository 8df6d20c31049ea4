"""Credit of episodes: ``gigpo`` by hand and by a slow second implementation, and what turns mean to other schemes."""

import numpy as np
import pytest

from tests.credits import make_scored
from workbench.credit import assign_credit, credit_group
from workbench.schema import Rollout, ScoredGroup

# Three episodes of two turns of one token each, with one token of an observation between them. All begin in one state;
# the first two were told the same. R = 1, 0, 0: mean 1/3, std 0.57735, z = 1.15450 and -0.57725.
MASKS = [[1, 0, 1]] * 3
ENDS, STARTS = [[0, 2]] * 3, [[0, 2]] * 3
NONE = [[None, None]] * 3
STATES = [["", "a"], ["", "a"], ["", "b"]]
HIGH, LOW = (2 / 3) / (3**-0.5 + 1e-4), (-1 / 3) / (3**-0.5 + 1e-4)


def assigned(rewards=NONE, states=STATES, **options):
    where = {"step_starts": STARTS, "masks": MASKS, "outcome_rewards": [1.0, 0.0, 0.0]}
    return assign_credit(rewards, ENDS, [3] * 3, "gigpo", states=states, **where, **options)


def test_gigpo_compares_returns_in_the_same_state():
    # gamma 1/2: G is 0.5 1 | 0 0 | 0 0. The first state: 0.5 0 0, mean 1/6, std 0.288675: (1/3) / 0.288775 = 1.15430
    # and -0.57715. State a: 1 0, mean 0.5, std 0.707107: +-0.5 / 0.707207 = +-0.70701. State b: alone, 0.
    advantages = assigned(gamma=0.5)
    assert advantages[0].tolist() == pytest.approx([HIGH + 1.15430, 0, HIGH + 0.70701], abs=1e-4)
    assert advantages[1].tolist() == pytest.approx([LOW - 0.57715, 0, LOW - 0.70701], abs=1e-4)
    assert advantages[2].tolist() == pytest.approx([LOW - 0.57715, 0, LOW], abs=1e-4)
    assert not advantages[:, 1].any()  # the observation
    weighed = assigned(gamma=0.5, state_weight=0.5)
    assert weighed[0].tolist() == pytest.approx([HIGH + 0.57715, 0, HIGH + 0.35350], abs=1e-4)
    np.testing.assert_allclose(assigned(state_weight=0.0)[:, 0], [HIGH, LOW, LOW], atol=1e-5)


def test_gigpo_adds_the_outcome_to_the_last_steps_reward():
    # gamma 1/2, without std: G is 0.5 + 0.5 (0.2 + 1) = 1.1, 1.2 | 0 (unscored) + 0.5 * 0.4 = 0.2, 0.4 | 1, 0.
    # First state: mean 2.3 / 3; state a: mean 0.8; state b alone. All rewards of the episodes: 1.7, 0.4, 1.0.
    rewards = [[0.5, 0.2], [None, 0.4], [1.0, None]]
    advantages = assigned(rewards, gamma=0.5, scale=False)
    mean, total = 2.3 / 3, 3.1 / 3
    assert advantages[0].tolist() == pytest.approx([1.7 - total + 1.1 - mean, 0, 1.7 - total + 0.4])
    assert advantages[1].tolist() == pytest.approx([0.4 - total + 0.2 - mean, 0, 0.4 - total - 0.4])
    assert advantages[2].tolist() == pytest.approx([1.0 - total + 1.0 - mean, 0, 1.0 - total], abs=1e-6)


def test_gigpo_takes_mean_and_std_over_steps_where_it_is_told_to():
    # Total returns 2, 0, 0 of episodes of 2, 2 and 3 steps. Over steps: 2 2 0 0 0 0 0, mean 4/7,
    # squares 2 (10/7)^2 + 5 (4/7)^2 = 280/49, std sqrt(280/49/6) = 0.975900. Over episodes: mean 2/3, std 1.154701.
    group = scored_episodes(EPISODES, [1.0, 0.0, 0.0], [[1, None], [0, None], [0, 0, None]])
    options = {"state_weight": 0.0, "gamma": 1.0}
    over_steps = credit_group(group, "gigpo", across_steps=True, **options).advantages
    assert over_steps[:, 0].tolist() == pytest.approx([1.46371, -0.58548, -0.58548], abs=1e-4)
    centred = credit_group(group, "gigpo", across_steps=True, scale=False, **options).advantages
    assert centred[:, 0].tolist() == pytest.approx([10 / 7, -4 / 7, -4 / 7])
    over_episodes = credit_group(group, "gigpo", **options).advantages
    assert over_episodes[:, 0].tolist() == pytest.approx([1.15460, -0.57730, -0.57730], abs=1e-4)


# -- scored groups -----------------------------------------------------------------------------------------------------


def scored_episodes(turns: list[list[str]], outcomes: list[float], rewards: list[list[float | None]]) -> ScoredGroup:
    """A token a text; every other one is an observation, and every turn a step."""
    masks = [tuple(1 - n % 2 for n in range(len(texts))) for texts in turns]
    rollouts = [
        Rollout(tuple(range(len(texts))), tuple(texts), finished=False, stop="\n", mask=mask)
        for texts, mask in zip(turns, masks, strict=True)
    ]
    spans = [[(first, first) for first in range(0, len(texts), 2)] for texts in turns]
    return make_scored(rollouts, spans, {"rule": rewards}, {"right": outcomes})


EPISODES = [
    ["call: 1\n", "= 1\n", "Answer: 1"],
    ["call: 2\n", "= 1\n", "Answer: 7"],
    ["call: 3\n", "= 3\n", "call: 3\n", "= 3\n", "Answer: 3"],
]


def test_the_state_of_a_turn_is_the_observation_before_it():
    group = scored_episodes(EPISODES, [1.0, 0.0, 0.0], [[1, None], [0, None], [0, 0, None]])
    first, second, third = group.step_states
    assert first == second
    assert first[0] == third[0] == ("", "")
    assert third[1] == third[2] != first[1]
    by_hand = assign_credit(
        group.step_rewards,
        group.step_ends,
        group.lengths,
        "gigpo",
        step_starts=group.step_starts,
        outcome_rewards=group.outcomes,
        masks=group.masks,
        states=[["", "1"], ["", "1"], ["", "3", "3"]],
    )
    np.testing.assert_array_equal(credit_group(group, "gigpo").advantages, by_hand)


def test_later_steps_of_a_turn_begin_where_what_was_written_before_them_is_the_same():
    rollout = Rollout((1, 2, 3), ("a;", "b;", "c"), finished=False)
    other = Rollout((1, 4, 3), ("a;", "d;", "c"), finished=False)
    spans = [[(0, 0), (1, 1), (2, 2)]] * 2
    states = make_scored((rollout, other), spans, {"rule": [[None] * 3] * 2}, {"right": [1.0, 1.0]}).step_states
    assert states[0][:2] == states[1][:2]
    assert states[0][2] != states[1][2]
