"""From step rewards to the (G, T) token advantages of a group, or of a batch of groups.

``assign_credit`` is what the preview and the trainer both come down to: a scheme's part and, with ``outcome_weight``,
the outcome's, laid out in tokens, added in float64 and rounded once to float32. Numpy only: nothing here knows of
models, tokenizers, rewards or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit.batch import NOTE, Batch, GroupRewards, is_finite
from workbench.credit.schemes import Part, find_scheme
from workbench.credit.schemes.scheme import resolve
from workbench.credit.schemes.steps import outcome
from workbench.errors import CreditError, shown
from workbench.schema import Credit, CreditPart, ScoredGroup, Spans, counted, token_spans


def assign_credit(
    step_rewards: Sequence[Sequence[float | None]],
    step_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    scheme: str = "process",
    *,
    step_starts: Sequence[Sequence[int]] | None = None,
    outcome_rewards: Sequence[float | None] | None = None,
    masks: Sequence[Sequence[int] | None] | None = None,
    token_ids: Sequence[Sequence[int]] | None = None,
    states: Sequence[Sequence[Hashable]] | None = None,
    outcome_weight: float = 0.0,
    clip: float | None = None,
    **options: Any,
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
        masks: 1 for each token of a completion that the policy sampled, 0 for each that a tool or an environment wrote,
            whose advantage is 0; None where the policy sampled all.
        token_ids: those of each completion, needed by schemes that compare completions token by token.
        states: what stands for the state in which each step begins, needed by schemes that compare steps of equal ones.
        outcome_weight: α of the term α · z(R_i) added to every token, z as the other options say.
        clip: bound on the size of an advantage.
        **options: the scheme's own, as ``SCHEMES[scheme].options`` lists them: ``normalise``, ``scale``, ``gamma`` and
            what only that scheme has; None is the scheme's default.

    Returns:
        (G, max T_i) float32, 0 on padding and on tokens that were not sampled. A pool without spread gives 0
        everywhere.

    Raises:
        CreditError: if the lists do not fit together, a reward is not finite, an option is unknown or out of range, or
            the scheme lacks what it needs.
    """
    group = GroupRewards.checked(
        step_rewards, step_ends, lengths, step_starts, outcome_rewards, masks, token_ids, states=states
    )
    return _assign([group], scheme, {**options, "outcome_weight": outcome_weight, "clip": clip})[0].advantages


def credit_group(scored: ScoredGroup, scheme: str = "process", **options: Any) -> Credit:
    """``assign_credit`` on a scored group, keeping what is needed to show and explain it. Same numbers, same errors."""
    return credit_groups([scored], scheme, **options)[0]


def credit_groups(
    scored: Sequence[ScoredGroup],
    scheme: str = "process",
    *,
    drop_duplicates: bool | None = None,
    each_reward: bool | None = None,
    **options: Any,
) -> list[Credit]:
    """``credit_group`` for the groups of a batch, which ``normalise="batch"`` compares with each other.

    ``drop_duplicates``: a rollout that is an exact copy of an earlier one of its group (``Group.copy_of``) counts as
    unscored, so that means and standard deviations have each distinct completion once; its advantage is 0, and the
    loss leaves it out (``Credit.left_out``).
    ``each_reward``: what the scheme takes for rewards are sums of scores that were normalised over the group on their
    own, function by function (GDPO; see ``each_reward``).
    """
    for name, value in (("drop_duplicates", drop_duplicates), ("each_reward", each_reward)):
        if value not in (None, False, True):
            raise CreditError(f"{name} is {shown(value)}; use true or false")
    drops, each = bool(drop_duplicates), bool(each_reward)
    rewards = [GroupRewards.of(group, drop_duplicates=drops, each_reward=each) for group in scored]
    assigned = _assign(rewards, scheme, options)
    further = {name: True for name, on in (("each_reward", each), ("drop_duplicates", drops)) if on}
    return [_credit(*each_group, scheme, further) for each_group in zip(scored, assigned, strict=True)]


def _credit(scored: ScoredGroup, assigned: _Assigned, scheme: str, further: Mapping[str, Any]) -> Credit:
    warnings = [*assigned.warnings, *_name_unjudged(scored)]
    if "each_reward" in further:
        warnings.append(NOTE)
    if "drop_duplicates" in further:
        pairs = [(scored.scored[i], scored.scored[k]) for i, k in enumerate(scored.group.copy_of) if k is not None]
        if any((copy.rewards, copy.outcome) != (first.rewards, first.outcome) for copy, first in pairs):
            warnings.append(
                "equal completions have different rewards; with drop_duplicates those of the first one count"
            )
    main = assigned.parts[0]
    per_step = main.carry != "all" and main.unit == "step"
    carried = main.normalised * main.factor
    normalised = tuple(
        tuple(None if np.isnan(value) else float(value) for value in carried[main.offsets[i] : main.offsets[i + 1]])
        if per_step
        else (None,) * len(step_scores.rewards)
        for i, step_scores in enumerate(scored.scored)
    )
    pools = [np.unique(values[~np.isnan(values)]).tolist() for values in (main.mean, main.std)]
    mean, std = (values[0] if len(values) == 1 else None for values in pools)
    return Credit(
        scored=scored,
        scheme=scheme,
        options={**assigned.options, **further},
        advantages=assigned.advantages,
        normalised=normalised,
        mean=mean,
        std=std,
        spread=assigned.spread,
        warnings=tuple(warnings),
        parts=assigned.parts,
    )


def _name_unjudged(scored: ScoredGroup) -> list[str]:
    """Say how many answers and steps are unscored because one reward did not judge what another one scored."""
    answers = [(row.outcome, row.outcome_scores) for row in scored.scored]
    steps = [
        (reward, {name: scores[k] for name, scores in row.scores.items()})
        for row in scored.scored
        for k, reward in enumerate(row.rewards)
    ]
    said = []
    for what, kind, rows in (("answer", "outcome", answers), ("step", "step", steps)):
        names = [reward.name for reward in scored.rewards if reward.kind == kind and reward.weight]
        missing = [given for total, given in rows if total is None and any(given[n] is not None for n in names)]
        for name in names:
            if count := sum(given[name] is None for given in missing):
                said.append(f"{counted(count, what)} unscored: reward {name!r} gave none of them a score")
    return said


@dataclass(frozen=True)
class _Assigned:
    """One group's share of what a batch was assigned."""

    advantages: npt.NDArray[np.float32]
    parts: tuple[CreditPart, ...]
    spread: bool
    options: Mapping[str, Any]
    warnings: tuple[str, ...]


_NEEDS = {
    "outcome": ("outcomes", "needs an outcome reward and none is set; add one (answer_correctness, say), or choose a "
        "scheme that credits steps"),
    "token_ids": ("token_ids", "compares completions token by token and their ids are not there; give token_ids, or "
        "choose another scheme"),
    "states": ("step_state", "compares steps that begin in the same state and states are not there; give states, or "
        "choose another scheme"),
}  # fmt: skip
"""What a scheme may need: the batch's attribute for it, and what to say if the groups lack it."""


def _assign(groups: Sequence[GroupRewards], scheme: str, options: Mapping[str, Any]) -> list[_Assigned]:
    if not groups:
        return []
    chosen = find_scheme(scheme)
    weight, clip = options.get("outcome_weight") or 0.0, options.get("clip")
    if not is_finite(weight):
        raise CreditError(f"outcome_weight is {shown(weight)}; use a finite number")
    if clip is not None and not (is_finite(clip) and clip > 0):
        raise CreditError(f"clip is {shown(clip)}; use a number above 0, or leave it out for no bound")
    scheme_options = {name: value for name, value in options.items() if name not in ("outcome_weight", "clip")}
    values, idle = resolve(scheme, chosen.options, scheme_options)
    batch = Batch.of(groups)
    for attribute, said in (_NEEDS[need] for need in chosen.needs if need != "steps"):
        if getattr(batch, attribute) is None:
            raise CreditError(f"scheme {scheme!r} {said}")
    computed = chosen.compute(batch, **values)
    parts = [computed] if isinstance(computed, Part) else list(computed)
    if weight:
        if batch.outcomes is None:
            raise CreditError(
                f"outcome_weight is {weight} but no outcome reward is set; add one, or set the weight to 0"
            )
        shared: dict[str, Any] = {name: values[name] for name in ("normalise", "scale") if name in values}
        added = outcome(batch, **shared)
        parts.append(Part(added.kind, added.carry, added.values, np.full(batch.completions, weight)))
    clip = None if clip is None else float(clip)
    settled = {**values, "outcome_weight": float(weight), "clip": clip}
    assigned, first = [], 0
    for number, group in enumerate(groups):
        after = first + len(group.lengths)
        warnings = [*idle, *(part.group_warnings[number] for part in parts if number in part.group_warnings)]
        for part in parts:
            of_rollouts = ((i, said) for i, said in part.warnings.items() if first <= i < after)
            warnings += [f"rollout {i - first + 1}: {said}" for i, said in of_rollouts]
        own = tuple(part.of_members(batch, first, after) for part in parts)
        spread = any(part.has_spread(batch, first, after) for part in parts)
        masks = group.masks or [None] * len(group.lengths)
        advantages = lay_out(own, group.lengths, masks, group.spans, clip)
        assigned.append(_Assigned(advantages, own, spread, settled, tuple(warnings)))
        first = after
    return assigned


def lay_out(
    parts: Sequence[CreditPart],
    lengths: Sequence[int],
    masks: Sequence[Sequence[int] | None],
    step_spans: Callable[[int], Spans],
    clip: float | None = None,
) -> npt.NDArray[np.float32]:
    """Lay the parts out in tokens, add them in float64 and round once to float32: (G, T_max).

    ``step_spans`` gives the (first, last) tokens of a completion's steps.
    """
    advantages = np.zeros((len(lengths), max(lengths, default=0)), dtype=np.float32)
    for i, length in enumerate(lengths):
        row = np.zeros(length)
        for part in parts:
            spans = step_spans(i) if part.unit == "step" else token_spans(length, masks[i])
            row += part.laid_out(i, spans, length)
        if clip is not None:
            row = np.clip(row, -clip, clip)
        if (mask := masks[i]) is not None:
            row = np.where(np.asarray(mask, dtype=bool), row, 0.0)
        with np.errstate(over="ignore"):
            advantages[i, :length] = row
    if not np.isfinite(advantages).all():
        raise CreditError(
            "an advantage is too large for float32; scale the rewards down, or set scale, normalise or clip"
        )
    return advantages
