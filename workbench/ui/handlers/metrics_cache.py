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
from pathlib import Path
from typing import Any

from workbench.checks import Alarm, alarms
from workbench.config.run import METHODS, RunConfig
from workbench.errors import RunError, WorkbenchError
from workbench.metrics import is_drawn
from workbench.rundir.metrics import NOT_FINITE
from workbench.runs import Run, list_runs
from workbench.runs.run import MetricsReader
from workbench.schema.numbers import counted
from workbench.ui.handlers.session import Recent
from workbench.views.curves import POINTS, Chart, Columns, FoldPayload, folds, run_charts
from workbench.views.payloads import Said

KEPT_RUNS = 64
KEPT_FIGURES = 4096
PACED = 10
"""Steps that the pace is the mean of."""
COURSE = 30
"""Points of accuracy in a list."""
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
        self.columns = {metric: Column() for metric in ASKED_FOR}
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self.corrupt: dict[int, str] = {}
        self.lost: set[str] = set()  # metrics whose newest value is no number
        self._alarms: tuple[int, list[Alarm]] = (0, [])
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
        self.recent.extend(rows)
        self.read_at = {cursor: n for cursor, n in self.read_at.items() if self.rows - n <= RECENT}
        self.read_at[self.cursor] = self.rows
        for row in rows:
            step = row.get("step")
            if not isinstance(step, int):
                continue
            self.lost.update(row.get(NOT_FINITE, {}))
            for metric, value in row.items():
                is_number = isinstance(value, int | float) and math.isfinite(value)
                if is_number and (metric in ASKED_FOR or _is_drawn(metric)):
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

    def drawn(self) -> Columns:
        """The columns that curves are drawn of, with at least one value each."""
        return {
            metric: (column.steps, column.values)
            for metric, column in self.columns.items()
            if len(column) and _is_drawn(metric)
        }

    def charts(self, metrics: Iterable[str], **options: Any) -> list[Chart]:
        """``options`` are those of ``run_charts``."""
        return run_charts(self.drawn(), metrics=metrics, **options)

    def folds(self, metrics: Iterable[str]) -> list[FoldPayload]:
        """The groups of charts that are folded away."""
        if self._folds[0] != self.rows:
            alarmed = [metric for alarm in self.alarms() for metric in alarm.metrics]
            self._folds = self.rows, folds(self.drawn(), metrics, alarmed)
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
        is_new = (steps[0] >= rows[0]["step"] for metric, (steps, _) in self.drawn().items() if metric in logged)
        return None if "accuracy" in logged or any(is_new) else rows


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


LOOKED_AT = 30
"""Newest runs among which one of the same policy is sought."""
LEAST_STEPS = 3
PRETRAINED = 50_000_000
"""Parameters from which a policy is taken for a pretrained one."""
ADAPTER_FACTOR = 10
"""How much higher an adapter's rate is than that of all weights (Schulman et al., LoRA Without Regret, 2025)."""
SUSPICIOUS = 15
"""Times the usual rate that are let be: the recipe ``text-to-sql-dpo`` trains at 10 times TRL's default."""
COPIES = 4
"""Weights, gradients and Adam's two moments, all in the weights' number format."""


@dataclass(frozen=True)
class Pace:
    """What an earlier run took: seconds a step, and what a step's batch held (``MethodSection.rows_per_step``)."""

    run: str
    seconds: float
    rows: int


def measured_pace(workspace: Path, method: str, policy: str) -> Pace | None:
    """That of the newest run of ``policy`` by ``method`` in the workspace that got a few steps far."""
    for run in list_runs(workspace)[:LOOKED_AT]:
        try:
            config = run.config()
            if (config.method.name, config.policy.path) != (method, policy) or not config.method.rows_per_step:
                continue
            with kept(run) as known:
                clock = known.columns["seconds"]
                if len(clock) >= LEAST_STEPS and clock.steps[-1] >= LEAST_STEPS:
                    return Pace(run.name, clock.values[-1] / clock.steps[-1], config.method.rows_per_step)
        except WorkbenchError:  # a run that cannot be read tells nothing; the Runs tab says why
            continue
    return None


def estimate(config: RunConfig, pace: Pace | None, parameters: int | None) -> list[tuple[str, str]]:
    """(label, value) for time and memory, and for a learning rate far above the usual.

    ``parameters`` of the policy, if it has been loaded.
    """
    warning = _rate_warning(config, parameters)
    first = [] if warning is None else [("rate", warning)]
    return [*first, ("time", _time(config, pace)), ("memory", _memory(config, parameters))]


def _time(config: RunConfig, pace: Pace | None) -> str:
    if config.run.epochs is not None:
        return "no estimate yet; how many steps the epochs are is counted when the run starts"
    if pace is None:
        return f"no estimate before the first run of this policy by {config.method.name} here"
    planned = config.method.rows_per_step
    step = pace.seconds * planned / pace.rows
    scaled = "" if planned == pace.rows else f", scaled from {pace.rows} to {_batch(config)}"
    steps = config.run.steps
    return f"about {duration(steps * step)}: {counted(steps, 'step')} of {step:.2g} s, the pace of {pace.run}{scaled}"


def _memory(config: RunConfig, parameters: int | None) -> str:
    if not parameters:
        return "no estimate yet; known once the policy has been loaded"
    on_top = f"activations of {_batch(config)} come on top"
    policy = config.policy
    quantised = {"8bit": 1, "4bit": 0.5}.get(policy.quantisation)  # and a little more, for their constants
    plain = 2 if policy.dtype in ("bfloat16", "float16") else 4
    weights = (plain if quantised is None else quantised) * parameters
    if config.policy.lora is not None or config.policy.adapter is not None:
        return f"at least {_size(weights)} for weights; the adapter and {on_top}"
    copies = COPIES + config.method.has_reference  # a reference policy beside it
    return (
        f"at least {_size(copies * weights)} for weights, gradients and Adam"
        + (" and the reference" if config.method.has_reference else "")
        + f"; {on_top}"
    )


def _rate_warning(config: RunConfig, parameters: int | None) -> str | None:
    """Warning of a learning rate far above the usual of a pretrained policy, as a run's default is; None without."""
    if not parameters or parameters < PRETRAINED:
        return None
    usual = config.method.usual_learning_rate
    adapted = config.policy.lora is not None or config.policy.adapter is not None
    if adapted:
        usual *= ADAPTER_FACTOR
    rate = config.optimiser.learning_rate
    if rate <= SUSPICIOUS * usual:
        return None
    whose = "what is usual for an adapter" if adapted else "the trainer's default"
    return (
        f"{rate:g} is {rate / usual:,.0f} times {whose} ({usual:g}), which {parameters / 1e6:,.0f}M parameters may not "
        "survive; lower it"
    )


def _batch(config: RunConfig) -> str:
    """What a step's batch holds, in words."""
    rows = config.method.rows_per_step
    return (
        counted(rows, "completion") if config.method.kind is None else f"{rows} {config.method.kind.replace('_', ' ')}"
    )


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 600 and whole % 60:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
