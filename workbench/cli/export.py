"""``export``: a run taken elsewhere: its model, its curves to a tracker, or a script that trains without the page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from workbench import runs
from workbench.cli.export_model import add_model_export, asks_for_model, export_model
from workbench.cli.output import print_result, say
from workbench.config.run import RunConfig
from workbench.config.shared import Sharding
from workbench.errors import ConfigError

TRACKERS = ("trackio", "wandb", "tensorboard")

AddCommand = Callable[..., argparse.ArgumentParser]


def add_export_command(command: AddCommand) -> argparse.ArgumentParser:
    added = command("export", export, "Take a run elsewhere: its model, its curves to a tracker, or a script.")
    added.add_argument("run", metavar="RUN", help="the run, or RUN@STEP for the model of an earlier checkpoint")
    add_model_export(added)
    added.add_argument(
        "--tracker",
        action="append",
        default=[],
        metavar="NAME",
        choices=TRACKERS,
        help=f"give it the run's configuration, metrics, alarms and heatmaps ({', '.join(TRACKERS)}); repeatable",
    )
    added.add_argument("--project", metavar="NAME", help="project there (default: the run's own, run.project)")
    added.add_argument(
        "--script",
        type=Path,
        metavar="FOLDER",
        help="write a script, its rows and rewards, and an accelerate configuration into this new folder",
    )
    added.add_argument(
        "--sharding",
        choices=get_args(Sharding),
        default="none",
        help="how the script's ranks share the weights: FSDP, or DeepSpeed's ZeRO 2 or 3 (default: %(default)s)",
    )
    return added


def export(args: argparse.Namespace) -> int:
    if asks_for_model(args):
        if args.tracker or args.script is not None:
            raise ConfigError("--merged, --adapter and --push export a run's model; give --tracker and --script apart")
        return export_model(args)
    run = runs.open_run(args.run, args.workspace)
    config = run.config()
    if not args.tracker and args.script is None:
        raise ConfigError(
            "nothing to export the run as; give --merged, --adapter or --script FOLDER, --push OWNER/NAME, or "
            "--tracker NAME"
        )
    result: dict[str, Any] = {"run": run.name}
    lines: list[str] = []
    if args.tracker:
        result |= _track(run, config, args, lines)
    if args.script is not None:
        result |= _write(run, config, args, lines)
    return print_result(args, result, lambda: "\n".join(lines))


def _track(run: runs.Run, config: RunConfig, args: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    from workbench.process.tracking import track_run

    if args.project is not None:
        config.run.project = args.project
    config.run.report_to = args.tracker
    track_run(run.dir, config)
    lines.append(f"{run.name}: in {', '.join(args.tracker)}, project {config.run.project}")
    return {"trackers": args.tracker, "project": config.run.project}


def _write(run: runs.Run, config: RunConfig, args: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    from workbench.training.script import write_script

    config.name = run.name
    script = write_script(config, args.script, args.sharding)
    how = f"it needs this package, as {script.needs}" if script.needs else "it needs TRL and nothing of this package"
    lines.append(f"{script.folder / 'train.py'}: trains as {run.name}; {how}")
    for note in script.notes:
        say(f"note: {note}")
    lines += [f"\n{what}:\n  {command}" for what, command in script.commands]
    return {"script": str(script.folder), "needs": script.needs, "commands": dict(script.commands)}
