"""Credit schemes against each other over seeds, as a table and a figure with bands.

The runs are ``runs.compare``'s, one after the other. A band is the range from the lowest to the highest seed: with a
handful of seeds that says more honestly what was seen than an interval that assumes a distribution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import runs as all_runs
from workbench.config import RunConfig
from workbench.display.progress import Progress
from workbench.figures.curves import points
from workbench.figures.lines import Chart, Charts, Line
from workbench.runs import Run
from workbench.runs.compare import ComparedRun, summarise
from workbench.runs.spawn import TRAINING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunComparison:
    """Runs that differ in scheme and seed, and what each came to, in the same order."""

    runs: tuple[Run, ...]
    rows: tuple[ComparedRun, ...]

    @classmethod
    def of(cls, compared: Iterable[Run]) -> RunComparison:
        """Of runs that are there already, finished or not."""
        found = tuple(compared)
        return cls(found, tuple(_summary(run) for run in found))

    def frame(self) -> pd.DataFrame:
        """One row a run."""
        import pandas as pd

        table = pd.DataFrame([dataclasses.asdict(row) for row in self.rows])
        return table.astype({"rollouts_to_65": "Int64"})  # a count, or <NA> where accuracy never got there

    def by_scheme(self, column: str = "final_accuracy") -> pd.DataFrame:
        """Number of seeds, mean, lowest and highest of ``column`` for each scheme."""
        return self.frame().groupby("scheme", sort=False)[column].agg(["count", "mean", "min", "max"])

    def lines(self, metric: str = "accuracy") -> list[Line]:
        """For each scheme the mean over seeds and the band from lowest to highest, at the steps all of them have.

        Raises ValueError where no run has the metric.
        """
        lines, found = [], self._series()
        for scheme in dict.fromkeys(row.scheme for row in self.rows):
            series = [found[i].get(metric, {}) for i, row in enumerate(self.rows) if row.scheme == scheme]
            shared = sorted(set.intersection(*map(set, series)))
            if not shared:
                continue
            values = np.array([[one[step] for step in shared] for one in series])  # (seeds, steps)
            low, high = values.min(axis=0).tolist(), values.max(axis=0).tolist()
            lines.append(Line(scheme, shared, values.mean(axis=0).tolist(), low, high))
        if not lines:
            raise ValueError(f"no scheme has {metric!r} at a step that all its seeds measured; see run.metrics()")
        return lines

    def figure(self, *metrics: str) -> Charts:
        """A chart for each metric (held-out accuracy by default) with a line and a band for each scheme."""
        charts = []
        for metric in metrics or ("accuracy",):
            share = metric.startswith("accuracy") or metric.endswith("_share")
            about = "Mean over seeds; the band is from the lowest seed to the highest."
            charts.append(Chart(metric, tuple(self.lines(metric)), "step", about=about, share=share))
        return Charts(tuple(charts))

    def _series(self) -> list[dict[str, dict[float, float]]]:
        """Of each run, a metric's values by step."""
        found = []
        for run in self.runs:
            rows, _ = run.metrics_rows()
            names = {name for row in rows for name in row}
            found.append({name: dict(zip(*points(rows, name), strict=True)) for name in names - {"step"}})
        return found


def compare(
    config: RunConfig,
    schemes: Sequence[str] = ("outcome", "process"),
    seeds: int = 3,
    workspace: Path | str | None = None,
    *,
    report: Callable[[Run, Mapping[str, Any]], None] | None = None,
    module: str = TRAINING,
) -> RunComparison:
    """Train ``config`` under every scheme with ``seeds`` seeds, one run after the other, showing how far it is.

    It blocks until all have ended; interrupting it stops the run at hand, and the others stay in the workspace.
    Raises CreditError for an unknown scheme.
    """
    total = len(schemes) * seeds * config.training.steps
    with Progress("steps of all runs") as progress:
        found: list[tuple[Run, ComparedRun]] = []

        def tell(run: Run, row: Mapping[str, Any]) -> None:
            progress(len(found) * config.training.steps + int(row.get("step", 0)), total)
            if report is not None:
                report(run, row)

        for pair in all_runs.compare(config, schemes, seeds, workspace, report=tell, module=module):
            found.append(pair)
    return RunComparison(tuple(run for run, _ in found), tuple(row for _, row in found))


def _summary(run: Run) -> ComparedRun:
    config = run.config()
    return summarise(config.credit.scheme, config.seed, run.metrics_rows()[0])
