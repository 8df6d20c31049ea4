"""The Runs tab: every run in one table, chosen runs on the same curves, and what can be done with a run.

Everything is read from the runs' directories; what was parsed once is kept by ``kept``. Names come from the browser:
``workbench.runs`` refuses what is no run's name, and what leads out of the workspace.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypedDict

from pydantic import validate_call

from workbench.errors import ConfigError, RunError, WorkbenchError, cut, redact
from workbench.files import encode
from workbench.places import RUN
from workbench.rundir import find_checkpoint
from workbench.rundir.metrics import restored
from workbench.runs import Run, discard, list_runs, open_run, restore, trashed
from workbench.runs.compare import Difference, configuration_key, configuration_labels, differences
from workbench.runs.run import About, RunSummary, Trashed, about, describe, rename
from workbench.sandbox.child import child_environment
from workbench.training.methods import RunConfig
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.run_follow import Answer, answer, changed_settings
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.sharing import take_over
from workbench.views.curves import Chart, ChartPayload, Columns, Seeds, over, overlay_charts
from workbench.views.export import chart_csv, csv_text
from workbench.views.log import Figures, figures, kept

LISTED_RUNS = 500
COMPARED_RUNS = 24
STEP, SECONDS, COMPLETIONS = "step", "seconds", "completions"
"""What curves are drawn over; any metric may stand in their place."""


# What ``runs.js`` is answered; ui/assets/runs/payloads.js names the same keys.


class RunsValue(TypedDict):
    """What the table needs: the address of runs' files, and how many runs may be chosen."""

    downloads: str
    most: int


class NotMeasured(TypedDict, total=False):
    """Why the figures of a run's metrics are missing."""

    problem: str


RunRow = Mapping[str, Any]
"""A run in the table: its summary, what is said of it, and the figures of its metrics."""


class Table(TypedDict):
    """The newest runs, how many more there are, and the trash."""

    runs: list[Any]
    more: int
    trash: list[dict[str, Any]]


class Seed(TypedDict):
    """A run of a configuration."""

    name: str
    seed: int


class Configuration(TypedDict):
    """Runs that differ in the seed alone; ``key`` is equal for runs of one configuration."""

    key: str
    label: str
    runs: list[Seed]


class Missing(TypedDict):
    """A run that cannot be read."""

    run: str
    error: str


class Overlay(TypedDict):
    """Chosen runs on the same curves; ``order`` names those of ``differences``, ``dropped`` counts those left out.
    ``axes`` are what curves may be drawn over, ``axis`` what they are."""

    axis: str
    axes: list[str]
    configurations: list[Configuration]
    panels: list[ChartPayload]
    differences: list[Difference]
    order: list[str]
    missing: list[Missing]
    dropped: int


DATACLASSES = {"TrashedPayload": Trashed, "RunRow": (RunSummary, About, Figures, NotMeasured)}
"""Sent field by field."""


@validate_call
def table(workspace: Path) -> Table:
    """The newest runs with what the table shows of each, and what is in the trash."""
    runs = list_runs(workspace)
    return {
        "runs": [_row(run) for run in runs[:LISTED_RUNS]],
        "more": max(0, len(runs) - LISTED_RUNS),
        "trash": [dataclasses.asdict(deleted) for deleted in trashed(workspace)],
    }


def _row(run: Run) -> RunRow:
    summary = run.summary()
    row = {**dataclasses.asdict(summary), **dataclasses.asdict(about(run))}
    if summary.stopping:
        row["state"] = "stopping"
    if not summary.readable:
        return row
    try:
        return {**row, **dataclasses.asdict(figures(run))}
    except WorkbenchError as error:
        return {**row, "problem": str(error)}


# ── chosen runs together ─────────────────────────────────────────────────────────────────────────────────────────


@validate_call
def overlay(
    workspace: Path,
    runs: Sequence[str],
    axis: str = STEP,
    off: Sequence[str] = (),
    each: bool = False,
    smoothing: float = 0.0,
) -> Overlay:
    """The chosen runs on the same curves, in configurations that differ in more than the seed, and their differences.

    ``axis`` is what they are drawn over: steps, seconds, completions or any metric; the others are options of
    ``overlay_charts``. A run that cannot be read is named in ``missing`` with the reason, and the others are shown.
    """
    chosen, missing = _chosen(workspace, runs)
    configs = {run.name: config for run, config, _ in chosen}
    labelled = _configurations(chosen)
    axes = _axes(chosen)
    return {
        "axis": axis if axis in axes else STEP,
        "axes": axes,
        "configurations": [
            {
                "key": configuration_key(members[0][1]),
                "label": label,
                "runs": [{"name": run.name, "seed": config.seed} for run, config, _ in members],
            }
            for label, members in labelled
        ],
        "panels": [chart.payload() for chart in _charts(chosen, axis, off=off, each=each, smoothing=smoothing)],
        "differences": differences(configs),
        "order": list(configs),
        "missing": missing,
        "dropped": max(0, len(dict.fromkeys(runs)) - COMPARED_RUNS),
    }


@validate_call
def curve(
    workspace: Path, key: str, runs: Sequence[str], axis: str = STEP, off: Sequence[str] = (), **shown: Any
) -> str:
    """All points of a panel of the chosen runs as CSV: mean, lowest and highest of several seeds, and each run."""
    chosen, _ = _chosen(workspace, runs)
    return chart_csv(next(chart for chart in _charts(chosen, axis, off=off, each=True) if chart.key == key))


Chosen = list[tuple[Run, RunConfig, Columns]]


def _chosen(workspace: Path, names: Sequence[str]) -> tuple[Chosen, list[Missing]]:
    chosen: Chosen = []
    missing: list[Missing] = []
    for name in dict.fromkeys(names[:COMPARED_RUNS]):
        try:
            run = open_run(name, workspace)
            config = run.config()
            chosen.append((run, config, _columns(run, config)))
        except WorkbenchError as error:
            missing.append({"run": name, "error": str(error)})
    return chosen, missing


def _configurations(chosen: Chosen) -> list[tuple[str, Chosen]]:
    """The runs that differ in nothing but the seed, under their configuration's label."""
    groups: dict[str, Chosen] = {}
    for member in chosen:
        groups.setdefault(configuration_key(member[1]), []).append(member)
    labels = configuration_labels([members[0][1] for members in groups.values()])
    return list(zip(labels, groups.values(), strict=True))


def _axes(chosen: Chosen) -> list[str]:
    return [STEP, *dict.fromkeys(name for _, _, columns in chosen for name in columns)]


def _charts(chosen: Chosen, axis: str, **drawn: Any) -> list[Chart]:
    axis = axis if axis in _axes(chosen) else STEP
    seeds = []
    for label, members in _configurations(chosen):
        lines = [(run.name, columns) for run, _, columns in members]
        seeds.append(Seeds(label, lines if axis == STEP else over(lines, axis)))
    metrics = [metric for run, _, _ in chosen for metric in run.method.metrics]
    return overlay_charts(seeds, metrics, x=axis, **drawn)


def _columns(run: Run, config: RunConfig) -> Columns:
    """What its curves are drawn of, and what they may be drawn over beside steps: time, and completions sampled."""
    with kept(run) as known:
        clock, seconds = known.columns[SECONDS]
        columns = {name: (steps[:], values[:]) for name, (steps, values) in known.drawn().items()}
        steps = sorted({step for logged, _ in columns.values() for step in logged})
        first = {SECONDS: (clock[:], seconds[:])} if clock else {}
    if run.method.has_rollouts:
        first[COMPLETIONS] = (array("d", steps), array("d", [s * config.method.rollouts_per_step for s in steps]))
    return {**first, **columns}


class Removed(TypedDict):
    """Runs that are in the trash now, and why others are not."""

    moved: list[dict[str, Any]]
    problems: list[str]


class Restored(TypedDict):
    """Names of runs that are back, and why others are not."""

    restored: list[str]
    problems: list[str]


@validate_call
def say_of(workspace: Path, run: str, name: str, note: str, tags: list[str]) -> Answer:
    """Keep a note and tags of a run, and give it another name; says why not."""

    def kept_and_renamed() -> str:
        describe(run, note, tags, workspace)
        return f"{run}: kept" if name == run else f"{run} is {rename(run, name, workspace).name} now"

    return answer(kept_and_renamed)


@validate_call
def remove(workspace: Path, runs: Sequence[str]) -> Removed:
    """Move runs to the trash; those that cannot be moved stay, each with the reason."""
    moved, problems = [], []
    for name in dict.fromkeys(runs):
        try:
            moved.append(dataclasses.asdict(discard(name, workspace)))
        except WorkbenchError as error:
            problems.append(str(error))
    return {"moved": moved, "problems": problems}


@validate_call
def undelete(workspace: Path, entries: Sequence[str]) -> Restored:
    """Take runs back from the trash, by what ``remove`` called them."""
    restored, problems = [], []
    for entry in dict.fromkeys(entries):
        try:
            restored.append(restore(entry, workspace).name)
        except WorkbenchError as error:
            problems.append(str(error))
    return {"restored": restored, "problems": problems}


EXPORTS = {"model": "--merged", "adapter": "--adapter", "script": "--script"}
"""What a run is exported as, and the flag of ``python -m workbench export`` that does it."""
LONGEST_EXPORT = 1800
"""Seconds."""
_one_at_a_time = threading.Lock()
_INSPECTED = ("policy", "task", "prompt", "environment", "method")
"""Sections of a configuration that a group on Inspect is made by."""


def inspect_policy(draft: PageState, reference: str, workspace: Path) -> tuple[PageState, Note]:
    """The page with a run's policy, ``run:NAME`` or ``run:NAME@STEP``, and what its answers were made and scored by.

    That is the run's task, prompt settings, environment, pattern, sampling, rewards and scheme. How the next run
    trains stays, and so does its method.

    Raises WorkbenchError for one that cannot be sampled from.
    """
    config = _config_from(reference, workspace)
    if config.method.reward_format is not None:
        raise ConfigError(f"{reference} is a reward model; use it as a reward instead")
    taken, note = take_over(draft, reference, config, from_hub=True)
    of_training = {name: part for name, part in draft.tree.items() if name not in _INSPECTED}
    method = {**taken.tree["method"], "name": draft.method}
    return taken.but(tree={**taken.tree, **of_training, "method": method}, run_scheme=draft.run_scheme), note


def use_settings(draft: PageState, asked: str, workspace: Path) -> tuple[PageState, Note]:
    """The page with the configuration of a run, NAME, or NAME/ALARM for one changed by what may help against an alarm.

    Raises WorkbenchError for a run that cannot be read, or a configuration that the page cannot hold.
    """
    name, _, alarm = asked.partition("/")
    run = open_run(name, workspace)
    said, config = (changed_settings(run.config(), alarm) if alarm else None) or ("", run.config())
    return take_over(draft, f"run {run.name}" + f", with {said}" * bool(said), config)


def train_on(draft: PageState, reference: str, workspace: Path) -> tuple[PageState, Note]:
    """The page with the configuration of a run whose checkpoint, ``run:NAME`` or ``run:NAME@STEP``, it starts from.

    Raises WorkbenchError as ``use_settings``, and for a checkpoint that is not there.
    """
    name = f"{reference}, starting from its trained weights. Press Start"
    return take_over(draft, name, _config_from(reference, workspace))


def _config_from(reference: str, workspace: Path) -> RunConfig:
    """A run's configuration with its checkpoint for the policy."""
    find_checkpoint(reference, workspace)
    config = open_run(reference.removeprefix(RUN).partition("@")[0], workspace).config()
    policy = config.policy.model_copy(update={"path": reference, "adapter": None, "merge": {}})
    return config.model_copy(update={"policy": policy})


def export_run(name: str, kind: str, folder: Path, workspace: Path) -> None:
    """Write the model or adapter of a run's newest checkpoint, or its script, into ``folder``: ``workbench export``.

    In a process of its own, as the page's holds no model. Raises RunError with what that said.
    """
    run = open_run(name, workspace)
    if kind not in EXPORTS:
        raise RunError(f"{kind!r} is nothing that a run is exported as; take one of {', '.join(EXPORTS)}")
    command = [sys.executable, "-m", "workbench", "export", EXPORTS[kind], str(folder)]
    newest = next(iter(run.summary().policies), run.name).removeprefix(RUN)
    command += ["--workspace", str(workspace), "--", run.name if kind == "script" else newest]
    with _one_at_a_time:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_EXPORT,
                env={**child_environment(), "PYTHONSAFEPATH": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(
                f"exporting run {run.name!r} took longer than {LONGEST_EXPORT} s; use the command"
            ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RunError(
            cut(lines[-1].removeprefix("error: "), 500) if lines else f"the export ended with code {done.returncode}"
        )


KEPT_FILES = ("run.yaml", "status.json", "environment.json", "metrics.jsonl")
KEPT_FOLDERS = ("rewards", "rollouts", "answers")


def metrics_csv(run: Run) -> str:
    """All metrics rows, one column a metric in the order in which they appear; NaN and infinities as they were."""
    rows = [restored(row) for row in run.metrics_rows()[0]]
    headers = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(headers, ([row.get(name) for name in headers] for row in rows), newline="\n")


def run_json(run: Run) -> bytes:
    """Name, status, configuration and metrics rows as one JSON object; what is not finite is null."""
    data = run.data()
    del data["path"]  # of this machine
    return encode(data) + b"\n"


def write_zip(run: Run, file: IO[bytes]) -> None:
    """Configuration, status, environment, metrics, log, reward code and rollouts, in a folder of the run's name."""
    folders = [run.path / name for name in KEPT_FOLDERS if not (run.path / name).is_symlink()]
    inner = [path for folder in folders for path in sorted(folder.glob("*"))]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in filter(_is_plain, (*(run.path / name for name in KEPT_FILES), *inner)):
            archive.write(path, str(Path(run.name) / path.relative_to(run.path)))
        if _is_plain(run.dir.log):
            log = run.dir.log.read_text(encoding="utf-8", errors="replace")
            archive.writestr(f"{run.name}/log.txt", redact(log))


def write_folder(folder: Path, file: IO[bytes]) -> None:
    """A folder with all that is in it, as it is: weights hardly shrink."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if _is_plain(path):
                archive.write(path, str(path.relative_to(folder.parent)))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")
