"""Server calls of the page's script about runs: the list, new rows, stored groups, stop and resume.

Everything about a run is read from its directory, so that every page shows the same; the reader holds its own cursor
and asks for what it has not seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

from workbench.checks import Alarm
from workbench.config.run import Method
from workbench.errors import PatternError, RunError, WorkbenchError
from workbench.runs import Run, list_runs, open_run
from workbench.runs.run import MetricsReader, RunSummary
from workbench.schema import Credit
from workbench.ui.handlers.csv_text import chart_csv
from workbench.ui.handlers.metrics_cache import KeptRun, kept
from workbench.ui.handlers.run_loss import SharePayload, drawn_loss, shares
from workbench.ui.handlers.scoring import explain_token, split
from workbench.ui.handlers.session import Services
from workbench.views.curves import ChartPayload
from workbench.views.heatmap import EXPLAINED_AT_ONCE, DrawnLoss, credit_payload, row_payload, to_json
from workbench.views.payloads import Said, WhyPayload

LOG_LINES = 14
LISTED_RUNS = 200


# What ``train.js`` is answered; ui/assets/train/payloads.js names the same keys.


class LiveValue(TypedDict):
    """What the live element needs: the run that Start began, None where it was refused, and a token of that answer.

    The page outlives the app: were answers counted, the first one after a restart would look like one it has seen.
    """

    run: str | None
    start: str


class ListedRun(TypedDict):
    """A run as Train lists it."""

    name: str
    state: str
    reason: str
    behind: str | None
    resumable: bool
    step: int | None
    total: int | None
    created: float | None
    task: str | None
    scheme: str | None


class Failed(TypedDict):
    """In place of any answer about a run that cannot be read."""

    run: str
    error: str


class _NewRows(TypedDict):
    """The rows since a cursor, to be added to the curves that are drawn, or in their place curves to draw anew."""

    rows: list[dict[str, Any]]
    panels: list[ChartPayload] | None
    cursor: int
    restarted: bool


class _Queue(TypedDict):
    """What a queued run waits for."""

    ahead: int
    wait: float | None


class News(_NewRows):
    """What is new in a run, and how it stands.

    ``lost`` names the metrics whose newest value is no number.

    ``pace`` is in seconds a step; of a queued run, ``ahead`` counts the runs it waits for, and ``wait`` is how long
    they will take, where that is known.
    """

    run: str
    state: str
    final: bool
    reason: str
    step: int
    total: int
    device: str | None
    started: float | None
    updated: float
    behind: str | None
    resumable: bool
    pace: float | None
    ahead: int
    wait: float | None
    gives: str | None
    policies: Sequence[str]
    resumed_from: int | None
    warnings: list[str]
    alarms: list[dict[str, Any]]
    said: list[Said]
    lost: list[str]
    stopping: bool
    method: str
    has_rollouts: bool
    steps: list[int]
    watched: list[int]
    answers: list[int]
    log: list[str]


class Described(TypedDict):
    """A run's settings, as (name, value)."""

    run: str
    settings: list[tuple[str, str]]


class StoredGroup(TypedDict):
    """A stored group or watched row as the heatmap takes it (JSON), and how many the step has.

    ``awaited`` is the next optimiser step over the group that is still to come, and changes its loss; None for none.
    """

    step: int
    group: int
    groups: int
    watched: bool
    shares: Sequence[SharePayload]
    awaited: int | None
    drawing: str


class Answer(TypedDict):
    """What became of a request, as a message; ``level`` is info or error."""

    message: str
    level: str


DATACLASSES = {"AlarmPayload": Alarm}
"""Sent field by field."""


def runs_table(workspace: Path) -> list[ListedRun]:
    """The newest runs, with what a list shows of each."""
    return [_listed(run.summary()) for run in list_runs(workspace)[:LISTED_RUNS]]


def _listed(summary: RunSummary) -> ListedRun:
    return {
        "name": summary.name,
        "state": summary.state,
        "reason": summary.reason,
        "behind": summary.behind,
        "resumable": summary.resumable,
        "step": summary.step,
        "total": summary.total_steps,
        "created": summary.created,
        "task": summary.task,
        "scheme": summary.scheme,
    }


def poll(
    workspace: Path, name: str, cursor: int, after: int, after_watched: int = -1, smoothing: float = 0.0
) -> News | Failed:
    """What is new in a run since ``cursor`` (bytes of metrics), ``after`` and ``after_watched`` (the last steps with
    rollouts, and with watched prompts, known). ``smoothing`` is that of ``curves.run_charts``.
    """
    try:
        run = open_run(name, workspace)
        status, method, summary = run.status(), run.method, run.summary()
        with kept(run) as known:
            news = _rows_since(run, known, cursor, method, smoothing)
            if news["restarted"]:
                after, after_watched = -1, -1
            alarms = [dataclasses.asdict(alarm) for alarm in known.alarms()]
            pace, lost = known.pace, sorted(known.lost)
            corrupt = [f"skipped {what}" for what in known.corrupt.values()]
        return {
            "run": run.name,
            "state": status.state,
            "final": status.final,
            "reason": status.reason,
            "step": status.step,
            "total": status.total_steps,
            "device": status.device,
            "started": status.started,
            "updated": status.updated,
            "behind": status.behind,
            "resumable": run.resumable,
            "pace": pace,
            **_queue(workspace, status.behind if status.state == "queued" else None),
            "gives": summary.gives,
            "policies": summary.policies,
            "resumed_from": status.resumed_from,
            "warnings": [*status.warnings, *corrupt],
            "alarms": alarms,
            "said": _said(run, tuple(run.dir.answers.steps()), status.started),
            "lost": lost,
            "stopping": status.stop_requested is not None and not status.final,
            **news,
            "method": method.name,
            "has_rollouts": method.has_rollouts,
            "steps": [step for step in run.rollout_steps() if step > after],
            "watched": [step for step in run.rollout_steps(watched=True) if step > after_watched],
            "answers": run.dir.answers.steps(),
            "log": run.log_tail(LOG_LINES),
        }
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}


@lru_cache(maxsize=64)
def _said(run: Run, measured: tuple[int, ...], started: float | None) -> list[Said]:
    """Sentences about a run, anew when its held-out problems were measured again, or another run has its name."""
    return [sentence.parts for sentence in run.sentences()] if measured else []


def _queue(workspace: Path, behind: str | None) -> _Queue:
    """The runs from ``behind`` on, each of which waits for the next."""
    names: list[str] = []
    wait: float | None = 0.0
    try:
        while behind is not None and behind not in names:
            run = open_run(behind, workspace)
            status = run.status()
            if status.final:
                break
            names.append(behind)
            with kept(run) as known:
                pace = known.pace
            wait = None if pace is None or wait is None else wait + pace * (status.total_steps - status.step)
            behind = status.behind if status.state == "queued" else None
    except WorkbenchError:
        wait = None  # of another workspace, or damaged
    return {"ahead": len(names), "wait": wait if names else None}


def _rows_since(run: Run, known: KeptRun, cursor: int, method: Method, smoothing: float) -> _NewRows:
    """What was logged since ``cursor``; ``restarted`` where the run was resumed or its log replaced since."""
    rows = known.since(cursor)
    anew = rows is None or (smoothing > 0 and bool(rows))
    return {
        "rows": [] if anew else [dict(row) for row in rows or ()],
        "panels": [chart.payload() for chart in known.charts(method.metrics, smoothing)] if anew else None,
        "cursor": known.cursor,
        "restarted": cursor > 0 and cursor not in known.read_at and MetricsReader(run.dir, cursor).read()[1],
    }


def curve(workspace: Path, name: str, key: str) -> str:
    """All points of a run's panel as CSV. Raises RunError for a run that cannot be read."""
    run = open_run(name, workspace)
    with kept(run) as known:
        return chart_csv(next(chart for chart in known.charts(run.method.metrics) if chart.key == key))


def describe(workspace: Path, name: str) -> Described | Failed:
    """The settings of a run in a few lines, and how it stands."""
    try:
        config = open_run(name, workspace).config()
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}
    return {
        "run": name,
        "settings": [
            ("task", config.task.name),
            ("policy", config.policy.path),
            *config.method.facts(),
            ("optimiser", f"lr {config.optimiser.learning_rate:g}"),
            ("seed", str(config.seed)),
        ],
    }


def rollouts(services: Services, name: str, step: int, group: int, watched: bool = False) -> StoredGroup | Failed:
    """One stored group as the heatmap takes it, with how many groups the step has; of the watched prompts if asked.

    Of a method without rollouts it is one of the watched rows.
    """
    try:
        run = open_run(name, services.workspace)
        if run.method.has_rollouts:
            return _stored_group(run, step, group, watched, services)
        rows = run.watched_rows(step)
        group = min(max(group, 0), len(rows) - 1)
        return _answered(step, group, len(rows), watched, row_payload(rows[group]))
    except WorkbenchError as error:
        return {"run": name, "error": str(error)}


def _stored_group(run: Run, step: int, group: int, watched: bool, services: Services) -> StoredGroup:
    awaited = None if watched else _awaited(run, step)  # before the passes are read: none comes between the two unseen
    credits = stored_credits(run, step, watched)
    group = min(max(group, 0), len(credits) - 1)
    drawing = drawn_credit(run, credits[group], services, drawn_loss(run, step, credits, group, watched=watched))
    return _answered(step, group, len(credits), watched, drawing, shares(run, step, credits, watched=watched), awaited)


def _awaited(run: Run, step: int) -> int | None:
    """The next optimiser step over the generation of ``step``; what a step computed is stored before it is logged."""
    status = run.status()
    following = max(step, status.step + 1)
    return None if status.final or following >= step + run.config().method.iterations else following


def _answered(
    step: int,
    group: int,
    groups: int,
    watched: bool,
    drawing: Mapping[str, Any],
    parts: Sequence[SharePayload] = (),
    awaited: int | None = None,
) -> StoredGroup:
    return {
        "step": step,
        "group": group,
        "groups": groups,
        "watched": watched,
        "shares": parts,
        "awaited": awaited,
        "drawing": to_json(drawing),
    }


def why(
    workspace: Path, name: str, step: int, group: int, rollout: int, token: int, watched: bool = False
) -> WhyPayload | None:
    """Why a token of a stored group has its advantage; None where there is no such token or group."""
    try:
        credits = stored_credits(open_run(name, workspace), step, watched)
    except WorkbenchError:
        return None
    return explain_token(credits[group], rollout, token) if 0 <= group < len(credits) else None


def stored_credits(run: Run, step: int, watched: bool) -> list[Credit]:
    return _read_credits(run, step, watched, run.dir.rollouts.written(step, watched=watched))


@lru_cache(maxsize=32)
def _read_credits(run: Run, step: int, watched: bool, written: int) -> list[Credit]:
    return run.rollouts(step, watched=watched)


def drawn_credit(run: Run, credit: Credit, services: Services, loss: DrawnLoss | None = None) -> Mapping[str, Any]:
    """The credit as stored, with the run's own pattern underlined where it still works."""
    pattern = run.config().sampled.pattern
    matches: list[list[tuple[int, int]]] | None
    try:
        matches = [split_text.matches for split_text in split(credit.scored.group, pattern, services.pattern_worker)]
    except PatternError:
        matches = None
    return credit_payload(credit, matches, explain_at_most=EXPLAINED_AT_ONCE, loss=loss)


def resume(services: Services, name: str) -> Answer:
    """Go on with a run from its newest valid checkpoint; says what it waits for or why it cannot."""
    try:
        run = open_run(name, services.workspace).resume()
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{run.name} resumed", "level": "info"}


def start_now(services: Services, name: str) -> Answer:
    """Start a run that is queued beside the run that it waits for; says so when it waits for none."""
    try:
        open_run(name, services.workspace).start_now()
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{name} starts beside the run that it waited for", "level": "info"}


def stop(workspace: Path, name: str) -> Answer:
    """Stop a run; says so when it is over already."""
    try:
        status = open_run(name, workspace).stop()
    except RunError as error:
        return {"message": str(error), "level": "info"}
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{status.state}" + (f": {status.reason}" if status.reason else ""), "level": "info"}
