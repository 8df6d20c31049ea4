"""``pairs``, ``demonstrations``, ``difficulty``, ``mix``: rows to train on, made of a policy's own completions."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.flags import add_flags, at_least_one, read_config
from workbench.cli.groups import read_group, sampled_groups
from workbench.cli.output import print_result, say
from workbench.cli.rewards import set_reward_deadline
from workbench.cli.trust import add_trust, require_trust
from workbench.config import RunConfig
from workbench.errors import TaskError
from workbench.schema import Group, ScoredGroup

if TYPE_CHECKING:
    from workbench.policies.step_values import StepValues
    from workbench.tasks.made import Made

Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
FIELDS = ("task", "policy", "environment", "seed", "grpo.sampling", "grpo.rewards", "grpo.reward_deadline")


def add_making_commands(command: Adder) -> None:
    parser = command("pairs", pairs, "Make pairs of a policy's own completions: the higher outcome is the chosen one.")
    parser.add_argument(
        "--margin", type=_margin, default=0.0, metavar="X", help="least difference of the outcomes; ties are dropped"
    )
    _add_shared(parser, 1)

    parser = command("demonstrations", demonstrations, "Make demonstrations of a policy's own right completions.")
    parser.add_argument(
        "--threshold", type=_finite, default=1.0, metavar="X", help="least outcome that is right (default: %(default)s)"
    )
    _add_shared(parser, 1)

    parser = command(
        "difficulty", difficulty, "How often a policy is right by prompt, and which group size that asks for."
    )
    parser.add_argument(
        "--keep", type=_share, nargs=2, default=(0.05, 0.95), metavar=("LOW", "HIGH"),
        help="pass rates of the prompts that --out gets (default: 0.05 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--right-from",
        type=_finite,
        default=1.0,
        metavar="X",
        help="least outcome that is right (default: %(default)s)",
    )
    _add_sampled(parser, out=False)

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


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise argparse.ArgumentTypeError(f"{text} is no number that an outcome can have")
    return number


def _margin(text: str) -> float:
    if (margin := _finite(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return margin


def _add_out(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument("--out", type=Path, required=required, metavar="FILE", help="the JSONL file to write")


def _add_shared(parser: argparse.ArgumentParser, per_group: int) -> None:
    parser.add_argument(
        "--per-group", type=at_least_one, default=per_group, metavar="N", help="at most (default: %(default)s)"
    )
    _add_sampled(parser, out=True)


def _add_sampled(parser: argparse.ArgumentParser, *, out: bool) -> None:
    _add_out(parser, required=out)
    parser.add_argument(
        "--prompts", type=at_least_one, default=100, metavar="N", help="training prompts sampled (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="I", help="the first of them (default: %(default)s)")
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


def difficulty(args: argparse.Namespace) -> int:
    from workbench.checks import Difficulty
    from workbench.tasks.made import prompts_of

    (low, high), began = args.keep, time.monotonic()
    if low > high:
        raise TaskError(f"--keep {low:g} {high:g}: no pass rate is at least {low:g} and at most {high:g}; swap them")
    config = _prepared(args)
    groups = list(_scored(args, config))
    found = Difficulty.of(groups, args.right_from)
    if args.out is None:
        return print_result(args, found.to_json(), lambda: str(found))
    limits = {"keep": [low, high], "right_from": args.right_from}
    about = {**_about(args, config, limits), "difficulty": found.to_json()}
    sampled = 0 if args.group else sum(found.answers)
    result, said = _write(prompts_of(groups, low, high, args.right_from), args.out, about, began, sampled)
    return print_result(args, {**found.to_json(), **result}, lambda: f"{found}\n\n{said}")


def mix(args: argparse.Namespace) -> int:
    from workbench.tasks.made import mixed_of, sha256

    refuse_to_overwrite(args.out)
    made = mixed_of(args.fresh, args.replay, args.share, args.seed)
    files = [{"file": str(path), "sha256": sha256(path)} for path in (args.fresh, *args.replay)]
    about = {"made_by": "mix", "fresh": files[0], "replay": files[1:], "share": args.share, "seed": args.seed}
    return _print(args, *_write(made, args.out, about, time.monotonic(), sampled=0))


def _make(args: argparse.Namespace, limits: dict[str, Any], make: Callable[[Iterator[ScoredGroup]], Made]) -> int:
    config = _prepared(args)
    began = time.monotonic()
    made = make(_scored(args, config))
    sampled = 0 if args.group else made.counts["completions"]
    return _print(args, *_write(made, args.out, _about(args, config, limits), began, sampled))


def _prepared(args: argparse.Namespace) -> RunConfig:
    """The configuration, which has an outcome reward; said before anything is sampled where there is a file already."""
    args.base = {"method": {"name": "grpo", "credit": {"scheme": "outcome"}}}  # which needs an outcome reward, as this
    config = require_trust(args, read_config(args))
    if args.out is not None:
        refuse_to_overwrite(args.out)
    return config


def _about(args: argparse.Namespace, config: RunConfig, limits: dict[str, Any]) -> dict[str, Any]:
    """What sampled and scored the groups that rows are made of, and by which limits."""
    outcome_rewards = [reward for reward in config.sampled.rewards if reward.kind == "outcome"]
    return {
        **_source(args, config, args.group, {"first": args.first, "count": args.prompts}),
        "rewards": [reward.model_dump(exclude_defaults=True) for reward in outcome_rewards],
        "limits": limits,
    }


def label_steps(
    args: argparse.Namespace, config: RunConfig, valued: Iterable[tuple[Group, StepValues]]
) -> tuple[dict[str, Any], str]:
    """Write the labels of valued groups, as ``step-values --labels`` asks for; what was written, and that in words."""
    from workbench.policies.step_values import labelled_rows

    began = time.monotonic()
    made = labelled_rows(valued, args.labels_as, args.estimation, args.completions)
    several = {"first": args.first, "count": args.prompts}
    groups = None if args.group is None else [args.group]
    about = {
        **_source(args, config, groups, {"index": args.index} if args.prompts is None else several),
        "rewards": [{"name": args.outcome, "kind": "outcome"}],
        "labels": {name: getattr(args, name) for name in ("labels_as", "estimation", "continuations")},
    }
    sampled = made.counts["continuations"] + (0 if args.group is not None else made.counts["completions"])
    return _write(made, args.labels, about, began, sampled)


def _source(
    args: argparse.Namespace, config: RunConfig, groups: Sequence[Path] | None, prompts: dict[str, int]
) -> dict[str, Any]:
    """What made and sampled the completions, and where."""
    from workbench.rundir.environment import environment

    return {
        "made_by": args.command.__name__,
        "policy": config.policy.model_dump(exclude={"lora"}),
        "task": config.task.name,
        "prompt": config.prompt.model_dump(),
        "groups_of": [str(path) for path in groups] if groups else None,
        "prompts": prompts,
        "sampling": {**config.sampled.sampling.model_dump(), "seed": config.seed},
        "environment": environment(config),
    }


def refuse_to_overwrite(file: Path) -> None:
    """Raises TaskError for a file that is there; said before anything is sampled."""
    if file.exists():
        raise TaskError(f"{file} is there already; choose another name, or remove it")


def _write(made: Made, file: Path, about: dict[str, Any], began: float, sampled: int) -> tuple[dict[str, Any], str]:
    """Write rows and where they come from; what was written, and that in words.

    ``sampled`` completions, continuations among them, were sampled for the rows since ``began``.
    """
    from workbench.rundir.environment import peak_memory_mb
    from workbench.tasks.made import write_made

    seconds = round(time.monotonic() - began, 1)
    spent = {"completions_sampled": sampled, "seconds": seconds, "peak_memory_mb": peak_memory_mb()}
    beside = write_made(made, file, {**about, **spent})
    result = {
        "file": str(file),
        "provenance": str(beside),
        "rows": len(made.rows),
        "counts": dict(made.counts),
        **spent,
    }
    return result, f"{file}: {made.told}\nwhere they come from: {beside}"


def _print(args: argparse.Namespace, result: dict[str, Any], said: str) -> int:
    return print_result(args, result, lambda: said)


def _scored(args: argparse.Namespace, config: RunConfig) -> Iterator[ScoredGroup]:
    """The groups with their outcomes; steps are not scored."""
    from workbench.rewards import score_group

    set_reward_deadline(config.sampled.reward_deadline)
    rewards = [reward for reward in config.sampled.rewards if reward.kind == "outcome"]
    for number, group in enumerate(_groups(args, config), start=1):
        yield score_group(group, config.sampled.pattern, rewards)
        if number % 20 == 0:
            say(f"{number} groups")


def _groups(args: argparse.Namespace, config: RunConfig) -> Iterator[Group]:
    if args.group:
        return map(read_group, args.group)
    from workbench.policies.load import load_configured

    return sampled_groups(load_configured(config.policy), config, args.first, args.prompts)
