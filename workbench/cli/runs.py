"""Commands on runs: start, resume, list, stop and compare them, list recipes, and take a run elsewhere."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic_settings import CliPositionalArg

from workbench import runs
from workbench.assets import load_example, recipes
from workbench.cli import show
from workbench.cli.arguments import AtLeastOne, Result, Settings, Workspace, say
from workbench.config.shared import Sharding
from workbench.errors import ConfigError, did_you_mean
from workbench.runs import export as exporting
from workbench.training.methods import RunConfig
from workbench.views.cards import table

RECIPE = "recipe:"
Detach = Annotated[bool, "start it and return at once"]
Now = Annotated[bool, "do not wait for another run to give its device back"]
Name = CliPositionalArg[Annotated[str, "the run"]]


def train(
    settings: Settings,
    source: CliPositionalArg[Annotated[str | None, "recipe:NAME to train by"]] = None,
    detach: Detach = False,
    now: Now = False,
    from_: Annotated[str | None, "train as this run was; flags change it"] = None,
    workspace: Workspace = None,
) -> Result:
    """Start a training run and follow it; Ctrl+C stops it."""
    base, file = None, None
    if source is not None:
        if not source.startswith(RECIPE):
            raise ConfigError(f"{source}: give a configuration as --config {source}, or recipe:NAME")
        file = _recipe(source.removeprefix(RECIPE))
    if from_ is not None:
        base = runs.open_run(from_, workspace).config().model_dump(mode="json")
    config = settings.read(base, file)
    return _follow(runs.start(config, workspace, now=now), detach)


def resume(run: Name, detach: Detach = False, now: Now = False, workspace: Workspace = None) -> Result:
    """Go on with a stopped or broken run from its newest valid checkpoint."""
    return _follow(runs.open_run(run, workspace).resume(now=now), detach)


def _follow(run: runs.Run, detach: bool) -> Result:
    """Say what the run does until it is over, unless it is to be left alone."""
    say(f"{run.name} in {run.path}")
    if not detach:
        with run.held():
            for row in run.follow(report=say):
                say(show.progress(run, row))
            run.wait()
    status = run.status()
    for warning in run.dir.warnings():
        say(f"warning: {warning}")
    return Result(
        show.run_data(run),
        lambda: f"{run.name}: {status.state}, {status.reason}".rstrip(", "),
        code=1 if status.state in ("failed", "crashed") else 0,
    )


def list_runs(workspace: Workspace = None) -> Result:
    """List the runs of a workspace; 'runs show NAME' and 'runs stop NAME' show and stop one."""
    rows = [show.listing_data(run) for run in runs.list_runs(workspace)]
    return Result({"runs": rows}, lambda: show.listing_text(rows))


def show_run(
    name: Name,
    lines: Annotated[AtLeastOne, "lines of the log"] = 20,
    workspace: Workspace = None,
) -> Result:
    """Show a run's status, configuration, last metrics and log."""
    run = runs.open_run(name, workspace)
    status = run.status()
    return Result(show.run_data(run), lambda: show.run_text(run, status, lines))


def stop_run(name: Name, workspace: Workspace = None) -> Result:
    """Stop a run and everything it started."""
    run = runs.open_run(name, workspace)
    status = run.stop()
    return Result(show.run_data(run), lambda: f"{run.name}: {status.state}, {status.reason}")


def list_recipes(
    name: CliPositionalArg[Annotated[str | None, "the recipe to show"]] = None,
) -> Result:
    """List the recipes that come along, with what each trains, or show one."""
    if name:
        text = _recipe(name).read_text(encoding="utf-8").rstrip()
        return Result({"name": name, "yaml": text}, lambda: text)
    known = {
        name: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for name, path in recipes().items()
    }
    return Result({"recipes": known}, lambda: table(("recipe", "trains"), list(known.items())))


def _recipe(name: str) -> Path:
    if name not in recipes():
        raise ConfigError(f"there is no recipe {name!r}{did_you_mean(name, recipes())}; `recipes` lists them")
    return recipes()[name]


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(
    settings: Settings,
    schemes: Annotated[str | None, "credit schemes, A,B,…; none for outcome,process"] = None,
    methods: Annotated[
        str | None,
        (
            "training methods on one budget of completions: sft, dpo, ppo, ppo-steps, grpo, grpo-process, "
            "grpo-prm, iterative (examples/compare_methods.py)"
        ),
    ] = None,
    completions: Annotated[
        AtLeastOne | None,
        "completions that each method samples, for its data too; none for 2880",
    ] = None,
    seeds: Annotated[AtLeastOne, "seeds --seed, +1, …"] = 5,
    workspace: Workspace = None,
) -> Result:
    """Train under several credit schemes, or by several methods, and seeds, one after the other.

    With the --name of one that was stopped, it goes on.
    """
    rows: list[runs.ComparedRun | runs.ComparedMethod] = []
    compared: Iterator[tuple[str, runs.ComparedRun | runs.ComparedMethod]]
    unfinished = 0
    if (methods is None and completions is not None) or (methods is not None and schemes is not None):
        raise ConfigError("give --schemes, whose budget is --run.steps, or --methods, whose budget is --completions")
    if methods is None:
        compared = _compare_schemes(settings.read(), _names(schemes or "outcome,process"), seeds, workspace)
    else:
        compared = _compare_methods(settings, _names(methods), completions, seeds, workspace)
    for problem, row in compared:
        if problem:
            say(problem)
        unfinished += bool(problem)
        rows.append(row)
    data = {"rows": [dataclasses.asdict(row) for row in rows]}
    return Result(data, lambda: show.comparison_text(rows), code=1 if unfinished else 0)


def _compare_schemes(
    config: RunConfig, schemes: list[str], seeds: int, workspace: Path | None
) -> Iterator[tuple[str, runs.ComparedRun | runs.ComparedMethod]]:
    """Yield why a run did not finish ("" if it did), and what it came to, as each ends."""
    for run, row in runs.compare(config, schemes, seeds, workspace, report=_report, tell=say):
        status = run.status()
        yield "" if status.state == "finished" else f"{run.name}: {status.state}, {status.reason}".rstrip(", "), row


def _compare_methods(
    settings: Settings, methods: list[str], completions: int | None, seeds: int, workspace: Path | None
) -> Iterator[tuple[str, runs.ComparedRun | runs.ComparedMethod]]:
    """Yield why a method did not finish ("" if it did), and what it came to, as each ends. Raises ConfigError."""
    if any(name.startswith(("reward", "judge")) for name in settings.options):
        raise ConfigError("methods have rewards of their own; copy examples/compare_methods.py and change them there")
    budget = {} if completions is None else {"completions": completions}
    compared = load_example("compare_methods").compare(
        settings.read(), methods, seeds, workspace, report=_report, tell=say, **budget
    )
    for stages, result in compared:
        yield stages.problem, result


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _report(run: runs.Run, row: Mapping[str, Any]) -> None:
    say(show.progress(run, row))


# -- exporting --------------------------------------------------------------------------------------------------------


def export(
    run: CliPositionalArg[Annotated[str, "the run, or RUN@STEP for an earlier checkpoint's model"]],
    merged: Annotated[Path | None, "write the model, an adapter put into its base"] = None,
    adapter: Annotated[Path | None, "write the adapter alone"] = None,
    push: Annotated[str | None, "say what the Hub's repository OWNER/NAME would get"] = None,
    yes: Annotated[bool, "with --push: send it, to a private repository"] = False,
    public: Annotated[bool, "with --push: a repository that all can see"] = False,
    script: Annotated[
        Path | None,
        "write a script, its rows and rewards, and an accelerate configuration into this new folder",
    ] = None,
    sharding: Annotated[
        Sharding, "how the script's ranks share the weights: FSDP, or DeepSpeed's ZeRO 2 or 3"
    ] = "none",
    rows: Annotated[Path | None, "write its stored rollouts there, as rows of docs/step-credit.schema.json"] = None,
    to: Annotated[
        Literal["verl"] | None,
        "write what trains as it did on that engine, with a check, into the new folder",
    ] = None,
    folder: CliPositionalArg[Annotated[Path | None, "the folder of --to"]] = None,
    workspace: Workspace = None,
) -> Result:
    """Take a run elsewhere: its model, its rollouts with their credit, or a script."""
    is_model = any(part is not None for part in (merged, adapter, push))
    if (merged and adapter) or (push is None and (yes or public)) or (is_model and (script or rows or to)):
        raise ConfigError(
            "give --merged FOLDER or --adapter FOLDER, and to push it --push OWNER/NAME with --yes or --public; or "
            "--rows, --script and --to, which export no model"
        )
    if (to is None) != (folder is None):
        raise ConfigError("give --to with the new folder that it writes: export RUN --to verl FOLDER")
    if is_model:
        form: exporting.Form | None = "merged" if merged is not None else "adapter" if adapter is not None else None
        return _export_model(run, form, merged or adapter, push, workspace, yes=yes, private=not public)
    opened = runs.open_run(run, workspace)
    config = opened.config()
    if script is None and rows is None and to is None:
        raise ConfigError(
            "nothing to export the run as; give --merged, --adapter or --script FOLDER, --push OWNER/NAME, "
            "--rows FILE, or --to verl FOLDER"
        )
    result: dict[str, Any] = {"run": opened.name}
    lines: list[str] = []
    if rows is not None:
        result |= _write_rows(opened, config, rows, lines)
    if script is not None:
        result |= _write_script(opened, config, script, sharding, lines)
    if to is not None and folder is not None:
        result |= _write_for_verl(opened, config, folder, lines)
    return Result(result, lambda: "\n".join(lines))


def _write_for_verl(run: runs.Run, config: RunConfig, folder: Path, lines: list[str]) -> dict[str, Any]:
    from workbench.engines.export import export_run

    if not (steps := run.rollout_steps()):
        raise ConfigError(f"--to verl: run {run.name!r} has stored no rollouts to check it against")
    config.name = run.name
    left = export_run(config, run.rollouts(steps[-1]), folder)
    lines += [
        f"{folder}: {run.name} for verl; {len(left)} settings are not carried, see {folder / 'NOT_CARRIED.md'}",
        f"  cd {folder} && python check.py && sh run.sh",
    ]
    return {"to": "verl", "folder": str(folder), "not_carried": left}


def _write_rows(run: runs.Run, config: RunConfig, file: Path, lines: list[str]) -> dict[str, Any]:
    from workbench.engines import exchange

    method, steps = config.grpo, run.rollout_steps()
    if file.exists() or not steps:
        there = f"{file} is there already; name a new file"
        raise ConfigError(f"--rows: {there if file.exists() else f'run {run.name!r} has stored no rollouts'}")
    limits = method.loss_type, method.sampling.max_completion_length
    count = exchange.write_rows(
        file, (row for step in steps for row in exchange.rows_of(step, run.rollouts(step), *limits))
    )
    lines.append(f"{file}: {count:,} completions of {len(steps):,} generations")
    return {"rows": str(file), "completions": count}


def _write_script(
    run: runs.Run, config: RunConfig, folder: Path, sharding: Sharding, lines: list[str]
) -> dict[str, Any]:
    from workbench.training.script import write_script

    config.name = run.name
    script = write_script(config, folder, sharding)
    lines.append(f"{script.folder / 'train.py'}: trains as {run.name}; it needs this package")
    for note in script.notes:
        say(f"note: {note}")
    lines += [f"\n{what}:\n  {command}" for what, command in script.commands]
    return {"script": str(script.folder), "commands": dict(script.commands)}


def _export_model(
    run: str,
    form: exporting.Form | None,
    folder: Path | None,
    push: str | None,
    workspace: Path | None,
    *,
    yes: bool,
    private: bool,
) -> Result:
    """Write a run's model to a folder, or to the Hub if ``yes``, else say what would be pushed there."""
    if push is not None:
        exporting.check_push(push, run, form, workspace)
    with tempfile.TemporaryDirectory() as aside:
        written = exporting.export_model(run, form, folder or Path(aside) / "model", workspace)
        result: dict[str, Any] = {"run": run, "folder": None if folder is None else str(folder)}
        lines = [] if folder is None else [f"{run}: the model is in {folder}"]
        if push is not None:
            files = {path.name: path.stat().st_size for path in sorted(written.iterdir()) if path.is_file()}
            card, kind = (written / "README.md").read_text(encoding="utf-8"), "private" if private else "public"
            result |= {"repository": push, "private": private, "files": files, "card": card, "pushed": yes}
            lines += [f"  {size:>13,} bytes  {name}" for name, size in files.items()]
            if yes:
                lines.append(f"pushed to {exporting.push(written, push, private=private)} ({kind})")
            else:
                lines += ["", card, f"nothing was pushed to {push} ({kind}); add --yes to do it"]
    return Result(result, lambda: "\n".join(lines))
