"""What each command does: ask the workbench's functions, print what they answer. Each returns the exit code.

Results go to standard output, as text or with ``--json`` as one JSON document; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench import runs, views
from workbench.assets import load_example, recipes
from workbench.cli import show
from workbench.cli.flags import other_config, read_config
from workbench.cli.groups import given_group, sampled_group
from workbench.cli.output import print_result, say
from workbench.cli.rewards import gives_rewards, set_sandbox
from workbench.cli.space import place_of
from workbench.errors import ConfigError, did_you_mean
from workbench.files import encode
from workbench.views.cards import table

RECIPE = "recipe:"
DIFFERENCES = ("flipped_share", "correlation", "mean_absolute_difference")
"""What two credits of a group differ in, of a ``Comparison``."""


def app(args: argparse.Namespace) -> int:
    from workbench.ui.app import launch
    from workbench.ui.door import read_login

    auth, place = args.auth or os.environ.get("WORKBENCH_AUTH"), place_of(os.environ, args.visitors)
    launch(
        host=args.host or place.host or "127.0.0.1",
        port=args.port,
        workspace=args.workspace,
        open_browser=not args.no_browser,
        login=read_login(auth) if auth else None,
        token=not args.no_token,
        allow_hosts=(*args.allow_host, *place.names),
        mcp=args.mcp,
        visitors=place.visitors,
        framed_by=place.framed_by,
        announce=(lambda link: print(encode({"url": link}).decode(), flush=True)) if args.json else None,
    )
    return 0


def sample(args: argparse.Namespace) -> int:
    group = sampled_group(args, read_config(args))
    return print_result(args, group.to_json(), lambda: views.text(group))


def score(args: argparse.Namespace) -> int:
    from workbench.checks import splitting_findings
    from workbench.cli.models import with_policy
    from workbench.credit import compare_credits, credit_group
    from workbench.rewards import score_both, score_group
    from workbench.views.heatmap import heatmap

    config = read_config(args)
    side = None if args.other is None else other_config(args.other, config)
    set_sandbox(config.sampled.reward_deadline, isolate=config.sampled.isolate_rewards)
    group, pattern, other = given_group(args, config), config.sampled.pattern, None
    if side is None:
        credit = credit_group(score_group(group, pattern, with_policy(config)), **config.grpo.credit.keywords())
        print_result(args, credit.to_json(), lambda: views.text(credit))
    else:
        scored = score_both(group, pattern, with_policy(config), with_policy(side))
        sections = config.grpo.credit, side.grpo.credit
        credit, other = [credit_group(of, **by.keywords()) for of, by in zip(scored, sections, strict=True)]
        compared = compare_credits(credit, other)
        numbers = {name: getattr(compared, name) for name in ("names", *DIFFERENCES)}
        data = {"credit": credit.to_json(), "other": other.to_json(), "compared": numbers}
        print_result(args, data, lambda: views.text(compared))
    if args.html is not None:  # what cannot be written loses nothing that was computed
        args.html.write_text(heatmap(credit, other=other).html(), encoding="utf-8")
    for finding in splitting_findings([credit.scored]):
        if finding.level != "ok":
            say(f"{finding.level}: {finding.name}: {finding.value} ({finding.meaning}); {finding.advice}")
    if not any(reward.kind == "step" for reward in credit.scored.rewards):
        return 0  # whole completions are scored, whatever the pattern finds
    return 0 if any(scores.matched for scores in credit.scored.scored) else 1


def train(args: argparse.Namespace) -> int:
    if args.source is not None:
        if not args.source.startswith(RECIPE):
            raise ConfigError(f"{args.source}: give a configuration as --config {args.source}, or recipe:NAME")
        args.config = _recipe(args.source.removeprefix(RECIPE))
    if args.from_run is not None:
        before = runs.open_run(args.from_run, args.workspace)
        args.base = before.config().model_dump(mode="json")
        for difference in before.differences():
            say(f"note: since {before.name}, {difference}")
    return _follow(args, runs.start(read_config(args), args.workspace, now=args.now))


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


def list_recipes(args: argparse.Namespace) -> int:
    """Print the recipes with what each trains, which is the first line of its file; or a file."""
    if args.name:
        text = _recipe(args.name).read_text(encoding="utf-8").rstrip()
        return print_result(args, {"name": args.name, "yaml": text}, lambda: text)
    known = {
        name: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for name, path in recipes().items()
    }
    return print_result(args, {"recipes": known}, lambda: table(("recipe", "trains"), list(known.items())))


def _recipe(name: str) -> Path:
    if name not in recipes():
        raise ConfigError(f"there is no recipe {name!r}{did_you_mean(name, recipes())}; `recipes` lists them")
    return recipes()[name]


def compare(args: argparse.Namespace) -> int:
    rows: list[runs.ComparedRun | runs.ComparedMethod] = []
    unfinished = 0
    for problem, row in _compared(args):
        if problem:
            say(problem)
        unfinished += bool(problem)
        rows.append(row)
    print_result(args, {"rows": [dataclasses.asdict(row) for row in rows]}, lambda: show.comparison_text(rows))
    return 1 if unfinished else 0


def _compared(args: argparse.Namespace) -> Iterator[tuple[str, runs.ComparedRun | runs.ComparedMethod]]:
    """Why a run or a method did not finish ("" if it did), and what it came to, as each ends. Raises ConfigError."""
    if args.methods is None:
        if args.completions is not None:
            raise ConfigError("--completions is the budget of --methods; a scheme's is --run.steps")
        config = read_config(args)
        schemes = _names(args.schemes)
        for run, row in runs.compare(config, schemes, args.seeds, args.workspace, report=_report, tell=say):
            status = run.status()
            problem = "" if status.state == "finished" else f"{run.name}: {status.state}, {status.reason}".rstrip(", ")
            yield problem, row
        return
    if gives_rewards(args) or args.reward_option or args.reward_schedule:
        raise ConfigError("methods have rewards of their own; copy examples/compare_methods.py and change them there")
    budget = {} if args.completions is None else {"completions": args.completions}
    program, methods = load_example("compare_methods"), _names(args.methods)
    compared = program.compare(
        read_config(args), methods, args.seeds, args.workspace, report=_report, tell=say, **budget
    )
    for stages, result in compared:
        yield stages.problem, result


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _report(run: runs.Run, row: Mapping[str, Any]) -> None:
    say(show.progress(run, row))
