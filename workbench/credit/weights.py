"""Weight of each token in the loss: its advantage times the length normaliser.

Two completions with the same advantage do not pull equally hard: ``grpo`` divides by the completion's own length, the
others do not. The coefficients are those of the policy term of TRL 1.16's loss where the ratio is 1 (the first pass
over a generation), with the group at hand as the whole batch; a test holds them against TRL's own gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.errors import CreditError
from workbench.schema import Credit, Group

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
