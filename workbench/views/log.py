"""Logs of runs as the page draws and lists them, each row parsed once for all who look.

A metrics log is kept in memory as far as it was read: columns of numbers by metric, the newest rows whole (for alarms),
and the corrupt rows met. The directory stays the truth: every look reads on from where the last one ended, and starts
over when the log was resumed or replaced.
"""

import threading
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from workbench.checks import Finding, alarms
from workbench.errors import RunError
from workbench.rundir.metrics import NOT_FINITE
from workbench.runs import Run
from workbench.runs.run import MetricsReader
from workbench.training.methods import METHODS
from workbench.views.curves import POINTS, Chart, Columns, FoldPayload, columns_of, folds, run_charts
from workbench.views.panels import is_drawn
from workbench.views.payloads import Said

KEPT_RUNS = 64
KEPT_FIGURES = 4096
PACED = 10
"""Steps that the pace is the mean of."""
COURSE = 30
"""Points of accuracy in a list."""
RECENT = 240
"""Rows kept whole, four times what an alarm looks at, because not every row has every metric; beside the first few."""
ADDED = 250
"""Rows after which a long log's curves are given anew, because a page that adds to them has too many points."""
REWARDS = ("reward", "step_reward")
ASKED_FOR = (*REWARDS, "accuracy", "seconds")
"""Metrics that are kept even where no curve is drawn of them."""
Column: TypeAlias = "tuple[array[float], array[float]]"
"""Of one metric: the steps at which it was logged, and its finite values there."""


@dataclass(frozen=True)
class Figures:
    """The numbers that a list of runs shows of one run's log."""

    reward: float | None
    """The best mean of a step: of outcome rewards, or of step rewards where a run has no others."""
    reward_metric: str
    course: tuple[float, ...]
    """Of held-out accuracy."""
    accuracy_first: float | None
    accuracy_best: float | None
    accuracy_last: float | None
    seconds: float | None
    corrupt: int
    """Rows that cannot be read."""
    warnings: int
    alarms: tuple[str, ...]
    """What to look at in its newest rows, and how much there is."""


class KeptRun:
    """One run's log as read so far."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.cursor = 0
        self.rows = 0
        self.read_at = {0: 0}  # how many rows there were at each cursor that was given lately
        self.columns: dict[str, Column] = defaultdict(lambda: (array("d"), array("d")))
        self.first: list[Mapping[str, Any]] = []
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self.corrupt: dict[int, str] = {}
        self.lost: set[str] = set()  # metrics whose newest value is no number
        self._alarms: tuple[int, list[Finding]] = (0, [])
        self._folds: tuple[int, list[FoldPayload]] = (0, [])
        self.told: tuple[Any, tuple[list[Said], int]] = (None, ([], 0))  # what was said of these rows

    def read_on(self, run: Run) -> None:
        """Take in what was appended since. Raises RunError for a log that cannot be read."""
        reader = MetricsReader(run.dir, self.cursor)
        rows, restarted = reader.read()
        if restarted:
            self._clear()
        self.corrupt.update(run.dir.corrupt)
        self.cursor = reader.cursor
        self.rows += len(rows)
        self.first += rows[: PACED - len(self.first)]
        self.recent.extend(rows)
        self.read_at = {cursor: n for cursor, n in self.read_at.items() if self.rows - n <= RECENT}
        self.read_at[self.cursor] = self.rows
        for row in rows:
            self.lost |= set(row.get(NOT_FINITE, ()))
            self.lost -= columns_of([row]).keys()
        for metric, column in columns_of(rows).items():
            if metric in ASKED_FOR or _is_drawn(metric):
                for known, new in zip(self.columns[metric], column, strict=True):
                    known.extend(new)

    def alarms(self) -> list[Finding]:
        if self._alarms[0] != self.rows:
            self._alarms = self.rows, alarms(list(self.recent), self.first[: self.rows - len(self.recent)])
        return self._alarms[1]

    @property
    def pace(self) -> float | None:
        """Seconds that one of the newest steps took; None before there are two."""
        logged, seconds = self.columns["seconds"]
        if len(logged) < 2:
            return None
        first = -min(len(logged), PACED + 1)
        steps = logged[-1] - logged[first]
        return (seconds[-1] - seconds[first]) / steps if steps > 0 else None

    def figures(self) -> Figures:
        reward = next((name for name in REWARDS if self.columns[name][1]), REWARDS[0])
        accuracy, seconds = self.columns["accuracy"][1], self.columns["seconds"][1]
        return Figures(
            reward=max(self.columns[reward][1], default=None),
            reward_metric=reward,
            course=tuple(accuracy[-(-i * (len(accuracy) - 1) // COURSE)] for i in range(COURSE + 1))
            if len(accuracy) > COURSE
            else tuple(accuracy),
            accuracy_first=accuracy[0] if accuracy else None,
            accuracy_best=max(accuracy, default=None),
            accuracy_last=accuracy[-1] if accuracy else None,
            seconds=seconds[-1] if seconds else None,
            corrupt=len(self.corrupt),
            warnings=len(self.alarms()),
            alarms=tuple(alarm.text for alarm in self.alarms()),
        )

    def curve_columns(self) -> Columns:
        """Return the columns that curves are drawn of, with at least one value each."""
        return {metric: column for metric, column in self.columns.items() if column[0] and _is_drawn(metric)}

    def charts(self, metrics: Iterable[str], **options: Any) -> list[Chart]:
        """``options`` are those of ``run_charts``."""
        return run_charts(self.curve_columns(), metrics=metrics, **options)

    def folds(self, metrics: Iterable[str]) -> list[FoldPayload]:
        """The groups of charts that are folded away."""
        if self._folds[0] != self.rows:
            alarmed = [metric for alarm in self.alarms() for metric in alarm.where]
            self._folds = self.rows, folds(self.curve_columns(), metrics, alarmed)
        return self._folds[1]

    def since(self, cursor: int) -> list[Mapping[str, Any]] | None:
        """The rows after a cursor that was given before, to be added to the curves that were drawn then.

        None where curves are to be drawn anew: no such cursor, a metric's first value or a new accuracy, which has a
        band, among the rows, or many rows.
        """
        seen = self.read_at.get(cursor)
        if not seen or (self.rows > POINTS and seen // ADDED != self.rows // ADDED):
            return None
        rows = list(self.recent)[len(self.recent) - (self.rows - seen) :]
        logged = {metric for row in rows for metric in row}
        drawn = self.curve_columns().items()
        is_new = (steps[0] >= rows[0]["step"] for metric, (steps, _) in drawn if metric in logged)
        return None if "accuracy" in logged or any(is_new) else rows


@lru_cache(maxsize=1024)
def _is_drawn(metric: str) -> bool:
    return is_drawn(metric) or any(metric in method.metrics for method in METHODS.values())


def figures(run: Run) -> Figures:
    """A run's figures, kept for many more runs than whole logs are. Raises RunError for a log that cannot be read."""
    return _figures(run, _version(run))


@lru_cache(maxsize=KEPT_FIGURES)
def _figures(run: Run, version: tuple[int, int, int]) -> Figures:
    with open_log(run) as log:
        return log.figures()


def _version(run: Run) -> tuple[int, int, int]:
    """Return what of a log's file changes when it is written to, or another takes its place."""
    try:
        stat = (run.path / "metrics.jsonl").stat()
    except OSError as error:
        raise RunError(f"metrics of run {run.name!r} cannot be read: {error}") from error
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


_lock = threading.Lock()


@lru_cache(maxsize=KEPT_RUNS)
def _cached_log(path: str, inode: int) -> tuple[KeptRun, threading.Lock]:
    """Return the log of a run as read so far, and its lock; another file in its place begins anew."""
    return KeptRun(), threading.Lock()


@contextmanager
def open_log(run: Run) -> Iterator[KeptRun]:
    """Give a run's log as read so far, up to date and still while the block reads it.

    Raises RunError for a log that cannot be read.
    """
    inode, size, _ = _version(run)
    with _lock:
        cached, lock = _cached_log(str(run.path), inode)
    with lock:
        if size != cached.cursor:
            cached.read_on(run)
        yield cached
