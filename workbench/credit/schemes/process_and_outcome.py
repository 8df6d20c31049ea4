"""Schemes that put step rewards and the outcome together, each compared in its own way."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from workbench.credit.batch import Batch, Floats
from workbench.credit.normalise import Normalise, Normalised
from workbench.credit.options import Range
from workbench.credit.schemes.scheme import Gamma, Part, RightFrom, by_completion, outcomes_of, pooled

ProcessWeight = Annotated[float, Range("Weight of the steps' part beside the outcome's", -100.0, 100.0)]
PriorMean = Annotated[float, Range("Mean that step rewards are taken to have beforehand", -1e6, 1e6)]
PriorStd = Annotated[float, Range("Standard deviation that step rewards are taken to have beforehand", 1e-6, 1e6)]


def papo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    process_weight: ProcessWeight = 1.0,
    right_from: RightFrom = 1.0,
) -> Part | tuple[Part, ...]:
    """The normalised outcome; right answers are also compared with each other, by the mean of their step rewards.

    A_i = z(R_i) + process_weight * z(mean over k of r_{i,k}), the second z over the group's right answers alone and 0
    for the others, which have R_i < right_from. PAPO (arXiv 2603.26535), whose rubric scores an answer once, as a
    public reproduction of it has it (``compute_grpo_dual_objective_advantage`` in ``verl/trainer/ppo/core_algos.py`` of
    https://github.com/ScopeHLS/Process-Aware-Policy-Optimization); no code of its authors was found.
    """
    outcomes = outcomes_of(batch)
    right = outcomes >= right_from  # NaN is not
    process = by_completion(batch, np.where(right, batch.means, np.nan), normalise, scale)
    return (
        Part("outcome", "all", by_completion(batch, outcomes, normalise, scale)),
        Part("mean", "all", process, np.full(batch.completions, process_weight)),
    )


def prpo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = False,
    prior_mean: PriorMean = 0.5,
    prior_std: PriorStd = 24**-0.5,
) -> Part | tuple[Part, ...]:
    """A token gets its own step's reward, standardised with a fixed mean and deviation, shifted by the outcome.

    A_{i,t} = (r_{i,k(t)} - prior_mean) / prior_std + z(R_i); outside every step the second term alone. PRPO (arXiv
    2601.07182), as one of the variants in its code has it (``Naive2RewardManager``, registered as ``srpo2``, in
    ``verl2/verl/workers/reward_manager/naive2.py`` of https://github.com/SchumiDing/srpocode), which takes rewards from
    0 to 1, a variance of 1/24, and the group's mean from R without dividing. R is -1 or 1 there, less a penalty for
    length, and the end token gets no step's part; here R is the outcome reward and the end token is the last step's. As
    everywhere, step rewards that are all equal in a group add nothing.
    """
    spread = pooled(batch, batch.rewards, "none", scale=False).spread
    known = np.where(np.isnan(batch.rewards), np.nan, 1.0)
    standard = Normalised(
        batch.rewards,
        np.where(spread, prior_mean, np.nan) * known,
        np.full_like(batch.rewards, np.nan),
        np.where(spread, batch.rewards - prior_mean, 0.0) * known,
        spread,
    )
    return (
        Part("step", "own", standard, np.full_like(batch.rewards, 1.0 / prior_std)),
        Part("outcome", "all", by_completion(batch, outcomes_of(batch), normalise, scale)),
    )


def prime(
    batch: Batch, *, normalise: Normalise = "per_completion", scale: bool = False, gamma: Gamma = 1.0
) -> Part | tuple[Part, ...]:
    """Step rewards less a leave-one-out mean, summed from a token on, plus the outcome less its leave-one-out mean.

    A_{i,t} = sum over {k : e_{i,k} >= t} of gamma^(k - k(t)) x_{i,k} + x_i, x = G/(G - 1) * (reward - mean), the mean
    taken over the G answers' own means. For the outcome that is R_i less the mean of the others. PRIME
    (arXiv 2502.01456), whose process rewards are an implicit reward model's of single tokens: steps of one token have
    them so. ``compute_rloo_returns`` in ``training/verl/trainer/ppo/core_algos.py`` of
    https://github.com/PRIME-RL/PRIME, without the whitening over the batch that follows there. Another ``normalise``
    takes the place of G/(G - 1) * (reward - mean).
    """
    outcomes = outcomes_of(batch)
    process = pooled(batch, batch.rewards, normalise, scale)
    whole = by_completion(batch, outcomes, normalise, scale)
    step_factor, factor = np.ones_like(batch.rewards), np.ones(batch.completions)
    if normalise == "per_completion":
        step_factor = _leaving_one_out(batch, ~np.isnan(batch.sums))[batch.completion]
        factor = _leaving_one_out(batch, ~np.isnan(outcomes))
    return (
        Part("step", "suffix", process, step_factor, gamma=gamma),
        Part("outcome", "all", whole, factor),
    )


def _leaving_one_out(batch: Batch, scored: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """G/(G - 1) for each completion, (B,), G the number of its group's scored ones; 1 where it is alone."""
    count = np.bincount(batch.group, scored)[batch.group]
    return np.asarray(np.where(count > 1, count / np.maximum(count - 1, 1), 1.0))


def turn_credit(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = False,
    gamma: Gamma = 0.9,
    process_weight: ProcessWeight = 1.0,
) -> Part | tuple[Part, ...]:
    """What each step gained is shared with the steps that led to it; a step gets its share beyond the answer's mean.

    A step gains D_k = r_k - r of the scored step before it, the first 0; c_k = sum over j >= k of gamma^(j-k) D_j / Z_j
    with Z_j = sum over d < j of gamma^d (steps from 1), so that each gain is given out once. Then
    A_{i,t} = z(R_i + sum of D) + process_weight * (c_{k(t)} - the mean of c over the answer's tokens in steps), so that
    the second term only moves credit between steps. Without an outcome R is 0. ``turn_credit.py`` of prime-rl's pull
    request 3282 (https://github.com/PrimeIntellect-ai/prime-rl/pull/3282), where a step is a turn.
    """
    gains, credits = _gains(batch), np.zeros_like(batch.rewards)
    for first, after in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        shares, total = np.cumsum(gamma ** np.arange(after - first)), 0.0
        for n in range(after - 1, first - 1, -1):
            total = gains[n] / shares[n - first] + gamma * total
            credits[n] = total
    tokens = np.bincount(batch.completion, batch.width, minlength=batch.completions)
    summed = np.bincount(batch.completion, batch.width * credits, minlength=batch.completions)
    centre = (summed / np.maximum(tokens, 1))[batch.completion]
    moved = Normalised(credits, centre, np.full_like(credits, np.nan), credits - centre, credits != centre)
    net = np.bincount(batch.completion, gains, minlength=batch.completions)
    scored = ~np.isnan(batch.sums)
    outcomes = np.where(scored, 0.0, np.nan) if batch.outcomes is None else batch.outcomes
    return (
        Part("step", "own", moved, np.full_like(credits, process_weight)),
        Part("return", "all", by_completion(batch, outcomes + net, normalise, scale)),
    )


def _gains(batch: Batch) -> Floats:
    """Each scored step's reward less that of the scored one before it, (N,); 0 for the first, and for unscored ones."""
    gains = np.zeros_like(batch.rewards)
    scored = np.flatnonzero(~np.isnan(batch.rewards))
    same = batch.completion[scored[1:]] == batch.completion[scored[:-1]]
    gains[scored[1:]] = np.where(same, np.diff(batch.rewards[scored]), 0.0)
    return gains
