"""The credit schemes: how the rewards of one group become an additive part of every token's advantage.

A scheme is one pure function ``GroupRewards -> Part``. A ``Part`` is a list of values and the way they are carried to
tokens: ``"suffix"`` (a token gets the sum over all steps that end at or after it), ``"own"`` (a token gets its own
step's value) or ``"all"`` (every token gets the completion's one value). Laying parts out in tokens, summing and
explaining them is ``assign``'s; adding a scheme is adding one function here and one line to ``SCHEMES``.

Notation: completion i has steps k with rewards r_{i,k} that end at token e_{i,k}; R_i is its outcome reward; z is the
normalisation of ``pool``, over the scored values of the stated pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from workbench.credit.pool import Pool
from workbench.errors import CreditError

Carry = Literal["suffix", "own", "all"]
StepValues = list[list[float | None]]


@dataclass(frozen=True)
class GroupRewards:
    """Everything a scheme may look at: one group's jagged rewards and where the steps lie in tokens.

    ``step_ends[i][k]`` is index(k), the last token of step k in completion i; ``step_starts[i][k]`` its first token;
    ``lengths[i]`` is T_i in tokens. ``outcomes`` is None when no outcome reward was given.
    """

    steps: Sequence[Sequence[float | None]]
    starts: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]
    lengths: Sequence[int]
    outcomes: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Part:
    """An additive part of the advantages.

    ``values[i]`` has one value a step for the carries "suffix" and "own", and exactly one value for "all".
    """

    values: StepValues
    carry: Carry
    pool: Pool
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Scheme:
    name: str
    formula: str
    source: str
    compute: Callable[[GroupRewards, bool], Part]

    @property
    def summary(self) -> str:
        return (self.compute.__doc__ or "").strip().splitlines()[0]


def outcome(group: GroupRewards, scale: bool) -> Part:
    """Every token of a completion gets the normalised outcome reward.

    A_{i,t} = z(R_i) over the group's completions. DeepSeekMath section 4.1.2; TRL's own advantage.
    """
    if group.outcomes is None:
        raise CreditError(
            "scheme 'outcome' needs an outcome reward and none is set; add one (answer_correctness, say), "
            "or choose a scheme that credits steps"
        )
    pool = Pool.of(group.outcomes)
    return Part([[pool.z(value, scale=scale)] for value in group.outcomes], "all", pool)


def process(group: GroupRewards, scale: bool) -> Part:
    """A token gets the sum of the normalised rewards of all steps that end at or after it.

    A_{i,t} = sum over {k : e_{i,k} >= t} of z(r_{i,k}), z over all scored steps of the group. DeepSeekMath section
    4.1.3.
    """
    pool = Pool.of(reward for rewards in group.steps for reward in rewards)
    return Part([[pool.z(reward, scale=scale) for reward in rewards] for rewards in group.steps], "suffix", pool)


def step(group: GroupRewards, scale: bool) -> Part:
    """A token gets the normalised reward of its own step.

    A_{i,t} = z(r_{i,k(t)}), z over all scored steps of the group; 0 outside every step. The last step of a finished
    completion runs to its end-of-sequence token, over any text in between.
    """
    part = process(group, scale)
    return Part(part.values, "own", part.pool)


def sum_of_steps(group: GroupRewards, scale: bool) -> Part:
    """The summed step rewards, normalised as if they were an outcome reward.

    A_{i,t} = z(sum over k of r_{i,k}) over the group's completions. A completion without a scored step stays out.
    """
    totals = [_total(rewards) for rewards in group.steps]
    pool = Pool.of(totals)
    return Part([[pool.z(total, scale=scale)] for total in totals], "all", pool)


def rescaled(group: GroupRewards, scale: bool) -> Part:
    """A completion's normalised sum, shared out to its tokens in proportion to their step's reward.

    A_{i,t} = r_{i,k(t)} * z(sum over k of r_{i,k}) / (mean over t of r_{i,k(t)} + 1e-5), the mean taken over the tokens
    of scored steps. For study: it explodes where that mean is near 0 and flips signs where rewards are negative, and
    warns of the former.
    """
    totals = [_total(rewards) for rewards in group.steps]
    pool = Pool.of(totals)
    values: StepValues = []
    warnings = []
    for i, (rewards, total) in enumerate(zip(group.steps, totals, strict=True)):
        z = pool.z(total, scale=scale)
        if z is None:
            values.append([None] * len(rewards))
            continue
        widths = [last - first + 1 for first, last in zip(group.starts[i], group.ends[i], strict=True)]
        scored = [(reward, width) for reward, width in zip(rewards, widths, strict=True) if reward is not None]
        tokens = sum(width for _, width in scored)
        mean = sum(reward * width for reward, width in scored) / tokens if tokens else 0.0
        if pool.spread and abs(mean) < 1e-3:
            warnings.append(
                f"rollout {i + 1}: the mean step reward of its tokens is {mean:.2g}, too near 0 to divide by; "
                "its advantages mean nothing under 'rescaled'"
            )
        values.append([None if reward is None else reward * z / (mean + 1e-5) for reward in rewards])
    return Part(values, "own", pool, tuple(warnings))


def _total(rewards: Sequence[float | None]) -> float | None:
    scored = [reward for reward in rewards if reward is not None]
    return float(np.sum(scored)) if scored else None


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("process", "A = Σ over steps ending at or after t of z(r)", "DeepSeekMath 4.1.3", process),
        Scheme("outcome", "A = z(R), the same for every token", "DeepSeekMath 4.1.2; TRL", outcome),
        Scheme("step", "A = z(r) of the token's own step", "own step", step),
        Scheme("sum", "A = z(Σ r), the same for every token", "summed step rewards as an outcome", sum_of_steps),
        Scheme("rescaled", "A = r · z(Σ r) / mean r", "for study", rescaled),
    )
}


def find_scheme(name: str) -> Scheme:
    """Raises CreditError naming the schemes there are."""
    try:
        return SCHEMES[name]
    except KeyError:
        raise CreditError(f"unknown credit scheme {name!r}; choose one of {', '.join(SCHEMES)}") from None
