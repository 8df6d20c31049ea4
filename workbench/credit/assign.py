"""From step rewards, or from token rewards and a critic's values, to token advantages: (G, T) of a group.

``assign_credit`` is what the preview and the trainer both come down to: a scheme's part and, with ``outcome_weight``,
the outcome's, laid out in tokens, added in float64 and rounded once to float32; with ``oar`` one part more weighs
each token by its importance. ``credit_by_gae`` is PPO's. Numpy only: nothing here knows of models, tokenizers, rewards
or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isnan
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.credit.batch import EPSILON, NOTE, Batch, Floats, GroupRewards
from workbench.credit.schemes import Part, find_scheme
from workbench.credit.schemes.scheme import MODIFIERS, OF_SCORES, resolve
from workbench.credit.schemes.steps import outcome
from workbench.errors import CreditError, quote
from workbench.schema import Credit, CreditPart, ScoredGroup, Spans, is_varied, say_count, suffix_sums, token_spans

Masks = Sequence[Sequence[int] | None]
Gate = Literal["none", "outcome"]
"""Under ``outcome`` a group whose answers do not differ in outcome has advantage 0, whatever else differs.

A shaped reward, of length or format say, has spread in a group in which no answer is right, and normalisation makes
that spread as large as any other. Such a group teaches nothing then, and its tokens stay in the divisor of the loss.
DAPO's group filter (arXiv 2503.14476, section 3.2) goes by accuracy, too;
https://github.com/verl-project/verl-recipe/pull/125 measures what a filter by the shaped reward does.
"""


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
    importances: Sequence[Sequence[float] | None] | None = None,
    outcome_weight: float = 0.0,
    clip: float | None = None,
    oar: bool = False,
    oar_threshold: float = 0.25,
    oar_boost: float = 1.0,
    gate: Gate = "none",
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
        importances: how much each token matters for the answer, needed by ``oar``; below 0 for a token that was not
            judged, None for a completion of which none was.
        outcome_weight: α of the term α · z(R_i) added to every token, z as the other options say. It has no effect with
            a scheme that counts the outcome itself.
        clip: bound on the size of an advantage.
        oar: multiply each token's advantage by its weight (``importance_weights``, with the threshold and the boost).
        gate: ``outcome``: all advantages are 0 unless ``outcome_rewards`` differ.
        **options: the scheme's own, as ``SCHEMES[scheme].options`` lists them: ``normalise``, ``scale``, ``gamma`` and
            what only that scheme has; None is the scheme's default.

    Returns:
        (G, max T_i) float32, 0 on padding and on tokens that were not sampled. A pool without spread gives 0
        everywhere.

    Raises:
        CreditError: if the lists do not fit together, a reward is not finite, an option is unknown or out of range, or
            the scheme lacks what it needs.
    """
    group = GroupRewards.from_lists(
        step_rewards, step_ends, lengths, step_starts, outcome_rewards, masks, token_ids, states, importances
    )
    options |= {"outcome_weight": outcome_weight, "clip": clip, "oar": oar}
    options |= {"oar_threshold": oar_threshold, "oar_boost": oar_boost, "gate": gate}
    return _assign([group], scheme, options)[0].advantages


def assign_batch(
    groups: Sequence[GroupRewards], scheme: str = "process", **options: Any
) -> list[npt.NDArray[np.float32]]:
    """``assign_credit`` for the groups of a batch, (G, max T_i) each. Same numbers, same errors."""
    return [assigned.advantages for assigned in _assign(groups, scheme, options)]


def credit_group(scored: ScoredGroup, scheme: str = "process", **options: Any) -> Credit:
    """``assign_credit`` on a scored group, keeping what is needed to show and explain it. Same numbers, same errors."""
    return credit_groups([scored], scheme, **options)[0]


def credit_groups(scored: Sequence[ScoredGroup], scheme: str = "process", **options: Any) -> list[Credit]:
    """``credit_group`` for the groups of a batch, which ``normalise="batch"`` compares with each other.

    ``drop_duplicates``: a rollout that is an exact copy of an earlier one of its group (``Group.copy_of``) counts as
    unscored, so that means and standard deviations have each distinct completion once; its advantage is 0, and the
    loss leaves it out (``Credit.is_counted``).
    ``each_reward``: what the scheme takes for rewards are sums of scores that were normalised over the group on their
    own, function by function (GDPO; see ``each_reward``).
    ``gate="outcome"``: a group has advantage 0 unless the reward that judges its answers tells some apart
    (``ScoredGroup.outcome_judge``).
    """
    once = {name: bool(MODIFIERS[name].check(options.pop(name, None) or False)) for name in OF_SCORES}
    rewards = [GroupRewards.of(group, **once) for group in scored]
    further = {name: True for name in reversed(OF_SCORES) if once[name]}
    assigned = _assign(rewards, scheme, options)
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
    if not scored.rewards:
        warnings.append("no reward is set, so nothing is scored and every advantage is 0")
    if per_step and scored.pattern and not any(row.matched for row in scored.scored):
        warnings.append("the step pattern matches nothing in any answer, so each is one step")
    carried = main.normalised * main.factor + 0.0  # no minus zero of a group that is gated
    normalised = tuple(
        tuple(None if isnan(value) else value for value in carried[main.offsets[i] : main.offsets[i + 1]].tolist())
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
                said.append(f"{say_count(count, what)} unscored: reward {name!r} gave none of them a score")
    return said


@dataclass(frozen=True)
class _Assigned:
    """One group's share of what a batch was assigned."""

    advantages: npt.NDArray[np.float32]
    parts: tuple[CreditPart, ...]
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
    modifiers = {name: option for name, option in MODIFIERS.items() if name not in OF_SCORES}
    how: dict[str, Any] = {
        name: option.check(option.default if options.get(name) is None else options[name])
        for name, option in modifiers.items()
    }
    if (is_gated := how["gate"] == "outcome") and any(group.judged is None for group in groups):
        raise CreditError(
            "gate is 'outcome' and no outcome reward is set; add one (answer_correctness, with weight 0 to watch it "
            "only), or set gate to 'none'"
        )
    own = {name: value for name, value in options.items() if name not in modifiers}
    values, idle = resolve(scheme, chosen.options, own)
    weight, clip = how["outcome_weight"], how["clip"] or None
    if weight and chosen.counts_outcome:
        weight, idle = 0.0, [*idle, f"outcome_weight has no effect with scheme {scheme!r}, which counts the outcome"]
    batch = Batch.of(groups)
    for attribute, said in (_NEEDS[need] for need in chosen.needs if need != "steps"):
        if getattr(batch, attribute) is None:
            raise CreditError(f"scheme {scheme!r} {said}")
    if weight and batch.outcomes is None:
        raise CreditError(f"outcome_weight is {weight} but no outcome reward is set; add one, or set the weight to 0")
    settled = {**values, "outcome_weight": weight, "clip": clip}
    settled |= {name: how[name] for name in ("oar", "oar_threshold", "oar_boost") if how["oar"]}
    settled |= {"gate": "outcome"} if is_gated else {}
    oar = (how["oar_threshold"], how["oar_boost"]) if how["oar"] else None
    computed = compute_batch(batch, chosen.compute, values, weight, clip, oar, is_gated=is_gated)
    return [_Assigned(advantages, parts, settled, (*idle, *said)) for advantages, parts, said in computed]


def compute_batch(
    batch: Batch,
    compute: Callable[..., Part | tuple[Part, ...]],
    values: Mapping[str, Any],
    weight: float = 0.0,
    clip: float | None = None,
    oar: tuple[float, float] | None = None,
    *,
    is_gated: bool = False,
) -> list[tuple[npt.NDArray[np.float32], tuple[CreditPart, ...], tuple[str, ...]]]:
    """Return each group's advantages, their parts and warnings, by a scheme's function and options that fit it.

    ``oar`` are the threshold and the boost, ``weight`` and ``clip`` as ``assign_credit`` takes them.
    """
    computed = compute(batch, **values)
    parts = [computed] if isinstance(computed, Part) else list(computed)
    if weight:
        shared: dict[str, Any] = {name: values[name] for name in ("normalise", "scale") if name in values}
        added = outcome(batch, **shared)
        parts.append(Part(added.kind, added.carry, added.values, np.full(batch.completions, weight)))
    done, first = list[tuple[npt.NDArray[np.float32], tuple[CreditPart, ...], tuple[str, ...]]](), 0
    for number, group in enumerate(batch.groups):
        after = first + len(group.lengths)
        warnings = [part.group_warnings[number] for part in parts if number in part.group_warnings]
        for part in parts:
            of_rollouts = ((i, said) for i, said in part.warnings.items() if first <= i < after)
            warnings += [f"rollout {i - first + 1}: {said}" for i, said in of_rollouts]
        own = tuple(part.of_members(batch, first, after) for part in parts)
        masks = group.masks or [None] * len(group.lengths)
        if oar is not None:
            weights = _weigh(own, group, masks, *oar)
            own += (weights,)
            if unjudged := sum(not weights.has_values(i).any() for i in range(len(group.lengths))):
                warnings.append(f"oar has no importances of {say_count(unjudged, 'rollout')} and changes nothing there")
        advantages = lay_out(own, group.lengths, masks, group.spans, clip)
        if is_gated and not is_varied(group.judged or ()):
            own = tuple(replace(part, factor=np.zeros_like(part.factor)) for part in own)
            advantages = np.zeros_like(advantages)
        done.append((advantages, own, tuple(warnings)))
        first = after
    return done


# --- weights by importance: OAR ---------------------------------------------------------------------------------------


def importance_weights(importances: Floats, threshold: float = 0.25, boost: float = 1.0) -> Floats:
    """Return the weights of an answer's L tokens by their importances, (L,) each, all at least 0; their sum is L.

    With s = log(1 + importance), scaled to 0 to 1 over the answer, and q its quantile ``threshold``, a token has
    max(s / q, 0.1) below q and 1 + boost * (s - q) / (1 - q) from q on; then all are scaled to the sum L. OAR (arXiv
    2601.07408), ``calculate_oar_hybrid_weights`` with ``sum_to_L`` in ``OAR-main.py`` of
    https://github.com/Valsure/Outcome-Grounded-Advantage-Reshaping, which takes q of one answer for the next one's
    ``threshold``; here all have the same. Defaults are those of the authors' README.
    """
    scores = np.log1p(importances)
    span = scores.max() - scores.min()
    scores = (scores - scores.min()) / (span if span > 0 else 1.0)
    border = np.quantile(scores, threshold)
    low = np.maximum(scores / (border + 1e-8), 0.1)
    weights = np.where(scores < border, low, 1.0 + boost * (scores - border) / (1.0 - border + 1e-8))
    return np.asarray(weights * (len(weights) / (weights.sum() + 1e-8)))


def _weigh(
    parts: Sequence[CreditPart], group: GroupRewards, masks: Masks, threshold: float, boost: float
) -> CreditPart:
    """Return the part that turns each judged token's advantage A into weight * A: it adds (weight - 1) * A."""
    rows: list[Floats] = []  # of a completion's sampled tokens: importance, advantage, weight - 1
    for i, length in enumerate(group.lengths):
        sampled = [t for t, _ in token_spans(length, masks[i])]
        given = None if group.importances is None else group.importances[i]
        importances = np.full(length, -1.0) if given is None else np.array(given, dtype=np.float64)
        row = np.stack([importances, _sum_parts(parts, i, length, masks[i], group.spans), np.zeros(length)])[:, sampled]
        judged = row[0] >= 0
        if judged.any():
            row[2, judged] = importance_weights(row[0, judged], threshold, boost) - 1.0
        row[:2, ~judged] = np.nan
        rows.append(row)
    offsets = np.cumsum([0, *(row.shape[1] for row in rows)], dtype=np.int64)
    raw, advantages, factor = np.concatenate([*rows, np.zeros((3, 0))], axis=1)
    none = np.full_like(raw, np.nan)
    return CreditPart("importance", "own", offsets, raw, none, none, advantages, factor, unit="token")


# --- tokens -----------------------------------------------------------------------------------------------------------


def lay_out(
    parts: Sequence[CreditPart],
    lengths: Sequence[int],
    masks: Masks,
    step_spans: Callable[[int], Spans],
    clip: float | None = None,
) -> npt.NDArray[np.float32]:
    """Lay the parts out in tokens, add them in float64 and round once to float32: (G, T_max).

    ``step_spans`` gives the (first, last) tokens of a completion's steps.
    """
    advantages = np.zeros((len(lengths), max(lengths, default=0)), dtype=np.float32)
    for i, length in enumerate(lengths):
        row = _sum_parts(parts, i, length, masks[i], step_spans)
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


def _sum_parts(
    parts: Sequence[CreditPart], i: int, length: int, mask: Sequence[int] | None, step_spans: Callable[[int], Spans]
) -> Floats:
    """Return the sum of the parts in the tokens of completion i, (T_i,) float64."""
    row = np.zeros(length)
    for part in parts:
        row += part.laid_out(i, step_spans(i) if part.unit == "step" else token_spans(length, mask), length)
    return row


# --- credit from a critic: generalised advantage estimation (PPO) ----------------------------------------------------
#
# delta_t = rho_t + gamma V_{t+1} - V_t with V = 0 after the last token, A_t = sum over l of (gamma lam)^l delta_{t+l},
# and the returns G_t = A_t + V_t that the critic learns (Schulman et al., arXiv 1506.02438, eq. 11 to 16). The token
# rewards rho are those of InstructGPT (Ouyang et al., arXiv 2203.02155, eq. 2): a penalty on the KL at every token and
# the score at the end, here with each step's reward on the step's last token too. Values come from whoever trains the
# critic.

GAE = "gae"
"""What a credit made here has for its scheme's name."""
FORMULA = "A_t = Σ_l (γλ)^l δ_{t+l}, δ_t = ρ_t + γ V_{t+1} − V_t, less the batch's mean over its std (if whitened)"
COUNTS = "what this token and all later ones brought beyond what the critic expected"


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
    """Measures of one rollout's tokens from when it was sampled, each (T,).

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
            raise CreditError(f"{name} is {quote(number)}; use a number from 0 to 1")
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
    sampled = [(group, i) for group in groups for i in range(len(group.group))]
    rows = [_row(*rollout, of_tokens, options) for rollout, of_tokens in zip(sampled, measured, strict=True)]
    left_out = [finished_only and group.group.rollouts[i].truncated for group, i in sampled]
    counted = [row.advantages for row, is_left_out in zip(rows, left_out, strict=True) if not is_left_out]
    pool = np.concatenate([*counted, np.zeros(0)])
    mean, std = (float(pool.mean()), float(pool.std(ddof=1))) if len(pool) > 1 else (0.0, 0.0)
    moments = (mean, std) if options.whiten else (0.0, None)
    left = iter(rows)
    return [_credit_rows(group, [*islice(left, len(group.group))], options, *moments) for group in groups]


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


def _credit_rows(
    group: ScoredGroup, rows: Sequence[_Row], options: GAEOptions, mean: float, std: float | None
) -> Credit:
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
