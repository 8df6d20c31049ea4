"""Schemes that read the outcome: beside step rewards, beside turns' states, or spread over tokens.

Those for turns compare steps that begin in the same state; those for tokens compare the group's completions token by
token.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import comb
from typing import Annotated

import numpy as np

from workbench.credit.batch import END, Batch, Floats, Integers, Normalise, Normalised, z_within
from workbench.credit.schemes.scheme import Gamma, Part, Range, RightFrom, Scheme, by_completion, outcomes_of, pooled

ProcessWeight = Annotated[float, Range("Weight of the steps' part beside the outcome's", -100.0, 100.0)]
PriorMean = Annotated[float, Range("Mean that step rewards are taken to have beforehand", -1e6, 1e6)]
PriorStd = Annotated[float, Range("Standard deviation that step rewards are taken to have beforehand", 1e-6, 1e6)]


def papo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    process_weight: ProcessWeight = 1.0,
    right_from: RightFrom = 1.0,
) -> Part | tuple[Part, ...]:
    """The normalised outcome; right answers are also compared with each other, by the mean of their step rewards.

    A_i = z(R_i) + process_weight * z(mean over k of r_{i,k}), the second z over the group's right answers alone and 0
    for the others, which have R_i < right_from. PAPO (arXiv 2603.26535), whose rubric scores an answer once, as a
    public reproduction of it has it (``compute_grpo_dual_objective_advantage`` in ``verl/trainer/ppo/core_algos.py`` of
    https://github.com/ScopeHLS/Process-Aware-Policy-Optimization); no code of its authors was found.
    """
    outcomes = outcomes_of(batch)
    right = outcomes >= right_from  # NaN is not
    process = by_completion(batch, np.where(right, batch.means, np.nan), normalise, scale)
    return (
        Part("outcome", "all", by_completion(batch, outcomes, normalise, scale)),
        Part("mean", "all", process, np.full(batch.completions, process_weight)),
    )


def progrs(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    process_weight: ProcessWeight = 1.0,
    right_from: RightFrom = 1.0,
) -> Part:
    """The normalised sum of the outcome and the mean step reward, which wrong answers have centred among themselves.

    A_i = z(R_i + process_weight * c_i) with c_i = mean over k of r_{i,k}, less the mean of that over the group's wrong
    answers where R_i < right_from. So a bonus orders wrong answers and cannot lift them as a whole; with step rewards
    from 0 to 1 and a weight up to 1 a right answer stays above every wrong one.

    The outcome-conditioned centering of PROGRS (arXiv 2604.02341) as its abstract has it: it "shifts PRM scores of
    incorrect trajectories to have zero mean within each prompt group". Neither the equations nor code of the authors
    were found, so that c is a mean, the weight, and that the bonus is added before normalising are choices made here.
    Not here are its quantile-regression reward model (any step reward takes its place) and its evaluator of coherence.
    """
    outcomes = outcomes_of(batch)
    known = ~np.isnan(batch.means)
    wrong = known & (outcomes < right_from)
    count = np.bincount(batch.group, wrong)
    centre = np.bincount(batch.group, np.where(wrong, batch.means, 0.0)) / np.maximum(count, 1)
    bonus = np.where(known, batch.means - np.where(wrong, centre[batch.group], 0.0), 0.0)
    return Part("return", "all", by_completion(batch, outcomes + process_weight * bonus, normalise, scale))


def prpo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = False,
    prior_mean: PriorMean = 0.5,
    prior_std: PriorStd = 24**-0.5,
) -> Part | tuple[Part, ...]:
    """A token gets its own step's reward, standardised with a fixed mean and deviation, shifted by the outcome.

    A_{i,t} = (r_{i,k(t)} - prior_mean) / prior_std + z(R_i); outside every step the second term alone. PRPO (arXiv
    2601.07182), as one of the variants in its code has it (``Naive2RewardManager``, registered as ``srpo2``, in
    ``verl2/verl/workers/reward_manager/naive2.py`` of https://github.com/SchumiDing/srpocode), which takes rewards from
    0 to 1, a variance of 1/24, and the group's mean from R without dividing. R is -1 or 1 there, less a penalty for
    length, and the end token gets no step's part; here R is the outcome reward and the end token is the last step's. As
    everywhere, step rewards that are all equal in a group add nothing.
    """
    spread = pooled(batch, batch.rewards, "none", scale=False).spread
    known = np.where(np.isnan(batch.rewards), np.nan, 1.0)
    standard = Normalised(
        batch.rewards,
        np.where(spread, prior_mean, np.nan) * known,
        np.full_like(batch.rewards, np.nan),
        np.where(spread, batch.rewards - prior_mean, 0.0) * known,
        spread,
        "fixed mean",
    )
    return (
        Part("step", "own", standard, np.full_like(batch.rewards, 1.0 / prior_std)),
        Part("outcome", "all", by_completion(batch, outcomes_of(batch), normalise, scale)),
    )


def prime(
    batch: Batch, *, normalise: Normalise = "per_completion", scale: bool = False, gamma: Gamma = 1.0
) -> Part | tuple[Part, ...]:
    """Step rewards less a leave-one-out mean, summed from a token on, plus the outcome less its leave-one-out mean.

    A_{i,t} = sum over {k : e_{i,k} >= t} of gamma^(k - k(t)) x_{i,k} + x_i, x = G/(G - 1) * (reward - mean), the mean
    taken over the G answers' own means. For the outcome that is R_i less the mean of the others. PRIME
    (arXiv 2502.01456), whose process rewards are an implicit reward model's of single tokens: steps of one token have
    them so. ``compute_rloo_returns`` in ``training/verl/trainer/ppo/core_algos.py`` of
    https://github.com/PRIME-RL/PRIME, without the whitening over the batch that follows there. Another ``normalise``
    takes the place of G/(G - 1) * (reward - mean).
    """
    outcomes = outcomes_of(batch)
    process = pooled(batch, batch.rewards, normalise, scale)
    whole = by_completion(batch, outcomes, normalise, scale)
    step_factor, factor = np.ones_like(batch.rewards), np.ones(batch.completions)
    if normalise == "per_completion":
        step_factor = _leaving_one_out(batch, ~np.isnan(batch.sums))[batch.completion]
        factor = _leaving_one_out(batch, ~np.isnan(outcomes))
    return (
        Part("step", "suffix", process, step_factor, gamma=gamma),
        Part("outcome", "all", whole, factor),
    )


def _leaving_one_out(batch: Batch, scored: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """G/(G - 1) for each completion, (B,), G the number of its group's scored ones; 1 where it is alone."""
    count = np.bincount(batch.group, scored)[batch.group]
    return np.asarray(np.where(count > 1, count / np.maximum(count - 1, 1), 1.0))


def adca(
    batch: Batch,
    *,
    normalise: Normalise = "per_completion",
    scale: bool = True,
    process_weight: ProcessWeight = 1.0,
) -> Part | tuple[Part, ...]:
    """``process`` in which every completion has one vote, plus the normalised outcome.

    A_{i,t} = process_weight * sum over {k : e_{i,k} >= t} of r~_{i,k} + z(R_i). ADCA-GRPO of AgentEvolver, ``decouple``
    with the outcome on the last step in ``agentevolver/module/adv_processor/adca_grpo.py`` of
    https://github.com/modelscope/AgentEvolver. Its step rewards are -0.2 and 0.2 of a judge's BAD and GOOD, its
    variances divide by the number of completions C where these divide by C - 1, and its epsilon is smaller.
    """
    return (
        Part(
            "step",
            "suffix",
            pooled(batch, batch.rewards, normalise, scale),
            np.full_like(batch.rewards, process_weight),
        ),
        Part("outcome", "all", by_completion(batch, outcomes_of(batch), normalise, scale)),
    )


def turn_credit(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = False,
    gamma: Gamma = 0.9,
    process_weight: ProcessWeight = 1.0,
) -> Part | tuple[Part, ...]:
    """Share what each step gained with the steps that led to it; a step gets its share beyond the answer's mean.

    A step gains D_k = r_k - r of the scored step before it, the first 0; c_k = sum over j >= k of gamma^(j-k) D_j / Z_j
    with Z_j = sum over d < j of gamma^d (steps from 1), so that each gain is given out once. Then
    A_{i,t} = z(R_i + sum of D) + process_weight * (c_{k(t)} - the mean of c over the answer's tokens in steps), so that
    the second term only moves credit between steps. Without an outcome R is 0. ``turn_credit.py`` of prime-rl's pull
    request 3282 (https://github.com/PrimeIntellect-ai/prime-rl/pull/3282), where a step is a turn.
    """
    gains, credits = np.zeros_like(batch.rewards), np.zeros_like(batch.rewards)
    known = np.flatnonzero(~np.isnan(batch.rewards))
    same = batch.completion[known[1:]] == batch.completion[known[:-1]]
    gains[known[1:]] = np.where(same, np.diff(batch.rewards[known]), 0.0)
    for first, after in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        shares, total = np.cumsum(gamma ** np.arange(after - first)), 0.0
        for n in range(after - 1, first - 1, -1):
            total = gains[n] / shares[n - first] + gamma * total
            credits[n] = total
    tokens = np.bincount(batch.completion, batch.width, minlength=batch.completions)
    summed = np.bincount(batch.completion, batch.width * credits, minlength=batch.completions)
    centre = (summed / np.maximum(tokens, 1))[batch.completion]
    moved = Normalised(credits, centre, np.full_like(credits, np.nan), credits - centre, credits != centre)
    net = np.bincount(batch.completion, gains, minlength=batch.completions)
    scored = ~np.isnan(batch.sums)
    outcomes = np.where(scored, 0.0, np.nan) if batch.outcomes is None else batch.outcomes
    return (
        Part("step", "own", moved, np.full_like(credits, process_weight)),
        Part("return", "all", by_completion(batch, outcomes + net, normalise, scale)),
    )


# --- episodes of several turns ------------------------------------------------------------------------------------

StateWeight = Annotated[float, Range("Weight of the comparison within states beside the total returns'", -100.0, 100.0)]
AcrossSteps = Annotated[bool, "An episode's total return counts once for each of its steps in mean and std"]


def gigpo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    gamma: Gamma = 0.95,
    state_weight: StateWeight = 1.0,
    across_steps: AcrossSteps = False,
) -> Part | tuple[Part, ...]:
    """The normalised total return, and a step's discounted return beside those of the steps that begin in its state.

    A_{i,t} = z(T_i) + state_weight * z(G_{i,k(t)}), T_i = R_i + sum over k of r_{i,k}, the second z over the group's
    steps that begin in the same state as k(t), 0 outside every step and in a state where one step alone begins.
    G_{i,k} = r_{i,k} + gamma G_{i,k+1}, the last step's with R_i added: as in an environment that rewards success at
    the end. An unscored step has r = 0; a completion without an outcome has no returns. The state in which a turn
    begins is what its environment calls it, else the observation before it; of a later step in a turn that, and what
    the turn says before the step.

    GiGPO (arXiv 2505.10978), equations 3 and 5 to 8; ``compute_gigpo_outcome_advantage`` in ``gigpo/core_gigpo.py`` of
    https://github.com/langfengQ/verl-agent, where ``mode="mean_norm"``, the default, is ``scale`` off. Equation 3 has
    mean and std of T over episodes; the code's default takes them over all steps of the group
    (``compute_mean_std_cross_steps``), which is ``across_steps``.
    """
    assert batch.step_state is not None, "what a scheme needs is checked before it is computed"
    outcomes = outcomes_of(batch)
    returns, later = np.nan_to_num(batch.rewards), 0.0
    for n in range(len(returns) - 1, -1, -1):
        is_last = n + 1 == batch.offsets[batch.completion[n] + 1]
        later = returns[n] = returns[n] + (outcomes[batch.completion[n]] if is_last else gamma * later)
    beside = z_within(returns, batch.step_state, batch.completion, normalise, scale)
    counts = np.maximum(np.diff(batch.offsets) if across_steps else 1, np.ones(batch.completions, np.int64))
    owner, first = np.repeat(np.arange(batch.completions), counts), np.cumsum(counts) - counts
    totals = (outcomes + np.nan_to_num(batch.sums))[owner]  # an episode counts once, or once a step
    z = z_within(totals, batch.group[owner], owner, normalise, scale)
    whole = Normalised(z.raw[first], z.mean[first], z.std[first], z.value[first], z.spread[first])
    return (
        Part("step", "own", beside, np.full_like(batch.rewards, state_weight)),
        Part("return", "all", whole),
    )


# --- token by token -----------------------------------------------------------------------------------------------

TokenWeight = Annotated[float, Range("Weight of the tokens' part beside the outcome's", -100.0, 100.0)]


def lambda_grpo(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """The normalised outcome, divided by the number of completions that are the same up to and with this token.

    A_{i,t} = z(R_i) / |{j : o_{j,1..t} = o_{i,1..t}}|: a start that several answers share would count once for each of
    them. The j are the group's completions with an outcome. lambda-GRPO (arXiv 2509.21154), ``InfPRMTree.loss_scales``
    in ``lambda_grpo/utils.py`` of https://github.com/coli-saar/grpo-prm, which scales all of a token's loss so, its KL
    term too; here the KL term stays whole.
    """
    outcomes = outcomes_of(batch)
    whole = by_completion(batch, outcomes, normalise, scale)
    scored = np.flatnonzero(~np.isnan(outcomes))
    sharing = [np.ones(len(ids)) for ids in _ids(batch)]
    for group in np.unique(batch.group[scored]):
        _count_sharing(_ids(batch), scored[batch.group[scored] == group], sharing)
    counts = [count[tokens] for count, tokens in zip(sharing, batch.policy_tokens, strict=True)]
    values = _of_tokens(batch, whole)
    return Part("outcome", "own", values, 1.0 / np.concatenate([*counts, np.zeros(0)]), unit="token")


def _count_sharing(ids: Sequence[Integers], members: Integers, sharing: Sequence[Floats]) -> None:
    """Set ``sharing[i][t]`` to how many of ``members`` begin with what i begins with up to t, where it is not 1."""
    open_prefixes = [list(members)]
    t = 0
    while open_prefixes:
        longer = []
        for prefix in open_prefixes:
            by_token: dict[int, list[int]] = {}
            for i in prefix:
                if t < len(ids[i]):
                    by_token.setdefault(int(ids[i][t]), []).append(i)
            for same in by_token.values():
                if len(same) > 1:
                    longer.append(same)
                    for i in same:
                        sharing[i][t] = len(same)
        open_prefixes, t = longer, t + 1


def ktae(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    token_weight: TokenWeight = 1.0,
    right_from: RightFrom = 1.0,
) -> Part | tuple[Part, ...]:
    """The normalised outcome plus what the token's presence has to do with right answers in the group, -1 to 1.

    A_{i,t} = z(R_i) + token_weight * w(o_{i,t}), w = 2 sigmoid(x (F + IG) / 2) - 1 of a token: F = exp(-2p) of Fisher's
    exact test (0 for p = 1) and IG the information gain in bits, both of the table of answers with and without the
    token, right (R_i >= right_from) and wrong; x = h + f+/(f- + 1e-5) - f-/(f+ + 1e-5), h the difference of
    asin(sqrt(.)) of the shares of right and wrong answers with the token (Cohen's h without its 2), f+ and f- its
    saturated frequencies there: 3q / (q + 1 + T+- / mean T), q its share of their T+- tokens. The end-of-sequence token
    has w = 0, and every token where all answers are right or wrong. KTAE (arXiv 2505.16826),
    ``verl/workers/actor/compute_key_tokens.py`` of https://github.com/xiaolizh1/KTAE, where R > 0 is right and Fisher's
    test is computed in float32: its rounding moves the numbers of many tokens; here p is exact.
    """
    outcomes = outcomes_of(batch)
    ids = [known[tokens] for known, tokens in zip(_ids(batch), batch.policy_tokens, strict=True)]
    weights = [np.zeros(len(known)) for known in ids]
    right = outcomes >= right_from
    for group in np.unique(batch.group):
        members = batch.group == group
        tables = [np.flatnonzero(members & kind) for kind in (right, ~right & ~np.isnan(outcomes))]
        if all(len(table) for table in tables):
            weight = _key_tokens([ids[i] for i in tables[0]], [ids[i] for i in tables[1]])
            for i in np.concatenate(tables):
                weights[i] = np.array([weight[token] for token in ids[i].tolist()])
    raw = np.concatenate([*weights, np.zeros(0)])
    unscored = np.repeat(np.isnan(outcomes), np.diff(batch.token_offsets))
    value, unknown = np.where(unscored, np.nan, raw), np.full_like(raw, np.nan)
    statistic = Normalised(value, unknown, unknown, value, raw != 0)
    return (
        Part("outcome", "all", by_completion(batch, outcomes, normalise, scale)),
        Part("token", "own", statistic, np.full_like(raw, token_weight), unit="token"),
    )


def _key_tokens(right: Sequence[Integers], wrong: Sequence[Integers]) -> dict[int, float]:
    """w of each token id in the answers, which are of both kinds."""
    answers = [Counter(token for ids in kind for token in set(ids.tolist())) for kind in (right, wrong)]
    tokens = [Counter(token for ids in kind for token in ids.tolist()) for kind in (right, wrong)]
    totals = [max(sum(counts.values()), 1) for counts in tokens]
    weights = {END: 0.0}
    for token in (answers[0].keys() | answers[1].keys()) - {END}:
        a, b = answers[0][token], answers[1][token]
        p, gain = _association(a, b, len(right) - a, len(wrong) - b)
        plus, minus = (
            3.0 * q / (q + 1.0 + total / (sum(totals) / 2))
            for q, total in ((counts[token] / total, total) for counts, total in zip(tokens, totals, strict=True))
        )
        h = float(np.arcsin(np.sqrt(a / len(right))) - np.arcsin(np.sqrt(b / len(wrong))))
        x = h + plus / (minus + 1e-5) - minus / (plus + 1e-5)
        strength = (0.0 if p > 1 - 1e-9 else float(np.exp(-2 * p))) + gain
        weights[token] = float(np.tanh(x * strength / 4))  # 2 sigmoid(y) - 1 = tanh(y / 2)
    return weights


@lru_cache(maxsize=4096)  # of few tables: they are made of counts of a group's answers
def _association(a: int, b: int, c: int, d: int) -> tuple[float, float]:
    """p of Fisher's exact test (two-sided) and the information gain in bits of a table of counts.

    a right and b wrong answers with the token, c right and d wrong ones without.
    """
    rows, column, n = a + b, a + c, a + b + c + d
    likelihood = {
        k: comb(column, k) * comb(n - column, rows - k) for k in range(max(0, rows + column - n), min(rows, column) + 1)
    }
    p = sum(ways for ways in likelihood.values() if ways <= likelihood[a]) / comb(n, rows)
    inside = sum(size / n * _bits(part / size) for part, size in ((a, a + b), (c, c + d)) if size)
    return p, _bits(column / n) - inside


def _bits(share: float) -> float:
    """Entropy of a coin that falls right with probability ``share``."""
    return float(-sum(q * np.log2(q) for q in (share, 1 - share) if q > 0))


def _ids(batch: Batch) -> tuple[Integers, ...]:
    assert batch.token_ids is not None, "what a scheme needs is checked before it is computed"
    return batch.token_ids


def _of_tokens(batch: Batch, whole: Normalised) -> Normalised:
    """A completion's values at each of its sampled tokens."""
    owner = np.repeat(np.arange(batch.completions), np.diff(batch.token_offsets))
    return Normalised(whole.raw[owner], whole.mean[owner], whole.std[owner], whole.value[owner], whole.spread[owner])


SCHEMES = (
    Scheme(
        "papo",
        formula="A = z(R) + λ z(mean r, among right answers)",
        reference="PAPO, 2603.26535",
        compute=papo,
        counts="the outcome, and for right answers their steps beside those of the other right ones",
        needs=("steps", "outcome"),
        per_completion=True,
    ),
    Scheme(
        "progrs",
        formula="A = z(R + λ c), c the mean r, less that of the wrong answers for a wrong one",
        reference="PROGRS, 2604.02341 (its abstract)",
        compute=progrs,
        counts="the outcome and the mean of the steps' rewards, of wrong answers beside that of the other wrong ones",
        needs=("steps", "outcome"),
        per_completion=True,
    ),
    Scheme(
        "prpo",
        formula="A = (r − m) / s of the token's own step + z(R)",
        reference="PRPO, 2601.07182",
        compute=prpo,
        counts="this step's own reward and the outcome of the whole answer",
        needs=("steps", "outcome"),
    ),
    Scheme(
        "prime",
        formula="A = Σ from t on of (r − others' mean) + R − others' mean",
        reference="PRIME, 2502.01456",
        compute=prime,
        counts="step rewards above or below the mean, summed over this step and all later ones, and the outcome",
        needs=("steps", "outcome"),
    ),
    Scheme(
        "adca",
        formula="A = Σ over steps ending at or after t of z(r), one vote a completion, + z(R)",
        reference="ADCA-GRPO, AgentEvolver",
        compute=adca,
        counts="step rewards above or below the mean, summed over this step and all later ones, and the outcome",
        needs=("steps", "outcome"),
    ),
    Scheme(
        "turn_credit",
        formula="A = z(R + what the steps gained) + λ (c − mean c), c this step's share of later gains",
        reference="prime-rl, pull request 3282",
        compute=turn_credit,
        counts="what the whole answer gained, and this step's share of it",
        takes_outcome=True,
    ),
    Scheme(
        "gigpo",
        formula="A = z(R + Σ r) + ω z(G) among steps that begin in the same state, G = r + γ G', the last with R",
        reference="GiGPO, 2505.10978",
        compute=gigpo,
        counts="all rewards of the answer, and this step's return beside those of steps that begin in the same state",
        needs=("outcome", "states"),
    ),
    Scheme(
        "lambda_grpo",
        formula="A = z(R) / number of answers that are the same up to t",
        reference="λ-GRPO, 2509.21154",
        compute=lambda_grpo,
        counts="the outcome of the whole answer, shared with the answers that begin as it does up to this token",
        needs=("outcome", "token_ids"),
    ),
    Scheme(
        "ktae",
        formula="A = z(R) + w, w from −1 to 1: how far the token goes with right answers",
        reference="KTAE, 2505.16826",
        compute=ktae,
        counts="the outcome of the whole answer, and how far this token goes with right ones",
        needs=("outcome", "token_ids"),
    ),
)
