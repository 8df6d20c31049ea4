"""Line charts as SVG: numbers in, a drawing out that shows itself in a notebook and stays as it is in an exported file.

A chart follows the light or dark theme around it through CSS, needs no script, and is cheap enough to be drawn anew
each time a row arrives. A line may have a band (``low`` to ``high``) around it. The page's own curves are
``curves.js``; this module knows nothing of runs or metrics beyond the ``PANELS`` it can lay out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from workbench.figures.curves import PANELS, expanded, points
from workbench.schema.rounding import differ

WIDTH, HEIGHT = 400, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 44, 38
COLOURS = 5
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 3")
_MARKED = 40  # points up to which each one is marked and can be pointed at

STYLE = """
.wl { --l0: #4a4fc4; --l1: #b0580a; --l2: #22795b; --l3: #9a3480; --l4: #5c6570; --ink: #1c2026; --muted: #5c6570;
  --grid: #dfe3e8; display: flex; flex-wrap: wrap; gap: 8px 12px; color: var(--ink); }
.wl svg { width: 400px; max-width: 100%; height: auto;
  font: 11px system-ui, "Noto Sans", "Liberation Sans", Arial, sans-serif; }
.wl text { fill: var(--muted); } .wl .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
.wl .grid { stroke: var(--grid); } .wl .line { fill: none; stroke-width: 1.8; }
.wl .legend text { fill: var(--ink); }
.dark .wl, [data-jp-theme-light="false"] .wl { --l0: #9a9ff2; --l1: #e3a05c; --l2: #66c2a0; --l3: #e08cc8;
  --l4: #a0a8b3; --ink: #e3e6ea; --muted: #a0a8b3; --grid: #2b3038; }
@media (prefers-color-scheme: dark) { .wl:not([data-jp-theme-light="true"] *) { --l0: #9a9ff2; --l1: #e3a05c;
  --l2: #66c2a0; --l3: #e08cc8; --l4: #a0a8b3; --ink: #e3e6ea; --muted: #a0a8b3; --grid: #2b3038; } }
"""


@dataclass(frozen=True)
class Line:
    """Points in the order of ``x``; ``low`` and ``high``, where given, bound a band around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name in ("y", "low", "high"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise ValueError(f"line {self.label!r}: {len(self.x)} x and {len(values)} {name}; give as many")


@dataclass(frozen=True)
class Chart:
    """Lines on common axes. ``share`` labels values from 0 to 1 as per cent; ``about`` is told on pointing."""

    title: str
    lines: tuple[Line, ...]
    x_label: str = ""
    y_label: str = ""
    about: str = ""
    share: bool = False

    def svg(self) -> str:
        return _svg(self)

    def _repr_html_(self) -> str:
        return Charts((self,)).html()

    def __str__(self) -> str:
        ends = ", ".join(f"{line.label} {_plain(line.y[-1], self.share)}" for line in self.lines if len(line.y))
        return f"{self.title}: {ends}"


@dataclass(frozen=True)
class Charts:
    """Charts beside each other, as many in a row as fit."""

    charts: tuple[Chart, ...]

    def html(self) -> str:
        return f'<style>{STYLE}</style><div class="wl">{"".join(chart.svg() for chart in self.charts)}</div>'

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return "\n".join(map(str, self.charts))


def run_charts(rows: Iterable[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Charts:
    """The panels (all, or those with these ``keys``) that have data in a run's metrics rows."""
    rows = list(rows)
    logged = dict.fromkeys(name for row in rows for name in row)
    charts = []
    for panel in (expanded(one, logged) for one in PANELS):
        lines = [Line(series.label, *points(rows, series.metric)) for series in panel.series]
        lines = [line for line in lines if line.x]
        if lines and (keys is None or panel.key in keys):
            charts.append(Chart(panel.title, tuple(lines), "step", about=panel.about, share=panel.share))
    return Charts(tuple(charts))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them, a 1, 2 or 5 times a power of ten apart."""
    if not high > low:
        return [low]
    rough = (high - low) / max(count - 1, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.75)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _svg(chart: Chart) -> str:
    lines = [line for line in chart.lines if len(line.x)]
    x0, x1 = _bounds([x for line in lines for x in line.x])
    values = [v for line in lines for row in (line.y, line.low or (), line.high or ()) for v in row]
    y0, y1 = _bounds(values, margin=0.06)
    if chart.share:
        y0, y1 = max(0.0, y0), min(1.0, y1) if y1 > y0 else 1.0

    def px(x: float) -> float:
        return round(_LEFT + (x - x0) / (x1 - x0) * (WIDTH - _LEFT - _RIGHT), 1)

    def py(y: float) -> float:
        return round(HEIGHT - _BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - _TOP - _BOTTOM), 1)

    parts = [f"<title>{escape(chart.about)}</title>"] if chart.about else []
    parts.append(f'<text class="title" x="{_LEFT}" y="14">{escape(chart.title)}</text>')
    steps = ticks(y0, y1)
    for y in steps:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py(y)}" y2="{py(y)}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{py(y) + 4}" text-anchor="end">{_tick(y, steps, chart.share)}</text>')
    for x in ticks(x0, x1, 6):
        parts.append(f'<text x="{px(x)}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{_plain(x)}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x_label)}</text>')
    if chart.y_label:
        at = (HEIGHT - _BOTTOM + _TOP) / 2
        turned = f'transform="rotate(-90 11 {at})" text-anchor="middle"'
        parts.append(f'<text x="11" y="{at}" {turned}>{escape(chart.y_label)}</text>')
    for n, line in enumerate(lines):
        parts += _drawn(_thinned(line), n, px, py, chart.share)
    parts.append(_legend(lines))
    label = escape(str(chart), quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _thinned(line: Line) -> Line:
    """Of a line with more points than can be seen, the first, least, greatest and last of each column."""
    count = len(line.x)
    if count <= 4 * WIDTH:
        return line
    kept: set[int] = set()
    for column in range(WIDTH):
        part = range(column * count // WIDTH, (column + 1) * count // WIDTH)
        kept |= {part[0], part[-1], min(part, key=line.y.__getitem__), max(part, key=line.y.__getitem__)}
    places = sorted(kept)
    low, high = ([row[i] for i in places] if row is not None else None for row in (line.low, line.high))
    return replace(line, x=[line.x[i] for i in places], y=[line.y[i] for i in places], low=low, high=high)


def _drawn(line: Line, n: int, px: Any, py: Any, share: bool) -> list[str]:
    colour, dash = f"var(--l{n % COLOURS})", _DASHES[n % len(_DASHES)]
    parts = []
    if line.low is not None and line.high is not None:
        there = [f"{px(x)},{py(y)}" for x, y in zip(line.x, line.high, strict=True)]
        back = [f"{px(x)},{py(y)}" for x, y in zip(line.x, line.low, strict=True)]
        parts.append(f'<polygon points="{" ".join(there + back[::-1])}" style="fill:{colour};opacity:.16"/>')
    places = [(px(x), py(y)) for x, y in zip(line.x, line.y, strict=True)]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    parts.append(f'<polyline class="line" points="{drawn}" stroke-dasharray="{dash}" style="stroke:{colour}"/>')
    if len(places) <= _MARKED:
        for (x, y), at, value in zip(places, line.x, line.y, strict=True):
            told = escape(f"{line.label}: {_plain(value, share)} at {_plain(at)}")
            parts.append(f'<circle cx="{x}" cy="{y}" r="2.4" style="fill:{colour}"><title>{told}</title></circle>')
    return parts


def _legend(lines: Sequence[Line]) -> str:
    """Below the title, from left to right; one line needs none."""
    if len(lines) < 2:
        return ""
    parts, x = [], float(_LEFT)
    # Labels take about 7 a letter; where that is too much for the picture, all of them are set closer.
    needed = sum(36 + 7 * len(line.label) for line in lines)
    scale = min(1.0, (WIDTH - _LEFT) / needed)
    for n, line in enumerate(lines):
        stroke = f"stroke:var(--l{n % COLOURS});stroke-width:2"
        dash = _DASHES[n % len(_DASHES)]
        parts.append(
            f'<line x1="{x:.0f}" x2="{x + 16:.0f}" y1="27" y2="27" stroke-dasharray="{dash}" style="{stroke}"/>'
        )
        fitted = f' textLength="{7 * len(line.label) * scale:.0f}" lengthAdjust="spacingAndGlyphs"' if scale < 1 else ""
        parts.append(f'<text x="{x + 21:.0f}" y="31"{fitted}>{escape(line.label)}</text>')
        x += (36 + 7 * len(line.label)) * scale
    return f'<g class="legend">{"".join(parts)}</g>'


def _bounds(values: Sequence[float], margin: float = 0.0) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = float(min(values)), float(max(values))
    if not differ(low, high):
        return low - max(abs(low) / 2, 0.5), high + max(abs(high) / 2, 0.5)
    room = (high - low) * margin
    return low - room, high + room


def _tick(value: float, ticks: Sequence[float], share: bool) -> str:
    """A tick's label, with as many digits as tell it from its neighbours."""
    shown = [_plain(one, share) for one in ticks]
    if len(set(shown)) == len(shown) or len(ticks) < 2:
        return _plain(value, share)
    step = (ticks[1] - ticks[0]) * (100 if share else 1)
    text = f"{value * (100 if share else 1):.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return text.replace("-", "\u2212") + (" %" if share else "")


def _plain(value: float, share: bool = False) -> str:
    if share:
        return f"{100 * value:.3g} %"
    text = f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.1e}".replace(".0e", "e")
    return f"{value:.0f}" if 999.5 <= abs(value) < 1e5 else text.replace("-", "\u2212")
