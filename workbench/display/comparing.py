"""Credit schemes, or training methods, against each other over seeds, as a table and a figure with bands.

What is compared is carried out by ``runs.compare``, one after the other. Mean and band over seeds are those
of ``figures.overlay``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import runs as all_runs
from workbench.assets import load_example
from workbench.config.run import RunConfig
from workbench.display.progress import Progress
from workbench.figures.curves import points
from workbench.figures.lines import Chart, Charts, Line
from workbench.figures.overlay import band
from workbench.runs import Run
from workbench.runs.compare import ComparedMethod, ComparedRun, MethodStages, summarise
from workbench.runs.spawn import TRAINING

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

Series = tuple[list[float], list[float]]
Report = Callable[[Run, Mapping[str, Any]], None]


@dataclass(frozen=True)
class RunComparison:
    """Runs that differ in scheme and seed, or methods' stages, and what each came to, in one order."""

    runs: tuple[Run | MethodStages, ...]
    rows: tuple[ComparedRun | ComparedMethod, ...]

    @classmethod
    def of(cls, compared: Iterable[Run | MethodStages]) -> RunComparison:
        """Of runs, or of methods' stages, that are there already, finished or not."""
        there = tuple(compared)
        return cls(there, tuple(map(_summary, there)))

    def frame(self) -> pd.DataFrame:
        """One row a run, or a method and seed."""
        import pandas as pd

        table = pd.DataFrame([dataclasses.asdict(row) for row in self.rows])
        return table.astype({row.to_65: "Int64" for row in self.rows[:1]})  # a count, or <NA> if it never got there

    def by_scheme(self, column: str = "final_accuracy") -> pd.DataFrame:
        """Number of seeds, mean, lowest and highest of ``column`` for each scheme (or method)."""
        return self.frame().groupby(self.rows[0].grouped_by, sort=False)[column].agg(["count", "mean", "min", "max"])

    by_method = by_scheme

    def lines(self, metric: str = "accuracy") -> list[Line]:
        """For each scheme the mean over its seeds and their band (``figures.overlay.band``), by training step.

        For methods by completions sampled, those for data among them: the last value measured after so many. Raises
        ValueError where nothing has the metric.
        """
        series: dict[str, list[Series]] = {}
        for compared, row in zip(self.runs, self.rows, strict=True):
            series.setdefault(getattr(row, row.grouped_by), []).append(_series(compared, metric))
        lines = []
        for style, (label, seeds) in enumerate(series.items()):
            measured = [seed for seed in seeds if seed[0]]
            drawn = band(carried_forward(measured) if self._of_methods else measured)
            if measured:
                x, mean, low, high = (numbers.tolist() for numbers in (drawn.steps, drawn.mean, drawn.low, drawn.high))
                lines.append(Line(label, x, mean, low, high, style))
        if not lines:
            what = self.rows[0].grouped_by if self.rows else "run"
            raise ValueError(f"no {what} has {metric!r} at any step; see run.metrics() for what was logged")
        return lines

    def charts(self, *metrics: str) -> Charts:
        """A chart for each metric (held-out accuracy by default) with a line and a band for each scheme or method."""
        return Charts(tuple(self._chart(metric) for metric in metrics or ("accuracy",)))

    def figure(self, *metrics: str) -> Figure:
        """The same as a Plotly figure, to restyle and export."""
        return self.charts(*metrics).figure()

    def _chart(self, metric: str) -> Chart:
        share = metric.startswith("accuracy") or metric.endswith("_share")
        about = "Mean over the seeds that got so far, which may jump where one ends; the band is lowest to highest."
        x_label = "completions sampled" if self._of_methods else "step"
        return Chart(metric, tuple(self.lines(metric)), x_label, about, share, named=True)

    @property
    def _of_methods(self) -> bool:
        return any(isinstance(row, ComparedMethod) for row in self.rows)


def carried_forward(seeds: Sequence[Series]) -> list[Series]:
    """Each series at every place where any has a value: its last value up to there.

    Seeds of one method sample slightly different numbers of completions for data: without this, a mean would be over
    other seeds at each place.
    """
    places = sorted({x for xs, _ in seeds for x in xs})
    filled = []
    for xs, ys in seeds:
        values = [(x, y) for x, y in zip(xs, ys, strict=True)]
        there = [x for x in places if x >= xs[0]]
        filled.append((there, [[y for x, y in values if x <= place][-1] for place in there]))
    return filled


def compare(
    config: RunConfig,
    schemes: Sequence[str] = ("outcome", "process"),
    seeds: int = 3,
    workspace: Path | str | None = None,
    *,
    methods: Sequence[str] | None = None,
    completions: int | None = None,
    report: Report | None = None,
    module: str = TRAINING,
) -> RunComparison:
    """Train ``config`` under every scheme with ``seeds`` seeds, one run after the other, showing how far it is.

    With ``methods`` instead by each of these training methods, on a budget of ``completions`` sampled by each
    (``examples/compare_methods.py``).

    It blocks until all have ended; interrupting it stops what is at hand, and the others stay in the workspace: with
    the same ``config.name`` it goes on with what is not finished. Raises CreditError for an unknown scheme, and
    ConfigError for an unknown method and where the name does not fit.
    """
    of_methods = methods is not None
    total = seeds * (len(methods) if methods is not None else len(schemes) * config.run.steps)
    with Progress("methods and seeds" if of_methods else "steps of all runs") as progress:
        found: list[tuple[Any, Any]] = []

        def tell(run: Run, row: Mapping[str, Any]) -> None:
            if not of_methods:
                progress(len(found) * config.run.steps + int(row.get("step", 0)), total)
            if report is not None:
                report(run, row)

        compared: Iterable[tuple[Any, Any]]
        if methods is None:
            compared = all_runs.compare(config, schemes, seeds, workspace, report=tell, tell=print, module=module)
        else:
            budget = {} if completions is None else {"completions": completions}
            program = load_example("compare_methods")
            compared = program.compare(config, methods, seeds, workspace, report=tell, tell=print, **budget)
        for pair in compared:
            found.append(pair)
            if of_methods:
                progress(len(found), total)
    return RunComparison(tuple(run for run, _ in found), tuple(row for _, row in found))


def _summary(compared: Run | MethodStages) -> ComparedRun | ComparedMethod:
    if isinstance(compared, MethodStages):
        return compared.summary()
    config = compared.config()
    return summarise(config.method.label, config.seed, compared.metrics_rows()[0])


def _series(compared: Run | MethodStages, metric: str) -> Series:
    if isinstance(compared, MethodStages):
        return compared.course(metric).curve()
    steps, values = points(compared.metrics_rows()[0], metric)
    return list(steps), list(values)
