"""A run's metrics as small multiples. ``PANELS`` says which metrics are drawn together; ``metrics`` what
they mean.

The page draws the panels live (``curves.js``); ``curves`` draws the same ones as one plotly figure for a notebook.
Plotly is imported only when a figure is asked for. Where metrics come from is none of this module's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.figures.metrics import REWARD, find_metric, reward_name

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Series:
    """One line of a panel: the metric's name in a row, and what the line is called.

    A metric with a place for a reward's name, ``rewards/<name>/mean``, stands for one line a reward (see ``expanded``).
    """

    metric: str
    label: str


@dataclass(frozen=True)
class Panel:
    """One small chart; ``share`` marks values between 0 and 1, ``more`` what the page folds away until asked for."""

    key: str
    title: str
    series: tuple[Series, ...]
    share: bool = False
    more: bool = False

    @property
    def about(self) -> str:
        """How its metrics are defined, a line each."""
        known = [(series.label, find_metric(series.metric)) for series in self.series]
        return "\n".join(f"{label} = {one.formula}. {one.meaning}" for label, one in known if one is not None)


PANELS: tuple[Panel, ...] = (
    Panel(
        "accuracy",
        "Accuracy",
        (Series("accuracy", "held out"), Series("accuracy/train", "batch")),
        share=True,
    ),
    Panel(
        "reward",
        "Reward",
        (Series("step_reward", "step"), Series("reward", "outcome")),
    ),
    Panel("rewards", "Reward functions", (Series(f"rewards/{REWARD}/mean", REWARD),)),
    Panel("loss", "Loss", (Series("loss", "loss"),)),
    Panel(
        "kl",
        "KL",
        (Series("kl/k1", "k1"), Series("kl/k2", "k2"), Series("kl/k3", "k3")),
    ),
    Panel("entropy", "Entropy", (Series("entropy", "entropy"),)),
    Panel(
        "length",
        "Completion length",
        (Series("completions/mean_length", "mean"), Series("completions/max_length", "longest")),
    ),
    Panel(
        "steps",
        "Steps per answer",
        (Series("steps_per_answer", "steps"),),
    ),
    Panel(
        "shares",
        "No signal",
        (
            Series("zero_spread_share", "no spread"),
            Series("unscored_share", "unscored"),
            Series("no_match_share", "no match"),
        ),
        share=True,
    ),
    Panel("truncated", "Truncated", (Series("completions/clipped_ratio", "truncated"),), share=True, more=True),
    Panel("clip", "Clip ratio", (Series("clip_ratio/region_mean", "clipped"),), share=True, more=True),
    Panel("advantage", "Mean |A|", (Series("advantage_abs_mean", "|A|"),), more=True),
    Panel("grad", "Gradient norm", (Series("grad_norm", "norm"),), more=True),
    Panel("rate", "Learning rate", (Series("learning_rate", "rate"),), more=True),
    Panel("time", "Seconds a step", (Series("step_time", "step"), Series("sampling_time", "sampling")), more=True),
    Panel("errors", "Reward errors", (Series("reward_errors", "errors"),), more=True),
)
_DRAWN = frozenset(series.metric for panel in PANELS for series in panel.series)


def is_drawn(metric: str) -> bool:
    """Whether a panel has a line for the metric."""
    return metric in _DRAWN or _template(metric) in _DRAWN


def expanded(panel: Panel, metrics: Iterable[str]) -> Panel:
    """The panel with a line for each reward of ``metrics`` in the place of one with a place for its name."""
    if not any(REWARD in series.metric for series in panel.series):
        return panel
    rewards = {metric: reward_name(metric) for metric in metrics}
    series = [
        found
        for one in panel.series
        for found in (
            [Series(metric, str(name)) for metric, name in rewards.items() if name and _template(metric) == one.metric]
            if REWARD in one.metric
            else [one]
        )
    ]
    return replace(panel, series=tuple(series))


def _template(metric: str) -> str | None:
    found = find_metric(metric)
    return found.name if found else None


def panels_payload() -> list[dict[str, Any]]:
    """The panels as ``curves.js`` takes them."""
    return [asdict(panel) | {"about": panel.about} for panel in PANELS]


def curves(metrics: pd.DataFrame | Iterable[Row], *, columns: int = 3) -> Figure:
    """The panels that have data, as one plotly figure whose step axes zoom together.

    Args:
        metrics: rows of ``metrics.jsonl``, or ``run.metrics()``.
        columns: panels side by side.
    """
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    rows: list[Row] = list(metrics.to_dict("records") if hasattr(metrics, "to_dict") else metrics)  # type: ignore[arg-type]
    logged = dict.fromkeys(name for row in rows for name in row)
    panels = [expanded(panel, logged) for panel in PANELS]
    shown = [panel for panel in panels if any(points(rows, series.metric)[0] for series in panel.series)]
    if not shown:
        raise ValueError("there is nothing to draw: no row has a metric of any panel yet")
    columns = min(columns, len(shown))
    height = math.ceil(len(shown) / columns)
    figure = make_subplots(rows=height, cols=columns, subplot_titles=[panel.title for panel in shown])
    for place, panel in enumerate(shown):
        for series in panel.series:
            steps, values = points(rows, series.metric)
            if steps:
                line = Scatter(x=steps, y=values, name=series.label, legendgroup=panel.key, mode="lines")
                figure.add_trace(line, row=place // columns + 1, col=place % columns + 1)
    figure.update_xaxes(matches="x")
    figure.update_layout(height=220 * height, showlegend=False, margin={"t": 40, "r": 16, "b": 32, "l": 48})
    return figure


def points(rows: Iterable[Row], metric: str) -> tuple[list[float], list[float]]:
    """The steps at which ``metric`` was logged, and its values there."""
    found = [(row["step"], row[metric]) for row in rows if _is_number(row.get(metric))]
    return [step for step, _ in found], [value for _, value in found]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
