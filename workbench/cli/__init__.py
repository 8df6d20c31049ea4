"""The command line: ``python -m workbench …``, the same functions as the page and the notebooks.

Nothing is decided here: commands are parsed, handed to ``cli.commands`` and their errors printed as one message.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.assets import load_example, recipes
from workbench.cli import commands, data, models
from workbench.cli.checks import add_check_commands
from workbench.cli.export import add_export_command
from workbench.cli.flags import add_flags, at_least_one, near_flag
from workbench.cli.making import add_making_commands
from workbench.cli.rewards import add_reward_flags
from workbench.cli.space import CHOICES
from workbench.errors import WorkbenchError, redact
from workbench.page_link import PORT
from workbench.views.cards import visible

__all__ = ["main"]

MAP = "NAME=COLUMN,…"
EXAMPLES = {
    "iterative": "Train policy and reward model in turns (DeepSeekMath, algorithm 1).",
    "prm": "Label steps by sampling, train a process reward model, train the policy on it (Math-Shepherd).",
    "rlhf": "Demonstrations, pairs, a reward model, PPO (InstructGPT).",
}
"""Programs of ``examples/`` that are commands."""
SAMPLED = ("task", "policy", "prompt", "environment", "seed", "grpo.sampling")
"""Fields that say what is sampled."""
Command = Callable[[argparse.Namespace], int]
AddCommand = Callable[..., argparse.ArgumentParser]
"""Adds a command by its name, function and help text."""
if TYPE_CHECKING:
    Adder = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 is success, 1 a run that failed, 2 bad usage or any error of ``workbench.errors``, 130 an interrupt.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words and words[0] in EXAMPLES:
            return int(load_example(words[0]).main(words[1:]))
        args = _parse(words)
        code: int = args.command(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (WorkbenchError, OSError) as error:  # OSError: a file to write that cannot be
        print(f"error: {visible(redact(str(error)))}", file=sys.stderr)
        return 2
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command's arguments; ends the process for one that it does not have, and names the nearest."""
    parser = make_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        (commands,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        command = next((commands[word] for word in argv if word in commands), parser)
        guess = near_flag(unknown[0], command._option_string_actions)
        command.error(f"unrecognized arguments: {' '.join(unknown)}{guess}")
    return args


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workbench", description="Process-supervised GRPO: see the token advantages, then train on them."
    )
    adder: Adder = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Command, help: str, to: Adder = adder) -> argparse.ArgumentParser:
        added = to.add_parser(name, help=help, description=help, allow_abbrev=False)
        # A command of a command leaves what it is not given as it was given before it.
        unset = argparse.SUPPRESS if to is not adder else False
        added.add_argument("--json", action="store_true", default=unset, help="print the result as one JSON document")
        added.set_defaults(command=run)
        return added

    _add_app(command)
    _add_group_commands(command)
    _add_data_commands(command)
    add_check_commands(command)
    add_making_commands(command)
    _add_run_commands(command)
    _add_workspace(add_export_command(command))
    added = command("recipes", commands.list_recipes, "List the recipes that come along, or show one.")
    added.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(recipes())}")
    for name, summary in EXAMPLES.items():
        adder.add_parser(name, help=summary, add_help=False)
    return parser


def _add_app(command: AddCommand) -> None:
    added = command("app", commands.app, "Open the workbench's page.")
    added.add_argument("--host", help="address to listen on (default: 127.0.0.1; on a Space 0.0.0.0)")
    added.add_argument("--port", type=int, default=PORT, help="port to listen on (default: %(default)s)")
    added.add_argument("--no-browser", action="store_true", help="do not open a browser")
    added.add_argument(
        "--auth", metavar="NAME:PASSWORD", help="ask for these too; needed on any other address (or set WORKBENCH_AUTH)"
    )
    added.add_argument(
        "--no-token", action="store_true", help="let every account of this machine in; only on this machine's loopback"
    )
    added.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help="answer to this name too, a proxy's say"
    )
    added.add_argument(
        "--visitors",
        choices=CHOICES,
        help="let strangers in, who run no code and small runs (default: $WORKBENCH_VISITORS, else on in a Space)",
    )
    added.add_argument(
        "--mcp", action="store_true", help="serve the tools that only read, for MCP clients (needs the package mcp)"
    )
    _add_workspace(added)


def _add_group_commands(command: AddCommand) -> None:
    added = command("sample", commands.sample, "Sample a group of answers to one prompt.")
    _add_example(added)
    add_flags(added, SAMPLED)

    added = command("score", commands.score, "Split a group into steps, score them and assign credit.")
    _add_group(added)
    added.add_argument("--html", type=Path, metavar="FILE", help="write the heatmap there as a page of its own")
    added.add_argument(
        "--other",
        type=Path,
        metavar="FILE",
        help="YAML whose rewards or credit take the place of these for a second credit of the same answers, beside it",
    )
    add_flags(
        added,
        (
            *SAMPLED,
            *(f"grpo.{name}" for name in ("pattern", "rewards", "reward_deadline", "isolate_rewards", "credit")),
        ),
    )

    added = command("step-values", models.step_values, "Estimate what each step is worth by sampling on from its end.")
    _add_group(added)
    added.add_argument(
        "--continuations",
        type=at_least_one,
        default=8,
        metavar="K",
        help="sampled from each step (default: %(default)s)",
    )
    added.add_argument(
        "--outcome", default="answer_correctness", metavar="NAME", help="outcome reward (default: %(default)s)"
    )
    added.add_argument("--labels", type=Path, metavar="FILE", help="write the steps' labels there, as rows to train on")
    added.add_argument(
        "--labels-as",
        choices=models.LABEL_FORMATS,
        default="trl",
        help="trl is TRL's stepwise supervision (default: %(default)s)",
    )
    added.add_argument(
        "--estimation",
        choices=("hard", "soft"),
        default="hard",
        help="hard: good if any continuation succeeds; soft: the share that does, over half where labels are yes or no "
        "(default: %(default)s)",
    )
    added.add_argument(
        "--prompts",
        type=at_least_one,
        metavar="N",
        help="label completions of so many training prompts; needs --labels",
    )
    added.add_argument("--first", type=int, default=0, metavar="I", help="the first of them (default: %(default)s)")
    added.add_argument(
        "--completions",
        type=at_least_one,
        metavar="N",
        help="begin no further prompt once so many completions were sampled, continuations included; with --prompts",
    )
    added.add_argument("--html", type=Path, metavar="FILE", help="write the values' heatmap there as a page of its own")
    add_flags(added, (*SAMPLED, "grpo.pattern", "grpo.credit"))


def _add_data_commands(command: AddCommand) -> None:
    added = command("task", data.task, "Show a task's rows as a run would take them, and how many are left out.")
    added.add_argument("data", help="a task's name, a data file or folder, or hub:OWNER/NAME")
    added.add_argument("--map", metavar=MAP, help="what columns become, as --task.columns: prompt=question")
    added.add_argument(
        "--limit", type=at_least_one, default=5, metavar="N", help="rows that are shown (default: %(default)s)"
    )
    add_flags(added, ("task",))

    added = command("rollouts", data.rollouts, "List the groups of a data file, or print one for 'score --group -'.")
    _add_data(added)
    added.add_argument("--show", type=int, metavar="I", help="print this group (from 0) as one JSON document")

    added = command(
        "check-reward", data.check_reward, "Hold a reward against labelled data: agreement, AUC, F1, errors."
    )
    _add_data(added)
    added.add_argument(
        "--labels", metavar="COLUMN", help="the column to believe (default: the steps', else the answers')"
    )
    added.add_argument("--threshold", type=float, metavar="X", help="score from which a thing counts as right")
    added.add_argument("--aggregate", default="min", metavar="HOW", help="min, mean or last of a completion's steps")
    added.add_argument(
        "--worst", type=at_least_one, default=10, metavar="N", help="disagreements shown (default: %(default)s)"
    )
    added.add_argument("--preset", metavar="NAME", help="preset pattern that finds the steps (default: the data's own)")
    add_reward_flags(added).add_argument(
        "--method.reward_deadline",
        dest="reward_deadline",
        type=float,
        metavar="X",
        help="seconds that one call of a reward's code may take (default: a run's)",
    )


def _add_run_commands(command: AddCommand) -> None:
    added = command("train", commands.train, "Start a training run and follow it; Ctrl+C stops it.")
    added.add_argument("source", nargs="?", metavar="recipe:NAME", help=f"train by a recipe: {', '.join(recipes())}")
    added.add_argument("--detach", action="store_true", help="start the run and return at once")
    _add_now(added)
    added.add_argument("--from", dest="from_run", metavar="RUN", help="train as this run was; flags change it")
    _add_workspace(added)
    add_flags(added)
    added.usage = f"{added.prog} [recipe:NAME] [--FLAG VALUE ...]"

    added = command("resume", commands.resume, "Go on with a stopped or broken run from its newest valid checkpoint.")
    added.add_argument("run", metavar="RUN")
    added.add_argument("--detach", action="store_true", help="start it and return at once")
    _add_now(added)
    _add_workspace(added)

    listing = command("runs", commands.list_runs, "List the runs of a workspace, show one or stop one.")
    _add_workspace(listing)
    on_runs = listing.add_subparsers(metavar="[show NAME | stop NAME]")
    added = command("show", commands.show_run, "Show a run's status, configuration, last metrics and log.", on_runs)
    added.add_argument("name")
    added.add_argument("--lines", type=at_least_one, default=20, help="lines of the log (default: %(default)s)")
    _add_workspace(added, default=argparse.SUPPRESS)
    added = command("stop", commands.stop_run, "Stop a run and everything it started.", on_runs)
    added.add_argument("name")
    _add_workspace(added, default=argparse.SUPPRESS)

    added = command(
        "compare",
        commands.compare,
        "Train under several credit schemes, or by several methods, and seeds, one after the other; with the --name of "
        "one that was stopped, go on with it.",
    )
    what = added.add_mutually_exclusive_group()
    what.add_argument(
        "--schemes", default="outcome,process", metavar="A,B,…", help="credit schemes (default: %(default)s)"
    )
    what.add_argument(
        "--methods",
        metavar="A,B,…",
        help="training methods on one budget of completions: sft, dpo, ppo, ppo-steps, grpo, grpo-process, grpo-prm, "
        "iterative (examples/compare_methods.py)",
    )
    added.add_argument(
        "--completions",
        type=at_least_one,
        metavar="N",
        help="completions that each method samples, for its data too (default: 2880)",
    )
    added.add_argument(
        "--seeds", type=at_least_one, default=5, metavar="N", help="seeds --seed, +1, … (default: %(default)s)"
    )
    _add_workspace(added)
    add_flags(added)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a data file or folder, 'gsm8k', or for check-reward 'chain-arithmetic'")
    parser.add_argument(
        "--map", metavar=MAP, help="what columns are called here: prompt=input,completion=output,reward=score"
    )
    parser.add_argument("--format", metavar="NAME", help="the file's format (default: auto-detect)")
    parser.add_argument("--tokenizer", metavar="NAME", help="'tiny', a folder or a Hub name (default: cut into words)")
    parser.add_argument("--limit", type=at_least_one, metavar="N", help="read no more groups than this")
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="leave out rows that cannot be read, and count them"
    )


def _add_now(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="do not wait for another run to give its device back")


def _add_workspace(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "--workspace",
        type=Path,
        default=default,
        metavar="FOLDER",
        help="folder that holds the runs (default: $WORKBENCH_WORKSPACE, else ./workspace)",
    )


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group", type=Path, metavar="FILE", help="a group that 'sample --json' printed, - for standard input"
    )
    _add_example(parser)


def _add_example(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--index", type=int, default=0, metavar="I", help="which example of the task (default: 0)")
    parser.add_argument("--held-out", action="store_true", help="take it from the held-out examples")
    parser.add_argument("--prompt", metavar="TEXT", help="a prompt of your own instead of an example")
