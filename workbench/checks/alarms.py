"""Alarms of a run: what in its curves should make a person look, each worded "check" because none is a proof.

Pure functions of the rows a run logs. Trends compare the mean of the first and the last third of the last ``WINDOW``
rows that have the metric, and need ``LEAST`` of them. A difference counts when it is large (``EFFECT`` of the metric's
own size) and sure (``SURE`` times its own standard error, which allows for neighbouring rows being alike), because a
page looks anew at every row. ``tests/test_checks.py`` says how often noise alone raises an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = Sequence[Mapping[str, Any]]
WINDOW = 60
LEAST = 18
EFFECT = 0.1
SURE = 5.0
FLOOR_ENTROPY = 0.05
"""Nats a token below which a group's answers hardly differ."""


@dataclass(frozen=True)
class Alarm:
    """``name`` is short and stable; ``text`` begins with "check"; ``metrics`` are the curves to look at."""

    name: str
    text: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Trend:
    """Means of a metric over the first and the last third of a window, and whether they really differ."""

    before: float
    after: float
    moved: bool

    @property
    def rose(self) -> bool:
        return self.moved and self.after > self.before

    @property
    def fell(self) -> bool:
        return self.moved and self.after < self.before


def trend(rows: Rows, metric: str) -> Trend | None:
    """None where there are fewer than ``LEAST`` finite values."""
    values = np.array([row[metric] for row in rows if _finite(row.get(metric))][-WINDOW:], dtype=np.float64)
    if len(values) < LEAST:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    left = [_detrended(piece) for piece in (first, last)]
    error = math.sqrt(sum(float(piece.var()) for piece in left) / (third * _freshness(*left)))
    before, after = float(first.mean()), float(last.mean())
    large = abs(after - before) > EFFECT * max(abs(before), abs(after))
    return Trend(before, after, large and abs(after - before) > SURE * error)


def _detrended(piece: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Residuals of a straight-line fit, so that a steady rise does not count as noise."""
    t = np.arange(len(piece)) - (len(piece) - 1) / 2
    slope = float((t * piece).sum() / (t * t).sum())
    return np.asarray(piece - piece.mean() - slope * t)


def _freshness(*pieces: npt.NDArray[np.float64]) -> float:
    """Effective share of independent rows: (1 - r) / (1 + r), r the residuals' lag-1 autocorrelation."""
    spread = sum(float((piece * piece).sum()) for piece in pieces)
    r = sum(float((piece[:-1] * piece[1:]).sum()) for piece in pieces) / spread if spread > 0 else 0.0
    # So few rows, with a line taken out, show less of it than there is: add two of its own standard errors.
    r = min(max(r + 2 / math.sqrt(sum(len(piece) for piece in pieces)), 0.0), 0.9)
    return (1 - r) / (1 + r)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def alarms(rows: Rows) -> list[Alarm]:
    """Everything in a run's metric rows (oldest first) that is worth a look."""
    return [alarm for check in ALARMS.values() for alarm in check(rows)]


def steps_without_accuracy(rows: Rows) -> list[Alarm]:
    """Steps per answer rise and accuracy does not: the policy may be splitting steps for their bonus."""
    steps, accuracy = trend(rows, "steps_per_answer"), trend(rows, "accuracy/train")
    if steps is None or accuracy is None or not steps.rose or accuracy.rose:
        return []
    return [
        Alarm(
            "steps without accuracy",
            f"check: steps per answer rose from {steps.before:.1f} to {steps.after:.1f} while accuracy went from "
            f"{accuracy.before:.0%} to {accuracy.after:.0%}; probe the scheme with 'split a step', or try mean_suffix",
            ("steps_per_answer", "accuracy/train"),
        )
    ]


def rewards_apart(rows: Rows) -> list[Alarm]:
    """One reward function rises while another falls: the policy may be trading one for the other."""
    names = sorted({name for row in rows[-WINDOW:] for name in row if _is_reward(name)})
    trends = {name: rising_or_falling for name in names if (rising_or_falling := trend(rows, name)) is not None}
    pairs = []
    for first, second in combinations(trends, 2):
        up, down = (first, second) if trends[first].rose else (second, first)
        if trends[up].rose and trends[down].fell:
            pairs.append(
                Alarm(
                    "rewards apart",
                    f"check: {_short(up)} rose from {trends[up].before:.2f} to {trends[up].after:.2f} while "
                    f"{_short(down)} fell from {trends[down].before:.2f} to {trends[down].after:.2f}; look at rollouts "
                    "that gained, and at the weights",
                    (up, down),
                )
            )
    return pairs


def _is_reward(name: str) -> bool:
    return name.startswith("rewards/") and name.endswith("/mean")


def _short(name: str) -> str:
    return name.removeprefix("rewards/").removesuffix("/mean")


def length_drift(rows: Rows) -> list[Alarm]:
    """Completions became a third longer, or a quarter shorter."""
    length = trend(rows, "completions/mean_length")
    if length is None or not length.moved or not length.before or 0.75 < length.after / length.before < 4 / 3:
        return []
    return [
        Alarm(
            "length drift",
            f"check: the mean completion went from {length.before:.0f} to {length.after:.0f} tokens; see whether a "
            "reward pays for length (pre-flight shows the correlation) and how the loss normalises it",
            ("completions/mean_length",),
        )
    ]


def entropy_collapse(rows: Rows) -> list[Alarm]:
    """The policy's entropy fell to a quarter of what it was within the window, or lies below 0.05 nats after a fall."""
    entropy = trend(rows, "entropy")
    if entropy is None:
        return []
    began = next((row["entropy"] for row in rows if _finite(row.get("entropy"))), entropy.before)
    low = entropy.after < FLOOR_ENTROPY and entropy.after < began / 4
    if not low and not (entropy.fell and entropy.after <= entropy.before / 4):
        return []
    entropy = Trend(max(entropy.before, began) if low else entropy.before, entropy.after, True)
    return [
        Alarm(
            "entropy collapse",
            f"check: entropy fell from {entropy.before:.2f} to {entropy.after:.2f} nats a token; groups will stop "
            "differing. Lower the learning rate, raise epsilon_high or the temperature, or set beta",
            ("entropy",),
        )
    ]


def no_spread(rows: Rows) -> list[Alarm]:
    """Over the last third of the window most groups had no spread and taught nothing."""
    share = trend(rows, "zero_spread_share")
    if share is None or share.after < 0.5:
        return []
    return [
        Alarm(
            "zero spread",
            f"check: {share.after:.0%} of the groups have no spread and teach nothing; the prompts may be too easy or "
            "too hard by now, or the rewards too coarse",
            ("zero_spread_share",),
        )
    ]


ALARMS: dict[str, Callable[[Rows], list[Alarm]]] = {
    "steps without accuracy": steps_without_accuracy,
    "rewards apart": rewards_apart,
    "length drift": length_drift,
    "entropy collapse": entropy_collapse,
    "zero spread": no_spread,
}
