"""The credit schemes: how the rewards of a batch of groups become an additive part of every token's advantage.

A scheme is one pure function of a ``Batch`` and its options; adding one is adding a function here and a line to
``SCHEMES``. Its keyword arguments *are* its options: their defaults, choices and ranges are read from the signature by
whoever checks them or draws a form. Laying parts out in tokens and explaining them is the parts' own business.

Notation: completion i has steps k with rewards r_{i,k} that end at token e_{i,k}; R_i is its outcome reward; r~ and z
are the normalisation of ``normalise`` over the group's scored values (or whatever ``normalise`` selects).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from workbench.credit.batch import Batch, Floats, Integers
from workbench.credit.normalise import Normalise, Normalised, z_within
from workbench.credit.options import Option, Range, Value, options_of, resolve
from workbench.errors import CreditError, did_you_mean, shown
from workbench.schema import Carry, CreditPart, PartKind

Gamma = Annotated[float, Range("Discount of a step for each step before it", 0.0, 1.0)]
Temperature = Annotated[float, Range("Of the softmax that picks a completion's worst steps", 1e-3, 100.0)]
Threshold = Annotated[float, Range("A step with a lower reward is an error", -1e6, 1e6)]
Signed = Annotated[bool, "Map rewards from 0 to 1 onto -1 to 1 first: r becomes 2r - 1"]


@dataclass(frozen=True)
class Part:
    """A ``CreditPart`` of a whole batch, before it is cut into groups.

    ``values`` has an entry a step, or a completion for the carry ``all``; ``factor`` (None for 1) multiplies it.
    """

    kind: PartKind
    carry: Carry
    values: Normalised
    factor: Floats | None = None
    gamma: float = 1.0
    warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a completion, by its number in the batch."""
    group_warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a group, by its number in the batch."""

    def of_members(self, batch: Batch, first: int, after: int) -> CreditPart:
        """The part of the completions ``first`` to ``after`` (exclusive) of the batch."""
        ends = np.arange(batch.completions + 1) if self.carry == "all" else batch.offsets
        offsets = ends[first : after + 1]
        entries = slice(offsets[0], offsets[-1])
        factor = np.ones(len(self.values.raw)) if self.factor is None else self.factor
        values = self.values
        return CreditPart(
            self.kind,
            self.carry,
            offsets - offsets[0],
            values.raw[entries],
            values.mean[entries],
            values.std[entries],
            values.value[entries],
            factor[entries],
            self.gamma,
        )


@dataclass(frozen=True)
class Scheme:
    name: str
    formula: str
    reference: str
    compute: Callable[..., Part]
    counts: str = ""
    """What a token's advantage is made of, in words."""
    outcome_only: bool = False
    """It reads outcome rewards alone, so that step rewards teach nothing under it."""
    per_completion: bool = False
    """All tokens of a completion have the same advantage."""

    @property
    def summary(self) -> str:
        return (self.compute.__doc__ or "").strip().splitlines()[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """The scheme's own options, from its signature."""
        return options_of(self.compute)


def _pooled(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a step, compared with all steps of its group."""
    return z_within(values, batch.step_group, batch.completion, how, scale)


def _by_completion(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a completion, compared with all completions of its group."""
    return z_within(values, batch.group, np.arange(batch.completions), how, scale)


def outcome(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """Every token of a completion gets the normalised outcome reward.

    A_{i,t} = z(R_i) over the group's completions. DeepSeekMath section 4.1.2; TRL's own advantage.
    """
    if batch.outcomes is None:
        raise CreditError(
            "scheme 'outcome' needs an outcome reward and none is set; add one (answer_correctness, say), "
            "or choose a scheme that credits steps"
        )
    return Part("outcome", "all", _by_completion(batch, batch.outcomes, normalise, scale))


def process(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True, gamma: Gamma = 1.0) -> Part:
    """A token gets the sum of the normalised rewards of all steps that end at or after it.

    A_{i,t} = sum over {k : e_{i,k} >= t} of gamma^(k - k(t)) r~_{i,k}, k(t) the first such step. DeepSeekMath section
    4.1.3, where gamma is 1.
    """
    return Part("step", "suffix", _pooled(batch, batch.rewards, normalise, scale), gamma=gamma)


def step(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A token gets the normalised reward of its own step.

    A_{i,t} = r~_{i,k(t)}; 0 outside every step. The last step of a finished completion runs to its end-of-sequence
    token, over any text in between.
    """
    return Part("step", "own", _pooled(batch, batch.rewards, normalise, scale))


def sum_of_steps(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """The summed step rewards, normalised as if they were an outcome reward.

    A_{i,t} = z(sum over k of r_{i,k}) over the group's completions. A completion without a scored step stays out.
    """
    return Part("sum", "all", _by_completion(batch, batch.sums, normalise, scale))


def rescaled(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A completion's normalised sum, shared out to its tokens in proportion to their step's reward.

    A_{i,t} = r_{i,k(t)} * z(sum over k of r_{i,k}) / (mean over t of r_{i,k(t)} + 1e-5), the mean taken over the tokens
    of scored steps. For study: it flips signs where rewards are negative, and explodes where that mean is near 0; where
    it is under 1e-3 in size the completion gets 0, with a warning.
    """
    z = _by_completion(batch, batch.sums, normalise, scale)
    scored = ~np.isnan(batch.rewards)
    weighted = np.bincount(batch.completion[scored], (batch.rewards * batch.width)[scored], minlength=batch.completions)
    tokens = np.bincount(batch.completion[scored], batch.width[scored], minlength=batch.completions)
    mean = weighted / np.maximum(tokens, 1)  # (B,)
    owner = batch.completion
    values = Normalised(
        z.raw[owner], z.mean[owner], z.std[owner], np.where(scored, z.value[owner], np.nan), z.spread[owner]
    )
    warnings = {
        int(i): f"the mean step reward of its tokens is {mean[i]:.2g}, too near 0 to divide by; "
        "it gets 0 under 'rescaled'"
        for i in np.flatnonzero(z.spread & (np.abs(mean) < 1e-3))
    }
    factor = np.where(
        np.abs(mean[owner]) < 1e-3, 0.0, batch.rewards / np.where(np.abs(mean) < 1e-3, 1.0, mean + 1e-5)[owner]
    )
    return Part("sum", "own", values, factor, warnings=warnings)


def discounted_return(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True, gamma: Gamma = 1.0) -> Part:
    """A token gets its step's discounted return, normalised over all steps' returns.

    G_{i,k} = r_{i,k} + gamma G_{i,k+1}; A_{i,t} = z(G_{i,k(t)}), 0 outside every step. An unscored step has no return
    and passes the later ones on. ROLL's ``step_reinforce`` (https://github.com/alibaba/ROLL).
    """
    returns, later = np.full_like(batch.rewards, np.nan), 0.0
    for n in range(len(returns) - 1, -1, -1):
        if n + 1 == batch.offsets[batch.completion[n] + 1]:
            later = 0.0
        later *= gamma
        if not np.isnan(batch.rewards[n]):
            later = returns[n] = float(batch.rewards[n]) + later
    return Part("step", "own", _pooled(batch, returns, normalise, scale))


def position(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A step is compared only with the steps that have the same number in the group's other completions.

    A_{i,t} = z(r_{i,k(t)}) over the group's steps with index k(t), 0 outside every step; an index that one completion
    alone reaches gets 0. MT-GRPO (arXiv 2505.11821), whose lambda * z(R_i) is ``outcome_weight`` here.
    """
    width = int(batch.index.max(initial=0)) + 1
    pool: Integers = batch.step_group * width + batch.index
    values = z_within(batch.rewards, pool, batch.completion, normalise, scale, wide=batch.index)
    return Part("step", "own", values)


def mean_suffix(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A token gets the mean of the normalised rewards of all steps that end at or after it.

    A_{i,t} = mean over {k : e_{i,k} >= t, scored} of r~_{i,k}. Takes away the bonus ``process`` gives to more steps.
    """
    return Part("step", "mean", _pooled(batch, batch.rewards, normalise, scale))


def min_form(
    batch: Batch,
    *,
    normalise: Normalise = "leave_one_out",
    scale: bool = False,
    gamma: Gamma = 1.0,
    temperature: Temperature = 0.1,
    signed: Signed = False,
) -> Part:
    """A completion is worth its worst step: rewards are weighted by how low they are, then summed from the end.

    x_{i,k} = softmax_k(-r_{i,k} / temperature) * r_{i,k}; A_{i,t} = suffix sum of x minus its leave-one-out mean, which
    is the mean over the other completions of their mean x. PURE (arXiv 2504.15275), and its code for the baseline
    (https://github.com/CJReinforce/PURE, ``reward_baseline="step"``).

    PURE's rewards are p1 - p0, from -1 to 1: the worst step weighs most and is negative. A wrong step of reward 0
    weighs most, too, but most of 0 is 0: it carries the baseline alone. For rewards from 0 to 1 set ``signed``.
    """
    rewards = 2.0 * batch.rewards - 1.0 if signed else batch.rewards
    scored = ~np.isnan(rewards)
    c, r = batch.completion[scored], rewards[scored]
    lowest = np.full(batch.completions, np.inf)
    np.minimum.at(lowest, c, r)
    weights = np.exp((lowest[c] - r) / temperature)  # the largest exponent is 0
    shares = weights / np.bincount(c, weights, minlength=batch.completions)[c]
    values = np.full_like(batch.rewards, np.nan)
    values[scored] = shares * r
    pooled = _pooled(batch, values, normalise, scale)
    return Part("step", "suffix", pooled, gamma=gamma, group_warnings=_sign_warnings(batch, signed))


def _sign_warnings(batch: Batch, signed: bool) -> dict[int, str]:
    """The groups whose rewards are not what ``min`` (or ``min`` with ``signed``) is made for."""
    warnings = {}
    for group in np.unique(batch.step_group).tolist():
        rewards = batch.rewards[batch.step_group == group]
        low, high = np.nanmin(rewards, initial=np.inf), np.nanmax(rewards, initial=-np.inf)
        if signed and (low < 0 or high > 1):
            outside = low if low < 0 else high
            warnings[group] = (
                f"signed maps rewards from 0 to 1 onto -1 to 1 and the group has {outside:g}; "
                "turn it off where wrong steps have negative rewards already"
            )
        elif not signed and 0 <= low < np.inf:
            warnings[group] = (
                "no step reward of the group is negative, and under 'min' a wrong step of reward 0 carries next to "
                "nothing; set signed for rewards from 0 to 1 (2r - 1), or give wrong steps negative rewards"
            )
    return warnings


def progress(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True, gamma: Gamma = 1.0) -> Part:
    """A step is worth how much it raised the reward over the step before it; a token gets the sum from there on.

    D_{i,k} = r_{i,k} - r_{i,k-1}, D_{i,1} = r_{i,1}, over the scored steps; A_{i,t} = suffix sum of z(D). PAV (arXiv
    2410.08146). The raw sums telescope, so splitting a step adds nothing to them; subtracting a mean from every D does
    not keep that, ``normalise="none"`` does.
    """
    differences = np.full_like(batch.rewards, np.nan)
    scored = np.flatnonzero(~np.isnan(batch.rewards))
    r, c = batch.rewards[scored], batch.completion[scored]
    before = np.concatenate([[0.0], r[:-1]])
    first = np.concatenate([[True], c[1:] != c[:-1]])[: len(r)]
    differences[scored] = r - np.where(first, 0.0, before[: len(r)])
    return Part("step", "suffix", _pooled(batch, differences, normalise, scale), gamma=gamma)


def first_error(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    gamma: Gamma = 1.0,
    threshold: Threshold = 0.5,
) -> Part:
    """Steps after the first wrong one are left unscored; the rest is ``process``.

    The first step of a completion with r < threshold is its last scored one. ProcessBench's labels (arXiv 2412.06559),
    VPPO.
    """
    wrong = batch.rewards < threshold  # NaN is not below it
    errors = np.cumsum(wrong)
    before = errors - wrong - np.concatenate([[0], errors])[batch.offsets[batch.completion]]
    until_wrong = np.where(before == 0, batch.rewards, np.nan)
    return process(batch.with_rewards(until_wrong), normalise=normalise, scale=scale, gamma=gamma)


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "process",
            "A = Σ over steps ending at or after t of z(r)",
            "DeepSeekMath 4.1.3",
            process,
            "the sum over this step and all later ones",
        ),
        Scheme(
            "outcome",
            "A = z(R), the same for every token",
            "DeepSeekMath 4.1.2; TRL",
            outcome,
            "the outcome of the whole answer",
            outcome_only=True,
            per_completion=True,
        ),
        Scheme("step", "A = z(r) of the token's own step", "own step", step, "this step's own reward"),
        Scheme(
            "sum",
            "A = z(Σ r), the same for every token",
            "summed step rewards as an outcome",
            sum_of_steps,
            "the sum over all steps of the answer",
            per_completion=True,
        ),
        Scheme(
            "return",
            "A = z(r + γ r' + γ² r'' + …) of the token's own step",
            "ROLL step_reinforce",
            discounted_return,
            "this step and, discounted, all later ones",
        ),
        Scheme(
            "position",
            "A = z(r) among steps with the same number",
            "MT-GRPO, 2505.11821",
            position,
            "this step beside the same step of the other answers",
        ),
        Scheme(
            "mean_suffix",
            "A = mean over steps ending at or after t of z(r)",
            "no bonus for more steps",
            mean_suffix,
            "the mean over this step and all later ones",
        ),
        Scheme(
            "min",
            "A = Σ from t on of softmax(−r/T)·r − others' mean",
            "PURE, 2504.15275",
            min_form,
            "this and all later steps, an answer's worst one counting most",
        ),
        Scheme(
            "progress",
            "A = Σ from t on of z(r − r of the step before)",
            "PAV, 2410.08146",
            progress,
            "what this step and all later ones gained",
        ),
        Scheme(
            "first_error",
            "as process, unscored after the first r < threshold",
            "ProcessBench; VPPO",
            first_error,
            "the sum over this step and all later ones, up to the first error",
        ),
        Scheme(
            "rescaled",
            "A = r · z(Σ r) / mean r",
            "for study",
            rescaled,
            "this step's share of the sum over the whole answer",
        ),
    )
}


def find_scheme(name: str) -> Scheme:
    """Raises CreditError naming the schemes there are."""
    if not isinstance(name, str) or name not in SCHEMES:
        guess = did_you_mean(name, SCHEMES)
        raise CreditError(f"unknown credit scheme {shown(name)}{guess}; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def check_options(scheme: str, values: Mapping[str, Any]) -> dict[str, Value]:
    """``values`` with text parsed to the options' types. Raises CreditError for what does not fit the scheme."""
    options = {option.name: option for option in find_scheme(scheme).options}
    parsed = {
        name: options[name].from_text(value) if isinstance(value, str) and name in options else value
        for name, value in values.items()
    }
    settled, _ = resolve(scheme, tuple(options.values()), parsed)
    return {name: settled[name] for name in values if name in settled}
