"""Numbers logged beside TRL's own, from the groups' credit and the log-probabilities of the loss.

Each is defined in its function's docstring; the names are those of the rows in ``metrics.jsonl``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from trl.trainer.utils import nanstd

from workbench.checks.difficulty import calibration_error
from workbench.rewards.score import texts_after_thinking
from workbench.rewards.watch import tell_apart
from workbench.schema import Credit, Rollout
from workbench.steps import StepPattern


def group_metrics(
    credits: Sequence[Credit],
    is_right: Callable[[str, Mapping[str, Any]], bool] | None = None,
    pattern: StepPattern | None = None,
) -> dict[str, float]:
    """Reward and credit metrics of one generation's groups.

    ``steps_per_answer`` mean number of steps; ``no_match_share`` answers in which the pattern found nothing;
    ``unsplit_share`` answers left whole, since the pattern found over 1,000 steps in them or took too long;
    ``unscored_share`` steps no function scored; ``zero_spread_share`` groups that teach nothing; ``step_reward`` mean
    weighted reward of scored steps; ``rewards/<name>/mean`` and ``/std`` (ddof=0) of each step reward's scores (those
    of outcome rewards are TRL's); of every reward ``/zero_share``, scores that are 0, and the shares of ``Telling``:
    ``/frac_zero_std``, ``/unscored_share`` and ``/variance_share``; ``advantage_abs_mean`` mean
    |A| over sampled tokens; ``accuracy/train`` share of rollouts whose answer is right, read as
    ``pattern`` says. Of episodes also those of ``turn_metrics``.
    """
    scored = [step_scores for credit in credits for step_scores in credit.scored.scored]
    rewards = [reward for step_scores in scored for reward in step_scores.rewards]
    total = sum(float(np.abs(credit.advantages).sum(dtype=np.float64)) for credit in credits)
    tokens = sum(rollout.sampled_length for credit in credits for rollout in credit.scored.group.rollouts)
    metrics = {
        "steps_per_answer": float(np.mean([len(step_scores.steps) for step_scores in scored])),
        "no_match_share": float(np.mean([not one.matched and not one.unsplit for one in scored])),
        "unsplit_share": float(np.mean([one.unsplit for one in scored])),
        "unscored_share": _mean([reward is None for reward in rewards]),
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
    for name, telling in tell_apart([credit.scored for credit in credits]).items():
        metrics[f"rewards/{name}/frac_zero_std"] = telling.zero_std
        metrics[f"rewards/{name}/unscored_share"] = telling.unscored
        if telling.variance is not None and not credits[0].options.get("each_reward"):
            metrics[f"rewards/{name}/variance_share"] = telling.variance
    if is_right is not None:
        metrics["accuracy/train"] = float(
            np.mean([is_right(text, c.scored.group.columns) for c in credits for text in _answers(c, pattern)])
        )
    return metrics | turn_metrics([rollout for credit in credits for rollout in credit.scored.group.rollouts])


def turn_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """``turns_per_answer`` mean number of the policy's turns; ``observation_share`` tokens of observations of all;
    ``environment/errors`` turns that the environment failed to answer; ``environment/time`` seconds it took in all.
    Nothing where every completion is one turn by itself.
    """
    if all(rollout.mask is None for rollout in rollouts):
        return {}
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    tokens, sampled = sum(map(len, rollouts)), sum(rollout.sampled_length for rollout in rollouts)
    return {
        "turns_per_answer": float(np.mean([len(rollout.turn_spans) for rollout in rollouts])),
        "observation_share": (tokens - sampled) / max(tokens, 1),
        "environment/errors": float(sum(turn.error is not None for turn in turns)),
        "environment/time": sum(turn.seconds for turn in turns if not turn.is_sampled),
    }


def _answers(credit: Credit, pattern: StepPattern | None) -> list[str]:
    group = credit.scored.group
    opened = [group.thinking_open] * len(group)
    return texts_after_thinking(group.rollouts, pattern, opened)


def gae_metrics(credits: Sequence[Credit]) -> dict[str, float]:
    """Metrics of a batch credited with a critic's values, over all tokens that the policy sampled.

    ``token_kl`` mean of log pi_old - log pi_ref; ``explained_variance`` 1 - Var(G - V) / Var(G) of returns G and values
    V (NaN where all returns are equal); ``score_clamped_share`` completions whose outcome reward was clamped, of those
    that have one.
    """
    rollouts = [(credit, i) for credit in credits for i in range(len(credit.scored.group))]
    sampled = [np.array(c.scored.group.rollouts[i].mask or [1] * len(c.of(i)), dtype=bool) for c, i in rollouts]

    def all_of(name: str) -> Any:
        rows = [c.values[name][i][mask] for (c, i), mask in zip(rollouts, sampled, strict=True)]
        return np.concatenate(rows).astype(np.float64)

    returns, values = all_of("return"), all_of("value")
    variance = float(np.var(returns)) if len(returns) else 0.0
    clamped = [
        abs(outcome) > c.options["score_clip"]
        for c, i in rollouts
        if (outcome := c.scored.scored[i].outcome) is not None
    ]
    return {
        "token_kl": _mean(all_of("log_ratio")),
        "explained_variance": 1 - float(np.var(returns - values)) / variance if variance else float("nan"),
        "score_clamped_share": _mean(clamped),
    }


def leave_unscored_out(credits: Sequence[Credit], logged: dict[str, list[float]]) -> None:
    """Put right TRL's ``reward`` and ``reward_std``, in which a completion's sum has 0 for a score it lacks."""
    scored = [row for credit in credits for row in credit.scored.scored]
    if all(row.outcome is not None or _is_bare(row.outcome_scores) for row in scored):
        return
    sums = torch.tensor([torch.nan if row.outcome is None else row.outcome for row in scored])
    logged["reward"][-1], logged["reward_std"][-1] = sums.nanmean().item(), nanstd(sums).item()


def _is_bare(scores: Mapping[str, float | None]) -> bool:
    return all(score is None for score in scores.values())


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


def _mean(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def pair_metrics(margins: Sequence[float]) -> dict[str, float]:
    """``pair_accuracy`` (a margin of 0 counts half), ``margin`` and ``calibration_error`` of pairs.

    The probability that calibration is about is sigma(margin), and the chosen side is always the better one.
    """
    values = np.asarray(margins, dtype=np.float64)
    probabilities = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
    return {
        "pair_accuracy": float(np.mean((values > 0) + 0.5 * (values == 0))),
        "margin": float(np.mean(values)),
        "calibration_error": calibration_error(probabilities.tolist(), [1] * len(values)),
    }


def pair_numbers(margin: float) -> dict[str, float]:
    """What is shown above a watched pair."""
    return {"margin": margin, "σ(margin)": 1 / (1 + math.exp(-max(-700.0, min(700.0, margin))))}


def rename_metrics(trainer: Any, names: Mapping[str, str]) -> None:
    """Call what TRL has just logged of a batch by this project's names; its ``margin`` is not the held-out pairs'."""
    logged = trainer._metrics["train"]
    for name, ours in names.items():
        logged[ours] += logged.pop(name, [])
