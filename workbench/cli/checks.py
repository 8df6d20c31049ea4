"""``preflight`` and ``probe``: what to look at before a run, from the shell."""

from __future__ import annotations

import random
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
    groups = [read_group(path) for path in group] if group else _sampled(config, prompts)
    found = preflight(
        groups,
        method.pattern,
        method.rewards,
        method.credit,
        mask_truncated=method.mask_truncated_completions,
    )
    return Result(found.to_json(), lambda: views.text(found), code=1 if found.level == "stop" else 0)


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
    found = probe(of, pattern, rewards, names or None, options=config.grpo.credit.keywords(but=("scheme",)))
    return Result(found.to_json(), lambda: views.text(found))


def _sampled(config: RunConfig, count: int) -> list[Group]:
    """Return groups of ``count`` examples, drawn by the seed."""
    from workbench.policies.load import load_configured
    from workbench.policies.sampler import sample_group

    task = load_task(config.task)
    indices = sorted(random.Random(config.seed).sample(range(len(task)), min(count, len(task))))
    policy = load_configured(config.policy)
    options = config.sampled.sampling.model_dump() | config.prompt.model_dump()
    options["environment"] = config.environment
    return [sample_group(policy, task[i], **options, seed=config.seed + n) for n, i in enumerate(indices)]
