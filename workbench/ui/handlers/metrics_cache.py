"""In-memory cache of runs' metrics, so that each row is parsed once for all pages.

Of the metrics log: columns of numbers by metric, the newest rows whole (for alarms), and the corrupt rows met. The
directory stays the truth: every look reads on from where the last one ended, and starts over when the log was resumed
or replaced.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from workbench.checks import Alarm, alarms
from workbench.config.run import METHODS
from workbench.errors import RunError
from workbench.metrics import is_drawn
from workbench.rundir.metrics import NOT_FINITE
from workbench.runs import Run
from workbench.runs.run import MetricsReader
from workbench.ui.handlers.session import Recent
from workbench.views.curves import POINTS, Chart, Columns, run_charts

KEPT_RUNS = 64
KEPT_FIGURES = 4096
PACED = 10
"""Steps that the pace is the mean of."""
RECENT = 240
"""Rows kept whole, four times what an alarm looks at, because not every row has every metric."""
ADDED = 250
"""Rows after which a long log's curves are given anew, because a page that adds to them has too many points."""
REWARDS = ("reward", "step_reward")
ASKED_FOR = (*REWARDS, "accuracy", "seconds")
"""Columns that are there even where nothing was logged, for who asks by name."""


@dataclass
class Column:
    """One metric: the steps at which it was logged, and its finite values there."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Figures:
    """What a list of runs shows of one run's log."""

    reward: float | None
    """The best mean of a step: of outcome rewards, or of step rewards where a run has no others."""
    reward_metric: str
    accuracy_best: float | None
    accuracy_last: float | None
    seconds: float | None
    corrupt: int
    """Rows that cannot be read."""
    alarms: tuple[str, ...]
    """What to look at in its newest rows."""


class KeptRun:
    """One run's log as read so far."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.cursor = 0
        self.rows = 0
        self.read_at = {0: 0}  # how many rows there were at each cursor that was given lately
        self.columns = {metric: Column() for metric in ASKED_FOR}
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self.corrupt: dict[int, str] = {}
        self.lost: set[str] = set()  # metrics whose newest value is no number
        self._alarms: tuple[int, list[Alarm]] = (0, [])

    def read_on(self, run: Run) -> None:
        """Take in what was appended since. Raises RunError for a log that cannot be read."""
        reader = MetricsReader(run.dir, self.cursor)
        rows, restarted = reader.read()
        if restarted:
            self._clear()
        self.corrupt.update(run.dir.corrupt)
        self.cursor = reader.cursor
        self.rows += len(rows)
        self.recent.extend(rows)
        self.read_at = {cursor: n for cursor, n in self.read_at.items() if self.rows - n <= RECENT}
        self.read_at[self.cursor] = self.rows
        for row in rows:
            step = row.get("step")
            if not isinstance(step, int):
                continue
            self.lost.update(row.get(NOT_FINITE, {}))
            for metric, value in row.items():
                if isinstance(value, int | float) and math.isfinite(value) and _is_kept(metric):
                    self.lost.discard(metric)
                    column = self.columns.get(metric)
                    if column is None:
                        column = self.columns[metric] = Column()
                    column.steps.append(step)
                    column.values.append(value)

    def alarms(self) -> list[Alarm]:
        if self._alarms[0] != self.rows:
            self._alarms = self.rows, alarms(list(self.recent))
        return self._alarms[1]

    @property
    def pace(self) -> float | None:
        """Seconds that one of the newest steps took; None before there are two."""
        column = self.columns["seconds"]
        if len(column) < 2:
            return None
        first = -min(len(column), PACED + 1)
        steps = column.steps[-1] - column.steps[first]
        return (column.values[-1] - column.values[first]) / steps if steps > 0 else None

    def figures(self) -> Figures:
        reward = next((name for name in REWARDS if len(self.columns[name])), REWARDS[0])
        accuracy, seconds = self.columns["accuracy"].values, self.columns["seconds"].values
        return Figures(
            reward=max(self.columns[reward].values, default=None),
            reward_metric=reward,
            accuracy_best=max(accuracy, default=None),
            accuracy_last=accuracy[-1] if accuracy else None,
            seconds=seconds[-1] if seconds else None,
            corrupt=len(self.corrupt),
            alarms=tuple(alarm.text for alarm in self.alarms()),
        )

    def drawn(self) -> Columns:
        """The columns that curves are drawn of, with at least one value each."""
        return {
            metric: (column.steps, column.values)
            for metric, column in self.columns.items()
            if len(column) and _is_drawn(metric)
        }

    def charts(self, metrics: Iterable[str], smoothing: float = 0.0) -> list[Chart]:
        return run_charts(self.drawn(), metrics=metrics, smoothing=smoothing)

    def since(self, cursor: int) -> list[Mapping[str, Any]] | None:
        """The rows after a cursor that was given before, to be added to the curves that were drawn then.

        None where curves are to be drawn anew: no such cursor, a metric's first value among the rows, or many rows.
        """
        seen = self.read_at.get(cursor)
        if not seen or (self.rows > POINTS and seen // ADDED != self.rows // ADDED):
            return None
        rows = list(self.recent)[len(self.recent) - (self.rows - seen) :]
        logged = {metric for row in rows for metric in row}
        is_new = (steps[0] >= rows[0]["step"] for metric, (steps, _) in self.drawn().items() if metric in logged)
        return None if any(is_new) else rows


def _is_kept(metric: str) -> bool:
    return metric in ASKED_FOR or _is_drawn(metric)


@lru_cache(maxsize=1024)
def _is_drawn(metric: str) -> bool:
    return is_drawn(metric) or any(metric in method.metrics for method in METHODS.values())


def figures(run: Run) -> Figures:
    """A run's figures, kept for many more runs than whole logs are. Raises RunError for a log that cannot be read."""
    version = _version(run)
    with _lock:
        known = _figures.get(str(run.path))
    if known is None or known[0] != version:
        with kept(run) as log:
            known = version, log.figures()
        with _lock:
            _figures[str(run.path)] = known
    return known[1]


def _version(run: Run) -> tuple[int, int, int]:
    """What of a log's file changes when it is written to, or another takes its place."""
    try:
        stat = (run.path / "metrics.jsonl").stat()
    except OSError as error:
        raise RunError(f"metrics of run {run.name!r} cannot be read: {error}") from error
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


_figures: Recent[str, tuple[tuple[int, int, int], Figures]] = Recent(KEPT_FIGURES)
_kept: Recent[tuple[str, int], tuple[KeptRun, threading.Lock]] = Recent(KEPT_RUNS)
_lock = threading.Lock()


@contextmanager
def kept(run: Run) -> Iterator[KeptRun]:
    """What is kept of a run, up to date and still while the block reads it.

    Raises RunError for a log that cannot be read.
    """
    inode, size, _ = _version(run)
    key = str(run.path), inode
    with _lock:
        cached, lock = _kept[key] = _kept.get(key) or (KeptRun(), threading.Lock())
    with lock:
        if size != cached.cursor:
            cached.read_on(run)
        yield cached
