"""Line charts as records: drawn by ``charts/`` in a notebook or a file, and as a Plotly figure to restyle and export.

``run_charts`` lays out a run's metrics in the panels that the page shows. A line may have a band (``low`` to ``high``)
around it. Plotly is imported only when a figure is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from workbench.views.curves import expanded, packed, panels_of, points
from workbench.views.fragment import fragment, page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

COLOURS = ("#4a4fc4", "#b0580a", "#22795b", "#a8327a", "#2f7aa8", "#7a6a12", "#8a3c2c", "#5d6672")
"""Those of the light theme in ``curves.css``."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
BAND_OPACITY = 0.16
DRAW = "charts({element}, {text})"
HEIGHT = 240
"""Pixels of a row of charts."""


class LinePayload(TypedDict):
    """A line with its columns packed; ``colour`` and ``dash`` are its style."""

    label: str
    colour: int
    dash: int
    x: str
    y: str
    low: str | None
    high: str | None


class ChartPayload(TypedDict):
    """A chart as ``charts/curves.js`` draws it; ``x`` names its x axis."""

    key: str
    title: str
    about: str
    share: bool
    more: bool
    named: bool
    x: str
    lines: list[LinePayload]


class ChartsPayload(TypedDict):
    """What ``charts/fragment.js`` draws; ``key`` is that of the stored zoom, "" for none."""

    panels: list[ChartPayload]
    name: str
    key: str


@dataclass(frozen=True)
class Line:
    """Points in the order of ``x``; ``low`` and ``high``, where given, bound a band around it.

    ``style`` numbers its colour and dash; by default it is the line's place in its chart.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: int | None = None

    def __post_init__(self) -> None:
        for name in ("y", "low", "high"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise ValueError(f"line {self.label!r}: {len(self.x)} x and {len(values)} {name}; give as many")


@dataclass(frozen=True)
class Chart:
    """Lines on common axes. ``share`` labels values from 0 to 1 as per cent; ``about`` is shown on pointing.

    ``x_label`` names the x axis; "step" is that of training steps, in whole numbers from 0. ``more`` folds the chart
    away until it is asked for, ``named`` writes the name of a line that is alone, and ``key`` is part of a file's name.
    """

    title: str
    lines: tuple[Line, ...]
    x_label: str = ""
    about: str = ""
    share: bool = False
    more: bool = False
    named: bool = False
    key: str = ""

    def payload(self, place: int = 0) -> ChartPayload:
        """The chart as ``charts/curves.js`` draws it, by its place among others."""
        return {
            "key": self.key or f"{place + 1}-{self.title}",
            "title": self.title,
            "about": self.about,
            "share": self.share,
            "more": self.more,
            "named": self.named,
            "x": self.x_label,
            "lines": [_line_payload(line, number) for number, line in _styled(self)],
        }

    def figure(self) -> Figure:
        return Charts((self,)).figure()

    def _repr_html_(self) -> str:
        return Charts((self,)).html()

    def __str__(self) -> str:
        ends = ", ".join(f"{line.label} {_plain(line.y[-1], self.share)}" for line in self.lines if len(line.y))
        return f"{self.title}: {ends}"


@dataclass(frozen=True)
class Charts:
    """Charts beside each other, as many in a row as fit. ``name`` begins the names of files made of them."""

    charts: tuple[Chart, ...]
    name: str = ""

    def html(self, key: str = "") -> str:
        """A fragment that needs nothing else; outputs with one ``key`` that replace each other keep their zoom."""
        return fragment("wc", "charts/fragment.js", DRAW, self.payload(key), style="curves.css", words=str(self))

    def payload(self, key: str = "") -> ChartsPayload:
        return {"panels": [chart.payload(i) for i, chart in enumerate(self.charts)], "name": self.name, "key": key}

    def page(self) -> str:
        """A whole HTML document of the charts."""
        return page(self.html(), title=", ".join(chart.title for chart in self.charts), kind="wc")

    def figure(self, columns: int = 3) -> Figure:
        """All charts as one Plotly figure, ``columns`` side by side; axes of training steps zoom together.

        Raises ValueError where there is nothing to draw.
        """
        from plotly.subplots import make_subplots

        if not self.charts:
            raise ValueError("there is nothing to draw: no row has a metric of these panels yet; see run.metrics()")
        columns = min(columns, len(self.charts))
        height = math.ceil(len(self.charts) / columns)
        figure = make_subplots(rows=height, cols=columns, subplot_titles=[chart.title for chart in self.charts])
        for i, chart in enumerate(self.charts):
            place = {"row": i // columns + 1, "col": i % columns + 1}
            for style, line in _styled(chart):
                for trace in _traces(chart, line, style):
                    figure.add_trace(trace, **place)
            figure.update_xaxes(title_text=chart.x_label, matches="x" if chart.x_label == "step" else None, **place)
            if chart.share:
                figure.update_yaxes(tickformat=".0%", rangemode="tozero", **place)
        figure.update_layout(
            height=HEIGHT * height, template="plotly_white", margin={"t": 40, "r": 16, "b": 40, "l": 48}
        )
        return figure

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return "\n".join(map(str, self.charts))


def run_charts(
    rows: Iterable[Mapping[str, Any]], keys: Sequence[str] = (), *, name: str = "", metrics: Iterable[str] = ()
) -> Charts:
    """The panels (all, or those with these ``keys``) that have data in a run's rows, those of ``metrics`` first."""
    rows = list(rows)
    logged = dict.fromkeys(name for row in rows for name in row)
    charts = []
    for panel in (expanded(panel, logged) for panel in panels_of(metrics) if not keys or panel.key in keys):
        lines = tuple(
            Line(series.label, *points(rows, series.metric), style=panel.first_style + place)
            for place, series in enumerate(panel.series)
        )
        lines = tuple(line for line in lines if line.x)
        if lines:
            more = panel.more and not keys
            charts.append(
                Chart(panel.title, lines, "step", panel.about, panel.share, more, named=panel.named, key=panel.key)
            )
    return Charts(tuple(charts), name)


def _styled(chart: Chart) -> list[tuple[int, Line]]:
    return [(place if line.style is None else line.style, line) for place, line in enumerate(chart.lines)]


def _line_payload(line: Line, style: int) -> LinePayload:
    return {
        "label": line.label,
        "colour": style,
        "dash": style,
        "x": packed(line.x),
        "y": packed(line.y),
        "low": None if line.low is None else packed(line.low),
        "high": None if line.high is None else packed(line.high),
    }


def _plain(value: float, share: bool) -> str:
    return f"{100 * value:.3g} %" if share else f"{value:.3g}".replace("-", "\u2212")


def _traces(chart: Chart, line: Line, style: int) -> list[Scatter]:
    """The line, over its band where it has one."""
    from plotly.graph_objects import Scatter

    colour = COLOURS[style % len(COLOURS)]
    x, group = list(line.x), f"{chart.title} {line.label}"
    traces = []
    if line.low is not None and line.high is not None:
        edge = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": group}
        fill = {"fill": "tonexty", "fillcolor": _faded(colour)}
        traces.append(Scatter(y=list(line.low), name=f"{line.label}, lowest", showlegend=False, **edge))
        traces.append(Scatter(y=list(line.high), name=f"{line.label}, highest", showlegend=False, **edge, **fill))
    drawn = {"color": colour, "dash": DASHES[style % len(DASHES)], "width": 1.8}
    traces.append(Scatter(x=x, y=list(line.y), name=line.label, mode="lines", line=drawn, legendgroup=group))
    return traces


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {BAND_OPACITY})"
