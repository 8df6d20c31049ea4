"""Recipes of a comparison: each trains the base policy by one method, on the same number of completions.

Seed, policy, task, step pattern and sampling of a base configuration, and what else is set in it, are laid over a
recipe's stages; then these are scaled to a budget of sampled completions. What is sampled for data, continuations of
labels included, is part of the budget.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.runs.pipelines.check import named_stage
from workbench.runs.pipelines.plan import (
    DATA,
    DemonstrationsOptions,
    LabelsOptions,
    PairsOptions,
    Plan,
    Stage,
    read_plan,
)
from workbench.runs.recipes.files import load_recipe_file
from workbench.tasks import HUB, Task, load_task
from workbench.tasks.reading import kept_for_training

COMPLETIONS = 2880
"""The budget that the shipped recipes are written for: 60 steps of 6 prompts with 8 completions each."""
SEEDS = 1000
"""A stage's own seed counts in so many, so that the stages of one comparison's seeds never share one."""
_NOT_LAID_OVER = {"name", "rewards", "credit", "pattern", "sampling"}
"""Settings of a method that are a recipe's own, or laid over by themselves."""


def load_recipe(source: str | Path, base: RunConfig, completions: int = COMPLETIONS) -> Plan:
    """A recipe by name or of a file, with ``base`` laid over its stages and ``completions`` to sample.

    Raises ConfigError where it cannot be read, does not fit the base's task, cannot be counted, or has too small a
    budget.
    """
    plan = laid_over(load_recipe_file(source), base)
    name = plan.name
    problems = [*_uncounted(plan), *_unmeasured(plan, base)]
    if not problems:
        try:
            plan = scaled(plan, completions)
            problems += _too_little(plan, base)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(f"{name}: {problem}" for problem in problems))
    return plan


# -- the base configuration --------------------------------------------------------------------------------------------


def laid_over(plan: Plan, base: RunConfig) -> Plan:
    """The plan with what ``base`` says in each stage that does not take it from an earlier one. Raises ConfigError."""
    stages = {stage.name: stage for stage in plan.stages}
    data = {"name": plan.name, "about": plan.about}
    return read_plan({**data, "stages": [_laid_over(stage, stages, base) for stage in plan.stages]}, plan.name)


def _laid_over(stage: Stage, stages: Mapping[str, Stage], base: RunConfig) -> dict[str, Any]:
    data = stage.to_data()
    settings = data[stage.kind]
    settings["seed"] = base.seed + SEEDS * int(settings.get("seed", 0))
    config = stage.config
    if config is None:
        return data
    if all(
        named_stage(text, stages)[0] is None
        for text in (config.policy.path, config.policy.adapter, *config.policy.merge)
    ):
        settings["policy"] = base.policy.model_dump(mode="json")
    task = base.task.model_dump(mode="json", exclude={"data"})
    settings["task"] = task | ({"data": config.task.data} if config.task.data else {})
    method = settings.setdefault("method", {"name": config.method.name}) if stage.is_run else settings
    ours, fields = base.method, type(config.method).model_fields
    if "sampling" in fields and (sampling := getattr(ours, "sampling", None)) is not None:
        own = set() if "num_generations" in sampling.model_fields_set else {"num_generations"}
        method["sampling"] = method.get("sampling", {}) | sampling.model_dump(exclude=own)
    if not stage.is_run:
        return data
    if "pattern" in fields and (pattern := getattr(ours, "pattern", None)) is not None:
        method["pattern"] = dataclasses.asdict(pattern)
    run = base.run.model_dump(exclude_unset=True, exclude={"steps", "epochs"})
    run |= base.run.model_dump(include={"eval_prompts", "eval_skip"})  # what all are measured on
    if config.method.reward_format is not None:
        run = {name: value for name, value in run.items() if name == "device"}
    else:
        settings["optimiser"] = settings.get("optimiser", {}) | base.optimiser.model_dump(exclude_unset=True)
        if config.method.name == ours.name:
            method |= ours.model_dump(exclude_unset=True, exclude=_NOT_LAID_OVER)
    settings["run"] = settings.get("run", {}) | run
    return data


# -- the budget --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Amount:
    """What a stage samples: ``count`` times ``unit`` completions."""

    unit: int
    count: int

    @property
    def completions(self) -> int:
        return self.unit * self.count


def amount(stage: Stage) -> Amount | None:
    """What a stage samples; None for one that samples nothing, or no known number."""
    match stage.options:
        case PairsOptions() | DemonstrationsOptions():
            assert stage.config is not None
            return Amount(stage.config.sampled.sampling.num_generations, stage.options.prompts)
        case LabelsOptions(completions=int(most)):
            return Amount(1, most)
    if not stage.is_run or stage.config is None or not stage.config.method.rollouts_per_step:
        return None
    method = stage.config.method
    return Amount(method.rollouts_per_step, math.ceil(stage.config.run.steps / method.iterations))


def scaled(plan: Plan, completions: int) -> Plan:
    """The plan with all its stages longer or shorter, so that it samples ``completions``, or less by under one batch.

    Runs on stored rows take more or fewer steps alike. Raises ConfigError where a stage would sample nothing.
    """
    amounts = {stage.name: found for stage in plan.stages if (found := amount(stage)) is not None}
    if not amounts:
        raise ConfigError("no stage samples completions, so there is no budget to compare it by")
    total = sum(each.completions for each in amounts.values())
    counts = _shared_out(list(amounts.values()), completions)
    if min(counts) < 1:
        least = next(n for n in range(completions + 1, total + 1) if min(_shared_out(list(amounts.values()), n)) >= 1)
        short = next(name for name, count in zip(amounts, counts, strict=True) if count < 1)
        raise ConfigError(
            f"{completions:,} completions are too few: stage {short!r} would sample none; give at least {least:,} "
            "(--completions)"
        )
    by_stage = dict(zip(amounts, counts, strict=True))
    stages = [_of_size(stage, by_stage.get(stage.name), completions / total) for stage in plan.stages]
    return Plan(plan.name, plan.about, tuple(stages))


def _shared_out(amounts: Sequence[Amount], completions: int) -> list[int]:
    """The counts for so many completions, in the proportions there are; the last takes what the others leave."""
    share = completions / sum(each.completions for each in amounts)
    counts = [round(each.count * share) for each in amounts[:-1]]
    left = completions - sum(each.unit * count for each, count in zip(amounts, counts, strict=False))
    return [*counts, left // amounts[-1].unit]


def _of_size(stage: Stage, count: int | None, share: float) -> Stage:
    stage = stage.copy()
    if isinstance(stage.options, PairsOptions | DemonstrationsOptions) and count is not None:
        stage.options.prompts = count
    elif isinstance(stage.options, LabelsOptions) and count is not None:
        stage.options.completions = count
    elif stage.is_run and stage.config is not None:
        run, iterations = stage.config.run, stage.config.method.iterations
        steps = max(1, round(run.steps * share)) if count is None else count * iterations
        stage.config.run = run.model_copy(update={"steps": steps, "epochs": None})
    return stage


# -- what is refused ---------------------------------------------------------------------------------------------------


def _uncounted(plan: Plan) -> Iterator[str]:
    """Stages that sample completions which nobody counts."""
    for stage in plan.stages:
        if isinstance(stage.options, LabelsOptions) and stage.options.completions is None:
            yield (
                f"stage {stage.name!r}: labels.completions: how many continuations are sampled depends on the steps; "
                "give the most completions to sample, continuations included"
            )
        method = stage.config.method if stage.is_run and stage.config is not None else None
        if method is not None and any(reward.monte_carlo is not None for reward in method.reward_functions):
            yield f"stage {stage.name!r}: what a monte_carlo reward samples is not counted; label steps in a stage"
        if getattr(method, "resample_flat", 0):
            yield f"stage {stage.name!r}: method.resample_flat: groups that are replaced are not counted; set it to 0"


def _unmeasured(plan: Plan, base: RunConfig) -> Iterator[str]:
    """Why the policy that the plan ends with would have no accuracy, or not the one it is compared by."""
    policies = [s for s in plan.stages if s.is_run and s.config is not None and s.config.method.reward_format is None]
    if not policies:
        yield "no stage trains a policy; add one that does"
        return
    for stage in (policies[0], policies[-1]):
        assert stage.config is not None
        if not stage.config.run.eval_every:
            yield f"stage {stage.name!r}: run.eval_every: 0 measures no accuracy to compare; set it"
            return
    if (task := _task(base)) is not None and not task.can_check:
        yield f"task {base.task.name!r} measures no accuracy to compare: {task.unchecked}; give rows an 'answer'"


def _too_little(plan: Plan, base: RunConfig) -> Iterator[str]:
    """Stages that the task has too few prompts for, or that too few rows are made for."""
    task = _task(base)
    most: dict[str, int] = {}
    for stage in plan.stages:
        options = stage.options
        if isinstance(options, PairsOptions | DemonstrationsOptions):
            assert stage.config is not None
            group = stage.config.sampled.sampling.num_generations
            rows = group // 2 if isinstance(options, PairsOptions) else group
            most[stage.name] = options.prompts * min(options.per_group, rows)
            last = options.first + options.prompts
            if task is not None and last > len(task):
                yield (
                    f"stage {stage.name!r} samples prompts {options.first:,} to {last - 1:,} and task "
                    f"{base.task.name!r} has {len(task):,}; give fewer completions (--completions)"
                )
        if not stage.is_run or stage.config is None:
            continue
        made = most.get((stage.config.task.data or "").removeprefix(DATA))
        if made is not None and not kept_for_training(made):
            yield (
                f"stage {stage.name!r}: {made} row at most is made to train on, and held out; give more completions "
                "(--completions)"
            )


def _task(base: RunConfig) -> Task | None:
    """The task; None for a data set of the Hub, which is read when a run loads it."""
    return None if base.task.name.startswith(HUB) else load_task(base.task)
