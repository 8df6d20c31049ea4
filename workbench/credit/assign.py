"""From step rewards to the (G, T) token advantages, and from a token's advantage back to the terms it is the sum of.

``assign_credit`` is the one function that the preview and the trainer both call. The explanation reads the same parts
that made the number, in the same order, so it adds up to it exactly. Numpy only: nothing here knows of models,
tokenizers, rewards or pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from workbench.credit.schemes import GroupRewards, Part, find_scheme, outcome
from workbench.errors import CreditError
from workbench.schema import Credit, ScoredGroup

Floats = npt.NDArray[np.float64]


def assign_credit(
    step_rewards: Sequence[Sequence[float | None]],
    step_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    scheme: str = "process",
    *,
    step_starts: Sequence[Sequence[int]] | None = None,
    outcome_rewards: Sequence[float | None] | None = None,
    scale: bool = True,
    outcome_weight: float = 0.0,
    clip: float | None = None,
) -> npt.NDArray[np.float32]:
    """Token advantages of one group.

    Args:
        step_rewards: r_{i,k}; ``None`` is unscored, which is left out of mean and std and adds nothing to any token.
        step_ends: index(k) of each step, the 0-based index of its last token, not decreasing within a completion.
        lengths: T_i, tokens of each completion.
        scheme: a name in ``SCHEMES``.
        step_starts: first token of each step; by default a step starts right after the one before it. Only schemes
            that give a token its own step's value look at it.
        outcome_rewards: R_i, needed by ``outcome`` and by ``outcome_weight``.
        scale: divide by the pool's standard deviation; off is Dr. GRPO's choice (arXiv 2503.20783).
        outcome_weight: α of the term α · z(R_i) added to every token.
        clip: bound on |A|.

    Returns:
        (G, max T_i) float32, 0 on padding. A pool without spread gives 0 everywhere.

    Raises:
        CreditError: if the lists do not fit together, a reward is not finite, or the scheme lacks what it needs.
    """
    group = _checked(step_rewards, step_starts, step_ends, lengths, outcome_rewards)
    parts = _parts(group, scheme, scale, outcome_weight)
    return _advantages(group, parts, clip)


def credit_group(
    scored: ScoredGroup,
    scheme: str = "process",
    *,
    scale: bool = True,
    outcome_weight: float = 0.0,
    clip: float | None = None,
) -> Credit:
    """``assign_credit`` on a scored group, keeping what is needed to show and explain it. Same numbers, same errors."""
    group = _of_scored(scored)
    parts = _parts(group, scheme, scale, outcome_weight)
    main = parts[0]
    per_step = main.carry != "all"
    return Credit(
        scored=scored,
        scheme=scheme,
        options={"scale": scale, "outcome_weight": outcome_weight, "clip": clip},
        advantages=_advantages(group, parts, clip),
        normalised=tuple(
            tuple(values) if per_step else (None,) * len(rewards)
            for values, rewards in zip(main.values, group.steps, strict=True)
        ),
        mean=main.pool.mean,
        std=main.pool.std,
        spread=any(part.pool.spread for part in parts),
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


@dataclass(frozen=True)
class Term:
    """One summand of a token's advantage.

    ``step`` is the step whose reward it carries (0-based), or None for a whole completion's. ``scores`` and ``weights``
    are each reward function's score and weight, ``reward`` their weighted sum, ``mean`` and ``std`` those of the pool,
    ``value`` what is added to the token.
    """

    source: Literal["step", "outcome", "sum"]
    step: int | None
    scores: dict[str, float | None]
    weights: dict[str, float]
    reward: float | None
    mean: float | None
    std: float | None
    value: float


@dataclass(frozen=True)
class Explanation:
    """Why one token has its advantage: ``advantage`` is the float32 of the terms' sum, bounded by ``clip``."""

    rollout: int
    token: int
    terms: tuple[Term, ...]
    advantage: np.float32
    clip: float | None = None

    @property
    def total(self) -> float:
        """The terms' sum in float64, before any clipping."""
        return _ordered_sum(self.terms)


@dataclass(frozen=True)
class _Summand:
    value: float
    step: int | None
    part: Part = field(repr=False)


def explain(credit: Credit, rollout: int, token: int) -> Explanation:
    """The terms whose sum is the advantage of ``token`` in ``rollout`` (both 0-based).

    Raises IndexError when there is no such token.
    """
    length = len(credit.scored.group.rollouts[rollout])
    if not 0 <= token < length:
        raise IndexError(f"rollout {rollout} has tokens 0 to {length - 1}, not {token}")
    options = dict(credit.options)
    clip = options.get("clip")
    group = _of_scored(credit.scored)
    parts = _parts(group, credit.scheme, options.get("scale", True), options.get("outcome_weight", 0.0))
    scored = credit.scored.scored[rollout]
    weights = {
        kind: {r.name: r.weight for r in credit.scored.rewards if r.kind == kind} for kind in ("step", "outcome")
    }
    terms = []
    for summand in _summands(group, parts, rollout, token):
        pool = summand.part.pool
        if summand.step is not None:
            scores = {name: values[summand.step] for name, values in scored.scores.items()}
            terms.append(
                Term(
                    "step",
                    summand.step,
                    scores,
                    weights["step"],
                    scored.rewards[summand.step],
                    pool.mean,
                    pool.std,
                    summand.value,
                )
            )
        elif credit.scheme == "sum" and summand.part is parts[0]:
            total = sum(reward for reward in scored.rewards if reward is not None)
            terms.append(Term("sum", None, {}, weights["step"], total, pool.mean, pool.std, summand.value))
        else:
            terms.append(
                Term(
                    "outcome",
                    None,
                    dict(scored.outcome_scores),
                    weights["outcome"],
                    scored.outcome,
                    pool.mean,
                    pool.std,
                    summand.value,
                )
            )
    return Explanation(rollout, token, tuple(terms), credit.advantages[rollout, token], clip)


def _ordered_sum(terms: Sequence[Term]) -> float:
    """Adds in the order the tensor was added in (each part from its last step backwards), hence to the same bits."""
    total = 0.0
    steps = [term.value for term in terms if term.source == "step"]
    for value in reversed(steps):
        total = value + total
    for term in terms:
        if term.source != "step":
            total += term.value
    return total


def _parts(group: GroupRewards, scheme: str, scale: bool, outcome_weight: float) -> list[Part]:
    parts = [find_scheme(scheme).compute(group, scale)]
    if outcome_weight:
        if group.outcomes is None:
            raise CreditError(
                f"outcome_weight is {outcome_weight} but no outcome reward is set; add one, or set the weight to 0"
            )
        plain = outcome(group, scale)
        weighted = [[None if value is None else outcome_weight * value for value in row] for row in plain.values]
        parts.append(Part(weighted, "all", plain.pool))
    return parts


def _advantages(group: GroupRewards, parts: Sequence[Part], clip: float | None) -> npt.NDArray[np.float32]:
    """Lay the parts out in tokens, add them in float64 and round once to float32, (G, T_max)."""
    advantages = np.zeros((len(group.lengths), max(group.lengths, default=0)), dtype=np.float32)
    for i, length in enumerate(group.lengths):
        row = np.zeros(length)
        for part in parts:
            row += _laid_out(group, part, i)
        if clip is not None:
            row = np.clip(row, -clip, clip)
        advantages[i, :length] = row
    return advantages


def _laid_out(group: GroupRewards, part: Part, i: int) -> Floats:
    """One part's values in the tokens of completion i, (T_i,) float64. Linear in tokens and steps."""
    length = group.lengths[i]
    values = np.array([0.0 if value is None else value for value in part.values[i]])
    if part.carry == "all":
        return np.full(length, values[0])
    row = np.zeros(length)
    if part.carry == "suffix":
        suffix = np.cumsum(values[::-1])[::-1]
        borders = np.array([-1, *group.ends[i]])
        row[: borders[-1] + 1] = np.repeat(suffix, np.diff(borders))
    else:
        for value, first, last in zip(values, group.starts[i], group.ends[i], strict=True):
            row[first : last + 1] = value
    return row


def _summands(group: GroupRewards, parts: Sequence[Part], i: int, token: int) -> Iterator[_Summand]:
    """The non-empty summands of one token, steps in order, in the parts' order."""
    for part in parts:
        if part.carry == "all":
            if part.values[i][0] is not None:
                yield _Summand(part.values[i][0] or 0.0, None, part)
            continue
        own = None
        for k, value in enumerate(part.values[i]):
            first, last = group.starts[i][k], group.ends[i][k]
            if part.carry == "suffix" and value is not None and last >= token:
                yield _Summand(value, k, part)
            elif part.carry == "own" and first <= token <= last:
                own = None if value is None else _Summand(value, k, part)
        if own is not None:
            yield own


def _of_scored(scored: ScoredGroup) -> GroupRewards:
    return _checked(scored.step_rewards, scored.step_starts, scored.step_ends, scored.lengths, scored.outcomes)


def _checked(
    step_rewards: Sequence[Sequence[float | None]],
    step_starts: Sequence[Sequence[int]] | None,
    step_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    outcome_rewards: Sequence[float | None] | None,
) -> GroupRewards:
    starts = (
        step_starts
        if step_starts is not None
        else [[0, *(end + 1 for end in ends[:-1])] if ends else [] for ends in step_ends]
    )
    lists = {
        "step_rewards": step_rewards,
        "step_ends": step_ends,
        "step_starts": starts,
        "outcome_rewards": outcome_rewards,
    }
    for name, rows in lists.items():
        if rows is not None and len(rows) != len(lengths):
            raise CreditError(f"{name} has {len(rows)} completions and lengths has {len(lengths)}; give one each")
    for i, (rewards, firsts, ends, length) in enumerate(zip(step_rewards, starts, step_ends, lengths, strict=True)):
        if not len(rewards) == len(ends) == len(firsts):
            raise CreditError(
                f"completion {i} has {len(rewards)} step rewards, {len(firsts)} step starts and {len(ends)} step ends; "
                "give one of each a step"
            )
        if any(later < earlier for earlier, later in pairwise(ends)):
            raise CreditError(f"completion {i}: step_ends {list(ends)} go backwards; steps must be in order")
        if ends and not (ends[0] >= 0 and ends[-1] < length):
            raise CreditError(f"completion {i}: step_ends {list(ends)} do not lie within its {length} tokens")
        for k, reward in enumerate(rewards):
            if reward is not None and not math.isfinite(reward):
                raise CreditError(f"completion {i}, step {k}: reward {reward} is not finite; use None for unscored")
    for i, reward in enumerate(outcome_rewards or ()):
        if reward is not None and not math.isfinite(reward):
            raise CreditError(f"completion {i}: outcome reward {reward} is not finite; use None for unscored")
    return GroupRewards(step_rewards, starts, step_ends, lengths, outcome_rewards)
