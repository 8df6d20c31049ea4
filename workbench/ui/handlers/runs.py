"""Runs: every run in one table, chosen runs on the same curves, what can be done with a run, and the next one.

Everything is read from the runs' directories; what was parsed once is kept by ``kept``. Names come from the browser:
``workbench.runs`` refuses what is no run's name, and what leads out of the workspace. Of the run that Start would start
there are its settings from Inspect, its estimate and its code; it trains in a process of its own.
"""

import dataclasses
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from pydantic import validate_call

from workbench.config import EngineSection, TaskSection
from workbench.data import HUB
from workbench.errors import ConfigError, WorkbenchError, cut, redact
from workbench.models.find import policy_path
from workbench.places import RUN
from workbench.policies.served import check_connection
from workbench.runs import (
    Run,
    check,
    default_workspace,
    discard,
    find_checkpoint,
    list_runs,
    open_run,
    restore,
    trashed,
)
from workbench.runs.compare import Difference, configuration_key, configuration_labels, differences
from workbench.runs.run import About, RunSummary, Trashed, about, describe, rename
from workbench.schema import say_count
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers import example, reward_forms, run_follow, scoring, session, sharing
from workbench.ui.handlers.fields import summary, takes
from workbench.ui.handlers.page_state import PageState, RewardRow
from workbench.views import curves, export, heatmap, log, panels
from workbench.views.estimate import estimate, measured_pace

LISTED_RUNS = 500
COMPARED_RUNS = 24
STEP, SECONDS, COMPLETIONS = "step", "seconds", "completions"
"""What curves are drawn over; any metric may stand in their place."""


# What ``runs.js`` is answered; ui/assets/runs/payloads.js names the same keys.


class RunsValue(TypedDict):
    """Value of the runs' table: the address of runs' files, and how many runs may be chosen."""

    downloads: str
    most: int


class NotMeasured(TypedDict, total=False):
    """Reason for which the figures of a run's metrics are missing."""

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


class Overlay(TypedDict):
    """Chosen runs on the same curves; ``order`` names those of ``differences``, ``dropped`` counts those left out.
    ``axes`` are what curves may be drawn over, ``axis`` what they are."""

    axis: str
    axes: list[str]
    configurations: list[Configuration]
    panels: list[curves.ChartPayload]
    differences: list[Difference]
    order: list[str]
    missing: list[run_follow.Failed]
    dropped: int


DATACLASSES = {
    "TrashedPayload": Trashed,
    "Difference": Difference,
    "RunRow": (RunSummary, About, log.Figures, NotMeasured),
}
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
        return {**row, **dataclasses.asdict(log.figures(run))}
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
    chosen, missing = _open_runs(workspace, runs)
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
    chosen, _ = _open_runs(workspace, runs)
    return export.chart_csv(next(chart for chart in _charts(chosen, axis, off=off, each=True) if chart.key == key))


Chosen = list[tuple[Run, RunConfig, curves.Columns]]


def _open_runs(workspace: Path, names: Sequence[str]) -> tuple[Chosen, list[run_follow.Failed]]:
    chosen: Chosen = []
    missing: list[run_follow.Failed] = []
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
    return list(zip(configuration_labels([members[0][1] for members in groups.values()]), groups.values(), strict=True))


def _axes(chosen: Chosen) -> list[str]:
    return [STEP, *dict.fromkeys(name for _, _, columns in chosen for name in columns)]


def _charts(chosen: Chosen, axis: str, **drawn: Any) -> list[curves.Chart]:
    axis = axis if axis in _axes(chosen) else STEP
    seeds = []
    for label, members in _configurations(chosen):
        lines = [(run.name, columns) for run, _, columns in members]
        seeds.append(curves.Seeds(label, lines if axis == STEP else curves.over(lines, axis)))
    return curves.overlay_charts(
        seeds, [metric for run, _, _ in chosen for metric in run.method.metrics], x=axis, **drawn
    )


def _columns(run: Run, config: RunConfig) -> curves.Columns:
    """Return the columns of its curves, with those they may be drawn over beside steps: time, completions sampled."""
    with log.open_log(run) as known:
        clock, seconds = known.columns[SECONDS]
        columns = {name: (steps[:], values[:]) for name, (steps, values) in known.curve_columns().items()}
        steps = sorted({step for logged, _ in columns.values() for step in logged})
        first = {SECONDS: (clock[:], seconds[:])} if clock else {}
    if run.method.has_rollouts:
        first[COMPLETIONS] = (array("d", steps), array("d", [s * config.method.rollouts_per_step for s in steps]))
    return {**first, **columns}


class Moved(TypedDict):
    """Runs that are in the trash now, or names of those that are back, and why others are not."""

    moved: list[Any]
    problems: list[str]


@validate_call
def say_of(workspace: Path, run: str, name: str, note: str, tags: list[str]) -> run_follow.Answer:
    """Keep a note and tags of a run, and give it another name; says why not."""

    def keep_and_rename() -> str:
        describe(run, note, tags, workspace)
        return f"{run}: kept" if name == run else f"{run} is {rename(run, name, workspace).name} now"

    return run_follow.answer(keep_and_rename)


@validate_call
def remove(workspace: Path, runs: Sequence[str]) -> Moved:
    """Move runs to the trash; those that cannot be moved stay, each with the reason."""
    moved, problems = _for_each(runs, lambda name: dataclasses.asdict(discard(name, workspace)))
    return {"moved": moved, "problems": problems}


@validate_call
def undelete(workspace: Path, entries: Sequence[str]) -> Moved:
    """Take runs back from the trash, by what ``remove`` called them."""
    restored, problems = _for_each(entries, lambda entry: restore(entry, workspace).name)
    return {"moved": restored, "problems": problems}


def _for_each(names: Sequence[str], do: Callable[[str], Any]) -> tuple[list[Any], list[str]]:
    """Return what ``do`` gave for the names that it could be done for, and why not for the others."""
    done, problems = [], []
    for name in dict.fromkeys(names):
        try:
            done.append(do(name))
        except WorkbenchError as error:
            problems.append(str(error))
    return done, problems


_INSPECTED = ("policy", "task", "prompt", "environment", "method")
"""Sections of a configuration that a group on Inspect is made by."""


def inspect_policy(draft: PageState, reference: str, workspace: Path) -> tuple[PageState, scoring.Note]:
    """The page with a run's policy, ``run:NAME`` or ``run:NAME@STEP``, and what its answers were made and scored by.

    That is the run's task, prompt settings, environment, pattern, sampling, rewards and scheme. How the next run
    trains stays, and so does its method.

    Raises WorkbenchError for one that cannot be sampled from.
    """
    config = _config_from(reference, workspace)
    if config.method.reward_format is not None:
        raise ConfigError(f"{reference} is a reward model; use it as a reward instead")
    taken, note = sharing.take_over(draft, reference, config, from_hub=True)
    of_training = {name: part for name, part in draft.tree.items() if name not in _INSPECTED}
    return taken.but(
        tree={**taken.tree, **of_training, "method": {**taken.tree["method"], "name": draft.method}},
        run_scheme=draft.run_scheme,
    ), note


def use_settings(draft: PageState, asked: str, workspace: Path) -> tuple[PageState, scoring.Note]:
    """The page with the configuration of a run, NAME, or NAME/ALARM for one changed by what may help against an alarm.

    Raises WorkbenchError for a run that cannot be read, or a configuration that the page cannot hold.
    """
    name, _, alarm = asked.partition("/")
    run = open_run(name, workspace)
    said, config = (run_follow.changed_settings(run.config(), alarm) if alarm else None) or ("", run.config())
    return sharing.take_over(draft, f"run {run.name}" + f", with {said}" * bool(said), config)


def train_on(draft: PageState, reference: str, workspace: Path) -> tuple[PageState, scoring.Note]:
    """The page with the configuration of a run whose checkpoint, ``run:NAME`` or ``run:NAME@STEP``, it starts from.

    Raises WorkbenchError as ``use_settings``, and for a checkpoint that is not there.
    """
    return sharing.take_over(
        draft, f"{reference}, starting from its trained weights. Press Start", _config_from(reference, workspace)
    )


def _config_from(reference: str, workspace: Path) -> RunConfig:
    """A run's configuration with its checkpoint for the policy."""
    find_checkpoint(reference, workspace)
    config = open_run(reference.removeprefix(RUN).partition("@")[0], workspace).config()
    policy = config.policy.model_copy(update={"path": reference, "adapter": None, "merge": {}})
    return config.model_copy(update={"policy": policy})


# ── the next run ─────────────────────────────────────────────────────────────────────────────────────────────────────


def inherited(draft: PageState) -> list[tuple[str, str]]:
    """Return what Train takes over from Inspect, as (label, value): what the method chosen has of it."""
    rewards = [_reward_line(row) for row in draft.rows if row.on]
    sampling = draft.tree["method"]["sampling"]
    size, length, temperature = (sampling[name] for name in ("num_generations", "max_completion_length", "temperature"))
    if None in (size, length, temperature):
        sampled = "incomplete"
    else:
        group = f"G {size:g}, " if samples(draft) else ""  # of held-out prompts there is one answer each
        sampled = f"{group}{length:g} tokens, T {temperature:g}"
    parts = {
        "pattern": f"{draft.regex}  ({draft.kind})",
        "rewards": ", ".join(rewards) or "none is on",
        "credit": summary(draft.credit),
        "sampling": sampled,
    }
    taken = [(part, line) for part, line in parts.items() if takes(draft.method, part)]
    return [("task", draft.task), ("policy", draft.policy), *taken]


def samples(draft: PageState) -> bool:
    """Return whether a run of the method chosen trains on groups that it samples."""
    return METHODS[draft.method].has_rollouts


def planned_charts(draft: PageState) -> str:
    """The charts that Train shows first of a run by the method chosen, as (title, what it shows) in JSON."""
    charts = panels.panels_of(METHODS[draft.method].metrics)[: panels.LARGE]
    meanings = [re.sub(r"^[\w, ]+: ", "", chart.metrics[0].meaning) for chart in charts]  # without the methods' names
    firsts = [re.split(r"[.;](?: |$)", meaning)[0] for meaning in meanings]
    return heatmap.to_json(
        [(chart.title, one[:1].upper() + one[1:]) for chart, one in zip(charts, firsts, strict=True)]
    )


def rows_found(draft: PageState) -> scoring.Note | None:
    """Return how many rows the method chosen would train on, or why there are none; None for one that samples."""
    kind = METHODS[draft.method].section.kind
    if kind is None:
        return None
    data = draft.tree["task"]["data"]
    name, words = data or draft.task, kind.replace("_", " ")
    if name.startswith(HUB):
        return scoring.Note(f"{words} of {name.removeprefix(HUB)}: counted when the run reads them", level="info")
    try:
        columns = draft.tree["task"]["data_columns"]
        section = TaskSection.parse({"name": data, "columns": columns}) if data else draft.task_section()
        rows, held_out = (len(example.find_task(section).rows(kind, held_out=held)) for held in (False, True))  # type: ignore[arg-type]
    except WorkbenchError as error:
        return scoring.Note(f"{error}; give a file of {words} as data, or choose another task")
    return scoring.Note(f"{rows:,} {words} to train on, {held_out:,} held out", level="info")


def estimated(draft: PageState, services: session.Services, watched: str = "") -> list[tuple[str, str]]:
    """Return what the run that Start would start will take, and how it differs from the run that is ``watched``.

    Nothing while a field is not as it should be.
    """
    try:
        config = draft.config()
    except WorkbenchError:  # Start says what is wrong
        return []
    status = services.models.status()
    known = (status.parameters, status.vocabulary) if status.policy == config.policy.path else (None, 0)
    stored_path = check.with_absolute_paths(config).policy.path
    takes = estimate(config, measured_pace(services.workspace, config.method.name, stored_path), *known)
    with suppress(WorkbenchError):  # it may be gone
        if watched:
            apart = _apart(config, open_run(watched, services.workspace).config())
            same = "in nothing: it would be the run shown again"
            takes.append(("differs", f"from the run shown: {apart}" if apart else same))
    return takes


def _apart(config: RunConfig, other: RunConfig) -> str:
    """Say in which settings a run would differ from another one, in a few words; "" for none."""
    if config.method.name != other.method.name:
        return f"method {config.method.label}, not {other.method.label}"
    rows = differences({"next": check.with_absolute_paths(config), "other": other})
    named = [(row["field"].rpartition(".")[2].replace("_", " "), *row["values"]) for row in rows]
    said = [cut(f"{name} {then}, not {before}", LONGEST_APART) for name, then, before in named[:MOST_APART]]
    more = len(named) - MOST_APART
    return "; ".join([*said, *([f"{say_count(more, 'setting')} more"] if more > 0 else [])])


MOST_APART, LONGEST_APART = 4, 80
"""Settings in which two runs differ that are named, and characters of one."""


def _reward_line(row: RewardRow) -> str:
    what = reward_forms.part_of(row) or ("" if row.is_builtin else "edited")
    if row.monte_carlo is not None:
        what = f"k={row.monte_carlo.continuations}"
    if row.belief is not None:
        what = f"{row.belief.form} of the {row.belief.of}"
    name = f"{row.name} ({what})" if what else row.name
    if row.monte_carlo is not None and not row.in_run:
        return f"without {name}"
    if row.is_scheduled:
        return name + row.unweighted().weight_text
    return name + (" (watched)" if row.weight == 0 else f" × {row.weight:g}" if row.weight not in (None, 1.0) else "")


def ask_engine(draft: PageState) -> scoring.Note:
    """Ask the server of the engine section whether a run could train on it."""
    try:
        section = EngineSection.parse(draft.tree["engine"], "engine")
        return scoring.Note(check_connection(section, section.base_model or policy_path(draft.policy)), level="info")
    except WorkbenchError as error:
        return scoring.Note(redact(str(error)))


def start_run(draft: PageState, services: session.Services) -> tuple[str | None, scoring.Note | None]:
    """Start a run; its name, or what to put right."""
    try:
        return services.start(draft.config()).name, None
    except WorkbenchError as error:
        return None, scoring.Note(str(error))


def notebook(draft: PageState, services: session.Services) -> str:
    """Return what Start would start as Python, or why there is none, as the page's script takes it."""
    usual = default_workspace().resolve() == services.workspace
    return sharing.as_code(lambda: sharing.train_code(draft.config(), None if usual else services.workspace))
