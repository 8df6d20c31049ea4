"""Which of a run's metrics are drawn together, as panels; ``metrics`` says what they mean.

``charts/curves.js`` draws the panels on the page and in notebooks.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from workbench.views.metrics import REWARD, find_metric, reward_name

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
    """One small chart; ``share`` marks values between 0 and 1, ``more`` what the page folds away until asked for.

    ``first_style`` numbers the colour and dash of its first line; the next line has the next number.
    """

    key: str
    title: str
    series: tuple[Series, ...]
    share: bool = False
    more: bool = False
    first_style: int = 0

    @property
    def named(self) -> bool:
        """Whether a line is called by its name, and not by the panel's title alone."""
        return len(self.series) > 1 or any(REWARD in series.metric for series in self.series)

    @property
    def about(self) -> str:
        """How its metrics are defined, a line each."""
        known = [(series.label, find_metric(series.metric)) for series in self.series]
        return "\n".join(
            f"{label} = {metric.formula}. {metric.meaning}" for label, metric in known if metric is not None
        )


PANELS: tuple[Panel, ...] = (
    Panel(
        "accuracy",
        "Accuracy",
        (
            Series("accuracy", "held out"),
            Series("accuracy/train", "batch"),
            Series("match_share", "in steps"),
            Series("no_answer_share", "no answer"),
        ),
        share=True,
    ),
    Panel(
        "reward",
        "Reward",
        (Series("step_reward", "step"), Series("reward", "outcome")),
    ),
    # After the styles of "reward": a reward function is not taken for the sum of the steps' or of the outcomes'.
    Panel("rewards", "Reward functions", (Series(f"rewards/{REWARD}/mean", REWARD),), first_style=2),
    Panel("loss", "Loss", (Series("loss", "loss"),)),
    Panel(
        "kl",
        "KL",
        (Series("kl/k1", "k1"), Series("kl/k2", "k2"), Series("kl/k3", "k3")),
    ),
    Panel("value", "Value loss", (Series("value_loss", "value loss"),)),
    Panel("explained", "Explained variance", (Series("explained_variance", "explained"),)),
    Panel("token_kl", "Token KL", (Series("token_kl", "π_old to π_ref"),)),
    Panel(
        "clamped",
        "Clipped values and scores",
        (
            Series("value_clip_share", "values"),
            Series("score_clamped_share", "scores"),
            Series("skipped_steps", "skipped steps"),
        ),
        share=True,
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
            Series("resample/flat_share", "no spread, drawn"),
            Series("unscored_share", "unscored"),
            Series("no_match_share", "no match"),
            Series("unsplit_share", "unsplit"),
        ),
        share=True,
    ),
    Panel(
        "pairs",
        "Pair accuracy",
        (Series("pair_accuracy", "held out"), Series("pair_accuracy/train", "batch")),
        share=True,
    ),
    Panel("margin", "Margin", (Series("margin", "held out"), Series("margin/train", "batch"))),
    Panel(
        "step_accuracy",
        "Step accuracy",
        (Series("step_accuracy", "held out"), Series("step_accuracy/train", "batch")),
        share=True,
    ),
    Panel(
        "first_errors",
        "Wrong steps found",
        (Series("auc", "AUC"), Series("first_error_f1", "first-error F1")),
        share=True,
    ),
    Panel("calibration", "Calibration error", (Series("calibration_error", "held out"),), share=True),
    Panel(
        "implicit",
        "Implicit reward",
        (Series("rewards/chosen", "chosen"), Series("rewards/rejected", "rejected")),
    ),
    Panel("logps", "Log-probability", (Series("logps/chosen", "chosen"), Series("logps/rejected", "rejected"))),
    Panel(
        "scores",
        "Reward model",
        (Series("mean_reward", "mean"), Series("min_reward", "lowest"), Series("max_reward", "highest")),
    ),
    Panel("truncated", "Truncated", (Series("completions/clipped_ratio", "truncated"),), share=True, more=True),
    Panel("clip", "Clip ratio", (Series("clip_ratio/region_mean", "clipped"),), share=True, more=True),
    Panel(
        "resample",
        "Prompts redrawn",
        (Series("resample/prompts", "prompts"), Series("resample/rounds", "rounds")),
        more=True,
    ),
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
        line
        for series in panel.series
        for line in (
            [
                Series(metric, str(name))
                for metric, name in rewards.items()
                if name and _template(metric) == series.metric
            ]
            if REWARD in series.metric
            else [series]
        )
    ]
    return replace(panel, series=tuple(series))


def _template(metric: str) -> str | None:
    metric_known = find_metric(metric)
    return metric_known.name if metric_known else None


class SeriesPayload(TypedDict):
    """A line of a panel that grows; ``style`` numbers its colour and dash."""

    metric: str
    label: str
    style: int


class PanelPayload(TypedDict):
    """A panel as ``charts/curves.js`` takes it; ``x`` names what is counted."""

    key: str
    title: str
    about: str
    share: bool
    more: bool
    named: bool
    x: str
    series: list[SeriesPayload]


class Block(TypedDict):
    """A long log, packed: ``values`` gives each metric which of the ``steps`` are its steps, and its values."""

    steps: list[str]
    values: dict[str, tuple[int, str]]


def panels_of(metrics: Iterable[str]) -> list[Panel]:
    """The panels in the order of ``metrics``, one more for each that none draws; others follow, folded away.

    As they stand in ``PANELS`` where no metric is named.
    """
    first = {metric: place for place, metric in enumerate(dict.fromkeys(metrics))}
    if not first:
        return list(PANELS)

    def place(panel: Panel) -> int:
        return min((first[series.metric] for series in panel.series if series.metric in first), default=len(first))

    undrawn = (metric for metric in first if not is_drawn(metric))
    others = [Panel(metric.replace("/", "-"), metric, (Series(metric, metric),)) for metric in undrawn]
    known = [replace(panel, more=place(panel) == len(first)) for panel in PANELS]
    return sorted([*known, *others], key=place)


def panels_payload(metrics: Iterable[str]) -> list[PanelPayload]:
    """The panels whose lines grow as a run goes on; those of ``metrics`` are shown first."""
    return [panel_payload(panel) for panel in panels_of(metrics)]


def panel_payload(panel: Panel) -> PanelPayload:
    return {
        "key": panel.key,
        "title": panel.title,
        "about": panel.about,
        "share": panel.share,
        "more": panel.more,
        "named": panel.named,
        "x": "step",
        "series": [
            {"metric": series.metric, "label": series.label, "style": panel.first_style + place}
            for place, series in enumerate(panel.series)
        ],
    }


def points(rows: Iterable[Row], metric: str) -> tuple[list[float], list[float]]:
    """The steps at which ``metric`` was logged, and its values there."""
    logged = [(row["step"], row[metric]) for row in rows if _is_number(row.get(metric))]
    return [step for step, _ in logged], [value for _, value in logged]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def packed(values: Iterable[float]) -> str:
    """Base64 of little-endian float32: small and quick to take in, and as exact as a chart is."""
    return base64.b64encode(array("f", values).tobytes()).decode("ascii")
