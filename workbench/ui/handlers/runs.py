"""The Runs tab: every run in one table, chosen runs on the same curves, what sets them apart, and deleting with undo.

Everything is read from the runs' directories; what was parsed once is kept by ``kept``. Names come from the browser:
``workbench.runs`` refuses what is no run's name, and what leads out of the workspace.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from workbench.config import RunConfig
from workbench.errors import WorkbenchError
from workbench.figures.overlay import Columns, OverlayPanel, Seeds, overlay_payload
from workbench.runs import Run, discard, list_runs, open_run, restore, trashed
from workbench.runs.pipelines import Pipeline, StageProgress, list_pipelines, open_pipeline
from workbench.runs.trash import Trashed
from workbench.ui.handlers.metrics_cache import kept
from workbench.ui.handlers.run_follow import Answer

LISTED_RUNS = 500
LISTED_PIPELINES = 50
COMPARED_RUNS = 24
FEW_FIELDS = 4
"""Fields that a configuration's label names, as long as they tell all of them apart."""
APART = ("name", "seed")
"""What two runs of one configuration may differ in."""
MISSING = "–"
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
    reward: NotRequired[float | None]
    reward_metric: NotRequired[str]
    accuracy_best: NotRequired[float | None]
    accuracy_last: NotRequired[float | None]
    seconds: NotRequired[float | None]
    corrupt: NotRequired[int]
    problem: NotRequired[str]


class PipelineRow(TypedDict):
    """A pipeline with its stages, a row each; ``state`` is "unreadable" where they cannot be read."""

    name: str
    state: str
    reason: str
    final: bool
    resumable: bool
    step: int
    total: int
    created: float
    stages: list[dict[str, Any]]


class Table(TypedDict):
    """The newest runs, how many more there are, the newest pipelines, and the trash."""

    runs: list[RunRow]
    pipelines: list[PipelineRow]
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
    """Chosen runs on the same curves; ``order`` names those of ``differences``, ``dropped`` counts those left out."""

    configurations: list[Configuration]
    panels: list[OverlayPanel]
    differences: list[Difference]
    order: list[str]
    missing: list[Missing]
    dropped: int


class Removed(TypedDict):
    """Runs that are in the trash now, and why others are not."""

    moved: list[dict[str, Any]]
    problems: list[str]


class Restored(TypedDict):
    """Names of runs that are back, and why others are not."""

    restored: list[str]
    problems: list[str]


DATACLASSES = {"StagePayload": StageProgress, "TrashedPayload": Trashed}
"""Sent field by field."""


def table(workspace: Path) -> Table:
    """The newest runs with what the table shows of each, and what is in the trash."""
    runs = list_runs(workspace)
    return {
        "runs": [_row(run) for run in runs[:LISTED_RUNS]],
        "pipelines": [pipeline_row(pipeline) for pipeline in list_pipelines(workspace)[:LISTED_PIPELINES]],
        "more": max(0, len(runs) - LISTED_RUNS),
        "trash": [dataclasses.asdict(deleted) for deleted in trashed(workspace)],
    }


def pipeline_row(pipeline: Pipeline) -> PipelineRow:
    """How a pipeline and its stages stand. Never raises: an unreadable one has the reason."""
    try:
        status = pipeline.status()
        return {
            "name": pipeline.name,
            "state": status.state if status.final or status.stop_requested is None else "stopping",
            "reason": status.reason,
            "final": status.final,
            "resumable": status.final and status.state != "finished",
            "step": status.step,
            "total": status.total_steps,
            "created": status.created,
            "stages": [stage.to_json() for stage in pipeline.stages()],
        }
    except WorkbenchError as error:
        return {
            "name": pipeline.name,
            "state": "unreadable",
            "reason": str(error),
            "final": True,
            "resumable": False,
            "step": 0,
            "total": 0,
            "created": 0.0,
            "stages": [],
        }


def _row(run: Run) -> RunRow:
    summary = run.summary()
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
    }
    return _measured(run, row) if summary.readable else row


def _measured(run: Run, row: RunRow) -> RunRow:
    """With the best mean reward of a step (outcome rewards, or step rewards where a run has no others), accuracies and
    time."""
    try:
        with kept(run) as known:
            columns = known.columns
            reward = next((name for name in ("reward", "step_reward") if len(columns[name])), "reward")
            accuracy, seconds = columns["accuracy"].values, columns["seconds"].values
            return {
                **row,
                "reward": max(columns[reward].values, default=None),
                "reward_metric": reward,
                "accuracy_best": max(accuracy, default=None),
                "accuracy_last": accuracy[-1] if accuracy else None,
                "seconds": seconds[-1] if seconds else None,
                "corrupt": len(known.corrupt),
            }
    except WorkbenchError as error:
        return {**row, "problem": str(error)}


# ── chosen runs together ─────────────────────────────────────────────────────────────────────────────────────────


def overlay(workspace: Path, names: Sequence[str]) -> Overlay:
    """The chosen runs on the same curves, in configurations that differ in more than the seed, and their differences.

    A run that cannot be read is named in ``missing`` with the reason, and the others are shown.
    """
    chosen: list[tuple[Run, RunConfig, Columns]] = []
    missing: list[Missing] = []
    for name in dict.fromkeys(names[:COMPARED_RUNS]):
        try:
            run = open_run(name, workspace)
            chosen.append((run, run.config(), _columns(run)))
        except WorkbenchError as error:
            missing.append({"run": name, "error": str(error)})
    configs = {run.name: config for run, config, _ in chosen}
    groups: dict[str, list[tuple[Run, RunConfig, Columns]]] = {}
    for member in chosen:
        groups.setdefault(configuration_key(member[1]), []).append(member)
    labels = configuration_labels([members[0][1] for members in groups.values()])
    seeds = [
        Seeds(label, [(run.name, columns) for run, _, columns in members])
        for label, members in zip(labels, groups.values(), strict=True)
    ]
    metrics = (metric for run, _, _ in chosen for metric in run.method.metrics)
    return {
        "configurations": [
            {
                "key": key,
                "label": label,
                "runs": [{"name": run.name, "seed": config.seed} for run, config, _ in members],
            }
            for label, (key, members) in zip(labels, groups.items(), strict=True)
        ],
        "panels": overlay_payload(seeds, metrics),
        "differences": differences(configs),
        "order": list(configs),
        "missing": missing,
        "dropped": max(0, len(dict.fromkeys(names)) - COMPARED_RUNS),
    }


def _columns(run: Run) -> Columns:
    with kept(run) as known:
        return {name: (column.steps[:], column.values[:]) for name, column in known.drawn().items()}


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


# ── what can be done to a pipeline and to a run ──────────────────────────────────────────────────────────────────


def resume_pipeline(workspace: Path, name: str) -> Answer:
    """Go on with a pipeline where it ended; says why it cannot."""
    try:
        pipeline = open_pipeline(name, workspace).resume()
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"pipeline {pipeline.name} resumed", "level": "info"}


def stop_pipeline(workspace: Path, name: str) -> Answer:
    """Stop a pipeline and its stage at hand; says so when it is over already."""
    try:
        status = open_pipeline(name, workspace).stop()
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"pipeline {name}: {status.reason}", "level": "info"}


def delete(workspace: Path, names: Sequence[str]) -> Removed:
    """Move runs to the trash; those that cannot be moved stay, each with the reason."""
    moved, problems = [], []
    for name in dict.fromkeys(names):
        try:
            moved.append(dataclasses.asdict(discard(name, workspace)))
        except WorkbenchError as error:
            problems.append(str(error))
    return {"moved": moved, "problems": problems}


def undelete(workspace: Path, entries: Sequence[str]) -> Restored:
    """Take runs back from the trash, by what ``delete`` called them."""
    restored, problems = [], []
    for entry in dict.fromkeys(entries):
        try:
            restored.append(restore(entry, workspace).name)
        except WorkbenchError as error:
            problems.append(str(error))
    return {"restored": restored, "problems": problems}
