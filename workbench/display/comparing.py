"""Credit schemes against each other over seeds, as a table and a figure with bands.

The runs are ``runs.compare``'s, one after the other. Mean and band over seeds are those of ``figures.overlay``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import runs as all_runs
from workbench.config import RunConfig
from workbench.display.progress import Progress
from workbench.figures.curves import points
from workbench.figures.lines import Chart, Charts, Line
from workbench.figures.overlay import band
from workbench.runs import Run
from workbench.runs.compare import ComparedRun, summarise
from workbench.runs.spawn import TRAINING

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


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
        """For each scheme the mean over its seeds and their band (``figures.overlay.band``).

        Raises ValueError where no run has the metric.
        """
        runs: dict[str, list[tuple[list[float], list[float]]]] = {}
        for run, row in zip(self.runs, self.rows, strict=True):
            runs.setdefault(row.scheme, []).append(points(run.metrics_rows()[0], metric))
        bands = {scheme: band([series for series in each if series[0]]) for scheme, each in runs.items()}
        lines = [
            Line(scheme, drawn.steps.tolist(), drawn.mean.tolist(), drawn.low.tolist(), drawn.high.tolist(), style)
            for style, (scheme, drawn) in enumerate(bands.items())
            if len(drawn.steps)
        ]
        if not lines:
            raise ValueError(f"no scheme has {metric!r} at any step; see run.metrics() for what was logged")
        return lines

    def charts(self, *metrics: str) -> Charts:
        """A chart for each metric (held-out accuracy by default) with a line and a band for each scheme."""
        return Charts(tuple(self._chart(metric) for metric in metrics or ("accuracy",)))

    def figure(self, *metrics: str) -> Figure:
        """The same as a Plotly figure, to restyle and export."""
        return self.charts(*metrics).figure()

    def _chart(self, metric: str) -> Chart:
        share = metric.startswith("accuracy") or metric.endswith("_share")
        about = "Mean over seeds; the band is from the lowest seed to the highest."
        return Chart(metric, tuple(self.lines(metric)), "step", about, share, named=True)


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
    total = len(schemes) * seeds * config.run.steps
    with Progress("steps of all runs") as progress:
        found: list[tuple[Run, ComparedRun]] = []

        def tell(run: Run, row: Mapping[str, Any]) -> None:
            progress(len(found) * config.run.steps + int(row.get("step", 0)), total)
            if report is not None:
                report(run, row)

        for pair in all_runs.compare(config, schemes, seeds, workspace, report=tell, module=module):
            found.append(pair)
    return RunComparison(tuple(run for run, _ in found), tuple(row for _, row in found))


def _summary(run: Run) -> ComparedRun:
    config = run.config()
    return summarise(config.method.label, config.seed, run.metrics_rows()[0])
