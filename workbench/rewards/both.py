"""One group scored with two lists of rewards: other functions, weights or options for the same answers.

A function that both lists have, whatever it weighs in each, is called once: the two sides differ by what was changed
and not by a judge asked twice. What the scores are worth to a token is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from workbench.config import RewardConfig
from workbench.rewards.builtin import find_builtin
from workbench.rewards.client import RewardWorker
from workbench.rewards.reward import Models, Reward
from workbench.rewards.score import score_split, settle, split_group, weighted_sum
from workbench.schema import Group, RewardSummary, ScoredGroup, StepScores
from workbench.steps import StepPattern

Spec = str | Callable[..., Any] | RewardConfig | Reward


def score_both(
    group: Group,
    pattern: StepPattern,
    rewards: Sequence[Spec],
    others: Sequence[Spec],
    *,
    worker: RewardWorker | None = None,
    models: Models | None = None,
) -> tuple[ScoredGroup, ScoredGroup]:
    """The group scored with ``rewards`` and with ``others``; ``compare_credits`` holds their credits side by side.

    Arguments and errors are those of ``score_group``.
    """
    splits = split_group(group, pattern, worker=worker)
    options: dict[str, Any] = {"worker": worker, "models": models, "pattern": pattern}
    first = score_split(group, splits, rewards, **options)
    known = {_function(spec): summary for spec, summary in zip(rewards, first.rewards, strict=True)}
    fresh = score_split(group, splits, [spec for spec in others if _function(spec) not in known], **options)
    new = iter(fresh.rewards)
    summaries = [
        replace(known[_function(spec)], weight=_weight(spec)) if _function(spec) in known else next(new)
        for spec in others
    ]
    names = {summary.name for summary in fresh.rewards}
    rows = [_with(row, added, summaries, names) for row, added in zip(first.scored, fresh.scored, strict=True)]
    return first, ScoredGroup(first.group, settle(rows, summaries), tuple(summaries))


def _with(row: StepScores, added: StepScores, rewards: Sequence[RewardSummary], new: set[str]) -> StepScores:
    """One completion's scores by ``rewards``: those named in ``new`` from ``added``, the others from ``row``."""
    weights = {reward.name: reward.weight for reward in rewards}
    source = {reward.name: added if reward.name in new else row for reward in rewards}
    steps = {reward.name: source[reward.name].scores[reward.name] for reward in rewards if reward.kind == "step"}
    outcomes = {r.name: source[r.name].outcome_scores[r.name] for r in rewards if r.kind == "outcome"}
    logged = {name: of.logged[name] for name, of in source.items() if name in of.logged}
    return replace(
        row,
        scores=steps,
        rewards=tuple(
            weighted_sum({name: scores[k] for name, scores in steps.items()}, weights) for k in range(len(row.steps))
        ),
        outcome_scores=outcomes,
        logged=logged,
    )


def _function(spec: Spec) -> Any:
    """What two specs of one function have in common: all but its weight."""
    if isinstance(spec, str):
        spec = RewardConfig(name=spec, kind=find_builtin(spec).kind)
    if isinstance(spec, RewardConfig):
        return spec.model_dump_json(exclude={"weight", "schedule"})
    return (spec.name, spec.kind, spec.function) if isinstance(spec, Reward) else spec


def _weight(spec: Spec) -> float:
    if isinstance(spec, RewardConfig):
        return spec.weight_at(0)
    return spec.weight if isinstance(spec, Reward) else 1.0
