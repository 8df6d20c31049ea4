"""``pipeline``: runs and data commands in sequence, started, followed, stopped and resumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from workbench.cli import show
from workbench.cli.output import print_result, say
from workbench.display.pipelines import PROGRESS_COLUMNS, measured, stage_row
from workbench.display.tables import table, visible
from workbench.errors import ConfigError
from workbench.runs.pipelines import Pipeline, StageProgress, list_pipelines, open_pipeline, shipped
from workbench.runs.pipelines.pipeline import start_plan
from workbench.runs.pipelines.plan import Plan, load_plan

Adder = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_pipeline_command(command: Adder) -> argparse.ArgumentParser:
    parser = command("pipeline", pipeline, "Run a YAML list of stages, each a run or a data command; alone, list them.")
    parser.add_argument(
        "source", nargs="?", metavar="FILE", help=f"a YAML file, or one that comes along: {', '.join(shipped())}"
    )
    parser.add_argument("--name", help="what to call it (default: the file's own name)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--resume", action="store_true", help="go on with the pipeline of the name FILE where it ended")
    what.add_argument("--show", action="store_true", help="show the stages of the pipeline of the name FILE")
    what.add_argument("--stop", action="store_true", help="stop the pipeline of the name FILE, its stage at hand first")
    what.add_argument("--check", action="store_true", help="check FILE and start nothing")
    parser.add_argument("--detach", action="store_true", help="start it and return at once")
    parser.add_argument("--trust", action="store_true", help="run the code that FILE brings, with your rights")
    return parser


def pipeline(args: argparse.Namespace) -> int:
    if args.source is None:
        if args.resume or args.show or args.stop or args.check:
            raise ConfigError("give the pipeline's FILE or name; without one, all are listed")
        return _list(args)
    if args.show or args.stop or args.resume:
        there = open_pipeline(args.source, args.workspace)
        if args.stop:
            there.stop()
        return follow_pipeline(args, there.resume(now=args.now)) if args.resume else _print(args, there)
    plan = load_plan(args.source, args.name)
    if args.check:
        from workbench.runs import default_workspace
        from workbench.runs.pipelines.check import check_plan

        check_plan(plan, args.workspace or default_workspace())
        return print_result(args, plan_data(plan), lambda: f"{plan.name}: {len(plan.stages)} stages, nothing is wrong")
    trust_plan(args, plan, args.source)
    return follow_pipeline(args, start_plan(plan, args.workspace, name=args.name, now=args.now))


def trust_plan(args: argparse.Namespace, plan: Plan, source: str) -> None:
    """Raises ConfigError, with the code, for reward code that is not trusted in the workspace; see ``cli.trust``."""
    from workbench.rewards.trust import TrustStore
    from workbench.runs import default_workspace

    store = TrustStore(default_workspace() if args.workspace is None else args.workspace)
    for stage in plan.stages:
        foreign = stage.config.foreign if stage.config is not None else []
        if not args.trust:
            store.require(foreign, f"{source}, stage {stage.name},")
        for part in foreign:
            store.trust(part.foreign or "")


def follow_pipeline(args: argparse.Namespace, pipeline: Pipeline) -> int:
    """Say what the stages do until the pipeline is over, unless it is to be left alone; Ctrl+C stops it."""
    say(f"{pipeline.name} in {pipeline.path}")
    if not args.detach:
        stages = [stage.name for stage in pipeline.plan().stages]
        try:
            for stage, row in pipeline.follow():
                if row is not None and (run := pipeline.run_of(stage.name)) is not None:
                    say(show.progress(run, row))
                elif row is None:
                    say(f"[{stages.index(stage.name) + 1}/{len(stages)}] {stage_line(stage)}")
            pipeline.wait()
        except BaseException:
            if not pipeline.status().final:
                say(f"{pipeline.name}: stopping; go on with: pipeline {pipeline.name} --resume")
                pipeline.stop()
            raise
    return _print(args, pipeline)


def stage_line(stage: StageProgress) -> str:
    """How a stage stands, on one line."""
    done = f"{stage.rows} rows" if stage.rows is not None else measured(stage)
    return visible(": ".join(filter(None, (f"{stage.name} {stage.state}", done, stage.reason))), one_line=True)


def _print(args: argparse.Namespace, pipeline: Pipeline) -> int:
    status = pipeline.status()
    print_result(args, pipeline_data(pipeline), lambda: _text(pipeline))
    return 1 if status.state in ("failed", "crashed") else 0


def _list(args: argparse.Namespace) -> int:
    entries = list_pipelines(args.workspace)
    data = {"pipelines": [pipeline_data(entry) for entry in entries], "shipped": list(shipped())}
    along = f"pipelines that come along: {', '.join(shipped())}"
    return print_result(args, data, lambda: "\n\n".join([*map(_text, entries), along]))


def _text(pipeline: Pipeline) -> str:
    status = pipeline.status()
    head = f"{pipeline.name}: {status.state}" + (f", {visible(status.reason, one_line=True)}" if status.reason else "")
    return f"{head}\n{table(PROGRESS_COLUMNS, [stage_row(stage) for stage in pipeline.stages()])}"


def pipeline_data(pipeline: Pipeline) -> dict[str, Any]:
    """Its status and its stages."""
    status = pipeline.status()
    return {
        "name": pipeline.name,
        "path": str(pipeline.path),
        "state": status.state,
        "reason": status.reason,
        "step": status.step,
        "total_steps": status.total_steps,
        "stages": [stage.to_json() for stage in pipeline.stages()],
    }


def plan_data(plan: Plan) -> dict[str, Any]:
    return {"name": plan.name, "about": plan.about, "stages": [stage.to_data() for stage in plan.stages]}
