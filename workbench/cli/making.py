"""``pairs``, ``demonstrations``, ``difficulty``, ``mix``: rows to train on, made of a policy's own completions."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.cli.flags import add_flags, at_least_one, read_config
from workbench.cli.groups import read_group
from workbench.cli.output import print_result, say
from workbench.cli.rewards import set_sandbox
from workbench.config.run import RunConfig
from workbench.errors import TaskError
from workbench.runs import making

Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
FIELDS = (
    "task",
    "policy",
    "environment",
    "seed",
    "grpo.sampling",
    "grpo.rewards",
    "grpo.reward_deadline",
    "grpo.isolate_rewards",
)


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


def pairs(args: argparse.Namespace) -> int:
    return _print(args, making.make_pairs(_prepared(args), margin=args.margin, **_asked(args)))


def demonstrations(args: argparse.Namespace) -> int:
    return _print(args, making.make_demonstrations(_prepared(args), threshold=args.threshold, **_asked(args)))


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    groups = list(map(read_group, args.group)) if args.group else None
    asked = {"out": args.out, "prompts": args.prompts, "first": args.first, "per_group": args.per_group}
    return {**asked, "groups": groups, "tell": say}


def difficulty(args: argparse.Namespace) -> int:
    from workbench.checks import Difficulty
    from workbench.policies.load import load_configured

    (low, high), began = args.keep, time.monotonic()
    if low > high:
        raise TaskError(f"--keep {low:g} {high:g}: no pass rate is at least {low:g} and at most {high:g}; swap them")
    config = _prepared(args)
    given = list(map(read_group, args.group)) if args.group else None
    groups = given or making.sample_prompts(load_configured(config.policy), config, args.first, args.prompts)
    scored = list(making.score_outcomes(config, groups, say))
    found = Difficulty.of(scored, args.right_from)
    if args.out is None:
        return print_result(args, found.to_json(), lambda: str(found))
    limits = {"keep": [low, high], "right_from": args.right_from}
    source = making.source_of("difficulty", config, {"first": args.first, "count": args.prompts}, given)
    made = making.make_prompts(
        args.out,
        scored,
        low=low,
        high=high,
        right_from=args.right_from,
        about={**source, "limits": limits, "difficulty": found.to_json()},
        began=began,
        sampled=0 if given else sum(found.answers),
    )
    return print_result(args, {**found.to_json(), **made.to_json()}, lambda: f"{found}\n\n{made}")


def mix(args: argparse.Namespace) -> int:
    return _print(args, making.mix_rows(args.fresh, args.replay, args.out, share=args.share, seed=args.seed))


def _prepared(args: argparse.Namespace) -> RunConfig:
    """Read the configuration, which has an outcome reward; raise TaskError if the file to write is there already."""
    args.base = {"method": {"name": "grpo", "credit": {"scheme": "outcome"}}}  # which needs an outcome reward, as this
    config = read_config(args)
    set_sandbox(config.sampled.reward_deadline, isolate=config.sampled.isolate_rewards)
    if args.out is not None:
        making.refuse_to_overwrite(args.out)
    return config


def _print(args: argparse.Namespace, made: making.MadeRows) -> int:
    return print_result(args, made.to_json(), lambda: str(made))
