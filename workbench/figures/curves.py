"""A run's metrics as small multiples. ``PANELS`` says which metrics are drawn together and what they mean.

The page draws the panels live (``curves.js``); ``curves`` draws the same ones as one plotly figure for a notebook.
Plotly is imported only when a figure is asked for. Where metrics come from is none of this module's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Series:
    """One line of a panel: the metric's name in a row, and what the line is called."""

    metric: str
    label: str


@dataclass(frozen=True)
class Panel:
    """One small chart. ``about`` says how its metrics are defined; ``share`` marks values between 0 and 1."""

    key: str
    title: str
    series: tuple[Series, ...]
    about: str
    share: bool = False


PANELS: tuple[Panel, ...] = (
    Panel(
        "accuracy",
        "Accuracy",
        (Series("accuracy", "held out"), Series("accuracy/train", "batch")),
        "Share of answers that are right: on the fixed held-out prompts, and on the step's own rollouts.",
        share=True,
    ),
    Panel(
        "reward",
        "Reward",
        (Series("step_reward", "step"), Series("reward", "outcome")),
        "Mean weighted reward: of a scored step, and of a whole completion.",
    ),
    Panel("loss", "Loss", (Series("loss", "loss"),), "The policy loss of the optimiser step."),
    Panel(
        "kl",
        "KL",
        (Series("kl/k1", "k1"), Series("kl/k2", "k2"), Series("kl/k3", "k3")),
        "To the reference, on sampled tokens. With d = log π_ref − log π_θ: k1 = −d, k2 = d²/2, k3 = e^d − d − 1.",
    ),
    Panel(
        "clip",
        "Clip ratio",
        (Series("clip_ratio/region_mean", "clipped"),),
        "Share of tokens whose ratio π_θ / π_old left the clip range on the side that stops the gradient.",
        share=True,
    ),
    Panel("entropy", "Entropy", (Series("entropy", "entropy"),), "Mean entropy of the policy's next token, in nats."),
    Panel(
        "length",
        "Completion length",
        (Series("completions/mean_length", "mean"), Series("completions/max_length", "longest")),
        "Tokens of the step's completions.",
    ),
    Panel(
        "steps",
        "Steps per answer",
        (Series("steps_per_answer", "steps"),),
        "Mean number of steps the pattern found in a completion.",
    ),
    Panel(
        "shares",
        "No signal",
        (
            Series("zero_spread_share", "no spread"),
            Series("unscored_share", "unscored"),
            Series("no_match_share", "no match"),
        ),
        "Share of groups whose rewards are all equal, of steps no function scored, of answers without a step.",
        share=True,
    ),
    Panel(
        "advantage",
        "Mean |A|",
        (Series("advantage_abs_mean", "|A|"),),
        "Mean absolute advantage over the step's tokens.",
    ),
    Panel("grad", "Gradient norm", (Series("grad_norm", "norm"),), "Norm of the gradient before it is scaled down."),
    Panel("rate", "Learning rate", (Series("learning_rate", "rate"),), "The optimiser's learning rate."),
)


def panels_payload() -> list[dict[str, Any]]:
    """The panels as ``curves.js`` takes them."""
    return [asdict(panel) for panel in PANELS]


def curves(metrics: pd.DataFrame | Iterable[Row], *, columns: int = 3) -> Figure:
    """The panels that have data, as one plotly figure whose step axes zoom together.

    Args:
        metrics: rows of ``metrics.jsonl``, or ``run.metrics()``.
        columns: panels side by side.
    """
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    rows: list[Row] = list(metrics.to_dict("records") if hasattr(metrics, "to_dict") else metrics)  # type: ignore[arg-type]
    shown = [panel for panel in PANELS if any(points(rows, series.metric)[0] for series in panel.series)]
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
