"""The policy loss read token by token: ratio, clipping, KL, length normaliser, and their product, the contribution.

Nothing is trained with this: it is a reading of the loss of TRL 1.16, ``GRPOTrainer._compute_loss``
(https://github.com/huggingface/trl/blob/v1.16.0/trl/trainer/grpo_trainer.py), from stored numbers. The contributions of
all tokens of an optimiser step add up to the loss that was trained on; a test holds both against each other for every
loss type. With rho = pi / pi_old and c the length normaliser, a token adds

    c (-f(rho) A + beta k3),   k3 = e^d - d - 1 with d = log pi_ref - log pi  (DeepSeekMath, arXiv 2402.03300, eq. 4)

where f(rho) A is min(rho A, clip(rho, 1 - eps, 1 + eps_high) A) for grpo (2402.03300 eq. 3), bnpo, dapo (2503.14476),
dr_grpo (2503.20783) and luspo; min(rho, eps_high) log(pi) A with a constant ratio for cispo (2506.13585 eq. 4);
4 sigmoid(tau (rho - 1)) / tau A for sapo (2511.20347); phi(w) log(pi) A with w the product of a completion's ratios for
vespo (2602.10693).

An entropy bonus adds -coef H / (P N) to each token: H its entropy, N the counted tokens of its micro-batch, P the
number of the step's micro-batches over all ranks, coef what TRL applied in the step. It has no push, as its derivative
is not by the token's log-probability alone. A router's loss is no token's; a pass has it as one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.errors import CreditError
from workbench.schema import Credit, Group, LossPass, LossSettings, RolloutPass

Floats = npt.NDArray[np.float64]
CLIPPED_LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo", "luspo")
LENS_LOSSES = (*CLIPPED_LOSSES, "cispo", "sapo", "vespo")
"""The loss types that can be read: all of TRL 1.16."""


@dataclass(frozen=True, eq=False)
class TokenLosses:
    """The terms of one completion's tokens, each (T,) float64.

    ``ratio`` is rho, ``factor`` what the advantage is multiplied with instead of it (clipped, capped or softened), and
    ``clipped`` 1 where an upper bound holds the ratio back, -1 where a lower one does. ``policy`` and ``kl`` are the
    two terms of the token's loss, the latter times beta; ``contribution`` is ``normaliser`` times their sum, 0 for what
    the loss leaves out, plus what an entropy bonus adds. ``push`` is minus the loss's derivative by
    the token's log-probability, without the bonus: above 0, a step makes the token more likely.
    """

    ratio: Floats
    factor: Floats
    clipped: npt.NDArray[np.int8]
    policy: Floats
    kl: Floats
    contribution: Floats
    push: Floats
    normaliser: float


def token_losses(
    settings: LossSettings,
    advantages: npt.ArrayLike,
    logprobs: npt.ArrayLike,
    *,
    normaliser: float,
    old: npt.ArrayLike | None = None,
    reference: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    bonus: npt.ArrayLike | None = None,
) -> TokenLosses:
    """The terms of one completion; all arrays are (T,).

    ``old`` are the log-probabilities that ratios are taken to, by default ``logprobs`` themselves; ``reference`` is
    needed where beta is not 0; ``weights`` multiply the policy term; ``mask`` is 0 for what the loss leaves out;
    ``bonus`` is what an entropy bonus adds.

    Raises CreditError for a loss there is not, and for a KL without a reference.
    """
    if settings.loss_type not in LENS_LOSSES:
        raise CreditError(f"unknown loss_type {settings.loss_type!r}; choose one of {', '.join(LENS_LOSSES)}")
    advantage, logp = (np.asarray(numbers, dtype=np.float64) for numbers in (advantages, logprobs))
    counted = np.ones(len(logp)) if mask is None else np.asarray(mask, dtype=np.float64)
    weight = np.ones(len(logp)) if weights is None else np.asarray(weights, dtype=np.float64)
    is_counted = counted > 0  # what a tool wrote may have any number, or none
    logp = np.where(is_counted, logp, 0.0)
    log_ratio = np.zeros(len(logp)) if old is None else np.where(is_counted, logp - np.asarray(old, np.float64), 0.0)
    log_weight = log_ratio
    if settings.sequence_ratio:
        log_weight = np.full(len(logp), (log_ratio * counted).sum() / max(counted.sum(), 1.0))
    ratio = np.exp(log_weight)
    factor, slope = _factor(settings, advantage, ratio, log_ratio * counted)
    constant = settings.loss_type in ("cispo", "vespo")  # the factor has no gradient, log pi has
    policy = -factor * advantage * weight * (logp if constant else 1.0)
    direct = -factor * advantage * weight if constant else np.zeros(len(logp))  # by log pi, as it stands there
    by_ratio = np.zeros(len(logp)) if constant else -slope * ratio * advantage * weight  # by log rho
    kl = np.zeros(len(logp))
    if settings.beta:
        if reference is None:
            raise CreditError(f"beta is {settings.beta:g} and there is no reference policy; give its log-probabilities")
        d = np.where(is_counted, np.asarray(reference, dtype=np.float64) - logp, 0.0)
        times = ratio if settings.kl_times_ratio else 1.0
        kl = settings.beta * (np.exp(d) - d - 1) * times
        direct = direct + settings.beta * (1 - np.exp(d)) * times
        by_ratio = by_ratio + (kl if settings.kl_times_ratio else 0.0)
    if settings.sequence_ratio:  # every token has its part in the one ratio
        by_ratio = np.full(len(logp), (by_ratio * counted).sum() / max(counted.sum(), 1.0))
    return TokenLosses(
        ratio=ratio,
        factor=factor,
        clipped=(np.sign(ratio - factor) * (slope == 0) * (advantage != 0)).astype(np.int8),
        policy=policy,
        kl=kl,
        contribution=normaliser * counted * (policy + kl) + (0.0 if bonus is None else np.asarray(bonus, np.float64)),
        push=-normaliser * counted * (direct + by_ratio),
        normaliser=normaliser,
    )


def _factor(settings: LossSettings, advantage: Floats, ratio: Floats, log_ratio: Floats) -> tuple[Floats, Floats]:
    """What the advantage is multiplied with, and its derivative by the ratio; 0 where a bound holds the ratio."""
    if settings.loss_type in CLIPPED_LOSSES:
        bounded = ratio if settings.delta is None else np.minimum(ratio, settings.delta)
        clipped = np.clip(ratio, 1 - settings.epsilon, 1 + settings.epsilon_high)
        # min(rho A, clip(rho) A), whichever sign A has
        factor = np.where(advantage >= 0, np.minimum(bounded, clipped), np.maximum(bounded, clipped))
        return factor, (factor == ratio).astype(np.float64)
    if settings.loss_type == "cispo":
        factor = np.minimum(ratio, settings.epsilon_high)
        return factor, (factor == ratio).astype(np.float64)
    if settings.loss_type == "sapo":
        temperature = np.where(advantage > 0, *settings.sapo_temperatures)
        gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
        return 4 * gate / temperature, 4 * gate * (1 - gate)
    least, most = np.log(1e-8), 20.0
    log_w = np.clip(np.clip(log_ratio, -most, most).sum(), least, most)
    k, lam = (np.where(advantage >= 0, *pair) for pair in (settings.vespo_k, settings.vespo_lambda))
    lam = np.maximum(lam, 1e-4)
    return np.exp(lam + k * log_w - lam * np.exp(log_w)), np.ones(len(ratio))


def pass_losses(credits: Sequence[Credit], seen: LossPass, settings: LossSettings | None = None) -> list[TokenLosses]:
    """The terms of every rollout of a stored generation in one pass, in the order of ``seen.rollouts``.

    ``settings`` reads the same pass with another loss. Raises CreditError where the pass is of other rollouts.
    """
    settings = settings or seen.settings
    rollouts = [(credit, i) for credit in credits for i in range(len(credit.scored.group))]
    return [
        _rollout_losses(settings, credit, i, row, float(c))
        for (credit, i), row, c in zip(rollouts, seen.rollouts, pass_normalisers(credits, seen, settings), strict=True)
    ]


def pass_normalisers(credits: Sequence[Credit], seen: LossPass, settings: LossSettings) -> Floats:
    """The coefficient c of every rollout's tokens in a pass, 0 for what the loss leaves out. Raises as above."""
    groups = [credit.scored.group for credit in credits]
    count = sum(map(len, groups))
    if count != len(seen.rollouts):
        raise CreditError(
            f"the pass of step {seen.step} has {len(seen.rollouts)} rollouts and {count} are here; give the "
            f"groups stored for step {seen.generation}"
        )
    return length_normalisers(
        [rollout.sampled_length for group in groups for rollout in group.rollouts],
        settings.loss_type,
        max_completion_length=settings.max_completion_length or max(map(longest_allowed, groups)),
        masked=[not row for c in credits for row in counted_rollouts(c.scored.group, c.left_out)],
        micro_batches=[row.micro_batch for row in seen.rollouts],
        all_tokens=seen.tokens,
    )


def group_losses(credit: Credit, settings: LossSettings) -> list[TokenLosses]:
    """The terms of a group's rollouts on policy: every ratio is 1, and the group is the whole batch.

    A KL is read where the group has a reference; without one there is none.
    """
    group = credit.scored.group
    normalisers = group_normalisers(
        group,
        settings.loss_type,
        max_completion_length=settings.max_completion_length,
        left_out=credit.left_out,
    )
    return [_rollout_losses(settings, credit, i, on_policy(group, i), float(c)) for i, c in enumerate(normalisers)]


def on_policy(group: Group, i: int) -> RolloutPass:
    """Rollout i as a first pass over it sees it: log-probabilities as sampled, 0 where it has none."""
    logprobs = group.raw_logprobs(i)
    known = np.zeros(len(group.rollouts[i])) if logprobs is None else np.asarray(logprobs)
    return RolloutPass(0, known.astype(np.float32))


def _rollout_losses(
    settings: LossSettings, credit: Credit, i: int, seen: RolloutPass, normaliser: float
) -> TokenLosses:
    rollout = credit.scored.group.rollouts[i]
    length = len(rollout)
    if seen.logprobs is None or not normaliser:
        ones, zeros = np.ones(length), np.zeros(length)
        return TokenLosses(ones, ones, zeros.astype(np.int8), zeros, zeros, zeros, zeros, normaliser)
    return token_losses(
        replace(settings, beta=0.0) if rollout.ref_logprobs is None else settings,
        credit.of(i),
        seen.logprobs,
        normaliser=normaliser,
        old=seen.old_logprobs,
        reference=rollout.ref_logprobs,
        weights=seen.weights,
        mask=rollout.mask,
        bonus=seen.bonus,
    )


# --- weight of each token in the loss: its advantage times the length normaliser -------------------------------------
#
# Two completions with the same advantage do not pull equally hard: ``grpo`` divides by the completion's own length, the
# others do not. The coefficients are those of the policy term of TRL 1.16's loss where the ratio is 1 (the first pass
# over a generation), with the group at hand as the whole batch; a test holds them against TRL's own gradient.

LossType = Literal["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo"]
LOSS_TYPES: Mapping[str, str] = {
    "grpo": "1 / (G · T_i): every completion counts the same, so a long one's tokens count less each",
    "bnpo": "1 / Σ T: every token of the micro-batch counts the same",
    "dapo": "1 / Σ T: every token of the generation counts the same",
    "dr_grpo": "1 / (G · longest allowed): every token counts the same, in every batch",
    "cispo": "1 / Σ T, as dapo",
    "sapo": "1 / (G · T_i), as grpo",
    "luspo": "1 / G: summed over a completion, so a long one counts more",
}
"""The coefficient c_i of each token of completion i, by TRL's name of the loss."""


def length_normalisers(
    lengths: Sequence[int],
    loss_type: str,
    *,
    max_completion_length: int,
    masked: Sequence[bool] | None = None,
    micro_batches: Sequence[int] | None = None,
    all_tokens: float | None = None,
) -> npt.NDArray[np.float64]:
    """The coefficient c_i of completion i's tokens, (G,): the loss is −Σ_i c_i Σ_t A_{i,t} ρ_{i,t}.

    ``lengths`` are T_i, the tokens that the policy sampled: what tools wrote has no part in the loss.
    ``masked`` completions (truncated ones, under ``mask_truncated_completions``, and copies, under ``drop_duplicates``)
    weigh nothing and are left out of Σ T; they count in G. ``micro_batches`` numbers the micro-batch, of any rank, that
    each was in (all of one by default): losses are averaged over these, each with its own G and Σ T. ``all_tokens`` is
    the generation's Σ T, where these are not all of it.
    Sources: grpo, DeepSeekMath (arXiv 2402.03300) eq. 3; dapo (2503.14476) eq. 8; dr_grpo (2503.20783) section 3.
    Raises CreditError for a loss there is not.
    """
    if loss_type not in LOSS_TYPES and loss_type != "vespo":  # which divides as dapo does
        raise CreditError(f"unknown loss_type {loss_type!r}; choose one of {', '.join(LOSS_TYPES)}")
    counted = np.ones(len(lengths), dtype=bool) if masked is None else ~np.asarray(masked, dtype=bool)
    tokens = np.where(counted, np.asarray(lengths, dtype=np.float64), 0.0)  # (G,)
    parts = np.zeros(len(lengths), dtype=np.int64) if micro_batches is None else np.asarray(micro_batches)
    rows = np.bincount(parts)[parts] * (parts.max(initial=0) + 1)  # (G,): those of its micro-batch, times their number
    if loss_type in ("grpo", "sapo"):
        each = 1.0 / (rows * np.maximum(tokens, 1.0))
    elif loss_type == "bnpo":
        of_part = np.bincount(parts, weights=tokens)[parts]
        each = 1.0 / (np.maximum(of_part, 1.0) * (parts.max(initial=0) + 1))
    elif loss_type in ("dapo", "cispo", "vespo"):
        each = np.full(len(lengths), 1.0 / max(float(tokens.sum()) if all_tokens is None else all_tokens, 1.0))
    elif loss_type == "dr_grpo":
        each = 1.0 / (rows * max_completion_length)
    else:
        each = 1.0 / rows
    return np.asarray(np.where(counted, each, 0.0))


def counted_rollouts(
    group: Group, left_out: Sequence[bool] | None = None, mask_truncated: bool | None = None
) -> list[bool]:
    """Which rollouts of a group the loss counts: neither ``left_out`` ones nor masked truncated ones."""
    masking = group.sampling.get("mask_truncated_completions", False) if mask_truncated is None else mask_truncated
    out = left_out or [False] * len(group)
    return [not (dropped or (masking and r.truncated)) for r, dropped in zip(group.rollouts, out, strict=True)]


def longest_allowed(group: Group) -> int:
    """Tokens that a completion of a group may have at most; those of its longest where the group does not know."""
    limit = group.sampling.get("max_completion_length")
    return int(limit) if limit else max(map(len, group.rollouts), default=1)


def group_normalisers(
    group: Group,
    loss_type: str,
    *,
    max_completion_length: int | None = None,
    mask_truncated: bool | None = None,
    left_out: Sequence[bool] | None = None,
) -> npt.NDArray[np.float64]:
    """``length_normalisers`` of a group, (G,), with its own limit and masking unless others are given.

    The limit matters to dr_grpo alone; where the group does not know its own it is its longest completion. ``left_out``
    rollouts (``Credit.left_out``) weigh nothing.
    """
    counted = counted_rollouts(group, left_out, mask_truncated)
    return length_normalisers(
        [rollout.sampled_length for rollout in group.rollouts],
        loss_type,
        max_completion_length=max_completion_length or longest_allowed(group),
        masked=[not is_counted for is_counted in counted],
    )


def loss_weights(credit: Credit, loss_type: str = "dapo", **limits: Any) -> npt.NDArray[np.float64]:
    """A_{i,t} · c_i of every token, (G, T_max) float64, 0 where A is; ``limits`` are those of ``group_normalisers``."""
    normalisers = group_normalisers(credit.scored.group, loss_type, left_out=credit.left_out, **limits)
    return np.asarray(credit.advantages * normalisers[:, None], dtype=np.float64)
