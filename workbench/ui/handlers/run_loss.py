"""The loss of a run's stored groups: what the heatmap reads it from, and which tokens the gradient comes from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypedDict

from workbench.credit import gradient_shares, pass_losses
from workbench.runs import Run
from workbench.schema import Credit, LossPass
from workbench.views.heatmap import DrawnLoss


class SharePayload(TypedDict):
    """The part of the gradient that comes from some tokens, and how much of it makes them more likely."""

    name: str
    tokens: int
    share: float
    up: float


def drawn_loss(run: Run, step: int, credits: Sequence[Credit], group: int, *, watched: bool) -> DrawnLoss:
    """Of a stored group: in the passes over it; on policy for watched prompts, older runs and a step not yet done."""
    if not watched and (passes := _passes(run, step)):
        return DrawnLoss.of_passes(credits, group, passes)
    stored = run.dir.passes.steps()
    return DrawnLoss.on_policy(credits[group], run.dir.passes.read(stored[0]).settings if stored else None)


def shares(run: Run, step: int, credits: Sequence[Credit], *, watched: bool) -> list[SharePayload]:
    """Of the first pass over a stored generation; none where no pass is stored."""
    passes = () if watched else _passes(run, step)
    if not passes:
        return []
    parts = gradient_shares(credits, pass_losses(credits, passes[0]))
    return [{"name": part.name, "tokens": part.tokens, "share": part.share, "up": part.up} for part in parts]


def _passes(run: Run, step: int) -> tuple[LossPass, ...]:
    stored = run.dir.passes.steps()
    return _read_passes(run, step, sum(step <= other for other in stored))


@lru_cache(maxsize=32)
def _read_passes(run: Run, step: int, later: int) -> tuple[LossPass, ...]:
    """``later`` is how many steps from this one on are stored: with one more, there may be one more pass."""
    return tuple(run.passes(step))
