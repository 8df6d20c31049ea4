"""Every metric that a run logs: its formula, what it means, how it is computed, and where it is drawn.

``METRICS`` is the one table of curves: trainers compute by it; charts (``views.panels``), their captions and the
glossary read it. A name may hold a place for a reward's name, ``rewards/<name>/mean``. ``SYMBOLS`` explains the
letters. The names marked TRL are those of its trainers, which compute them; losses and measures on held-out rows are
computed where they arise.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.checks.generation import Generation, mean
from workbench.schema import Credit
from workbench.steps import StepPattern

REWARD = "<name>"
SYMBOLS: tuple[tuple[str, str], ...] = (
    ("B", "completions in an optimiser step's batch"),
    ("T_i", "tokens of completion i"),
    ("turn", "a run of tokens that the policy sampled, between observations; an episode has several"),
    ("observation", "what an environment or a tool wrote between turns: not sampled, so no advantage and no loss"),
    ("r", "a step's reward"),
    ("R", "a completion's reward"),
    ("A", "a token's advantage"),
    ("η", "where a push begins: 5 % of the group's largest |Σ A_t|, of answers or of steps"),
    ("rho", "π_θ / π_old of a token: as the policy is now, against when the batch was sampled"),
    ("d", "log π_ref − log π_θ of a token"),
    ("k1, k2, k3", "three estimators of KL(π_θ‖π_ref) from one sampled token"),
    ("ε, ε_high", "how far rho may leave 1 before it is clipped, downwards and upwards"),
    ("β", "the weight of the KL in the loss"),
    ("c_i", "the loss type's length normaliser: what a token of completion i weighs"),
    ("line, band", "of several seeds: their mean at a step, and from the lowest to the highest that has a value there"),
    ("V, V_old, G", "a critic's value of the text before a token, the same when it was sampled, and its return"),
    ("π_sampled, π_trained", "a token's probability when it was sampled, and as the trainer computes it"),
)
"""Letters of the formulas below, and their meaning."""
_UNBIASED = "Unbiased on tokens that π_θ itself sampled: one pass over a batch, no top-p or top-k."


@dataclass(frozen=True)
class Metric:
    """A number that a run logs under ``name``, drawn in the ``panel`` of that key as the line called ``label``.

    A name with a place for a reward's name, ``rewards/<name>/mean``, stands for one line a reward.
    """

    name: str
    formula: str
    meaning: str
    source: str = "workbench"
    panel: str = ""
    label: str = ""


@dataclass(frozen=True)
class Computed(Metric):
    """A metric of one generation. ``compute`` takes a ``Generation``, and the reward's name if the metric's has one.

    It returns None if there is nothing to log.
    """

    compute: Callable[..., float | None] = field(kw_only=True)


def group_metrics(
    credits: Sequence[Credit],
    is_right: Callable[[str, Mapping[str, Any]], bool] | None = None,
    pattern: StepPattern | None = None,
) -> dict[str, float]:
    """Return the metrics of one generation's groups: those that ``METRICS`` says how to compute of a ``Generation``."""
    batch, computed = Generation(credits, is_right, pattern), dict[str, float | None]()
    for metric in METRICS:
        if isinstance(metric, Computed) and REWARD in metric.name:
            computed |= {metric.name.replace(REWARD, name): metric.compute(batch, name) for name in batch.telling}
        elif isinstance(metric, Computed):
            computed[metric.name] = metric.compute(batch)
    return {name: value for name, value in computed.items() if value is not None}


def _trl(name: str, formula: str, meaning: str, panel: str = "", label: str = "") -> Metric:
    return Metric(name, formula, meaning, "TRL", panel, label)


METRICS: tuple[Metric, ...] = (
    Metric("step", "n", "Optimiser steps so far."),
    Metric("time", "unix seconds", "When the row was written."),
    Metric("seconds", "s", "Seconds since training began, over all times it was resumed."),
    Metric(
        "peak_memory_mb",
        "10^6 bytes",
        "Most memory that the first rank's process has held so far: allocated on its GPU, or resident without one.",
    ),
    Metric("rollouts", "generations × B", "Completions sampled so far, but for those of groups that were replaced."),
    # reward and accuracy
    Metric(
        "accuracy",
        "right / prompts",
        "Share of the fixed held-out prompts answered right.",
        panel="accuracy",
        label="held out",
    ),
    Computed(
        "accuracy/train",
        "right / B",
        "Share of the step's own rollouts whose answer is right.",
        panel="batch",
        label="batch",
        compute=lambda batch: mean(batch.right and [right for group in batch.right for right in group]),
    ),
    Metric(
        "match_share",
        "samples with a match / samples",
        "sft, dpo: share of held-out answers in which the task's step pattern finds steps.",
        panel="accuracy",
        label="in steps",
    ),
    Metric(
        "no_answer_share",
        "answers without a final answer / prompts",
        "Share of the held-out prompts in whose answer no final answer was found: wrong, but perhaps only in its form.",
        panel="shares",
        label="no answer",
    ),
    Computed(
        "step_reward",
        "mean of r over scored steps, r = Σ weight · score",
        "Mean reward of a scored step.",
        panel="reward",
        label="step",
        compute=lambda batch: mean([reward for reward in batch.step_rewards if reward is not None]),
    ),
    _trl(
        "reward",
        "mean over completions of R, R = Σ weight · score",
        "Mean weighted reward of a whole completion.",
        panel="reward",
        label="outcome",
    ),
    _trl("reward_std", "std of R, ddof = 1", "Spread of the outcome reward."),
    _trl(
        "frac_reward_zero_std",
        "groups without spread / groups",
        "zero_spread_share under TRL's name: of whatever rewards the scheme compares, where TRL looks at outcomes.",
    ),
    Computed(
        f"rewards/{REWARD}/mean",
        "mean of the function's scores",
        "What one reward function gives, unweighted.",
        panel="rewards",
        label=REWARD,
        compute=lambda batch, name: mean(batch.scores(name, of_steps=True)),
    ),
    Computed(
        f"rewards/{REWARD}/std",
        "std of the function's scores",
        "How much it tells apart.",
        compute=lambda batch, name: mean(batch.scores(name, of_steps=True), np.std),
    ),
    Computed(
        f"rewards/{REWARD}/zero_share",
        "scores = 0 / scores",
        "Share of scores that are 0.",
        compute=lambda batch, name: mean(
            [s == 0 for steps in (True, False) for s in batch.scores(name, of_steps=steps) or ()]
        ),
    ),
    Computed(
        f"rewards/{REWARD}/frac_zero_std",
        "groups whose scores are all equal / groups",
        "Share of groups whose answers it does not tell apart; 1 for a reward that is the same for every completion.",
        compute=lambda batch, name: batch.telling[name].zero_std,
    ),
    Computed(
        f"rewards/{REWARD}/unscored_share",
        "scores = None / scores",
        "Share of scores that it did not give.",
        compute=lambda batch, name: batch.telling[name].unscored,
    ),
    Computed(
        f"rewards/{REWARD}/variance_share",
        "Σ var(weight · score) / the same of all functions of its kind, within groups",
        "Its part of what the summed rewards differ by.",
        compute=lambda batch, name: (
            None if batch.credits[0].options.get("each_reward") else batch.telling[name].variance
        ),
    ),
    Computed(
        f"rewards/{REWARD}/trained_correlation",
        "r of the function's scores and Σ weight · score of the trained ones, over completions, within groups",
        "Of a reward that is watched and not trained on: whether what training pays for goes with it.",
        panel="watched",
        label=REWARD,
        compute=Generation.follows_trained,
    ),
    Metric(f"rewards/{REWARD}/time", "s", "Seconds the function took on this rank."),
    Metric(
        "reward_errors",
        "n",
        "Calls of reward functions that failed and were left unscored.",
        panel="errors",
        label="errors",
    ),
    # steps and credit
    Computed(
        "steps_per_answer",
        "Σ steps / B",
        "Mean number of steps of a completion; without a match it is one step.",
        panel="steps",
        label="steps",
        compute=lambda batch: mean([len(scores.steps) for scores in batch.step_scores]),
    ),
    Computed(
        "turns_per_answer",
        "Σ turns / B",
        "Mean number of the policy's turns in an episode.",
        compute=lambda batch: batch.episodes and mean([len(rollout.turn_spans) for rollout in batch.episodes]),
    ),
    Computed(
        "observation_share",
        "tokens not sampled / tokens",
        "Share of tokens that an environment or a tool wrote.",
        compute=lambda batch: (
            batch.episodes
            and sum(len(row) - row.policy_length for row in batch.episodes) / max(sum(map(len, batch.episodes)), 1)
        ),
    ),
    Computed(
        "environment/errors",
        "n",
        "Turns that the environment failed to answer: it raised, hung, or gave no text.",
        compute=lambda batch: (
            batch.episodes and float(sum(turn.error is not None for row in batch.episodes for turn in row.turns))
        ),
    ),
    Computed(
        "environment/time",
        "s",
        "Seconds of a generation in which the environment answered, over all ranks.",
        compute=lambda batch: (
            batch.episodes and sum(turn.seconds for row in batch.episodes for turn in row.turns if not turn.is_sampled)
        ),
    ),
    Computed(
        "zero_spread_share",
        "groups without spread / groups",
        "Share of groups that teach nothing: advantage 0 of all that the loss counts.",
        panel="shares",
        label="all equal",
        compute=lambda batch: mean([not credit.spread for credit in batch.credits]),
    ),
    Computed(
        "phantom_share",
        "groups without a right answer that train by other outcome rewards alone / groups",
        "Share of groups in which no answer is right and a reward of length or form, say, decides alone; a gate by the "
        "outcome makes it 0. See verl-recipe#125.",
        panel="shares",
        label="phantom",
        compute=Generation.phantoms,
    ),
    Computed(
        "gated_share",
        "groups whose advantages the gate set to 0 / groups",
        "With credit.gate: share of groups that the rewards tell apart and the outcome does not. They are among those "
        "of zero_spread_share, and their tokens in the divisor of the loss.",
        panel="shares",
        label="gated",
        compute=lambda batch: (
            mean([bool(credit.gate_reason) for credit in batch.credits])
            if batch.credits[0].options.get("gate")
            else None
        ),
    ),
    Metric(
        "resample/flat_share",
        "groups without spread / groups drawn",
        "With resample_flat: share of all groups that were drawn, the replaced ones among them, that teach nothing.",
        panel="shares",
        label="all equal, drawn",
    ),
    Computed(
        "unscored_share",
        "steps with r = None / steps",
        "Share of steps that no function scored.",
        panel="shares",
        label="unscored",
        compute=lambda batch: mean([reward is None for reward in batch.step_rewards]),
    ),
    Computed(
        "no_match_share",
        "completions without a match / B",
        "Share of answers in which the pattern found nothing.",
        panel="shares",
        label="no steps found",
        compute=lambda batch: mean([not scores.matched and not scores.unsplit for scores in batch.step_scores]),
    ),
    Computed(
        "unsplit_share",
        "completions left whole / B",
        "Share of answers that stay unsplit and unscored: the pattern found over 1,000 steps or took too long.",
        panel="shares",
        label="unsplit",
        compute=lambda batch: mean([scores.unsplit for scores in batch.step_scores]),
    ),
    Metric(
        "resample/prompts",
        "n",
        "With resample_flat: prompts whose groups took another one's place.",
        panel="resample",
        label="prompts",
    ),
    Metric(
        "resample/rounds",
        "n",
        "With resample_flat: rounds in which groups were replaced.",
        panel="resample",
        label="rounds",
    ),
    Computed(
        "advantage_abs_mean",
        "Σ |A_t| / Σ T_i",
        "Mean absolute advantage over the tokens that the loss counts.",
        panel="advantage",
        label="|A|",
        compute=lambda batch: (
            sum(float(np.abs(credit.loss_rows).sum(dtype=np.float64)) for credit in batch.credits)
            / max(sum(r.policy_length for credit in batch.credits for r in credit.in_loss.group.rollouts), 1)
        ),
    ),
    Computed(
        "wronged/right_answers",
        "right completions with Σ A_t < −η / right completions",
        "Share of the right answers that are pushed down: the reward and the scheme go against the task.",
        panel="wronged",
        label="right answers down",
        compute=lambda batch: batch.wronged(True, steps=False),
    ),
    Computed(
        "wronged/wrong_answers",
        "wrong completions with Σ A_t > η / wrong completions",
        "Share of the wrong answers that are pushed up.",
        panel="wronged",
        label="wrong answers up",
        compute=lambda batch: batch.wronged(False, steps=False),
    ),
    Computed(
        "wronged/right_steps",
        "right steps with Σ A_t < −η over their tokens / right steps",
        "Share of the right steps that are pushed down, where a reward or labels say which are right.",
        panel="wronged",
        label="right steps down",
        compute=lambda batch: batch.wronged(True, steps=True),
    ),
    Computed(
        "wronged/wrong_steps",
        "wrong steps with Σ A_t > η over their tokens / wrong steps",
        "Share of the wrong steps that are pushed up. See arXiv 2605.17291 for both under outcome credit.",
        panel="wronged",
        label="wrong steps up",
        compute=lambda batch: batch.wronged(False, steps=True),
    ),
    # loss
    _trl(
        "loss",
        "Σ c_i Σ_t (β · k3 − min(rho A, clip(rho, 1 − ε, 1 + ε_high) A))",
        "What the optimiser step minimised; cispo and sapo weigh rho in their own way. Not a measure of progress: "
        "where rho = 1 it is the weighted sum of advantages, which are centred, and the KL.",
        panel="loss",
        label="loss",
    ),
    _trl("kl", "mean of k3 over tokens", "KL to the reference. The loss adds the same k3, weighed by its own c_i."),
    Metric("kl/k1", "mean of −d", f"KL to the reference; noisy near it. {_UNBIASED}", panel="kl", label="k1"),
    Metric(
        "kl/k2",
        "mean of d² / 2",
        "KL to the reference; biased away from it, little noise; always ≥ 0.",
        panel="kl",
        label="k2",
    ),
    Metric(
        "kl/k3",
        "mean of e^d − d − 1",
        f"KL to the reference; little noise near it; always ≥ 0. {_UNBIASED}",
        panel="kl",
        label="k3",
    ),
    _trl(
        "clip_ratio/region_mean",
        "tokens with rho out of 1 ± ε on the side A points to / tokens",
        "Share of tokens whose ratio left the clip range on the side that stops the gradient.",
        panel="clip",
        label="clipped",
    ),
    _trl("clip_ratio/low_mean", "tokens with rho < 1 − ε and A < 0 / tokens", "Clipped from below."),
    _trl("clip_ratio/low_min", "min over completions of the same", "The completion least clipped from below."),
    _trl("clip_ratio/high_mean", "tokens with rho > 1 + ε and A > 0 / tokens", "Clipped from above."),
    _trl("clip_ratio/high_max", "max over completions of the same", "The completion most clipped from above."),
    _trl("cispo_clip_ratio", "tokens with rho > ε_high and A > 0 / tokens", "Share of capped ratios under cispo."),
    _trl(
        "entropy",
        "mean of −Σ π log π",
        "Mean entropy of the policy's next token, in nats. Completions without an advantage may be left out (β = 0).",
        panel="entropy",
        label="entropy",
    ),
    _trl("mean_token_accuracy", "likeliest tokens / tokens", "sft, dpo: share of (chosen) tokens predicted first."),
    _trl("grad_norm", "‖∇‖₂", "Norm of the gradient before it is scaled down.", panel="grad", label="norm"),
    Metric(
        "engine/loss_gap",
        "max over tokens of |l_t / c_i + A_t| / max(1, |A_t|)",
        "engine: how far the loss that the server returned for a token is from the advantage that it was sent.",
        panel="engine",
        label="loss",
    ),
    Metric(
        "engine/ratio_gap",
        "max over tokens of |rho − 1|",
        "engine: how far its trainer's probability of a token is from its sampler's; it grows with later passes.",
        panel="engine",
        label="ratio",
    ),
    _trl("learning_rate", "warm-up, then the schedule", "The optimiser's learning rate.", panel="rate", label="rate"),
    # a critic
    Metric(
        "value_loss",
        "½ mean over tokens of max[(V − G)², (clip(V, V_old ± ε_value) − G)²]",
        "ppo: what the critic learns from.",
        panel="value",
        label="value loss",
    ),
    Computed(
        "explained_variance",
        "1 − Var(G − V) / Var(G)",
        "ppo: how much of the returns the critic knew when the batch was sampled; 0 for a critic that knows nothing.",
        panel="explained",
        label="explained",
        compute=Generation.explained_variance,
    ),
    Metric(
        "value_clip_share",
        "tokens whose clipped value is further from G / tokens",
        "ppo: values that stay as they are.",
        panel="clamped",
        label="values",
    ),
    Computed(
        "token_kl",
        "mean of log π_old − log π_ref",
        "ppo: what the token rewards are lowered by, times its weight.",
        panel="token_kl",
        label="π_old to π_ref",
        compute=lambda batch: mean(batch.token_values("log_ratio")),
    ),
    Computed(
        "score_clamped_share",
        "completions with |R| > score_clip / those with R",
        "ppo: outcome rewards cut off.",
        panel="clamped",
        label="scores",
        compute=Generation.clamped_scores,
    ),
    Metric(
        "skipped_steps",
        "1 where mean(log π_old − log π) > 1.5 target_kl, else 0",
        "ppo: steps that moved nothing.",
        panel="clamped",
        label="skipped steps",
    ),
    # pairs
    Metric(
        "pair_accuracy",
        "pairs with margin > 0 / pairs",
        "Held-out pairs told right; a margin of 0 counts half.",
        panel="pairs",
        label="held out",
    ),
    _trl(
        "pair_accuracy/train",
        "pairs with margin > 0 / pairs",
        "The same over the step's own pairs, 0 not counted.",
        panel="pairs",
        label="batch",
    ),
    Metric(
        "margin",
        "mean of score(chosen) − score(rejected)",
        "How far apart held-out pairs are: a completion's score is β log π_θ/π_ref (dpo) or its reward.",
        panel="margin",
        label="held out",
    ),
    _trl(
        "margin/train",
        "mean of score(chosen) − score(rejected)",
        "The same over the step's own pairs.",
        panel="margin",
        label="batch",
    ),
    Metric(
        "calibration_error",
        "Σ over 10 bins of n_b / n · |accuracy_b − confidence_b|",
        "Whether σ(margin) of held-out pairs, or the scores of held-out steps, are the share told right (ECE, arXiv "
        "1706.04599).",
        panel="calibration",
        label="held out",
    ),
    _trl(
        "rewards/chosen",
        "mean of β log π_θ/π_ref of chosen completions",
        "dpo: their implicit reward.",
        panel="implicit",
        label="chosen",
    ),
    _trl(
        "rewards/rejected",
        "mean of β log π_θ/π_ref of rejected completions",
        "dpo: their implicit reward.",
        panel="implicit",
        label="rejected",
    ),
    _trl(
        "logps/chosen",
        "mean of log π_θ of chosen completions",
        "dpo: falls where training makes both sides rarer.",
        panel="logps",
        label="chosen",
    ),
    _trl(
        "logps/rejected",
        "mean of log π_θ of rejected completions",
        "dpo: their log-probability.",
        panel="logps",
        label="rejected",
    ),
    _trl("logits/chosen", "mean of the logits on chosen tokens", "dpo: over the whole vocabulary."),
    _trl("logits/rejected", "mean of the logits on rejected tokens", "dpo: over the whole vocabulary."),
    _trl(
        "mean_reward",
        "mean of the scores of both sides",
        "reward: what the reward model gives the step's texts.",
        panel="scores",
        label="mean",
    ),
    _trl("min_reward", "min of the scores of both sides", "reward: its lowest score.", panel="scores", label="lowest"),
    _trl(
        "max_reward", "max of the scores of both sides", "reward: its highest score.", panel="scores", label="highest"
    ),
    # labelled steps
    Metric(
        "step_accuracy",
        "steps told right / labelled steps",
        "prm: held-out steps; a score below 0.5 says wrong.",
        panel="step_accuracy",
        label="held out",
    ),
    Metric(
        "step_accuracy/train",
        "steps told right / labelled steps",
        "prm: the same over the step's own batch.",
        panel="step_accuracy",
        label="batch",
    ),
    Metric(
        "auc",
        "P(score of a right step > score of a wrong one)",
        "prm: over held-out steps, ties count half; 0.5 is guessing, 1 a perfect order.",
        panel="first_errors",
        label="AUC",
    ),
    Metric(
        "first_error_f1",
        "2 a b / (a + b)",
        "prm: a is the share of held-out completions with an error whose first wrong step is the first that scores "
        "below 0.5, b the share of those without in which none does (ProcessBench, arXiv 2412.06559).",
        panel="first_errors",
        label="first-error F1",
    ),
    # completions
    _trl(
        "completions/mean_length",
        "Σ T_i / B",
        "Mean length of the step's completions, in tokens.",
        panel="length",
        label="mean",
    ),
    _trl("completions/min_length", "min T_i", "Tokens of the shortest completion."),
    _trl("completions/max_length", "max T_i", "Tokens of the longest completion.", panel="length", label="longest"),
    _trl(
        "completions/clipped_ratio",
        "truncated / B",
        "Share of completions that the length limit cut off.",
        panel="truncated",
        label="truncated",
    ),
    _trl("completions/mean_terminated_length", "mean T_i of finished ones", "Mean length of those that ended."),
    _trl("completions/min_terminated_length", "min T_i of finished ones", "Shortest of those that ended."),
    _trl("completions/max_terminated_length", "max T_i of finished ones", "Longest of those that ended."),
    _trl(
        "sampling/sampling_logp_difference/mean", "mean of |log π_sampled − log π_trained|", "Sampler against trainer."
    ),
    _trl("sampling/sampling_logp_difference/max", "max of the same over tokens", "The token they differ most on."),
    _trl(
        "sampling/importance_sampling_ratio/min", "min of π_trained / π_sampled", "Least of the sampler's corrections."
    ),
    _trl("sampling/importance_sampling_ratio/mean", "mean of the same", "Mean of the sampler's corrections."),
    _trl("sampling/importance_sampling_ratio/max", "max of the same", "Largest of the sampler's corrections."),
    _trl(
        "policy_loss", "loss + entropy_coef · entropy", "The loss without its entropy bonus; only where there is one."
    ),
    Metric("resumed_from", "step", "Step of the checkpoint that the run went on from."),
    _trl("num_tokens", "Σ over steps of prompt and completion tokens", "Tokens seen so far."),
    # time
    _trl("step_time", "s", "Seconds of the step, sampling included.", panel="time", label="step"),
    Metric("sampling_time", "s", "Seconds that sampling took on this rank.", panel="time", label="sampling"),
    Metric(
        "training_time",
        "s",
        "engine: seconds that the server took for gradients and its step.",
        panel="time",
        label="train",
    ),
    Metric("weights_time", "s", "engine: seconds until its sampler had new weights.", panel="time", label="weights"),
    Metric("importance_time", "s", "Seconds that the importances of tokens took on this rank; with credit.oar."),
)


_EXACT = {metric.name: metric for metric in METRICS}
REWARD_METRIC = re.compile(
    r"rewards/(.+)/(mean|std|zero_share|frac_zero_std|unscored_share|variance_share|trained_correlation|time)"
)


def find_metric(name: str) -> Metric | None:
    """Return the metric of that name, with a reward's name in its place or not; None for one that only TRL knows."""
    match = REWARD_METRIC.fullmatch(name)
    return _EXACT.get(f"rewards/{REWARD}/{match[2]}" if match else name)
