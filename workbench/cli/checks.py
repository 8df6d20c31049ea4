"""``preflight`` and ``probe``: what to look at before a run, from the shell."""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path
from typing import Annotated, Any

from workbench import views
from workbench.cli.arguments import AtLeastOne, Result, Settings
from workbench.cli.groups import GroupFile, example_of, read_group, sampled_group
from workbench.cli.rewards import set_sandbox
from workbench.data import load_task
from workbench.schema import Group
from workbench.training.methods import RunConfig


def preflight(
    settings: Settings,
    prompts: Annotated[AtLeastOne, "prompts to sample"] = 8,
    group: Annotated[list[Path], "look at a sampled group instead; repeatable"] = [],  # noqa: B006
) -> Result:
    """Sample a few groups and say what to look at before training on them."""
    from workbench.checks import preflight

    config = settings.read()
    method = config.grpo
    set_sandbox(method.reward_deadline, isolate=method.isolate_rewards)
    seconds = None
    if group:
        groups = [read_group(path) for path in group]
    else:
        groups, seconds = _sampled(config, prompts)
    report = preflight(
        groups,
        method.pattern,
        method.rewards,
        method.credit,
        sampling_seconds=seconds,
        mask_truncated=method.mask_truncated_completions,
    )
    data = {"level": report.level, "findings": [dataclasses.asdict(finding) for finding in report.findings]}
    return Result(data, lambda: views.text(report), code=1 if report.level == "stop" else 0)


def probe(
    settings: Settings,
    group: GroupFile = None,
    demo: Annotated[bool, "the shipped group, in which splitting one step pays"] = False,
    schemes: Annotated[str, "credit schemes, A,B,…; all if empty"] = "",
    index: Annotated[int, "which example of the task to sample"] = 0,
) -> Result:
    """Say what edits without content would earn under each credit scheme."""
    from workbench.checks import probe, split_step_demo

    config = settings.read()
    set_sandbox(config.sampled.reward_deadline, isolate=config.sampled.isolate_rewards)
    of: Group
    pattern: Any
    rewards: list[Any]
    if demo:
        of, pattern, rewards = split_step_demo()
    else:
        of = (
            sampled_group(config, example_of(config, index, held_out=False, text=None))
            if group is None
            else read_group(group)
        )
        pattern, rewards = config.sampled.pattern, list(config.sampled.rewards)
    names = [scheme.strip() for scheme in schemes.split(",") if scheme.strip()]
    report = probe(of, pattern, rewards, names or None, options=config.grpo.credit.keywords(but=("scheme",)))
    data = {"rows": report.rows(), "rewards": list(report.rewards), "left_out": dict(report.left_out)}
    return Result(data, lambda: views.text(report))


def _sampled(config: RunConfig, count: int) -> tuple[list[Group], float]:
    """Groups of ``count`` examples, drawn by the seed, and the seconds that sampling took."""
    from workbench.policies.load import load_configured
    from workbench.policies.sampler import sample_group

    task = load_task(config.task)
    indices = sorted(random.Random(config.seed).sample(range(len(task)), min(count, len(task))))
    policy = load_configured(config.policy)
    options = config.sampled.sampling.model_dump() | config.prompt.model_dump()
    options["environment"] = config.environment
    began = time.monotonic()
    groups = [sample_group(policy, task[i], **options, seed=config.seed + n) for n, i in enumerate(indices)]
    return groups, time.monotonic() - began
