"""What each command does: ask the workbench's functions, print what they answer. Each returns the exit code.

Results go to standard output, as text or with ``--json`` as one JSON document; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench import display, runs
from workbench.cli import show
from workbench.cli.flags import gives_rewards, read_config
from workbench.cli.groups import given_group, sampled_group
from workbench.cli.output import print_result, say
from workbench.cli.pipelines import stage_line, trust_plan
from workbench.cli.recipe import train_recipe
from workbench.cli.trust import require_trust
from workbench.errors import ConfigError
from workbench.rundir.files import encode
from workbench.runs.recipes import load_recipe_file

if TYPE_CHECKING:
    from workbench.runs.pipelines import Pipeline


def app(args: argparse.Namespace) -> int:
    from workbench.ui.access import Login
    from workbench.ui.app import launch

    auth = args.auth or os.environ.get("WORKBENCH_AUTH")
    launch(
        host=args.host,
        port=args.port,
        workspace=args.workspace,
        open_browser=not args.no_browser,
        login=Login.parse(auth) if auth else None,
        token=not args.no_token,
        allow_hosts=args.allow_host,
        mcp=args.mcp,
        announce=(lambda link: print(encode({"url": link}).decode(), flush=True)) if args.json else None,
    )
    return 0


def sample(args: argparse.Namespace) -> int:
    group = sampled_group(args, read_config(args))
    return print_result(args, group.to_json(), lambda: display.text(group))


def score(args: argparse.Namespace) -> int:
    from workbench.cli.models import with_policy
    from workbench.credit import credit_group
    from workbench.rewards import score_group

    config = require_trust(args, read_config(args))
    group = given_group(args, config)
    scored = score_group(group, config.sampled.pattern, rewards=with_policy(config))
    credit = credit_group(scored, **config.grpo.credit.keywords())
    code = print_result(args, credit.to_json(), lambda: display.text(credit))
    if args.html is not None:  # what cannot be written loses nothing that was computed
        from workbench.figures import heatmap

        args.html.write_text(heatmap(credit).html(), encoding="utf-8")
    return code


def train(args: argparse.Namespace) -> int:
    if args.recipe is not None:
        return train_recipe(args, _follow)
    if args.reduced:
        raise ConfigError("--reduced is of a recipe; name one, recipe:gsm8k say (`recipes` lists them)")
    if args.from_run is not None:
        before = runs.open_run(args.from_run, args.workspace)
        args.base = before.config().model_dump(mode="json")
        for difference in before.differences():
            say(f"note: since {before.name}, {difference}")
    return _follow(args, runs.start(require_trust(args, read_config(args)), args.workspace, now=args.now))


def resume(args: argparse.Namespace) -> int:
    return _follow(args, runs.open_run(args.run, args.workspace).resume(now=args.now))


def _follow(args: argparse.Namespace, run: runs.Run) -> int:
    """Say what the run does until it is over, unless it is to be left alone."""
    say(f"{run.name} in {run.path}")
    if not args.detach:
        with run.held():
            for row in run.follow(report=say):
                say(show.progress(run, row))
            run.wait()
    status = run.status()
    for warning in run.dir.warnings():
        say(f"warning: {warning}")
    print_result(args, show.run_data(run), lambda: f"{run.name}: {status.state}, {status.reason}".rstrip(", "))
    return 1 if status.state in ("failed", "crashed") else 0


def list_runs(args: argparse.Namespace) -> int:
    rows = [show.listing_data(run) for run in runs.list_runs(args.workspace)]
    return print_result(args, {"runs": rows}, lambda: show.listing_text(rows))


def show_run(args: argparse.Namespace) -> int:
    run = runs.open_run(args.name, args.workspace)
    status = run.status()
    return print_result(args, show.run_data(run), lambda: show.run_text(run, status, args.lines))


def stop_run(args: argparse.Namespace) -> int:
    run = runs.open_run(args.name, args.workspace)
    status = run.stop()
    return print_result(args, show.run_data(run), lambda: f"{run.name}: {status.state}, {status.reason}")


def compare(args: argparse.Namespace) -> int:
    rows: list[runs.ComparedRun | runs.ComparedMethod] = []
    unfinished = 0
    for compared, row in _compared(args):
        status = compared.status()
        say(f"{compared.name}: {status.state}, {status.reason}".rstrip(", "))
        unfinished += status.state != "finished"
        rows.append(row)
    print_result(args, {"rows": [dataclasses.asdict(row) for row in rows]}, lambda: show.comparison_text(rows))
    return 1 if unfinished else 0


def _compared(
    args: argparse.Namespace,
) -> Iterator[tuple[runs.Run | Pipeline, runs.ComparedRun | runs.ComparedMethod]]:
    """The runs of the schemes, or the pipelines of the methods, as they end. Raises ConfigError."""
    if args.methods is None:
        if args.completions is not None:
            raise ConfigError("--completions is the budget of --methods; a scheme's is --run.steps")
        config = require_trust(args, read_config(args))
        schemes = _names(args.schemes)
        yield from runs.compare(config, schemes, args.seeds, args.workspace, report=_report, tell=say)
        return
    if gives_rewards(args) or args.reward_option:
        raise ConfigError(
            "the rewards of --methods are their recipes' own: write a recipe with others, and name its file"
        )
    config, methods = read_config(args), _names(args.methods)
    for plan in map(load_recipe_file, methods):
        trust_plan(args, plan, plan.name)
    yield from runs.compare_methods(
        config,
        methods,
        args.seeds,
        args.workspace,
        completions=args.completions or runs.COMPLETIONS,
        report=_report,
        on_stage=lambda pipeline, stage: say(f"{pipeline.name}: {stage_line(stage)}"),
        tell=say,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _report(run: runs.Run, row: Mapping[str, Any]) -> None:
    say(show.progress(run, row))
