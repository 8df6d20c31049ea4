"""What trackers are told of a run, and when: each row of metrics, each new alarm, and heatmaps at intervals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.checks import alarms
from workbench.config import SharedConfig
from workbench.errors import RunError, cut
from workbench.rundir import RunDir
from workbench.schema import Credit, WatchedRow
from workbench.trackers.backends import BACKENDS, Tracked, Tracker
from workbench.views.heatmap import heatmap

_ROWS = 240  # four times what an alarm looks at, because not every row has every metric
_NOT_METRICS = ("step", "time")


class Tracking:
    """Feeds the trackers of one run. One that fails on the way is named once and gets no more: training goes on."""

    def __init__(self, trackers: Mapping[str, Tracker], every: int, say: Callable[[str], None]) -> None:
        self._trackers, self._every, self._say = dict(trackers), every, say
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=_ROWS)
        self._raised: set[str] = set()

    @classmethod
    def open(
        cls, run: RunDir, config: SharedConfig, names: Sequence[str], say: Callable[[str], None] = print
    ) -> Tracking:
        """Open these trackers for a run. Raises RunError for one that cannot be, before anything was trained."""
        trackers: dict[str, Tracker] = {}
        for name in names:
            about = Tracked(run.name, config.run.project, config.model_dump(mode="json"), run.path / "trackers" / name)
            try:
                trackers[name] = BACKENDS[name](about)
            except Exception as error:  # whatever three packages raise: no key, no network, no right to write
                raise RunError(
                    f"run.report_to: {name!r} cannot be opened ({_reason(error)}); put that right, or take it out of "
                    "run.report_to"
                ) from error
        return cls(trackers, config.run.watch_every, say)

    def row(self, row: Mapping[str, Any]) -> None:
        """A row of ``metrics.jsonl``."""
        step = int(row.get("step") or 0)
        values = {name: float(value) for name, value in row.items() if name not in _NOT_METRICS and _finite(value)}
        if values:
            self._each(lambda tracker: tracker.metrics(step, values))
        self._rows.append(row)
        present = {alarm.name: alarm.text for alarm in alarms(list(self._rows))}
        for name in present.keys() - self._raised:
            self._each(lambda tracker, name=name: tracker.alarm(step, name, present[name]))  # type: ignore[misc]
        self._raised = set(present)

    def rollouts(self, step: int, credits: Sequence[Credit]) -> None:
        """The groups of a generation: the first one's heatmap, in the steps in which watched prompts are looked at."""
        if credits and (step - 1) % self._every == 0:
            self._html("heatmap/rollouts", step, heatmap(credits[0]).html())

    def watched(self, step: int, values: Sequence[Credit | WatchedRow]) -> None:
        """The heatmaps of watched prompts or rows."""
        for number, value in enumerate(values, start=1):
            self._html(f"heatmap/watched-{number}", step, heatmap(value).html())

    def finish(self) -> None:
        self._each(lambda tracker: tracker.finish())

    def _html(self, name: str, step: int, document: str) -> None:
        self._each(lambda tracker: tracker.html(name, step, document))

    def _each(self, tell: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                tell(tracker)
            except Exception as error:  # of somebody's network or disk; the run's directory has it all
                del self._trackers[name]
                self._say(f"run.report_to: {name!r} failed ({_reason(error)}) and gets no more of this run")


def track_run(run: RunDir, config: SharedConfig, names: Sequence[str], say: Callable[[str], None] = print) -> None:
    """Give trackers a whole run from its directory, as they would have got it while it went. Raises RunError."""
    tracking = Tracking.open(run, config, names, say)
    looks, generations = run.rollouts.steps(watched=True), run.rollouts.steps()
    rows = {int(row.get("step") or 0): row for row in run.read_metrics()[0]}
    for step in sorted({*rows, *looks, *generations}):
        if step in looks:
            read = run.rollouts.read_rows if config.method.kind is not None else _watched_prompts(run)
            tracking.watched(step, read(step))
        if step in generations:
            tracking.rollouts(step, run.rollouts.read(step))
        if step in rows:
            tracking.row(rows[step])
    tracking.finish()


def _watched_prompts(run: RunDir) -> Callable[[int], list[Credit]]:
    return lambda step: run.rollouts.read(step, watched=True)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return cut(lines[0], 200)
