"""The Runs tab: every run in one table, chosen runs on the same curves, what sets them apart, and deleting with undo.

Everything is read from the runs' directories; what was parsed once is kept by ``kept``. Names come from the browser:
``workbench.runs`` refuses what is no run's name, and what leads out of the workspace.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from workbench.config.run import RunConfig
from workbench.errors import WorkbenchError
from workbench.runs import Run, list_runs, open_run, trashed
from workbench.runs.upkeep import Trashed, about
from workbench.ui.handlers.csv_text import chart_csv
from workbench.ui.handlers.metrics_cache import figures, kept
from workbench.views.curves import Chart, ChartPayload, Columns, Seeds, over, overlay_charts

LISTED_RUNS = 500
COMPARED_RUNS = 24
FEW_FIELDS = 4
"""Fields that a configuration's label names, as long as they tell all of them apart."""
APART = ("name", "seed")
"""What two runs of one configuration may differ in."""
MISSING = "–"
STEP, SECONDS, COMPLETIONS = "step", "seconds", "completions"
"""What curves are drawn over; any metric may stand in their place."""
_REWARDS = "method.rewards."


# What ``runs.js`` is answered; ui/assets/runs/payloads.js names the same keys.


class RunsValue(TypedDict):
    """What the table needs: the address of runs' files, and how many runs may be chosen."""

    downloads: str
    most: int


class RunRow(TypedDict):
    """A run in the table. What its metrics say is missing where it cannot be read; ``problem`` is why its metrics
    cannot."""

    name: str
    state: str
    reason: str
    final: bool
    resumable: bool
    step: int | None
    total: int | None
    created: float | None
    task: str | None
    policy: str | None
    scheme: str | None
    seed: int | None
    gives: str | None
    policies: Sequence[str]
    note: str
    tags: Sequence[str]
    reward: NotRequired[float | None]
    reward_metric: NotRequired[str]
    accuracy_best: NotRequired[float | None]
    accuracy_last: NotRequired[float | None]
    seconds: NotRequired[float | None]
    corrupt: NotRequired[int]
    alarms: NotRequired[Sequence[str]]
    problem: NotRequired[str]


class Table(TypedDict):
    """The newest runs, how many more there are, and the trash."""

    runs: list[RunRow]
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


class Difference(TypedDict):
    """A field of the configuration, with one value a run."""

    field: str
    values: list[str]


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


DATACLASSES = {"TrashedPayload": Trashed}
"""Sent field by field."""


def table(workspace: Path) -> Table:
    """The newest runs with what the table shows of each, and what is in the trash."""
    runs = list_runs(workspace)
    return {
        "runs": [_row(run) for run in runs[:LISTED_RUNS]],
        "more": max(0, len(runs) - LISTED_RUNS),
        "trash": [dataclasses.asdict(deleted) for deleted in trashed(workspace)],
    }


def _row(run: Run) -> RunRow:
    summary, said = run.summary(), about(run)
    row: RunRow = {
        "name": summary.name,
        "state": "stopping" if summary.stopping else summary.state,
        "reason": summary.reason,
        "final": summary.final,
        "resumable": summary.resumable,
        "step": summary.step,
        "total": summary.total_steps,
        "created": summary.created,
        "task": summary.task,
        "policy": summary.policy,
        "scheme": summary.scheme,
        "seed": summary.seed,
        "gives": summary.gives,
        "policies": summary.policies,
        "note": said.note,
        "tags": said.tags,
    }
    return _measured(run, row) if summary.readable else row


def _measured(run: Run, row: RunRow) -> RunRow:
    """With the figures of its metrics."""
    try:
        found = figures(run)
        return {
            **row,
            "reward": found.reward,
            "reward_metric": found.reward_metric,
            "accuracy_best": found.accuracy_best,
            "accuracy_last": found.accuracy_last,
            "seconds": found.seconds,
            "corrupt": found.corrupt,
            "alarms": found.alarms,
        }
    except WorkbenchError as error:
        return {**row, "problem": str(error)}


# ── chosen runs together ─────────────────────────────────────────────────────────────────────────────────────────


def overlay(workspace: Path, names: Sequence[str], axis: str = STEP, **drawn: Any) -> Overlay:
    """The chosen runs on the same curves, in configurations that differ in more than the seed, and their differences.

    ``axis`` is what they are drawn over: steps, seconds, completions or any metric; ``drawn`` are options of
    ``overlay_charts``. A run that cannot be read is named in ``missing`` with the reason, and the others are shown.
    """
    chosen, missing = _chosen(workspace, names)
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
        "panels": [chart.payload() for chart in _charts(chosen, axis, **drawn)],
        "differences": differences(configs),
        "order": list(configs),
        "missing": missing,
        "dropped": max(0, len(dict.fromkeys(names)) - COMPARED_RUNS),
    }


def curve(
    workspace: Path, key: str, names: Sequence[str], axis: str = STEP, off: Sequence[str] = (), **drawn: Any
) -> str:
    """All points of a panel of the chosen runs as CSV: mean, lowest and highest of several seeds, and each run."""
    chosen, _ = _chosen(workspace, names)
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
        seconds = known.columns[SECONDS]
        columns = {name: (steps[:], values[:]) for name, (steps, values) in known.drawn().items()}
        steps = sorted({step for logged, _ in columns.values() for step in logged})
        first = {SECONDS: (seconds.steps[:], seconds.values[:])} if len(seconds) else {}
    if run.method.has_rollouts:
        first[COMPLETIONS] = (array("d", steps), array("d", [s * config.method.rollouts_per_step for s in steps]))
    return {**first, **columns}


def configuration_key(config: RunConfig) -> str:
    """Equal for runs that are seeds of one configuration."""
    dump = {name: value for name, value in config.model_dump(mode="json").items() if name not in APART}
    return hashlib.sha256(json.dumps(dump, sort_keys=True).encode()).hexdigest()


def configuration_labels(configs: Sequence[RunConfig]) -> list[str]:
    """What each configuration is called beside the others: the fields they differ in, or its credit scheme if alone."""
    if len(configs) == 1:
        return [configs[0].method.label]
    said: dict[str, list[str]] = {}  # what differs → how each configuration says it
    for row in differences(dict(zip(map(str, range(len(configs))), configs, strict=True))):
        field, values = row["field"], row["values"]
        reward = next((name for name in _not_in_all(configs) if field.startswith(f"{_REWARDS}{name}.")), None)
        if reward is not None:
            said[f"{_REWARDS}{reward}"] = [
                f"{'with' if reward in _reward_names(config) else 'without'} {reward}" for config in configs
            ]
        elif field != "seed":
            said[field] = [f"{_short(field)} {value}" for value in values]
    parts = list(said.values())
    apart = (n for n in range(FEW_FIELDS, len(parts)) if len(set(zip(*parts[:n], strict=True))) == len(configs))
    count = next(apart, len(parts))
    return [" · ".join(part[i] for part in parts[:count]) or config.method.label for i, config in enumerate(configs)]


def _reward_names(config: RunConfig) -> list[str]:
    return [reward.name for reward in config.method.reward_functions]


def _not_in_all(configs: Sequence[RunConfig]) -> list[str]:
    """The reward functions that some configurations have and others lack."""
    every = dict.fromkeys(name for config in configs for name in _reward_names(config))
    return [name for name in every if any(name not in _reward_names(config) for config in configs)]


def _short(field: str) -> str:
    """A field's own name; with the function of a reward; of ``task.name`` and ``policy.path`` the section."""
    if field.startswith(_REWARDS):
        return field.removeprefix(_REWARDS).replace(".", " ")
    section, _, name = field.rpartition(".")
    return section if field in ("task.name", "policy.path") else name


def differences(configs: Mapping[str, RunConfig]) -> list[Difference]:
    """The fields in which configurations differ, but their names: each with one value a configuration, as text."""
    flat = [flattened(config) for config in configs.values()]
    fields = dict.fromkeys(name for settings in flat for name in settings)
    rows: list[Difference] = [
        {"field": name, "values": [settings.get(name, MISSING) for settings in flat]}
        for name in fields
        if name != "name"
    ]
    return [row for row in rows if len(set(row["values"])) > 1]


def flattened(config: RunConfig) -> dict[str, str]:
    """Dotted field to value; a reward's fields go by the reward's name, code by its length and hash."""
    dump = config.model_dump(mode="json")
    if "rewards" in dump["method"]:
        dump["method"]["rewards"] = {reward.pop("name"): reward for reward in dump["method"]["rewards"]}
    return dict(_flat(dump, ""))


def _flat(value: Any, prefix: str) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        return [pair for name, inner in value.items() for pair in _flat(inner, f"{prefix}.{name}" if prefix else name)]
    if prefix.startswith(_REWARDS) and prefix.endswith(".code") and isinstance(value, str):
        digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
        return [(prefix, f"{value.count(chr(10)) + 1} lines, sha256 {digest[:8]}")]
    return [(prefix, value if isinstance(value, str) else json.dumps(value))]
