"""Commands on runs: start, resume, list, stop and compare them, list recipes, and take a run elsewhere."""

import dataclasses
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic_settings import CliPositionalArg

from workbench import runs
from workbench.assets import load_example, recipes
from workbench.cli.arguments import AtLeastOne, Result, Settings, Workspace, say
from workbench.config.shared import Sharding
from workbench.errors import ConfigError, WorkbenchError, did_you_mean
from workbench.rundir import RunStatus
from workbench.runs import ComparedMethod, ComparedRun, Run, RunSummary
from workbench.runs import export as exporting
from workbench.training.methods import RunConfig
from workbench.views.cards import number, table, visible

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
    return _follow(runs.start(settings.read(base, file), workspace, now=now), detach)


def resume(run: Name, detach: Detach = False, now: Now = False, workspace: Workspace = None) -> Result:
    """Go on with a stopped or broken run from its newest valid checkpoint."""
    return _follow(runs.open_run(run, workspace).resume(now=now), detach)


def _follow(run: Run, detach: bool) -> Result:
    """Say what the run does until it is over, unless it is to be left alone."""
    say(f"{run.name} in {run.path}")
    if not detach:
        with run.stop_on_error():
            for row in run.follow(report=say):
                say(progress(run, row))
            run.wait()
    status = run.status()
    for warning in run.dir.warnings():
        say(f"warning: {warning}")
    return Result(
        run_data(run),
        lambda: f"{run.name}: {status.state}, {status.reason}".rstrip(", "),
        code=1 if status.state in ("failed", "crashed") else 0,
    )


def list_runs(workspace: Workspace = None) -> Result:
    """List the runs of a workspace; 'runs show NAME' and 'runs stop NAME' show and stop one."""
    rows = [listing_data(run) for run in runs.list_runs(workspace)]
    return Result({"runs": rows}, lambda: listing_text(rows))


def show_run(
    name: Name,
    lines: Annotated[AtLeastOne, "lines of the log"] = 20,
    workspace: Workspace = None,
) -> Result:
    """Show a run's status, configuration, last metrics and log."""
    run = runs.open_run(name, workspace)
    return Result(run_data(run), lambda: run_text(run, run.status(), lines))


def stop_run(name: Name, workspace: Workspace = None) -> Result:
    """Stop a run and everything it started."""
    run = runs.open_run(name, workspace)
    status = run.stop()
    return Result(run_data(run), lambda: f"{run.name}: {status.state}, {status.reason}")


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
    if (methods is None and completions is not None) or (methods is not None and schemes is not None):
        raise ConfigError("give --schemes, whose budget is --run.steps, or --methods, whose budget is --completions")
    if methods is not None and any(name.startswith(("reward", "judge")) for name in settings.options):
        raise ConfigError("methods have rewards of their own; copy examples/compare_methods.py and change them there")
    names = [name.strip() for name in (methods or schemes or "outcome,process").split(",")]
    how: dict[str, Any] = {"report": _report, "tell": say}
    compared: Iterable[tuple[Any, ComparedRun | ComparedMethod]]
    if methods is None:
        compared = runs.compare(settings.read(), names, seeds, workspace, **how)
    else:
        how |= {} if completions is None else {"completions": completions}
        compared = load_example("compare_methods").compare(settings.read(), names, seeds, workspace, **how)
    rows, problems = [], []
    for ran, row in compared:
        rows.append(row)
        if problem := _problem_of(ran) if isinstance(ran, Run) else ran.problem:
            problems.append(problem)
            say(problem)
    data = {"rows": [dataclasses.asdict(row) for row in rows]}
    return Result(data, lambda: comparison_text(rows), code=1 if problems else 0)


def _problem_of(run: Run) -> str:
    """Return why a run did not finish, "" if it did."""
    status = run.status()
    return "" if status.state == "finished" else f"{run.name}: {status.state}, {status.reason}".rstrip(", ")


def _report(run: Run, row: Mapping[str, Any]) -> None:
    say(progress(run, row))


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
        Literal["verl", "tinker"] | None,
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
            "--rows FILE, or --to verl or tinker FOLDER"
        )
    result: dict[str, Any] = {"run": opened.name}
    lines: list[str] = []
    if rows is not None:
        result |= _write_rows(opened, config, rows, lines)
    if script is not None:
        result |= _write_script(opened, config, script, sharding, lines)
    if to is not None and folder is not None:
        result |= _write_for_engine(opened, config, folder, to, lines)
    return Result(result, lambda: "\n".join(lines))


def _write_for_engine(
    run: Run, config: RunConfig, folder: Path, target: Literal["verl", "tinker"], lines: list[str]
) -> dict[str, Any]:
    from workbench.engines.export import export_run

    if not (steps := run.rollout_steps()):
        raise ConfigError(f"--to {target}: run {run.name!r} has stored no rollouts to check it against")
    config.name = run.name
    left = export_run(config, run.rollouts(steps[-1]), folder, target)
    start = "sh run.sh" if target == "verl" else "python train.py URL"
    lines += [
        f"{folder}: {run.name} for {target}; {len(left)} settings are not carried, see {folder / 'NOT_CARRIED.md'}",
        f"  cd {folder} && python check.py && {start}",
    ]
    return {"to": target, "folder": str(folder), "not_carried": left}


def _write_rows(run: Run, config: RunConfig, file: Path, lines: list[str]) -> dict[str, Any]:
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


def _write_script(run: Run, config: RunConfig, folder: Path, sharding: Sharding, lines: list[str]) -> dict[str, Any]:
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


# -- runs as text for people and as plain data for --json --------------------------------------------------------------

_WATCHED = {
    "reward": "reward",
    "accuracy": "accuracy",
    "no_answer_share": "no answer",
    "accuracy/train": "in training",
    "loss": "loss",
}
_TIMES = {"created", "started", "updated", "stop_requested"}
_LISTED = ("name", "state", "step", "total_steps", "task", "scheme", "accuracy", "seconds", "reason")


def progress(run: Run, row: Mapping[str, Any]) -> str:
    """Return one metrics row on one line: the step and the few numbers one watches."""
    numbers = [f"{label} {number(row[name])}" for name, label in _WATCHED.items() if row.get(name) is not None]
    seconds = [f"{row['seconds']:.0f} s"] if row.get("seconds") is not None else []
    return "  ".join([f"{run.name}  step {row.get('step')}/{run.status().total_steps}", *numbers, *seconds])


def run_data(run: Run) -> dict[str, Any]:
    """Return a run's status, configuration and last metrics row."""
    data = run.data()
    status, rows = data.pop("status"), data.pop("metrics")
    return {**data, **status, "metrics": rows[-1] if rows else None}


def run_text(run: Run, status: RunStatus, lines: int) -> str:
    facts = {name: str(value) for name, value in dataclasses.asdict(status).items() if value not in (None, "")}
    for name in _TIMES & facts.keys():
        facts[name] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(facts[name])))
    facts.pop("pid_created", None)
    parts = [table((run.name, ""), [(name, visible(fact, one_line=True)) for name, fact in facts.items()])]
    parts.append(visible(run.config().to_yaml()).rstrip())
    rows, _ = run.metrics_rows()
    if rows:
        last = [
            (name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in rows[-1].items() if name != "step"
        ]
        parts.append(table(("metric", f"at step {rows[-1].get('step')}"), last))
    parts += run.dir.warnings()
    parts.append("\n".join(["log", *(visible(line) for line in run.log_tail(lines))]))
    return "\n\n".join(parts)


def listing_data(run: Run) -> dict[str, Any]:
    """Return a run as a row of a list; an unreadable run is listed with the reason."""
    summary = run.summary()
    try:
        rows = run.metrics_rows()[0] if summary.readable else []
    except WorkbenchError as error:
        summary, rows = RunSummary(run.name, "unreadable", str(error)), []
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    started, updated = summary.started, summary.updated
    return summary.row(*_LISTED[:6]) | {
        "accuracy": accuracies[-1] if accuracies else None,
        "seconds": None if started is None or updated is None else round(updated - started, 1),
        "reason": summary.reason,
    }


def listing_text(listed: Sequence[Mapping[str, Any]]) -> str:
    if not listed:
        return "no runs yet; start one with: python -m workbench train"
    rows = [[visible(v, one_line=True) if isinstance(v := row[name], str) else v for name in _LISTED] for row in listed]
    return table([name.replace("_", " ") for name in _LISTED], rows)


def comparison_text(rows: Sequence[ComparedRun | ComparedMethod]) -> str:
    """Every scheme or method with every seed, then the means over seeds; that to 65 % is over those that got there.

    A mean's line says how many got there, how many ended below the base, and the range of final accuracies.
    """
    if not rows:
        return "nothing was compared"
    group, seed, *names = (field.name for field in dataclasses.fields(rows[0]))
    data = [dataclasses.asdict(row) for row in rows]
    lines = [[row[group], str(row[seed]), *(row[name] for name in names)] for row in data]
    for label in dict.fromkeys(row[group] for row in data):
        mine = [row for row in data if row[group] == label]
        means = []
        for name in names:
            measured = [row[name] for row in mine if row[name] is not None]
            means.append(sum(measured) / len(measured) if measured else None)
        lines.append([label, f"mean ({_ends(mine, rows[0].to_65)})", *means])
    return table([name.replace("_", " ") for name in (group, seed, *names)], lines)


def _ends(rows: Sequence[Mapping[str, Any]], to_65: str) -> str:
    reached = sum(row[to_65] is not None for row in rows)
    ends = [(row["base_accuracy"], row["final_accuracy"]) for row in rows if row["final_accuracy"] is not None]
    parts = [f"{reached} of {len(rows)} reached 65 %"]
    if below := sum(final < base for base, final in ends):
        parts.append(f"{below} ended below the base")
    if len(ends) > 1:
        parts.append(f"from {min(final for _, final in ends):.3f} to {max(final for _, final in ends):.3f}")
    return ", ".join(parts)
