"""``export``: a run taken elsewhere, to a tracker for now."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from workbench import runs
from workbench.cli.output import print_result, say
from workbench.errors import ConfigError
from workbench.runs.check import TRACKERS, check_trackers

AddCommand = Callable[..., argparse.ArgumentParser]


def add_export_command(command: AddCommand) -> argparse.ArgumentParser:
    added = command("export", export, "Take a run elsewhere: to a tracker.")
    added.add_argument("run", metavar="RUN")
    added.add_argument(
        "--tracker",
        action="append",
        default=[],
        metavar="NAME",
        choices=tuple(TRACKERS),
        help=f"give it the run's configuration, metrics, alarms and heatmaps ({', '.join(TRACKERS)}); repeatable",
    )
    added.add_argument("--project", metavar="NAME", help="project there (default: the run's own, run.project)")
    return added


def export(args: argparse.Namespace) -> int:
    run = runs.open_run(args.run, args.workspace)
    if not args.tracker:
        raise ConfigError("nothing to export the run to; give --tracker NAME")
    config = run.config()
    if args.project is not None:
        config.run.project = args.project
    from workbench.trackers import track_run

    check_trackers(args.tracker)
    track_run(run.dir, config, args.tracker, say)
    result = {"run": run.name, "trackers": args.tracker, "project": config.run.project}
    return print_result(args, result, lambda: f"{run.name}: in {', '.join(args.tracker)}, project {config.run.project}")
