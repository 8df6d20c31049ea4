"""Curves: a run's metrics, or those of several runs, as charts for the page, for notebooks and as a Plotly figure.

A ``Chart`` is plain records. ``payload`` gives its Plotly traces to the page, whose script adds a look and new points;
``figure`` puts charts into one Plotly figure to show, restyle and export. Plotly is imported only for that.

Of several runs, a configuration has a line that is the mean over its seeds at each step, and a band from the lowest to
the highest of them. Not a standard deviation: with the three or five seeds that people run it is what was seen and
nothing inferred. Which runs belong to one configuration is the caller's to say.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from workbench.views.panels import GROUPS, LARGE, PANELS, Panel, panels_with
from workbench.views.wording import FIRST, course, quantity

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

POINTS = 1_000
"""Of a line on the page at most, and of a band: more than a chart has columns of pixels."""
COLOURS = ("#4a4fc4", "#22795b", "#a8327a", "#7a6a12", "#8a3c2c", "#2f7aa8", "#b0580a", "#5d6672")
"""Those of the light theme in ``curves.css``."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
BAND_OPACITY = 0.16
HEIGHT = 240
"""Pixels of a row of charts."""
SPARK = 40
"""Points of a small curve beside a sentence."""
MOST_TOLD = 3
"""Metrics that the line of a folded group tells of."""
BASELINE = 7
"""The colour of what a line is compared with."""
MARKED = 60
"""Most points of a line that are marked, if it was measured only now and then."""

Columns = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By metric: the steps at which it was logged (ascending) and its finite values there."""


class TracePayload(TypedDict):
    """A line with its columns packed; ``colour`` and ``dash`` number its look, of a ``faint`` one behind another too.

    The page adds points that are logged later to the trace of their ``metric``.
    """

    name: str
    metric: str | None
    colour: int
    dash: int
    faint: bool
    markers: bool
    x: str
    y: str
    low: NotRequired[str]
    high: NotRequired[str]


class ChartPayload(TypedDict):
    """A chart as ``curves.js`` draws it; ``x`` names its x axis, "step" that of training steps.

    ``group`` titles the group that it is folded away in, "" for one that is drawn large. ``dashes`` names the dashes of
    several metrics where a line's name does not.
    """

    key: str
    title: str
    about: str
    share: bool
    group: str
    named: bool
    x: str
    dashes: list[tuple[str, int]]
    traces: list[TracePayload]


class FoldPayload(TypedDict):
    """A group of charts that is folded away: what its numbers say, the course of the first one, and what it draws.

    ``look``: an alarm is about one of its metrics.
    """

    title: str
    said: str
    spark: list[float]
    metrics: list[str]
    look: bool


@dataclass(frozen=True)
class Line:
    """Points in the order of ``x``; ``low`` and ``high``, where given, bound a band around it.

    ``style`` numbers its colour and, unless ``dash`` does, its dash; by default it is the line's place in its chart.
    A ``faint`` line stands behind another and has no entry in a legend.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: int | None = None
    dash: int | None = None
    metric: str | None = None
    faint: bool = False

    @classmethod
    def of_band(cls, label: str, drawn: pd.DataFrame, **look: Any) -> Line:
        """Return the mean with the lowest and highest around it."""
        mean, low, high = (drawn[name].tolist() for name in ("mean", "low", "high"))
        return cls(label, drawn.index.tolist(), mean, low, high, **look)

    @property
    def is_sparse(self) -> bool:
        """Return whether it was measured only now and then, if its places are training steps."""
        return len(self.x) > 1 and (self.x[-1] - self.x[0]) / (len(self.x) - 1) >= 2

    def payload(self, place: int, steps: bool) -> TracePayload:
        """At most ``POINTS`` points of it, by its place among others; of training ``steps`` it may have gaps."""
        style = place if self.style is None else self.style
        kept = thinned(self.y)
        payload: TracePayload = {
            "name": self.label,
            "metric": self.metric,
            "colour": style,
            "dash": style if self.dash is None else self.dash,
            "faint": self.faint,
            "markers": (len(self.x) < 3 or self.is_sparse or not steps) and not self.faint and len(kept) <= MARKED,
            "x": _packed(self.x, kept),
            "y": _packed(self.y, kept),
        }
        if self.low is not None and self.high is not None:
            payload |= {"low": _packed(self.low, kept), "high": _packed(self.high, kept)}
        return payload


@dataclass(frozen=True)
class Chart:
    """Lines on common axes. ``share`` labels values from 0 to 1 as per cent; ``about`` is shown on pointing.

    ``x_label`` names the x axis; "step" is that of training steps. ``group`` titles the group that the chart is folded
    away in, ``named`` writes the name of a line that is alone, and ``key`` is the panel's.
    """

    title: str
    lines: tuple[Line, ...]
    x_label: str = ""
    about: str = ""
    share: bool = False
    group: str = ""
    named: bool = False
    key: str = ""
    dashes: tuple[tuple[str, int], ...] = ()

    def payload(self) -> ChartPayload:
        return {
            "key": self.key,
            "title": self.title,
            "about": self.about,
            "share": self.share,
            "group": self.group,
            "named": self.named,
            "x": self.x_label,
            "dashes": list(self.dashes),
            "traces": [line.payload(place, self.x_label == "step") for place, line in enumerate(self.lines)],
        }

    def __str__(self) -> str:
        ends = []
        for line in self.lines:
            if len(line.y):
                end = f"{100 * line.y[-1]:.3g} %" if self.share else f"{line.y[-1]:.3g}".replace("-", "\u2212")
                ends.append(f"{line.label} {end}")
        return f"{self.title}: {', '.join(ends)}"


def figure(charts: Sequence[Chart], columns: int = 3) -> Figure:
    """All charts as one Plotly figure, ``columns`` side by side; axes of training steps zoom together.

    Raises ValueError where there is nothing to draw.
    """
    from plotly.subplots import make_subplots

    if not charts:
        raise ValueError("there is nothing to draw: no row has a metric of these panels yet; see run.metrics()")
    columns = min(columns, len(charts))
    height = math.ceil(len(charts) / columns)
    drawn = make_subplots(rows=height, cols=columns, subplot_titles=list(map(_heading, charts)))
    for i, chart in enumerate(charts):
        place = {"row": i // columns + 1, "col": i % columns + 1}
        for number, line in enumerate(chart.lines):
            for trace in _traces(line, number):
                drawn.add_trace(trace, **place)
        steps = {"matches": "x", "exponentformat": "none"} if chart.x_label == "step" else {}
        title = "training step" if chart.x_label == "step" else chart.x_label
        drawn.update_xaxes(title_text=title, **steps, **place)
        share = {"tickformat": "~%", "rangemode": "tozero"} if chart.share else {"exponentformat": "e"}
        drawn.update_yaxes(**share, **place)
    margin = {"t": 40, "r": 16, "b": 40, "l": 48}
    drawn.update_layout(height=HEIGHT * height, template="plotly_white", margin=margin, showlegend=False)
    drawn.update_annotations(font_size=13)
    return drawn


def _heading(chart: Chart) -> str:
    """The title, and the names of several lines in their colours."""
    names = []
    for place, line in enumerate(chart.lines):
        if not line.faint and (chart.named or len(chart.lines) > 1):
            colour = COLOURS[(place if line.style is None else line.style) % len(COLOURS)]
            names.append(f'<span style="color:{colour}">{escape(line.label)}</span>')
    return " · ".join([f"<b>{escape(chart.title)}</b>", *names])


def _traces(line: Line, place: int) -> list[dict[str, Any]]:
    """The line, over its band where it has one."""
    style = place if line.style is None else line.style
    colour, dash = COLOURS[style % len(COLOURS)], DASHES[(style if line.dash is None else line.dash) % len(DASHES)]
    common = {"type": "scatter", "x": list(line.x), "mode": "lines"}
    edge = {**common, "line": {"width": 0}, "hoverinfo": "skip"}
    band: list[dict[str, Any]] = []
    if line.low is not None and line.high is not None:
        band.append({**edge, "y": list(line.low), "name": f"{line.label}, lowest"})
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        fill = {"fill": "tonexty", "fillcolor": f"rgba({red}, {green}, {blue}, {BAND_OPACITY})"}
        band.append({**edge, "y": list(line.high), "name": f"{line.label}, highest", **fill})
    drawn = {"color": colour, "dash": dash, "width": 1.8}
    return [*band, {**common, "y": list(line.y), "name": line.label, "line": drawn}]


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────


def columns_of(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """The finite numbers of metrics rows, by metric."""
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float) and math.isfinite(value) and "step" in row:
                steps, values = columns.setdefault(name, ([], []))
                steps.append(row["step"])
                values.append(value)
    return columns


def run_charts(
    columns: Columns,
    keys: Collection[str] = (),
    *,
    metrics: Iterable[str] = (),
    smoothing: float = 0.0,
    problems: int = 0,
    groups: Collection[str] | None = None,
) -> list[Chart]:
    """The panels (all, or those with these ``keys``) that have data in a run's columns, those of ``metrics`` first.

    With ``smoothing`` above 0 each line is its exponential moving average with that weight on what came before,
    corrected for its start, and the values stay faint behind it. Where the number of held-out ``problems`` is known,
    accuracy has a band (``wilson``) and what it was before training as a line. ``groups`` are the titles of those whose
    charts are wanted beside the large ones; all by default.
    """
    charts = []
    for n, panel in enumerate(panel for panel in panels_with(columns, metrics) if not keys or panel.key in keys):
        group = "" if n < LARGE else panel.group
        if groups is not None and group and group not in groups:
            continue
        lines = []
        for place, metric in enumerate(panel.metrics):
            if metric.name not in columns:
                continue
            line = Line(metric.label, *columns[metric.name], style=panel.first_style + place, metric=metric.name)
            if metric.name == "accuracy" and problems:
                low, high = wilson(line.y, problems)
                lines.append(replace(line, low=low, high=high))
                ends = [line.x[0], line.x[-1]]
                lines.append(Line("before training", ends, [line.y[0]] * 2, style=BASELINE, dash=2))
            else:
                lines += [line] if line.is_sparse else smoothed(line, smoothing)  # far apart, an average lags
        charts.append(_chart(panel, lines, "step", group=group, named=panel.has_names))
    return charts


def folds(columns: Columns, metrics: Iterable[str], alarmed: Collection[str] = ()) -> list[FoldPayload]:
    """The groups of a run's charts that are folded away, each with what its numbers say; ``alarmed`` are metrics that
    an alarm is about."""
    found: list[FoldPayload] = []
    folded, shares = (
        panels_with(columns, metrics)[LARGE:],
        {m.name for panel in PANELS if panel.share for m in panel.metrics},
    )
    for group in GROUPS:
        drawn = [m for panel in folded if panel.group == group.title for m in panel.metrics if m.name in columns]
        told = [(name, said) for name, said in group.told if name in columns] or [(m.name, m.label) for m in drawn]
        if not drawn:
            continue
        texts = [
            course(said, values, share=name in shares) or f"{said} {quantity(fmean(values[-FIRST:]), name in shares)}"
            for name, said in told[:MOST_TOLD]
            for values in [columns[name][1]]
        ]
        values = np.asarray(columns[told[0][0]][1], dtype=np.float64)
        parts = np.array_split(values, min(SPARK, len(values)))
        names = [metric.name for metric in drawn]
        found.append(
            {
                "title": group.title,
                "said": "; ".join(texts),
                "spark": [float(part.mean()) for part in parts],
                "metrics": names,
                "look": any(name in alarmed for name in names),
            }
        )
    return found


def wilson(shares: Sequence[float], n: int) -> tuple[list[float], list[float]]:
    """The ends of 95 % intervals of shares of ``n`` (Wilson, JASA 22, 1927), which stay between 0 and 1."""
    z, share = 1.96, np.asarray(shares, dtype=np.float64)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return (centre - half).tolist(), (centre + half).tolist()


def _chart(panel: Panel, lines: Sequence[Line], x: str, **more: Any) -> Chart:
    return Chart(panel.title, tuple(lines), x, panel.about, panel.share, key=panel.key, **more)


def smoothed(line: Line, weight: float) -> list[Line]:
    """The line, over its own values where it is smoothed."""
    if not weight:
        return [line]
    import pandas as pd

    average = pd.Series(np.asarray(line.y, dtype=np.float64)).ewm(alpha=1 - weight).mean()
    behind = Line(line.label, line.x, line.y, style=line.style, dash=line.dash, faint=True)
    return [behind, Line(line.label, line.x, average.tolist(), line.low, line.high, line.style, line.dash, line.metric)]


def thinned(y: Sequence[float], most: int = POINTS) -> NDArray[np.int64]:
    """Indices of at most ``most`` points: all, or the first, least, greatest and last of equally long parts."""
    every, values = np.arange(len(y)), np.asarray(y, dtype=np.float64)
    if len(y) <= most:
        return every
    kept = [
        (part[0], part[values[part].argmin()], part[values[part].argmax()], part[-1])
        for part in np.array_split(every, most // 4)
    ]
    return np.unique(np.array(kept))


def _packed(values: Sequence[float], kept: NDArray[np.int64]) -> str:
    """Base64 of little-endian float32: small and quick to take in, and as exact as a chart is."""
    return base64.b64encode(np.asarray(values)[kept].astype("<f4").tobytes()).decode("ascii")


# ── several runs ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Seeds:
    """The runs of one configuration: what it is called, and each run's name and columns."""

    label: str
    runs: Sequence[tuple[str, Columns]]


def band(
    runs: Sequence[tuple[Sequence[float], Sequence[float]]], points: int = POINTS, *, carry_on: bool = False
) -> pd.DataFrame:
    """Return "mean", "low" and "high" over runs, each given as (steps, values), by step.

    A step that some runs lack is of those that have it, unless they ``carry_on`` with the value they had last. With
    more than ``points`` distinct steps, neighbours are put together and stand at the last one of them.
    """
    import pandas as pd

    table = pd.concat([_series(*run) for run in runs], axis=1).sort_index()
    if carry_on:
        table = table.ffill()
    if len(table) > points:
        last = table.index[[part[-1] for part in np.array_split(np.arange(len(table)), points)]]
        table = table.groupby(last[last.searchsorted(table.index)]).mean()
    return pd.DataFrame({"mean": table.mean(axis=1), "low": table.min(axis=1), "high": table.max(axis=1)})


def _series(x: Sequence[float], y: Sequence[float]) -> pd.Series[float]:
    """Return y by x, x ascending and each once: equal places have the mean."""
    import pandas as pd

    return pd.Series(np.asarray(y, dtype=np.float64)).groupby(np.asarray(x, dtype=np.float64)).mean()


def over(runs: Sequence[tuple[str, Columns]], axis: str) -> list[tuple[str, Columns]]:
    """Return the runs' columns over the metric ``axis`` in place of steps; what has no value of it is left out.

    Where there are several runs, each is read off at the others' places, too, between its first and last value, as no
    two runs log the same time.
    """
    moved: list[dict[str, pd.Series[float]]] = []
    for _, columns in runs:
        places = dict(zip(*columns.get(axis, ((), ())), strict=True))
        moved.append({})
        for metric, column in columns.items():
            pairs = [(places[step], value) for step, value in zip(*column, strict=True) if step in places]
            moved[-1][metric] = _series([x for x, _ in pairs], [y for _, y in pairs])
    aligned: list[tuple[str, Columns]] = []
    for (name, _), of_run in zip(runs, moved, strict=True):
        columns = {}
        for metric, y in of_run.items():
            at = np.unique(np.concatenate([one[metric].index for one in moved if metric in one]))
            within = at[(at >= y.index.min()) & (at <= y.index.max())]
            columns[metric] = within.tolist(), np.interp(within, y.index, y).tolist() if len(y) else []
        aligned.append((name, columns))
    return aligned


def overlay_charts(
    configurations: Sequence[Seeds],
    metrics: Iterable[str] = (),
    *,
    x: str = "step",
    off: Collection[str] = (),
    each: bool = False,
    smoothing: float = 0.0,
) -> list[Chart]:
    """The panels that have data, those of ``metrics`` first: a colour is a configuration, a dash a metric of the panel.

    A configuration of several runs is its mean with a band, and with ``each`` every run as a faint line, too. Runs that
    are ``off`` are left out, and then the others of their configuration are drawn as they are: a mean of all would
    mislead.
    """
    runs = [columns for seeds in configurations for _, columns in seeds.runs]
    logged = dict.fromkeys(name for columns in runs for name, (steps, _) in columns.items() if len(steps))
    charts: list[Chart] = []
    for panel in panels_with(logged, metrics):
        there = [place for place, metric in enumerate(panel.metrics) if metric.name in logged]
        lines = [
            smooth
            for place in there
            for number, seeds in enumerate(configurations)
            for line in _seeds_lines(panel, place, seeds, number, off, each, banded=place == there[0])
            for smooth in ([line] if line.faint else smoothed(line, smoothing))
        ]
        several = len(panel.metrics) > 1
        dashes = tuple((panel.metrics[n].label, panel.first_style + n) for n in there) if several else ()
        group = "" if len(charts) < LARGE else panel.group
        charts.append(_chart(panel, lines, x, group=group, named=True, dashes=dashes))
    return charts


def _seeds_lines(
    panel: Panel, place: int, seeds: Seeds, number: int, off: Collection[str], each: bool, *, banded: bool
) -> list[Line]:
    """Only a panel's first metric has a band: three of them over each other show nothing."""
    metric, label = panel.metrics[place].name, panel.metrics[place].label
    name = f"{seeds.label}, {label}" if len(panel.metrics) > 1 else seeds.label
    look: dict[str, Any] = {"style": number, "dash": panel.first_style + place}
    runs = [(run, columns[metric]) for run, columns in seeds.runs if columns.get(metric, ((),))[0]]
    several = len(runs) > 1
    shown = [(run, columns) for run, columns in runs if run not in off]
    if not several or len(shown) < len(runs):
        return [Line(run if several else name, *columns, **look) for run, columns in shown]
    line = Line.of_band(f"{name}, mean", band([columns for _, columns in runs]), **look)
    line = line if banded else replace(line, low=None, high=None)
    return [*(Line(run, *columns, **look, faint=True) for run, columns in runs if each), line]
