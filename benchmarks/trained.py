"""Runs that a benchmark trains on the embedded policy: each under a name, so that a second command goes on.

A finished run is read, one that was stopped goes on from its last save, a missing one is trained; with ``stored``
nothing is started, and what is not finished is left out. One run after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.errors import ConfigError, RunError
from workbench.training.methods import RunConfig

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Where:
    """The workspace of the runs, the cells asked for (None: all) and whether only stored runs are read."""

    workspace: Path | None = None
    only: tuple[str, ...] | None = None
    stored: bool = False

    def chosen(self, cells: Sequence[str]) -> list[str]:
        """The cells asked for, in the order of the list; a part before a stroke stands for all that begin with it."""
        if self.only is None:
            return list(cells)
        for name in self.only:
            if not any(_is_of(cell, name) for cell in cells):
                raise ConfigError(f"--only {name}: there is no such cell; choose among {', '.join(cells)}")
        return [cell for cell in cells if any(_is_of(cell, name) for name in self.only)]

    def rows(self, config: RunConfig, scheme: str) -> Rows | None:
        """The metrics rows of the finished run of ``config`` under ``scheme``; None where it did not finish."""
        if self.stored:
            return self._read(f"{config.name}-{scheme}-{config.seed}")
        for run, _ in runs.compare(config, [scheme], 1, self.workspace, tell=say):
            say(f"{run.name}: {run.status().state} {run.status().reason}".rstrip())
            return self._read(run.name)
        return None

    def _read(self, name: str) -> Rows | None:
        try:
            run = runs.open_run(name, self.workspace)
        except RunError:
            return None
        return run.metrics_rows()[0] if run.status().state == "finished" else None


def _is_of(cell: str, name: str) -> bool:
    return cell == name or cell.startswith(f"{name}/")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def last_mean(rows: Rows, metric: str, count: int = 5) -> float | None:
    """The mean of a metric's last ``count`` values."""
    return mean([row[metric] for row in rows if row.get(metric) is not None][-count:])
