"""Which scheme: the default run under every scheme, with step labels that are right, partly wrong, or a model's.

A cell is ``labels/scheme``: ``right`` is step_correctness, ``noise10`` and ``noise30`` the same with that share of the
labels turned (``rewards.noise``), ``prm`` a process reward model trained here on Monte-Carlo labels, one for each
seed. Every run is the default one in all else and has answer_correctness beside the steps. Schemes that credit
outcomes alone do not see the labels, and have one cell. A probe is an edit without content of the group that comes
along; it pays where it gains in any of the answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.trained import Rows, Where, last_mean, mean, say
from workbench.checks import probe
from workbench.config import RewardConfig, RunConfig
from workbench.credit import SCHEMES, compare_credits, credit_group
from workbench.errors import RunError
from workbench.policies.embedded import FIRST_GROUP
from workbench.rewards import score_group
from workbench.rewards.noise import with_wrong_labels
from workbench.runs.pipelines import Pipeline, open_pipeline, run_pipeline
from workbench.runs.recipes.files import load_recipe_file
from workbench.schema import Group, ScoredGroup

FIRST = ("outcome", "process", "step", "mean_suffix", "first_error", "prpo", "turn_credit", "papo")
"""Measured before the others."""
NOISE = {"right": 0.0, "noise30": 0.3, "noise10": 0.1}
LABELS = (*NOISE, "prm")
TURNS = 20
OUTCOME = RewardConfig(name="answer_correctness", kind="outcome")


@dataclass(frozen=True)
class SchemeRow:
    """A cell over its seeds; accuracies are shares of 200 held-out problems.

    ``agreement`` is what turned labels leave before any training: the mean correlation of the tokens' advantages with
    those under right labels, in the group that comes along, over ``TURNS`` ways to turn them. ``probes`` are the edits
    that pay under right labels, of all that can be made.
    """

    labels: str
    scheme: str
    seeds: int
    base: float | None
    final: float | None
    lowest: float | None
    highest: float | None
    steps_per_answer: float | None
    agreement: float | None
    probes: str


def measure(repeat: int, where: Where = Where()) -> list[SchemeRow]:  # noqa: B008  # frozen
    """Seeds 0 to ``repeat`` - 1; the first seed of all cells before the second."""
    names = where.chosen(cells())
    results: dict[str, list[Rows]] = {cell: [] for cell in names}
    for seed in range(repeat):
        for cell in names:
            rows = _trained(cell, seed, where)
            results[cell] += [] if rows is None else [rows]
    return [_row(cell, seeds) for cell, seeds in results.items()]


def cells() -> list[str]:
    schemes = [*FIRST, *(name for name in SCHEMES if name not in FIRST)]
    return [f"{labels}/{scheme}" for labels in LABELS for scheme in schemes if labels == "right" or sees_labels(scheme)]


def sees_labels(scheme: str) -> bool:
    return not SCHEMES[scheme].outcome_only


def _trained(cell: str, seed: int, where: Where) -> Rows | None:
    labels, scheme = cell.split("/")
    if labels in NOISE:
        rewards = [step_reward(labels), OUTCOME]
    elif (judge := _judge(seed, where)) is not None:
        model = {"path": f"run:{judge.name}.judge", "format": "stepwise"}
        rewards = [RewardConfig.parse({"name": "judge", "kind": "step", "model": model}), OUTCOME]
    else:
        return None
    method = {"rewards": [reward.model_dump() for reward in rewards], "credit": {"scheme": scheme}}
    config = RunConfig.parse({"name": f"schemes-{labels}", "seed": seed, "method": method})
    return where.rows(config, scheme)


def step_reward(labels: str) -> RewardConfig:
    share = NOISE[labels]
    return with_wrong_labels("step_correctness", share) if share else RewardConfig(name="step_correctness")


def _judge(seed: int, where: Where) -> Pipeline | None:
    """The pipeline of a seed's process reward model: the first two stages of the recipe grpo-prm; None unless whole."""
    name = f"schemes-prm.{seed}"
    try:
        pipeline = open_pipeline(name, where.workspace)
    except RunError:
        if where.stored:
            return None
        stages = [stage.to_data() for stage in load_recipe_file("grpo-prm").stages[:2]]
        for stage in stages:
            stage["labels" if "labels" in stage else "run"]["seed"] = seed
        pipeline = run_pipeline({"stages": stages}, where.workspace, name=name)
    if pipeline.resumable and not where.stored:
        pipeline = pipeline.resume()
    status = pipeline.status() if where.stored else pipeline.wait()
    say(f"{name}: {status.state} {status.reason}".rstrip())
    return pipeline if status.state == "finished" else None


def _row(cell: str, seeds: list[Rows]) -> SchemeRow:
    labels, scheme = cell.split("/")
    measured = [[row["accuracy"] for row in rows if row.get("accuracy") is not None] for rows in seeds]
    ends = [accuracies[-1] for accuracies in measured if accuracies]
    steps = [value for rows in seeds if (value := last_mean(rows, "steps_per_answer")) is not None]
    return SchemeRow(
        labels,
        scheme,
        len(ends),
        mean([accuracies[0] for accuracies in measured if accuracies]),
        mean(ends),
        min(ends, default=None),
        max(ends, default=None),
        mean(steps),
        agreement(labels, scheme) if NOISE.get(labels) else None,
        probes_that_pay(scheme) if labels == "right" else "",
    )


@cache
def first_group() -> Group:
    return Group.from_json(json.loads(FIRST_GROUP.read_text(encoding="utf-8")))


@cache
def _scored(share: float, seed: int) -> ScoredGroup:
    reward = with_wrong_labels("step_correctness", share, seed=seed)
    return score_group(first_group(), RunConfig().grpo.pattern, [reward, OUTCOME])


def agreement(labels: str, scheme: str) -> float:
    right = credit_group(_scored(0.0, 0), scheme)
    turned = [credit_group(_scored(NOISE[labels], seed), scheme) for seed in range(TURNS)]
    return float(np.mean([compare_credits(right, credit).correlation or 0.0 for credit in turned]))


def probes_that_pay(scheme: str) -> str:
    """Edits that pay of those that can be made, in the group that comes with the embedded policy."""
    report: Any = probe(first_group(), RunConfig().grpo.pattern, [step_reward("right"), OUTCOME], [scheme])
    results = [row[scheme] for row in report.results.values() if scheme in row]
    made = [result for result in results if result.worst is not None]
    return f"{sum(result.pays for result in made)} of {len(made)}"
