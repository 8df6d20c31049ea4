"""Several runs on the same curves: configurations side by side, each with mean and band over seeds.

The one definition of mean and band, for the Runs page and for ``wb.compare``: at each step, over the seeds that have a
value there, their mean and the range from the lowest to the highest. Not a standard deviation: with the three or five
seeds that people run it is what was seen and nothing inferred. Long runs are put into at most ``POINTS`` bins of
equally many steps; a run's value in a bin is the mean of its rows there. ``charts/overlay.js`` takes what
``overlay_payload`` gives. Which runs belong to one configuration is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from workbench.views.curves import Panel, PanelPayload, expanded, packed, panel_payload, panels_of

POINTS = 2_000
"""More than a chart has columns of pixels, also where a part of it is zoomed to."""

Columns = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By metric: the steps at which it was logged (ascending) and its finite values there."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Seeds:
    """The runs of one configuration: what it is called, and each run's name and columns."""

    label: str
    runs: Sequence[tuple[str, Columns]]


@dataclass(frozen=True)
class Band:
    """A metric over the runs of one configuration, all arrays (N,): N steps, mean, lowest, highest, and how many runs
    have a value there; ``each`` is (R, N) with NaN where a run has none."""

    steps: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    count: NDArray[np.int64]
    each: Numbers


def band(runs: Sequence[tuple[Sequence[float], Sequence[float]]], points: int = POINTS) -> Band:
    """Mean and extremes over runs, each given as (steps, values); a step that some runs lack is of those that have it.

    With more than ``points`` distinct steps, neighbours are put together and stand at the last one of them.
    """
    arrays = [(np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)) for steps, values in runs]
    steps = np.unique(np.concatenate([steps for steps, _ in arrays])) if arrays else np.array([])
    last = (
        steps[[part[-1] for part in np.array_split(np.arange(len(steps)), min(points, len(steps)))]]
        if len(steps)
        else steps
    )
    each = np.full((len(arrays), len(last)), np.nan)
    for row, (run_steps, values) in enumerate(arrays):
        place = np.searchsorted(last, run_steps)
        rows = np.bincount(place, minlength=len(last))
        sums = np.bincount(place, weights=values, minlength=len(last))
        each[row, rows > 0] = sums[rows > 0] / rows[rows > 0]
    there = ~np.isnan(each)
    count = there.sum(axis=0)
    mean = np.where(there, each, 0.0).sum(axis=0) / np.maximum(count, 1)
    low, high = (
        np.where(there, each, np.inf).min(axis=0, initial=np.inf),
        np.where(there, each, -np.inf).max(axis=0, initial=-np.inf),
    )
    return Band(last, mean, low, high, count, each)


def over(runs: Sequence[tuple[str, Columns]], axis: str) -> list[tuple[str, Columns]]:
    """The runs' columns over the metric ``axis`` in place of steps; what has no value of it at its step is left out.

    Where there are several runs, each is read off at the others' places, too, between its first and last value, as no
    two runs log the same time.
    """
    moved = [(name, {metric: _moved(columns, metric, axis) for metric in columns}) for name, columns in runs]
    if len(runs) < 2:
        return [(name, {metric: (x.tolist(), y.tolist()) for metric, (x, y) in of.items()}) for name, of in moved]
    places = {
        metric: np.unique(np.concatenate([of[metric][0] for _, of in moved if metric in of]))
        for metric in dict.fromkeys(metric for _, of in moved for metric in of)
    }
    return [(name, {metric: _read_off(places[metric], *of[metric]) for metric in of}) for name, of in moved]


def _moved(columns: Columns, metric: str, axis: str) -> tuple[Numbers, Numbers]:
    """(x, y), x ascending and each once: equal places have the mean."""
    at = dict(zip(*columns[axis], strict=True)) if axis in columns else {}
    pairs = [(at[step], value) for step, value in zip(*columns[metric], strict=True) if step in at]
    x, place = np.unique(np.array([x for x, _ in pairs], dtype=np.float64), return_inverse=True)
    sums = np.bincount(place, weights=np.array([y for _, y in pairs], dtype=np.float64), minlength=len(x))
    return x, sums / np.maximum(np.bincount(place, minlength=len(x)), 1)


def _read_off(places: Numbers, x: Numbers, y: Numbers) -> tuple[list[float], list[float]]:
    if not len(x):
        return [], []
    within = places[(places >= x[0]) & (places <= x[-1])]
    return within.tolist(), np.interp(within, x, y).tolist()


class RunLine(TypedDict):
    """One run of a line, packed; ``x`` is None where it has a value at each of the line's steps."""

    name: str
    x: str | None
    y: str


class OverlayLine(TypedDict):
    """A metric of a configuration, packed: ``configuration`` and ``series`` are places in their lists; ``low`` and
    ``high`` are None for a single run."""

    configuration: int
    series: int
    x: str
    mean: str
    low: str | None
    high: str | None
    runs: list[RunLine]


class OverlayPanel(PanelPayload):
    """A panel with the lines of every configuration, as ``charts/overlay.js`` takes it."""

    lines: list[OverlayLine]


def overlay_payload(configurations: Sequence[Seeds], metrics: Iterable[str] = ()) -> list[OverlayPanel]:
    """The panels that have data, those of ``metrics`` first, each with the lines of every configuration."""
    logged = dict.fromkeys(name for seeds in configurations for _, columns in seeds.runs for name in columns)
    panels = [_panel(expanded(panel, logged), configurations) for panel in panels_of(metrics)]
    return [panel for panel in panels if panel["lines"]]


def _panel(panel: Panel, configurations: Sequence[Seeds]) -> OverlayPanel:
    lines = []
    for place, series in enumerate(panel.series):
        for number, seeds in enumerate(configurations):
            runs = [
                (name, columns[series.metric]) for name, columns in seeds.runs if columns.get(series.metric, ((),))[0]
            ]
            if runs:
                lines.append(_line(number, place, runs))
    return {**panel_payload(panel), "lines": lines}


def _line(
    configuration: int, series: int, runs: Sequence[tuple[str, tuple[Sequence[float], Sequence[float]]]]
) -> OverlayLine:
    drawn = band([columns for _, columns in runs])
    several = len(runs) > 1
    return {
        "configuration": configuration,
        "series": series,
        "x": packed(drawn.steps),
        "mean": packed(drawn.mean),
        "low": packed(drawn.low) if several else None,
        "high": packed(drawn.high) if several else None,
        "runs": [_run(name, drawn.steps, row) for (name, _), row in zip(runs, drawn.each, strict=True)],
    }


def _run(name: str, steps: Numbers, row: Numbers) -> RunLine:
    there = ~np.isnan(row)
    return {"name": name, "x": None if there.all() else packed(steps[there]), "y": packed(row[there])}
