"""Schemes that read one kind of rewards: those of steps, or the outcome."""

from dataclasses import replace
from typing import Annotated

import numpy as np

from workbench.credit.batch import Batch, Floats, Integers, Normalise, Normalised, z_within
from workbench.credit.schemes.scheme import Gamma, Part, Range, Scheme, Threshold, by_completion, outcomes_of, pooled
from workbench.schema.numbers import say_count

Temperature = Annotated[float, Range("Of the softmax that picks a completion's worst steps", 1e-3, 100.0)]
Signed = Annotated[bool, "Map rewards from 0 to 1 onto -1 to 1 first: r becomes 2r - 1"]
MergeEqual = Annotated[
    bool, "Count steps in a row with equal rewards once, as one step, so that splitting gains nothing"
]


def outcome(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """Every token of a completion gets the normalised outcome reward.

    A_{i,t} = z(R_i) over the group's completions. DeepSeekMath section 4.1.2; TRL's own advantage.
    """
    return Part("outcome", "all", by_completion(batch, outcomes_of(batch), normalise, scale))


def max_rl(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = False) -> Part:
    """Every token of a completion gets the outcome reward's distance from the group's mean, as a share of that mean.

    A_{i,t} = z(R_i) / (m + 1e-6), m the mean of the group's R and z(R_i) = R_i - m unless told otherwise: a right
    answer to a prompt with pass rate p weighs 1/p - 1, as the gradient of log p asks. MaxRL (arXiv 2602.02710),
    ``compute_maxrl_outcome_advantage`` in ``verl/trainer/ppo/core_algos.py`` of https://github.com/tajwarfahim/maxrl.
    It is made for rewards of 0 and 1; a group whose mean is not above 0 gets 0, with a warning.
    """
    compared = by_completion(batch, outcomes_of(batch), normalise, scale)
    known = ~np.isnan(compared.raw)
    sums = np.bincount(batch.group[known], compared.raw[known], minlength=len(batch.groups))
    means = sums / np.maximum(np.bincount(batch.group[known], minlength=len(batch.groups)), 1)  # one a group
    factor = np.where(means > 0, 1 / np.where(means > 0, means + 1e-6, 1.0), 0.0)[batch.group]
    said = {
        group: f"the mean outcome reward is {means[group]:.3g} and 'max_rl' divides by it: the group gets 0; give "
        "rewards from 0 to 1, or choose outcome"
        for group in np.unique(batch.group[compared.spread & (factor == 0)]).tolist()
    }
    return Part("outcome", "all", compared, factor, group_warnings=said)


def process(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    gamma: Gamma = 1.0,
    merge_equal: MergeEqual = False,
) -> Part:
    """A token gets the sum of the normalised rewards of all steps that end at or after it.

    A_{i,t} = sum over {k : e_{i,k} >= t} of gamma^(k - k(t)) r~_{i,k}, k(t) the first such step. DeepSeekMath section
    4.1.3, where gamma is 1.

    With ``merge_equal`` steps in a row with equal rewards are one "thought", as contiguous right or wrong steps are in
    TP-GRPO (arXiv 2507.23317, abstract): the last of them has the reward and the others none, in the sum and in the
    pool. Its rewards by capability are not here. gamma counts the steps as they stand.
    """
    rewards = batch.rewards
    if merge_equal:
        scored = np.flatnonzero(~np.isnan(rewards))
        same = np.diff(batch.completion[scored]) == 0
        rewards = rewards.copy()
        rewards[scored[:-1][same & (np.diff(batch.rewards[scored]) == 0)]] = np.nan
    return Part("step", "suffix", pooled(batch, rewards, normalise, scale), gamma=gamma)


def step(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A token gets the normalised reward of its own step.

    A_{i,t} = r~_{i,k(t)}; 0 outside every step. The last step of a finished completion runs to its end-of-sequence
    token, over any text in between.
    """
    return Part("step", "own", pooled(batch, batch.rewards, normalise, scale))


def sum_of_steps(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """The summed step rewards, normalised as if they were an outcome reward.

    A_{i,t} = z(sum over k of r_{i,k}) over the group's completions. A completion without a scored step stays out.
    """
    return Part("sum", "all", by_completion(batch, batch.sums, normalise, scale))


def rescaled(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A completion's normalised sum, shared out to its tokens in proportion to their step's reward.

    A_{i,t} = r_{i,k(t)} * z(sum over k of r_{i,k}) / (mean over t of r_{i,k(t)} + 1e-5), the mean taken over the tokens
    of scored steps. For study: it flips signs where rewards are negative, and explodes where that mean is near 0; where
    it is under 1e-3 in size the completion gets 0, with a warning. In an answer whose sum is below the group's mean the
    steps with the higher rewards are blamed, and a wrong one of reward 0 never is; there is a warning of that, too.
    """
    z = by_completion(batch, batch.sums, normalise, scale)
    scored = ~np.isnan(batch.rewards)
    weighted = np.bincount(batch.completion[scored], (batch.rewards * batch.width)[scored], minlength=batch.completions)
    tokens = np.bincount(batch.completion[scored], batch.width[scored], minlength=batch.completions)
    mean = weighted / np.maximum(tokens, 1)  # (B,)
    small = np.abs(mean) < 1e-3
    divisor = np.where(small, np.inf, mean + 1e-5)
    owner = batch.completion
    values = Normalised(
        z.raw[owner], z.mean[owner], z.std[owner], np.where(scored, z.value[owner], np.nan), z.spread[owner]
    )
    warnings = {
        int(i): f"the mean step reward of its tokens is {mean[i]:.2g}, too near 0 to divide by; "
        "it gets 0 under 'rescaled'"
        for i in np.flatnonzero(z.spread & small)
    }
    said = _order_warnings(batch, z.value / divisor)
    return Part("sum", "own", values, batch.rewards / divisor[owner], warnings=warnings, group_warnings=said)


def _order_warnings(batch: Batch, factor: Floats) -> dict[int, str]:
    """The groups with completions in which ``rescaled``, by its factor (B,), gives higher rewards lower advantages."""
    low, high = np.full(batch.completions, np.inf), np.full(batch.completions, -np.inf)
    np.fmin.at(low, batch.completion, batch.rewards)
    np.fmax.at(high, batch.completion, batch.rewards)
    turned = (factor < 0) & (low < high)
    return {
        group: (
            f"in {say_count(int(turned[batch.group == group].sum()), 'answer')} of {(batch.group == group).sum()} the "
            "steps with the higher rewards get the lower advantages: 'rescaled', a scheme for study, blames the right "
            "steps of an answer below the mean, and a wrong step of reward 0 loses nothing; choose process or prpo"
        )
        for group in np.unique(batch.group[turned]).tolist()
    }


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
    return Part("step", "own", pooled(batch, returns, normalise, scale))


def position(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A step is compared only with the steps that have the same number in the group's other completions.

    A_{i,t} = z(r_{i,k(t)}) over the group's steps with index k(t), 0 outside every step; an index that one completion
    alone reaches gets 0. MT-GRPO (arXiv 2505.11821), whose lambda * z(R_i) is ``outcome_weight`` here, and
    which gives the step's part only to the tokens before a tool's result, those of the first turn; here every step has
    its own.

    In episodes of differing numbers of turns, which of them are compared at an index depends on what they did before:
    the baseline depends on actions, and the gradient is biased (https://github.com/volcengine/verl/issues/7244).
    """
    width = int(batch.index.max(initial=0)) + 1
    pool: Integers = batch.step_group * width + batch.index
    values = z_within(batch.rewards, pool, batch.completion, normalise, scale, wide=batch.index)
    return Part("step", "own", values, group_warnings=_turn_warnings(batch))


def _turn_warnings(batch: Batch) -> dict[int, str]:
    """The groups whose episodes differ in their number of turns."""
    turns = {group: batch.turns[batch.group == group] for group in np.unique(batch.group).tolist()}
    return {
        group: f"episodes have from {counts.min()} to {counts.max()} turns: under 'position' what a late one is "
        "compared with depends on the turns before it, which biases the gradient; choose gigpo, process or return"
        for group, counts in turns.items()
        if counts.min() < counts.max()
    }


def mean_suffix(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """A token gets the mean of the normalised rewards of all steps that end at or after it.

    A_{i,t} = mean over {k : e_{i,k} >= t, scored} of r~_{i,k}. Takes away the bonus ``process`` gives to more steps.
    """
    return Part("step", "mean", pooled(batch, batch.rewards, normalise, scale))


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
    weighs most, too, but most of 0 is 0: it carries the baseline alone. For rewards from 0 to 1 set ``signed``. PURE's
    published runs take the baseline over tokens in the place of steps, and normalise over the whole buffer after it.
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
    normalised = pooled(batch, values, normalise, scale)
    return Part("step", "suffix", normalised, gamma=gamma, group_warnings=_sign_warnings(batch, signed))


def _sign_warnings(batch: Batch, signed: bool) -> dict[int, str]:
    """The groups whose rewards are not what ``min`` (or ``min`` with ``signed``) is made for."""
    rewards = {group: batch.rewards[batch.step_group == group] for group in np.unique(batch.step_group).tolist()}
    low = {group: np.nanmin(row, initial=np.inf) for group, row in rewards.items()}
    high = {group: np.nanmax(row, initial=-np.inf) for group, row in rewards.items()}
    if signed:
        return {
            group: f"signed maps rewards from 0 to 1 onto -1 to 1 and the group has "
            f"{low[group] if low[group] < 0 else high[group]:g}; turn it off where wrong steps have negative rewards "
            "already"
            for group in rewards
            if low[group] < 0 or high[group] > 1
        }
    return {
        group: "no step reward of the group is negative, and under 'min' a wrong step of reward 0 carries next to "
        "nothing; set signed for rewards from 0 to 1 (2r - 1), or give wrong steps negative rewards"
        for group in rewards
        if 0 <= low[group] < np.inf
    }


def progress(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True, gamma: Gamma = 1.0) -> Part:
    """A step is worth how much it raised the reward over the step before it; a token gets the sum from there on.

    D_{i,k} = r_{i,k} - r_{i,k-1}, D_{i,1} = r_{i,1}, over the scored steps; A_{i,t} = suffix sum of z(D). PAV (arXiv
    2410.08146). The raw sums telescope, so splitting a step adds nothing to them; subtracting a mean from every D does
    not keep that, ``normalise="none"`` does.

    PAV's rewards are the chance that the answer ends right, which an error takes away for good. Labels that tell
    whether a step itself is right come back to 1 after an error: that step is credited, and the error costs nothing.
    """
    differences = np.full_like(batch.rewards, np.nan)
    scored = np.flatnonzero(~np.isnan(batch.rewards))
    r, c = batch.rewards[scored], batch.completion[scored]
    before = np.concatenate([[0.0], r[:-1]])
    first = np.concatenate([[True], c[1:] != c[:-1]])[: len(r)]
    differences[scored] = r - np.where(first, 0.0, before[: len(r)])
    groups = batch.step_group[scored]
    risen = np.setdiff1d(groups[(differences[scored] == 1) & ~first], groups[(r != 0) & (r != 1)])
    said = dict.fromkeys(risen.tolist(), _LABELS_OF_STEPS)
    return Part("step", "suffix", pooled(batch, differences, normalise, scale), gamma=gamma, group_warnings=said)


_LABELS_OF_STEPS = (
    "the group's step rewards are 0 or 1 and rise again after a 0, as labels of the steps themselves do. 'progress' is "
    "made for the chance that the answer ends right: here an error costs nothing, the right step after it is credited "
    "with 1 and one after a right step with 0; choose process or step, or Monte-Carlo values as the reward"
)


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
    return process(replace(batch, rewards=until_wrong), normalise=normalise, scale=scale, gamma=gamma)


SCHEMES = (
    Scheme(
        "process",
        formula="A = Σ over steps ending at or after t of z(r)",
        reference="DeepSeekMath 4.1.3",
        compute=process,
        counts="step rewards above or below the mean, summed over this step and all later ones",
    ),
    Scheme(
        "outcome",
        formula="A = z(R), the same for every token",
        reference="DeepSeekMath 4.1.2; TRL",
        compute=outcome,
        counts="the outcome of the whole answer",
        needs=("outcome",),
        per_completion=True,
    ),
    Scheme(
        "max_rl",
        formula="A = (R − mean R) / mean R, the same for every token",
        reference="MaxRL, 2602.02710",
        compute=max_rl,
        counts="the outcome of the whole answer, as a share of the group's mean",
        needs=("outcome",),
        per_completion=True,
    ),
    Scheme(
        "step",
        formula="A = z(r) of the token's own step",
        reference="own step",
        compute=step,
        counts="this step's own reward",
    ),
    Scheme(
        "sum",
        formula="A = z(Σ r), the same for every token",
        reference="summed step rewards as an outcome",
        compute=sum_of_steps,
        counts="the sum over all steps of the answer",
        per_completion=True,
    ),
    Scheme(
        "return",
        formula="A = z(r + γ r' + γ² r'' + …) of the token's own step",
        reference="ROLL step_reinforce",
        compute=discounted_return,
        counts="this step and, discounted, all later ones",
    ),
    Scheme(
        "position",
        formula="A = z(r) among steps with the same number",
        reference="MT-GRPO, 2505.11821",
        compute=position,
        counts="this step beside the same step of the other answers",
    ),
    Scheme(
        "mean_suffix",
        formula="A = mean over steps ending at or after t of z(r)",
        reference="no bonus for more steps",
        compute=mean_suffix,
        counts="the mean over this step and all later ones",
    ),
    Scheme(
        "min",
        formula="A = Σ from t on of softmax(−r/T)·r − others' mean",
        reference="PURE, 2504.15275",
        compute=min_form,
        counts="this and all later steps, an answer's worst one counting most",
    ),
    Scheme(
        "progress",
        formula="A = Σ from t on of z(r − r of the step before)",
        reference="PAV, 2410.08146",
        compute=progress,
        counts="what this step and all later ones gained",
    ),
    Scheme(
        "first_error",
        formula="as process, unscored after the first r < threshold",
        reference="ProcessBench; VPPO",
        compute=first_error,
        counts="step rewards above or below the mean, summed over this step and all later ones, up to the first error",
    ),
    Scheme(
        "rescaled",
        formula="A = r · z(Σ r) / mean r",
        reference="for study",
        compute=rescaled,
        counts="this step's share of the sum over the whole answer",
    ),
)
