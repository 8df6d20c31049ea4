"""Credit from a critic: token rewards and values to token advantages, by generalised advantage estimation (PPO).

delta_t = rho_t + gamma V_{t+1} - V_t with V = 0 after the last token, A_t = sum over l of (gamma lam)^l delta_{t+l},
and the returns G_t = A_t + V_t that the critic learns (Schulman et al., arXiv 1506.02438, eq. 11 to 16). The token
rewards rho are those of InstructGPT (Ouyang et al., arXiv 2203.02155, eq. 2): a penalty on the KL at every token and
the score at the end, here with each step's reward on the step's last token too. Values come from whoever trains the
critic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.credit.assign import lay_out
from workbench.credit.normalise import EPSILON
from workbench.errors import CreditError, shown
from workbench.schema import Credit, CreditPart, ScoredGroup, suffix_sums

GAE = "gae"
"""What a credit made here has for its scheme's name."""
FORMULA = "A_t = Σ_l (γλ)^l δ_{t+l}, δ_t = ρ_t + γ V_{t+1} − V_t, less the batch's mean over its std (if whitened)"
COUNTS = "what this token and all later ones brought beyond what the critic expected"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GAEOptions:
    """``gamma`` discounts rewards, ``lam`` temporal differences; ``kl_coef`` weighs the KL in the token rewards.

    ``score_clip`` bounds the outcome reward; ``whiten`` gives the batch's advantages mean 0 and standard deviation 1.
    """

    gamma: float = 1.0
    lam: float = 0.95
    kl_coef: float = 0.05
    score_clip: float = 5.0
    whiten: bool = True


@dataclass(frozen=True)
class Measured:
    """What a trainer measured of one rollout's tokens when it was sampled, each (T,).

    ``values`` are the critic's of the text before each token, ``log_ratios`` log pi_old - log pi_ref of the token.
    """

    values: Sequence[float]
    log_ratios: Sequence[float]


def gae(
    rewards: Sequence[float] | npt.NDArray[np.floating],
    values: Sequence[float] | npt.NDArray[np.floating],
    gamma: float = 1.0,
    lam: float = 0.95,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Advantages and returns of one completion's tokens.

    Args:
        rewards: rho_t, (T,).
        values: V_t, the critic's value of the text before token t, (T,); after the last token it is 0.
        gamma: discount of later rewards, 0 to 1.
        lam: 1 is the (discounted) sum of rewards less the value, 0 the temporal difference of one token.

    Returns:
        (advantages, returns), each (T,) float32: computed in float64 and rounded once.

    Raises:
        CreditError: if the lengths differ, a number is not finite, or gamma or lam is outside 0 to 1.
    """
    for name, number in (("gamma", gamma), ("lam", lam)):
        if not 0 <= number <= 1:
            raise CreditError(f"{name} is {shown(number)}; use a number from 0 to 1")
    rho, v = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if rho.ndim != 1 or rho.shape != v.shape:
        raise CreditError(f"rewards have shape {rho.shape} and values {v.shape}; give both one number a token, (T,)")
    if not (np.isfinite(rho).all() and np.isfinite(v).all()):
        raise CreditError("a reward or a value is not finite; give numbers")
    advantages = suffix_sums(_deltas(rho, v, gamma), gamma * lam)
    return advantages.astype(np.float32), (advantages + v).astype(np.float32)


def credit_by_gae(
    groups: Sequence[ScoredGroup],
    measured: Sequence[Measured],
    options: GAEOptions,
    *,
    finished_only: bool = False,
) -> list[Credit]:
    """Credit the groups of a batch from what was measured of their rollouts, listed in the groups' order.

    Tokens that the policy did not sample are passed over: they have no reward, no value and advantage 0.
    ``finished_only``: the loss leaves truncated rollouts out, and so do the mean and std of whitening.
    """
    rows = [
        _row(group, i, measurement, options)
        for (group, i), measurement in zip(
            ((group, i) for group in groups for i in range(len(group.group))), measured, strict=True
        )
    ]
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    counted = [row.advantages for row, r in zip(rows, rollouts, strict=True) if not (r.truncated and finished_only)]
    pool = np.concatenate([*counted, np.zeros(0)])
    mean, std = (float(pool.mean()), float(pool.std(ddof=1))) if len(pool) > 1 else (0.0, 0.0)
    moments = (mean, std) if options.whiten else (0.0, None)
    credits, first = [], 0
    for group in groups:
        after = first + len(group.group)
        credits.append(_credit(group, rows[first:after], options, *moments))
        first = after
    return credits


@dataclass(frozen=True)
class _Row:
    """One rollout's numbers, in float64 over its sampled tokens; ``at`` are those tokens."""

    at: npt.NDArray[np.int64]
    log_ratios: Floats
    rewards: Floats
    values: Floats
    deltas: Floats
    advantages: Floats


def _row(group: ScoredGroup, i: int, measured: Measured, options: GAEOptions) -> _Row:
    rollout = group.group.rollouts[i]
    at = np.array([t for t in range(len(rollout)) if rollout.is_sampled(t)], dtype=np.int64)
    values = np.asarray(measured.values, dtype=np.float64)[at]
    log_ratios = np.asarray(measured.log_ratios, dtype=np.float64)[at]
    rewards = 0.0 - options.kl_coef * log_ratios
    if not (np.isfinite(values).all() and np.isfinite(rewards).all()):
        raise CreditError(
            "the critic's values, or the log-probabilities, are not finite; lower optimiser.learning_rate or "
            "optimiser.max_grad_norm"
        )
    scored = group.scored[i]
    for end, reward in zip(scored.step_ends, scored.rewards, strict=True):
        if reward is not None and len(at):
            # The last sampled token up to the step's end; the first where there is none.
            rewards[max(int(np.searchsorted(at, end, side="right")) - 1, 0)] += reward
    if scored.outcome is not None and len(at):
        rewards[-1] += np.clip(scored.outcome, -options.score_clip, options.score_clip)
    deltas = _deltas(rewards, values, options.gamma)
    return _Row(at, log_ratios, rewards, values, deltas, suffix_sums(deltas, options.gamma * options.lam))


def _deltas(rewards: Floats, values: Floats, gamma: float) -> Floats:
    return rewards + gamma * np.append(values[1:], 0.0)[: len(values)] - values


def _credit(group: ScoredGroup, rows: Sequence[_Row], options: GAEOptions, mean: float, std: float | None) -> Credit:
    """``std`` is None where nothing is whitened; a batch without spread teaches nothing."""
    parts = _parts(rows, options.gamma * options.lam, mean, std)
    lengths = [len(rollout) for rollout in group.group.rollouts]
    advantages = lay_out(parts, lengths, group.masks, lambda i: group.scored[i].spans)
    named = {
        "value": [row.values for row in rows],
        "token_reward": [row.rewards for row in rows],
        "delta": [row.deltas for row in rows],
        "return": [row.advantages + row.values for row in rows],
        "log_ratio": [row.log_ratios for row in rows],
    }
    values = {}
    for name, numbers in named.items():
        values[name] = tuple(np.zeros(length, dtype=np.float32) for length in lengths)  # 0 where nothing was sampled
        for of_tokens, row, of_sampled in zip(values[name], rows, numbers, strict=True):
            of_tokens[row.at] = of_sampled
    return Credit(
        scored=group,
        scheme=GAE,
        options=dict(vars(options)),
        advantages=advantages,
        normalised=tuple((None,) * len(scored.rewards) for scored in group.scored),
        mean=None if std is None else mean,
        std=std,
        spread=bool(advantages.any()),
        parts=parts,
        values=values,
    )


def _parts(rows: Sequence[_Row], decay: float, mean: float, std: float | None) -> tuple[CreditPart, ...]:
    """The sum of temporal differences and, where advantages are whitened, what is subtracted from each."""
    deltas = np.concatenate([*(row.deltas for row in rows), np.zeros(0)])
    scale = 1.0 if std is None else 1 / (std + EPSILON) if std else 0.0
    offsets = np.cumsum([0, *(len(row.deltas) for row in rows)], dtype=np.int64)
    unknown, ones = np.full(len(deltas), np.nan), np.ones(len(deltas))
    stds = unknown if std is None else np.full(len(deltas), std)
    summed = CreditPart("delta", "suffix", offsets, deltas, unknown, stds, deltas * scale, ones, decay, unit="token")
    if std is None:
        return (summed,)
    count = len(rows)
    each = np.arange(count + 1, dtype=np.int64)
    means, stds, unknown = np.full(count, mean), np.full(count, std), np.full(count, np.nan)
    return (summed, CreditPart("centre", "all", each, means, unknown, stds, -means * scale, np.ones(count)))
