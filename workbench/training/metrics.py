"""Numbers logged beside TRL's own, from the groups' credit and the log-probabilities of the loss.

Each is defined in its function's docstring; the names are those of the rows in ``metrics.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from workbench.schema import Credit


def group_metrics(
    credits: Sequence[Credit], is_right: Callable[[str, Mapping[str, Any]], bool] | None = None
) -> dict[str, float]:
    """Reward and credit metrics of one generation's groups.

    ``steps_per_answer`` mean number of steps; ``no_match_share`` answers in which the pattern found nothing;
    ``unscored_share`` steps no function scored; ``zero_spread_share`` groups that teach nothing; ``step_reward`` mean
    weighted reward of scored steps; ``rewards/<name>/mean`` and ``/std`` (ddof=0) of each step reward's scores (those
    of outcome rewards are TRL's); ``rewards/<name>/zero_share`` of every reward's scores; ``advantage_abs_mean`` mean
    |A| over sampled tokens; ``accuracy/train`` share of rollouts whose answer is right.
    """
    scored = [step_scores for credit in credits for step_scores in credit.scored.scored]
    rewards = [reward for step_scores in scored for reward in step_scores.rewards]
    total = sum(float(np.abs(credit.advantages).sum(dtype=np.float64)) for credit in credits)
    tokens = sum(rollout.sampled_length for credit in credits for rollout in credit.scored.group.rollouts)
    metrics = {
        "steps_per_answer": float(np.mean([len(step_scores.steps) for step_scores in scored])),
        "no_match_share": float(np.mean([not step_scores.matched for step_scores in scored])),
        "unscored_share": float(np.mean([reward is None for reward in rewards])),
        "zero_spread_share": float(np.mean([not credit.spread for credit in credits])),
        "advantage_abs_mean": total / max(tokens, 1),
        "step_reward": _mean([reward for reward in rewards if reward is not None]),
    }
    for name in scored[0].scores:
        scores = [score for step_scores in scored for score in step_scores.scores[name] if score is not None]
        metrics[f"rewards/{name}/mean"] = _mean(scores)
        metrics[f"rewards/{name}/std"] = float(np.std(scores)) if scores else float("nan")
        metrics[f"rewards/{name}/zero_share"] = _mean([score == 0 for score in scores])
    for name in scored[0].outcome_scores:
        outcomes = [step_scores.outcome_scores[name] for step_scores in scored]
        metrics[f"rewards/{name}/zero_share"] = _mean([score == 0 for score in outcomes if score is not None])
    if is_right is not None:
        metrics["accuracy/train"] = float(
            np.mean([is_right(r.text, c.scored.group.columns) for c in credits for r in c.scored.group.rollouts])
        )
    return metrics


def time_metrics(reward_seconds: Mapping[str, float], sampling_seconds: float) -> dict[str, float]:
    """``rewards/<name>/time`` and ``sampling_time``: seconds that each function and sampling took on this rank."""
    times = {f"rewards/{name}/time": seconds for name, seconds in reward_seconds.items()}
    return {**times, "sampling_time": sampling_seconds}


def kl_estimators(reference: torch.Tensor, policy: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """k1, k2 and k3 of KL(policy || reference) on the sampled tokens.

    With d = log pi_ref - log pi_theta: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (Schulman,
    http://joschu.net/blog/kl-approx.html). Inputs are (B, T); each result is (2,): the sum over unmasked tokens, and
    their number, so that ranks can be added before dividing.
    """
    d = (reference - policy).float()
    estimators = {"kl/k1": -d, "kl/k2": d.square() / 2, "kl/k3": d.exp() - d - 1}
    count = mask.sum().float()
    return {name: torch.stack([(value * mask).sum(), count]) for name, value in estimators.items()}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
