"""``pairs``, ``demonstrations``, ``mix``: rows to train on, made of a policy's own completions and of earlier rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.flags import add_flags, at_least_one, read_config
from workbench.cli.groups import read_group
from workbench.cli.output import print_result, say
from workbench.cli.trust import add_trust, require_trust
from workbench.config import RunConfig
from workbench.errors import TaskError
from workbench.schema import Group, ScoredGroup

if TYPE_CHECKING:
    from workbench.tasks.made import Made

Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
FIELDS = ("task", "policy", "seed", "grpo.sampling", "grpo.rewards")


def add_making_commands(command: Adder) -> None:
    parser = command("pairs", pairs, "Make pairs of a policy's own completions: the higher outcome is the chosen one.")
    parser.add_argument(
        "--margin", type=float, default=0.0, metavar="X", help="least difference of the outcomes; ties are dropped"
    )
    _add_shared(parser, 1)

    parser = command("demonstrations", demonstrations, "Make demonstrations of a policy's own right completions.")
    parser.add_argument(
        "--threshold", type=float, default=1.0, metavar="X", help="least outcome that is right (default: %(default)s)"
    )
    _add_shared(parser, 1)

    parser = command("mix", mix, "Mix fresh rows with a share of earlier ones, so that these are not forgotten.")
    parser.add_argument("--fresh", type=Path, required=True, metavar="FILE", help="rows that are all taken")
    parser.add_argument(
        "--replay", type=Path, action="append", required=True, metavar="FILE", help="rows trained on before; repeatable"
    )
    parser.add_argument(
        "--share", type=_share, default=0.1, metavar="X", help="share of each that is drawn (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the draw (default: %(default)s)")
    _add_out(parser)


def _share(text: str) -> float:
    if not 0 <= (share := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share; give 0 to 1")
    return share


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the JSONL file to write")


def _add_shared(parser: argparse.ArgumentParser, per_group: int) -> None:
    _add_out(parser)
    parser.add_argument(
        "--prompts", type=at_least_one, default=100, metavar="N", help="training prompts sampled (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="I", help="the first of them (default: %(default)s)")
    parser.add_argument(
        "--per-group", type=at_least_one, default=per_group, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument(
        "--group", type=Path, action="append", metavar="FILE", help="take a sampled group instead; repeatable"
    )
    add_flags(parser, FIELDS)
    add_trust(parser)


def pairs(args: argparse.Namespace) -> int:
    from workbench.tasks.made import pairs_of

    limits = {"per_group": args.per_group, "margin": args.margin}
    return _make(args, limits, lambda groups: pairs_of(groups, args.per_group, args.margin))


def demonstrations(args: argparse.Namespace) -> int:
    from workbench.tasks.made import demonstrations_of

    limits = {"per_group": args.per_group, "threshold": args.threshold}
    return _make(args, limits, lambda groups: demonstrations_of(groups, args.per_group, args.threshold))


def mix(args: argparse.Namespace) -> int:
    from workbench.tasks.made import mixed_of, sha256

    _refuse_to_overwrite(args.out)
    files = [{"file": str(path), "sha256": sha256(path)} for path in (args.fresh, *args.replay)]
    about = {"made_by": "mix", "fresh": files[0], "replay": files[1:], "share": args.share, "seed": args.seed}
    return _write(args, mixed_of(args.fresh, args.replay, args.share, args.seed), about, time.monotonic())


def _make(args: argparse.Namespace, limits: dict[str, float], make: Callable[[Iterator[ScoredGroup]], Made]) -> int:
    from workbench.rundir.environment import environment

    args.base = {"method": {"name": "grpo", "credit": {"scheme": "outcome"}}}  # which needs an outcome reward, as this
    config = require_trust(args, read_config(args))
    _refuse_to_overwrite(args.out)
    began = time.monotonic()
    made = make(_scored(args, config))
    outcome_rewards = [reward for reward in config.sampled.rewards if reward.kind == "outcome"]
    about = {
        "made_by": args.command.__name__,
        "policy": config.policy.model_dump(exclude={"lora"}),
        "task": config.task.name,
        "groups_of": [str(path) for path in args.group] if args.group else None,
        "prompts": {"first": args.first, "count": args.prompts},
        "sampling": {**config.sampled.sampling.model_dump(), "seed": config.seed},
        "rewards": [reward.model_dump(exclude_defaults=True) for reward in outcome_rewards],
        "limits": limits,
        "environment": environment(config),
    }
    return _write(args, made, about, began)


def _refuse_to_overwrite(file: Path) -> None:
    """Said before anything is sampled."""
    if file.exists():
        raise TaskError(f"{file} is there already; choose another name, or remove it")


def _write(args: argparse.Namespace, made: Made, about: dict[str, Any], began: float) -> int:
    from workbench.tasks.made import write_made

    beside = write_made(made, args.out, about)
    result = {
        "file": str(args.out),
        "provenance": str(beside),
        "rows": len(made.rows),
        "counts": dict(made.counts),
        "seconds": round(time.monotonic() - began, 1),
    }
    return print_result(args, result, lambda: f"{args.out}: {made.told}\nwhere they come from: {beside}")


def _scored(args: argparse.Namespace, config: RunConfig) -> Iterator[ScoredGroup]:
    """The groups with their outcomes; steps are not scored."""
    from workbench.rewards import score_group

    rewards = [reward for reward in config.sampled.rewards if reward.kind == "outcome"]
    for number, group in enumerate(_groups(args, config), start=1):
        yield score_group(group, config.sampled.pattern, rewards)
        if number % 20 == 0:
            say(f"{number} groups")


def _groups(args: argparse.Namespace, config: RunConfig) -> Iterator[Group]:
    if args.group:
        yield from map(read_group, args.group)
        return
    from workbench.policies.groups import sample_groups
    from workbench.policies.load import load_policy
    from workbench.tasks import load_task

    task = load_task(config.task.name)
    if not 0 <= args.first < len(task):
        raise TaskError(f"--first {args.first}: {config.task.name} has training prompts 0 to {len(task) - 1}")
    examples: Any = [task[i] for i in range(args.first, min(args.first + args.prompts, len(task)))]
    policy = load_policy(config.policy.path, config.policy.adapter, trust_remote_code=config.policy.trust_remote_code)
    yield from sample_groups(policy, examples, config.sampled.sampling, config.seed)
