"""Several runs on the same curves: configurations side by side, each with its mean and its band over seeds.

The band is the lowest to the highest seed at a step, not a standard deviation: with the three or five seeds that people
run it is what was seen and nothing inferred. Long runs are drawn in at most ``POINTS`` bins of equally many steps; a
run's value in a bin is the mean of its rows there. ``overlay.js`` draws what ``overlay_payload`` gives. Which runs
belong to one configuration is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.figures.curves import PANELS, Panel, expanded

POINTS = 400

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
    for row, (own, values) in enumerate(arrays):
        place = np.searchsorted(last, own)
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


def overlay_payload(configurations: Sequence[Seeds]) -> list[dict[str, Any]]:
    """The panels that have data, each with the lines of every configuration."""
    logged = dict.fromkeys(name for one in configurations for _, columns in one.runs for name in columns)
    panels = [_panel(expanded(panel, logged), configurations) for panel in PANELS]
    return [panel for panel in panels if panel["lines"]]


def _panel(panel: Panel, configurations: Sequence[Seeds]) -> dict[str, Any]:
    lines = []
    for place, series in enumerate(panel.series):
        for number, seeds in enumerate(configurations):
            runs = [
                (name, columns[series.metric]) for name, columns in seeds.runs if columns.get(series.metric, ((),))[0]
            ]
            if runs:
                lines.append({"configuration": number, "series": place, **_line(runs)})
    return {
        "key": panel.key,
        "title": panel.title,
        "about": panel.about,
        "share": panel.share,
        "more": panel.more,
        "series": [series.label for series in panel.series],
        "lines": lines,
    }


def _line(runs: Sequence[tuple[str, tuple[Sequence[float], Sequence[float]]]]) -> dict[str, Any]:
    found = band([columns for _, columns in runs])
    line: dict[str, Any] = {"x": _plain(found.steps), "mean": _plain(found.mean)}
    if len(runs) > 1:
        line |= {"low": _plain(found.low), "high": _plain(found.high), "count": found.count.tolist()}
        line["runs"] = [
            {"name": name, "x": _plain(found.steps[~np.isnan(row)]), "y": _plain(row[~np.isnan(row)])}
            for (name, _), row in zip(runs, found.each, strict=True)
        ]
    else:
        line["runs"] = [{"name": runs[0][0], "x": line["x"], "y": line["mean"]}]
    return line


def _plain(values: Numbers) -> list[float]:
    """Seven significant digits: more than a chart shows."""
    return [float(f"{value:.7g}") for value in values]
