"""What the pages need of a run's files, kept in memory so that each row is parsed once however many ask.

Of the metrics log: columns of numbers by metric, the newest rows whole (for alarms), and the corrupt rows met. The
directory stays the truth: every look reads on from where the last one ended, and starts over when the log was resumed
or replaced.
"""

from __future__ import annotations

import base64
import math
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from workbench.checks import Alarm, alarms
from workbench.config import RunConfig
from workbench.errors import RunError
from workbench.figures.curves import is_drawn
from workbench.runs import Run

KEPT_RUNS = 64
RECENT = 240
"""Rows kept whole, four times what an alarm looks at, because not every row has every metric."""
ASKED_FOR = ("reward", "step_reward", "accuracy", "seconds")
"""Columns that are there even where nothing was logged, for who asks by name."""


@dataclass
class Column:
    """One metric: the steps at which it was logged, and its finite values there."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)


class KeptRun:
    """One run's log as read so far."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.cursor = 0
        self.rows = 0
        self.columns = {metric: Column() for metric in ASKED_FOR}
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self.corrupt: dict[int, str] = {}
        self._alarms: tuple[int, list[Alarm]] = (0, [])

    def read_on(self, run: Run) -> None:
        """Take in what was appended since. Raises RunError for a log that cannot be read."""
        try:
            rows, cursor = run.metrics_rows(self.cursor)
        except RunError:  # resumed or replaced since; a log that cannot be read fails again
            self._clear()
            rows, cursor = run.metrics_rows()
        self.corrupt.update(run.dir.corrupt)
        self.cursor = cursor
        self.rows += len(rows)
        self.recent.extend(rows)
        for row in rows:
            step = row.get("step")
            if not isinstance(step, int):
                continue
            for metric, value in row.items():
                if isinstance(value, int | float) and math.isfinite(value) and _is_kept(metric):
                    column = self.columns.setdefault(metric, Column())
                    column.steps.append(step)
                    column.values.append(value)

    def alarms(self) -> list[Alarm]:
        if self._alarms[0] != self.rows:
            self._alarms = self.rows, alarms(list(self.recent))
        return self._alarms[1]

    def drawn(self) -> dict[str, Column]:
        """The columns that curves are drawn of, with at least one value each."""
        return {metric: column for metric, column in self.columns.items() if len(column) and is_drawn(metric)}

    def block(self) -> dict[str, Any]:
        """All drawn metrics as base64 of little-endian float32: small and quick to take in, and as exact as a chart is.

        ``steps`` are the distinct columns of steps; ``values`` gives each metric which of them is its own, and its
        values.
        """
        steps: dict[str, int] = {}
        values = {
            metric: [steps.setdefault(_float32(column.steps), len(steps)), _float32(column.values)]
            for metric, column in self.drawn().items()
        }
        return {"steps": list(steps), "values": values}


@lru_cache(maxsize=1024)
def _is_kept(metric: str) -> bool:
    return metric in ASKED_FOR or is_drawn(metric)


def _float32(values: array[float]) -> str:
    numbers = array("f", values)
    return base64.b64encode(numbers.tobytes()).decode("ascii")


_kept: OrderedDict[tuple[str, int], tuple[KeptRun, threading.Lock]] = OrderedDict()
_lock = threading.Lock()


@contextmanager
def kept(run: Run) -> Iterator[KeptRun]:
    """What is kept of a run, up to date and still while the block reads it.

    Raises RunError for a log that cannot be read.
    """
    path = run.path / "metrics.jsonl"
    try:
        stat = path.stat()
    except OSError as error:
        raise RunError(f"metrics of run {run.name!r} cannot be read: {error}") from error
    key = str(run.path), stat.st_ino
    with _lock:
        if key not in _kept:
            _kept[key] = KeptRun(), threading.Lock()
        _kept.move_to_end(key)
        while len(_kept) > KEPT_RUNS:
            _kept.popitem(last=False)
        found, own = _kept[key]
    with own:
        if stat.st_size != found.cursor:
            found.read_on(run)
        yield found


def read_config(run: Run) -> RunConfig:
    """A run's configuration, parsed once as long as its file stays."""
    try:
        written = (run.path / "run.yaml").stat().st_mtime_ns
    except OSError:
        written = 0
    return _read_config(run, written)


@lru_cache(maxsize=1024)
def _read_config(run: Run, written: int) -> RunConfig:
    return run.config()
