"""How a pipeline's stages stand: the small file of each, its run or its rows, and a measure before and after."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, cut
from workbench.files import encode, read_json, replace_file
from workbench.rundir import FINAL_STATES
from workbench.runs.run import Run

HEADLINES = ("accuracy", "pair_accuracy", "step_accuracy")
"""Held-out measures, the first of which that a run has sums it up."""


@dataclass(frozen=True)
class StageProgress:
    """A stage for lists. ``run`` is its run where it has one, ``rows`` how many rows a data command made.

    ``state`` is a run's, or "waiting" before its turn. ``before`` and ``after`` are the first and the last value of the
    held-out measure ``metric``; of a reward model that is trained further, what it gets right of rows it has not seen.
    """

    name: str
    kind: str
    round: int | None = None
    state: str = "waiting"
    reason: str = ""
    run: str | None = None
    step: int | None = None
    total: int | None = None
    rows: int | None = None
    metric: str | None = None
    before: float | None = None
    after: float | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


_WRITTEN: dict[str, tuple[type, ...]] = {
    "state": (str,),
    "reason": (str,),
    "started": (int, float),
    "ended": (int, float, type(None)),
}
"""What a stage's file holds."""


def write_stage(file: Path, state: str, reason: str = "", *, ended: bool = False) -> None:
    """Write how a stage stands; when it began stays as it was."""
    now = time.time()
    before = read_stage(file)
    data = {"state": state, "reason": reason, "started": before.get("started", now), "ended": now if ended else None}
    replace_file(file, encode(data))


def read_stage(file: Path) -> dict[str, Any]:
    """The fields of ``StageProgress`` in a stage's file; none before its turn, "unreadable" for a damaged one."""
    try:
        data = read_json(file)
        return {name: data[name] for name, kinds in _WRITTEN.items() if _is(data[name], kinds)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"state": "unreadable", "reason": f"{file} cannot be read ({cut(str(error))}); resume writes it again"}


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{value!r:.80} in it")
    return True


def of_run(run: Run) -> dict[str, Any]:
    """What a stage's run says of itself."""
    try:
        status, measured = run.status(), _measured(run)
    except WorkbenchError as error:
        return {"run": run.name, "state": "unreadable", "reason": str(error)}
    return {
        "run": run.name,
        "state": status.state,
        "reason": status.reason,
        "step": status.step,
        "total": status.total_steps,
        "started": status.started,
        "ended": status.updated if status.final else None,
        **measured,
    }


def _measured(run: Run) -> dict[str, Any]:
    try:
        stat = (run.path / "metrics.jsonl").stat()
    except OSError:
        return {}
    return _parsed(run, (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=1024)
def _parsed(run: Run, written: tuple[int, int]) -> dict[str, Any]:
    """Parsed once as long as the log stays as it is: lists ask every few seconds."""
    return headline(run.metrics_rows()[0])


def headline(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """``metric``, ``before`` and ``after`` of a run's metrics rows; empty where nothing was measured."""
    rows = list(rows)
    for name in HEADLINES:
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            return {"metric": name, "before": values[0], "after": values[-1]}
    return {}
