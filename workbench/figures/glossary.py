"""Every metric that a run logs, with its formula: what a row of ``metrics.jsonl`` means, in one place.

The names are those of the rows. TRL's own metrics are listed as TRL 1.16 computes them. ``*`` stands for the name of a
reward function. A test holds the list against what a run really logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Metric:
    """``name`` as in the rows, ``formula`` in words and signs, ``reading`` what to make of it."""

    name: str
    area: str
    formula: str
    reading: str = ""


METRICS: tuple[Metric, ...] = (
    Metric("step", "run", "optimiser steps so far; 0 is the measure before training"),
    Metric("time", "run", "Unix seconds when the row was written"),
    Metric("seconds", "run", "wall time of training so far, those of earlier parts of a resumed run included"),
    Metric("rollouts", "run", "completions sampled for training so far: steps / μ × prompts a step × G"),
    Metric("num_tokens", "run", "tokens of prompts and completions seen so far"),
    Metric("step_time", "run", "seconds of the optimiser step"),
    Metric("sampling_time", "run", "seconds that sampling the step's completions took on this rank"),
    Metric("resumed_from", "run", "step of the checkpoint that the run went on from"),
    Metric("learning_rate", "optimiser", "the rate of the step, after warm-up and decay"),
    Metric("grad_norm", "optimiser", "‖∇L‖₂ over all trained weights, before it is scaled down to max_grad_norm"),
    Metric(
        "loss",
        "optimiser",
        "−Σ_i c_i Σ_t min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) + β · k3, c_i the loss type's length normaliser",
        "near 0 by construction and no measure of quality: advantages of a group add up to about 0",
    ),
    Metric("policy_loss", "optimiser", "the loss without the β · k3 term"),
    Metric(
        "accuracy", "accuracy", "held-out prompts answered exactly / prompts; one sample each, the same random draws"
    ),
    Metric("accuracy/train", "accuracy", "the step's own rollouts whose answer is right / rollouts"),
    Metric("reward", "rewards", "mean over completions of R_i = Σ_f w_f R_{i,f} over outcome rewards f"),
    Metric("reward_std", "rewards", "standard deviation of R_i over the step's completions"),
    Metric("frac_reward_zero_std", "rewards", "groups whose outcome rewards are all equal / groups"),
    Metric("step_reward", "rewards", "mean over scored steps of r_{i,k} = Σ_f w_f r_{i,k,f}"),
    Metric("rewards/*/mean", "rewards", "mean score of one function, over scored steps or over completions"),
    Metric("rewards/*/std", "rewards", "standard deviation of one function's scores"),
    Metric("rewards/*/zero_share", "rewards", "scores that are exactly 0 / scores given"),
    Metric("rewards/*/time", "rewards", "seconds that one function took for the step on this rank"),
    Metric("reward_errors", "rewards", "failures of reward functions in the step, where on_reward_error is unscored"),
    Metric(
        "advantage_abs_mean",
        "credit",
        "mean over tokens of |A_{i,t}|",
        "0 means that nothing is learnt; it grows with the number of steps under suffix sums",
    ),
    Metric("steps_per_answer", "credit", "mean number of steps the pattern found in a completion"),
    Metric("no_match_share", "credit", "completions in which the pattern found nothing / completions"),
    Metric("unscored_share", "credit", "steps that every function left without a score / steps"),
    Metric(
        "zero_spread_share",
        "credit",
        "groups with std 0 or fewer than two scored values / groups",
        "such a group has advantage 0 everywhere",
    ),
    Metric(
        "kl", "KL", "mean over tokens of k3 as it enters the loss; logged with β above 0", "see kl/k1, kl/k2 and kl/k3"
    ),
    Metric(
        "kl/k1", "KL", "mean of −d, d = log π_ref − log π_θ of the sampled tokens", "unbiased, noisy, may be below 0"
    ),
    Metric("kl/k2", "KL", "mean of d² / 2", "biased once the policies are apart"),
    Metric("kl/k3", "KL", "mean of e^d − d − 1", "unbiased and never below 0"),
    Metric("entropy", "policy", "mean over tokens of −Σ_v π(v) log π(v), in nats", "near 0: groups stop differing"),
    Metric("clip_ratio/low_mean", "policy", "tokens with ρ < 1 − ε and A < 0 / tokens; ρ = π_θ / π_old"),
    Metric("clip_ratio/low_min", "policy", "the lowest clip_ratio/low_mean of a rank"),
    Metric("clip_ratio/high_mean", "policy", "tokens with ρ > 1 + ε and A > 0 / tokens"),
    Metric("clip_ratio/high_max", "policy", "the highest clip_ratio/high_mean of a rank"),
    Metric("clip_ratio/region_mean", "policy", "tokens clipped on either side / tokens", "0 while μ is 1"),
    Metric("cispo_clip_ratio", "policy", "tokens with ρ over cispo's cap and A > 0 / tokens"),
    Metric("sampling/sampling_logp_difference/mean", "policy", "mean |log π sampled − log π trained| of a token"),
    Metric("sampling/sampling_logp_difference/max", "policy", "the largest |log π sampled − log π trained| of a token"),
    Metric("sampling/importance_sampling_ratio/*", "policy", "π trained / π sampled of a token: least, mean, most"),
    Metric("completions/mean_length", "completions", "mean number of tokens, truncated ones included"),
    Metric("completions/min_length", "completions", "fewest tokens"),
    Metric("completions/max_length", "completions", "most tokens"),
    Metric("completions/clipped_ratio", "completions", "truncated completions / completions"),
    Metric(
        "completions/mean_terminated_length", "completions", "mean number of tokens of those that ended by themselves"
    ),
    Metric("completions/min_terminated_length", "completions", "fewest tokens of those that ended by themselves"),
    Metric("completions/max_terminated_length", "completions", "most tokens of those that ended by themselves"),
)


def find_metric(name: str) -> Metric | None:
    """The entry for a column of a run's rows, None for one that is not listed."""
    exact = next((metric for metric in METRICS if metric.name == name), None)
    return exact or next((metric for metric in METRICS if fnmatchcase(name, metric.name)), None)
