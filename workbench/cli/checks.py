"""``preflight`` and ``probe``: what to look at before a run, from the shell."""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.cli.flags import add_flags, at_least_one, read_config
from workbench.cli.groups import read_group
from workbench.cli.output import print_result
from workbench.cli.rewards import set_sandbox
from workbench.config.run import RunConfig
from workbench.errors import TaskError
from workbench.schema import Group

Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
FIELDS = (
    *("task", "policy", "environment", "seed", "grpo.sampling", "grpo.pattern", "grpo.rewards", "grpo.credit"),
    "grpo.reward_deadline",
    "grpo.isolate_rewards",
)


def add_check_commands(command: Adder) -> None:
    parser = command("preflight", run_preflight, "Sample a few groups and say what to look at before training on them.")
    parser.add_argument(
        "--prompts", type=at_least_one, default=8, metavar="N", help="prompts to sample (default: %(default)s)"
    )
    parser.add_argument(
        "--group", type=Path, action="append", metavar="FILE", help="look at a sampled group instead; repeatable"
    )
    add_flags(parser, FIELDS)

    parser = command("probe", run_probe, "What edits without content would earn under each credit scheme.")
    parser.add_argument(
        "--group", type=Path, metavar="FILE", help="a group that 'sample --json' printed, - for standard input"
    )
    parser.add_argument("--demo", action="store_true", help="the shipped group, in which splitting one step pays")
    parser.add_argument("--schemes", default="", metavar="A,B,…", help="credit schemes (default: all)")
    parser.add_argument(
        "--index", type=int, default=0, metavar="I", help="which example of the task to sample (default: 0)"
    )
    add_flags(parser, FIELDS)


def run_preflight(args: argparse.Namespace) -> int:
    from workbench.checks import preflight

    config = read_config(args)
    settings = config.grpo
    set_sandbox(settings.reward_deadline, isolate=settings.isolate_rewards)
    seconds = None
    if args.group:
        groups = [read_group(path) for path in args.group]
    else:
        groups, seconds = _sampled(config, args.prompts)
    report = preflight(groups, settings.pattern, settings.rewards, settings.credit, sampling_seconds=seconds)
    data = {"level": report.level, "findings": [dataclasses.asdict(finding) for finding in report.findings]}
    print_result(args, data, lambda: str(report))
    return 1 if report.level == "stop" else 0


def run_probe(args: argparse.Namespace) -> int:
    from workbench.checks import probe, split_step_demo

    config = read_config(args)
    set_sandbox(config.sampled.reward_deadline, isolate=config.sampled.isolate_rewards)
    group: Group
    pattern: Any
    rewards: list[Any]
    if args.demo:
        group, pattern, rewards = split_step_demo()
    else:
        group = read_group(args.group) if args.group is not None else _sampled(config, 1, first=args.index)[0][0]
        pattern, rewards = config.sampled.pattern, list(config.sampled.rewards)
    schemes = [scheme.strip() for scheme in args.schemes.split(",") if scheme.strip()]
    report = probe(group, pattern, rewards, schemes or None, options=config.grpo.credit.keywords(but=("scheme",)))
    data = {"rows": report.rows(), "rewards": list(report.rewards), "left_out": dict(report.left_out)}
    return print_result(args, data, lambda: str(report))


def _sampled(config: RunConfig, count: int, first: int | None = None) -> tuple[list[Group], float]:
    """Groups of ``count`` examples, drawn by the seed or from ``first`` on, and the seconds that sampling took."""
    from workbench.data import load_task
    from workbench.policies.load import load_configured
    from workbench.policies.sampler import sample_group

    task = load_task(config.task)
    if first is not None and not 0 <= first < len(task):
        raise TaskError(f"--index {first}: {config.task.name} has examples 0 to {len(task) - 1}")
    drawn = random.Random(config.seed).sample(range(len(task)), min(count, len(task)))
    indices = sorted(drawn) if first is None else range(first, min(first + count, len(task)))
    policy = load_configured(config.policy)
    options = config.sampled.sampling.model_dump() | config.prompt.model_dump()
    options["environment"] = config.environment
    began = time.monotonic()
    groups = [sample_group(policy, task[i], **options, seed=config.seed + n) for n, i in enumerate(indices)]
    return groups, time.monotonic() - began
