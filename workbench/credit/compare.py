"""Comparison of two credits of the same rollouts: differences and sign flips.

The question behind it is what a change of scheme does before any training is spent on it. Knows nothing of pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.errors import CreditError
from workbench.schema import Credit


@dataclass(frozen=True)
class StepDifference:
    """One step under both credits: its tokens' mean advantage in each, and how many of them change sign."""

    rollout: int
    step: int
    tokens: int
    mean_a: float
    mean_b: float
    flipped: int


@dataclass(frozen=True)
class Comparison:
    """``a`` and ``b`` credit the same group; ``difference`` = b − a and ``flipped`` are (G, T_max).

    ``names`` are the two schemes', with the rewards behind them where these are what differs. ``flipped_share`` is the
    share of tokens whose advantage is above 0 in one and below 0 in the other; ``correlation`` Pearson's r over all
    tokens, None where one of them is constant.
    """

    a: Credit
    b: Credit
    names: tuple[str, str]
    difference: npt.NDArray[np.float32]
    flipped: npt.NDArray[np.bool_]
    flipped_share: float
    correlation: float | None
    mean_absolute_difference: float
    steps: tuple[StepDifference, ...]


def compare_credits(a: Credit, b: Credit) -> Comparison:
    """Raises CreditError unless both credit the same token ids."""
    ids = [[rollout.token_ids for rollout in credit.scored.group.rollouts] for credit in (a, b)]
    if ids[0] != ids[1]:
        raise CreditError("the two credits are of different rollouts; compare credits of one group")
    flipped = np.sign(a.advantages) * np.sign(b.advantages) < 0
    inside = np.arange(a.advantages.shape[1]) < np.array(a.scored.lengths)[:, None]  # (G, T_max)
    x, y = a.advantages[inside].astype(np.float64), b.advantages[inside].astype(np.float64)
    return Comparison(
        a=a,
        b=b,
        names=_names(a, b),
        difference=b.advantages - a.advantages,
        flipped=flipped,
        flipped_share=float(flipped[inside].mean()) if len(x) else 0.0,
        correlation=float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and x.std() > 0 and y.std() > 0 else None,
        mean_absolute_difference=float(np.abs(y - x).mean()) if len(x) else 0.0,
        steps=tuple(
            StepDifference(
                rollout=i,
                step=k,
                tokens=last - first + 1,
                mean_a=float(a.advantages[i, first : last + 1].mean()),
                mean_b=float(b.advantages[i, first : last + 1].mean()),
                flipped=int(flipped[i, first : last + 1].sum()),
            )
            for i, scored in enumerate(a.scored.scored)
            for k, (first, last) in enumerate(scored.spans)
        ),
    )


def _names(a: Credit, b: Credit) -> tuple[str, str]:
    first, second = _rewards(a), _rewards(b)
    if a.scored.scored == b.scored.scored and first == second:
        return a.scheme, b.scheme
    if first == second:  # the same functions by name, with other scores: other options, say
        second += ", other scores"
    return f"{a.scheme} on {first}", f"{b.scheme} on {second}"


def _rewards(credit: Credit) -> str:
    weighed = (f"{r.name}{'' if r.weight == 1 else f' × {r.weight:g}'}" for r in credit.scored.rewards)
    return ", ".join(weighed) or "no reward"
