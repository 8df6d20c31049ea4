"""The charts of a run's metrics: which lines each draws, in which group it is folded away, in which order they stand.

A chart has the metrics of ``METRICS`` that name it as their ``panel``; one that is not named here has its key as title.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from workbench.checks.metrics import METRICS, REWARD, REWARD_METRIC, Metric, find_metric

LARGE = 3
"""Panels that are drawn large, the first that have data; the others stand folded in their groups."""


@dataclass(frozen=True)
class PanelGroup:
    """Panels that are folded away together. ``told`` are the metrics that its line tells of, each with its name."""

    title: str
    told: tuple[tuple[str, str], ...] = ()


GROUPS: tuple[PanelGroup, ...] = (
    PanelGroup(
        "Held out",
        (
            ("pair_accuracy", "pairs told right"),
            ("step_accuracy", "steps told right"),
            ("accuracy", "accuracy"),
            ("calibration_error", "calibration error"),
        ),
    ),
    PanelGroup(
        "Reward",
        (
            ("accuracy/train", "accuracy of the batch"),
            ("reward", "outcome reward"),
            ("step_reward", "step reward"),
            ("margin/train", "margin of the batch"),
            ("mean_reward", "mean score"),
        ),
    ),
    PanelGroup(
        "Against the verdict",
        (
            ("wronged/right_answers", "right answers pushed down"),
            ("wronged/wrong_answers", "wrong answers pushed up"),
            ("wronged/right_steps", "right steps pushed down"),
            ("wronged/wrong_steps", "wrong steps pushed up"),
        ),
    ),
    PanelGroup(
        "Drift",
        (
            ("kl/k3", "KL to the reference"),
            ("token_kl", "KL to the reference"),
            ("clip_ratio/region_mean", "clipped tokens"),
            ("logps/chosen", "log-probability of the chosen"),
        ),
    ),
    PanelGroup("Exploration", (("entropy", "entropy"), ("steps_per_answer", "steps per answer"))),
    PanelGroup("Critic", (("explained_variance", "explained variance"), ("value_loss", "value loss"))),
    PanelGroup("Optimiser", (("grad_norm", "gradient norm"), ("loss", "loss"))),
    PanelGroup(
        "Wasted groups",
        (
            ("zero_spread_share", "groups all equal"),
            ("unscored_share", "steps unscored"),
            ("no_match_share", "no steps found"),
            ("completions/clipped_ratio", "cut off"),
        ),
    ),
    PanelGroup("Speed", (("step_time", "seconds a step"), ("sampling_time", "seconds of sampling"))),
    PanelGroup("Other"),
)


@dataclass(frozen=True)
class Panel:
    """One chart with a line for each of its ``metrics``.

    ``share`` marks values between 0 and 1. ``group`` titles the group that the panel is folded away in. ``first_style``
    numbers the colour and dash of the first line; the next line has the next number.
    """

    key: str
    title: str
    group: str = "Other"
    share: bool = False
    first_style: int = 0
    lines: tuple[Metric, ...] | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Its own lines if it has any, else those of METRICS that name it."""
        if self.lines is not None:
            return self.lines
        return tuple(metric for metric in METRICS if metric.panel == self.key)

    @property
    def has_names(self) -> bool:
        """Return whether a line is called by its name, and not by the panel's title alone."""
        return len(self.metrics) > 1 or any(REWARD in metric.name for metric in self.metrics)

    @property
    def about(self) -> str:
        """Return how its metrics are defined, a line each."""
        return "\n".join(
            f"{metric.label} = {metric.formula}. {metric.meaning}" for metric in self.metrics if metric.formula
        )


_NAMED = (
    Panel("accuracy", "Accuracy", "Held out", share=True),
    # After the styles of "reward": a reward function is not taken for the sum of the steps' or of the outcomes'.
    Panel("rewards", "Reward by function", "Reward", first_style=2),
    Panel("length", "Answer length", "Exploration"),
    Panel("watched", "Watched rewards: correlation with the trained ones", "Reward", first_style=2),
    Panel("batch", "Accuracy of the batch", "Reward", share=True, first_style=1),
    Panel("wronged", "Pushed against the verdict", "Against the verdict", share=True),
    Panel("reward", "Reward", "Reward"),
    Panel("loss", "Loss", "Optimiser"),
    Panel("kl", "KL", "Drift"),
    Panel("value", "Value loss", "Critic"),
    Panel("explained", "Explained variance", "Critic"),
    Panel("token_kl", "Token KL", "Drift"),
    Panel("clamped", "Clipped values and scores", "Critic", share=True),
    Panel("entropy", "Entropy", "Exploration"),
    Panel("steps", "Steps per answer", "Exploration"),
    Panel("shares", "Wasted groups", "Wasted groups", share=True),
    Panel("pairs", "Pair accuracy", "Held out", share=True),
    Panel("margin", "Margin", "Reward"),
    Panel("step_accuracy", "Step accuracy", "Held out", share=True),
    Panel("first_errors", "Wrong steps found", "Held out", share=True),
    Panel("calibration", "Calibration error", "Held out", share=True),
    Panel("implicit", "Implicit reward", "Reward"),
    Panel("logps", "Log-probability", "Drift"),
    Panel("scores", "Reward model", "Reward"),
    Panel("truncated", "Truncated", "Wasted groups", share=True),
    Panel("clip", "Clip ratio", "Drift", share=True),
    Panel("resample", "Prompts redrawn", "Wasted groups"),
    Panel("advantage", "Mean |A|", "Optimiser"),
    Panel("grad", "Gradient norm", "Optimiser"),
    Panel("rate", "Learning rate", "Optimiser"),
    Panel("engine", "The engine's loss against what it was sent", "Optimiser"),
    Panel("time", "Seconds a step", "Speed"),
    Panel("errors", "Reward errors", "Reward"),
)
PANELS: tuple[Panel, ...] = (
    *_NAMED,
    *(
        Panel(key, key.replace("_", " ").capitalize())
        for key in dict.fromkeys(metric.panel for metric in METRICS)
        if key and key not in {panel.key for panel in _NAMED}
    ),
)
"""Every chart; one that no more is said of than its key is called after that."""


def is_drawn(name: str) -> bool:
    """Return whether a panel has a line for the metric."""
    metric = find_metric(name)
    return metric is not None and bool(metric.panel)


def panels_of(names: Iterable[str]) -> list[Panel]:
    """The panels in the order of the metrics ``names``, one more for each that none draws; the others follow.

    As they stand in ``PANELS`` where no metric is named.
    """
    first = {name: place for place, name in enumerate(dict.fromkeys(names))}
    undrawn = (name for name in first if not is_drawn(name))
    others = [
        Panel(name.replace("/", "-"), name, lines=(replace(find_metric(name) or Metric(name, "", ""), label=name),))
        for name in undrawn
    ]
    return sorted(
        [*PANELS, *others],
        key=lambda panel: min((first[m.name] for m in panel.metrics if m.name in first), default=len(first)),
    )


def panels_with(logged: Collection[str], names: Iterable[str]) -> list[Panel]:
    """Return ``panels_of(names)`` that have one of the ``logged`` metrics.

    A panel with a line for "the reward of this name" has one for each reward that is logged in its place.
    """
    rewards = [(name, match[1]) for name in logged if (match := REWARD_METRIC.fullmatch(name))]

    def lines_of(metric: Metric) -> list[Metric]:
        if REWARD not in metric.name:
            return [metric]
        return [replace(metric, name=name, label=reward) for name, reward in rewards if find_metric(name) == metric]

    panels = [replace(panel, lines=tuple(chain(*map(lines_of, panel.metrics)))) for panel in panels_of(names)]
    return [panel for panel in panels if any(line.name in logged for line in panel.metrics)]
