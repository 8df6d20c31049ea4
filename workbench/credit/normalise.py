"""Normalisation inside pools of rewards: z(x) = (x - mean) / (std + 1e-4), std with ddof = 1.

The constants are those of TRL's ``GRPOTrainer`` and of DeepSeekMath (arXiv 2402.03300, section 4.1), so that a group
scored by outcome only gets TRL's own numbers. Everything is float64; the one rounding to float32 happens when
advantages are laid out in tokens. What a pool holds is the scheme's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from workbench.errors import CreditError
from workbench.schema.numbers import differ

EPSILON = 1e-4
Normalise = Literal["pooled", "per_completion", "leave_one_out", "batch", "none"]
NORMALISATIONS: dict[str, str] = {
    "pooled": "every scored value of the group counts once",
    "per_completion": "every completion of the group counts once, however many steps it has",
    "leave_one_out": "a completion is compared with the mean of the group's other completions (RLOO, PURE)",
    "batch": "mean of the group, standard deviation of the whole batch",
    "none": "nothing is subtracted or divided; a group without spread still gets 0",
}
assert tuple(NORMALISATIONS) == get_args(Normalise)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Normalised:
    """``raw`` (N,) and what became of it, NaN where unscored; ``spread`` (N,): whether the value's pool has any.

    ``mean`` and ``std`` (N,) are what was subtracted from and divided into each value (NaN where nothing was).
    """

    raw: Floats
    mean: Floats
    std: Floats
    value: Floats
    spread: npt.NDArray[np.bool_]


def z_within(
    raw: Floats, pool: Integers, completion: Integers, how: Normalise, scale: bool, *, wide: Integers | None = None
) -> Normalised:
    """Normalise each value of ``raw`` (N,) within its pool.

    Args:
        raw: values, NaN where unscored: left out of every mean and std.
        pool: (N,) the pool of each value, 0-based; usually its group.
        completion: (N,) the completion each value belongs to.
        how: ``pooled``: mean and std of the pool's values. ``per_completion``: the mean of the completions' means, and
            the variance around it in which each completion weighs the same (C / (C - 1) of it, for C completions).
            ``leave_one_out``: the mean of the other completions' means (RLOO, arXiv 2402.14740; PURE's step baseline,
            arXiv 2504.15275), the pool's std. ``batch``: the pool's mean, the std of everything in the same ``wide``
            pool (TRL's ``scale_rewards="batch"``). ``none``: x itself.
        scale: divide by the std; off is Dr. GRPO's choice (arXiv 2503.20783).
        wide: (N,) the pools of ``batch``; one by default.

    A pool with fewer than two values, or none but equal ones, gives 0 whatever the normalisation; so does one with a
    single completion where completions are compared.

    Raises:
        CreditError: for a normalisation there is not, and rewards too large to be squared.
    """
    if how not in NORMALISATIONS:
        raise CreditError(f"unknown normalisation {how!r}; choose one of {', '.join(NORMALISATIONS)}")
    scored = ~np.isnan(raw)
    x, p, c = raw[scored], pool[scored], completion[scored]
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is told below
        mean, std, spread = _statistics(x, p)
        if how in ("per_completion", "leave_one_out"):
            voter, means, owner, count, voters = _voters(x, p, c)
            spread &= voters[p] > 1
            total = np.bincount(owner, means, minlength=len(voters))
            if how == "per_completion":
                centre = (total / np.maximum(voters, 1))[p]
                squares = np.bincount(p, (x - centre) ** 2 / count[voter], minlength=len(voters))
                mean, std = centre, np.sqrt(squares / np.maximum(voters - 1, 1))[p]
            else:
                mean = ((total[owner] - means) / np.maximum(voters[owner] - 1, 1))[voter]
        elif how == "batch":
            std = _statistics(x, np.zeros_like(p) if wide is None else wide[scored])[1]
        elif how == "none":
            mean = std = np.full(len(x), np.nan)
        value = x if how == "none" else x - mean
        if scale and how != "none":
            value = value / (std + EPSILON)
    sizes = (x, np.where(spread, value, 0.0), np.where(spread & scale & (how != "none"), std, 0.0))
    if not np.isfinite(sizes).all():
        raise CreditError(
            f"rewards of up to {np.abs(x).max():.3g} are too large to be compared: their squares are no numbers any "
            "more; scale them down"
        )
    value = np.where(spread, value, 0.0)
    mean = np.where(spread, mean, np.nan)  # where nothing spreads nothing was compared
    std = np.where(spread & scale, std, np.nan)
    placed = np.full((4, len(raw)), np.nan)  # of the unscored, NaN
    placed[:, scored] = mean, std, value, spread
    return Normalised(raw, placed[0], placed[1], placed[2], placed[3] == 1)


def _statistics(x: Floats, pool: Integers) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Mean, std (0 without spread) and whether there is spread, of each value's pool: three (n,)."""
    size = int(pool.max(initial=-1)) + 1
    count = np.bincount(pool, minlength=size)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, pool, x)
    np.maximum.at(high, pool, x)
    spread = differ(low, high)
    mean = np.bincount(pool, x, minlength=size) / np.maximum(count, 1)
    squares = np.bincount(pool, (x - mean[pool]) ** 2, minlength=size)
    std = np.where(spread, np.sqrt(squares / np.maximum(count - 1, 1)), 0.0)
    return mean[pool], std[pool], spread[pool]


def _voters(x: Floats, pool: Integers, completion: Integers) -> tuple[Integers, Floats, Integers, Floats, Integers]:
    """The (pool, completion) pairs that have a value: each value's pair, and each pair's mean, pool and count; C."""
    key = pool * (int(completion.max(initial=0)) + 1) + completion
    pairs, voter = np.unique(key, return_inverse=True)
    count = np.bincount(voter, minlength=len(pairs)).astype(np.float64)
    means = np.bincount(voter, x, minlength=len(pairs)) / np.maximum(count, 1)
    owner = np.zeros(len(pairs), dtype=np.int64)
    owner[voter] = pool
    return voter, means, owner, count, np.bincount(owner)
