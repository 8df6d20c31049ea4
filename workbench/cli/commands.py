"""What each command does: ask the workbench's functions, print what they answer. Each returns the exit code.

Results go to standard output, as text or with ``--json`` as one JSON document; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from workbench import runs
from workbench.cli import show
from workbench.cli.checks import read_group
from workbench.cli.flags import read_config
from workbench.cli.text import table
from workbench.cli.trust import require_trust
from workbench.config import RunConfig
from workbench.errors import TaskError
from workbench.rundir.files import encode
from workbench.schema import Example, Group


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
    group = _sampled(args, read_config(args))
    return _result(args, group.to_json(), lambda: show.group_text(group))


def score(args: argparse.Namespace) -> int:
    from workbench.credit import credit_group
    from workbench.rewards import score_group
    from workbench.steps import StepPattern

    config = require_trust(args, read_config(args))
    group = _sampled(args, config) if args.group is None else read_group(args.group)
    pattern = StepPattern(config.pattern.regex, kind=config.pattern.kind)
    credit = credit_group(score_group(group, pattern, rewards=config.rewards), **config.credit.keywords())
    if args.html is not None:
        from workbench.figures import heatmap

        args.html.write_text(heatmap(credit).html(), encoding="utf-8")
    return _result(args, show.credit_data(credit), lambda: show.credit_text(credit))


def train(args: argparse.Namespace) -> int:
    if args.from_run is not None:
        before = runs.open_run(args.from_run, args.workspace)
        args.base = before.config().model_dump(mode="json")
        for difference in before.differences():
            _say(f"note: since {before.name}, {difference}")
    return _follow(args, runs.start(require_trust(args, read_config(args)), args.workspace))


def resume(args: argparse.Namespace) -> int:
    return _follow(args, runs.open_run(args.run, args.workspace).resume())


def _follow(args: argparse.Namespace, run: runs.Run) -> int:
    """Say what the run does until it is over, unless it is to be left alone."""
    _say(f"{run.name} in {run.path}")
    if not args.detach:
        with run.held():
            for row in run.follow(report=_say):
                _say(show.progress(run, row))
            run.wait()
    status = run.status()
    for warning in run.dir.warnings():
        _say(f"warning: {warning}")
    _result(args, show.run_data(run, status), lambda: f"{run.name}: {status.state}, {status.reason}".rstrip(", "))
    return 1 if status.state in ("failed", "crashed") else 0


def list_runs(args: argparse.Namespace) -> int:
    found = [show.listing_data(run) for run in runs.list_runs(args.workspace)]
    return _result(args, {"runs": found}, lambda: show.listing_text(found))


def show_run(args: argparse.Namespace) -> int:
    run = runs.open_run(args.name, args.workspace)
    status = run.status()
    return _result(args, show.run_data(run, status), lambda: show.run_text(run, status, args.lines))


def stop_run(args: argparse.Namespace) -> int:
    run = runs.open_run(args.name, args.workspace)
    status = run.stop()
    return _result(args, show.run_data(run, status), lambda: f"{run.name}: {status.state}, {status.reason}")


def compare(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    unfinished = 0
    compared = runs.compare(
        require_trust(args, read_config(args)),
        [scheme.strip() for scheme in args.schemes.split(",")],
        args.seeds,
        args.workspace,
        report=lambda run, row: _say(show.progress(run, row)),
    )
    for run, row in compared:
        status = run.status()
        _say(f"{run.name}: {status.state}, {status.reason}".rstrip(", "))
        unfinished += status.state != "finished"
        rows.append(dataclasses.asdict(row))
    _result(args, {"rows": rows}, lambda: show.comparison_text(rows))
    return 1 if unfinished else 0


def build_tiny(args: argparse.Namespace) -> int:
    from workbench.policies.build_tiny import Recipe, build_tiny, write_first_group
    from workbench.policies.embedded import EMBEDDED, FIRST_GROUP

    folder = EMBEDDED["tiny"] if args.out is None else args.out
    recipe = Recipe() if args.steps is None else Recipe(steps=args.steps)
    began = time.monotonic()
    build_tiny(folder, recipe, lambda step, loss, _: _say(f"step {step}/{recipe.steps}  loss {loss:.4f}"))
    write_first_group(folder, folder.parent / FIRST_GROUP.name)
    result = {"folder": str(folder), "steps": recipe.steps, "seconds": round(time.monotonic() - began, 1)}
    return _result(args, result, lambda: f"built {folder} in {result['seconds']} s")


def bench(args: argparse.Namespace) -> int:
    from workbench.bench import BENCHES

    if args.name is None:
        summaries = {name: bench.summary for name, bench in BENCHES.items()}
        return _result(args, {"benches": summaries}, lambda: table(("bench", "measures"), list(summaries.items())))
    if args.name not in BENCHES:
        raise TaskError(f"there is no bench {args.name!r}; choose one of {', '.join(BENCHES)}")
    rows = [dataclasses.asdict(row) for row in BENCHES[args.name].measure(args.repeat, full=args.full)]
    return _result(
        args, {"bench": args.name, "rows": rows}, lambda: table(list(rows[0]), [list(row.values()) for row in rows])
    )


def _sampled(args: argparse.Namespace, config: RunConfig) -> Group:
    from workbench.policies import load_policy, sample_group

    example = Example(args.prompt) if args.prompt is not None else _example(config.task, args.index, args.held_out)
    policy = load_policy(config.policy, config.adapter, trust_remote_code=config.trust_remote_code)
    return sample_group(policy, example, **config.sampling.model_dump(), seed=config.seed)


def _example(task_name: str, index: int, held_out: bool) -> Example:
    from workbench.tasks import load_task

    task = load_task(task_name)
    examples = task.held_out if held_out else task.examples
    if not 0 <= index < len(examples):
        raise TaskError(f"--index {index}: {task_name} has examples 0 to {len(examples) - 1}")
    return examples[index]


def _result(args: argparse.Namespace, data: dict[str, Any], text: Callable[[], str]) -> int:
    """Print the result as asked for; ``text`` is called only if it is text."""
    print(encode(data).decode() if args.json else text())
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
