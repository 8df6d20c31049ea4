"""Weights of a reward that depend on the step of training: points with straight lines between them.

A step is the number of optimiser steps that were done when a generation was sampled: 0 for the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Point = tuple[int, float]
"""A step, and the weight there."""
MOST_POINTS = 1000


def weight_at(schedule: Sequence[Point], step: int) -> float:
    """The weight at a step: linear between two points, before the first and behind the last what it is there."""
    before, after = schedule[0], schedule[-1]
    if step <= before[0]:
        return before[1]
    if step >= after[0]:
        return after[1]
    before, after = next((a, b) for a, b in pairwise(schedule) if a[0] <= step < b[0])
    return before[1] + (after[1] - before[1]) * (step - before[0]) / (after[0] - before[0])


def check_schedule(schedule: Sequence[Point]) -> None:
    """Raises ValueError unless steps rise from 0 or more."""
    if schedule and schedule[0][0] < 0:
        raise ValueError(f"schedule: step {schedule[0][0]} is before the first one; begin at 0 or later")
    for (before, _), (after, _) in pairwise(schedule):
        if after <= before:
            raise ValueError(f"schedule: step {after} follows step {before}; give each step once, in rising order")


def schedule_text(schedule: Sequence[Point]) -> str:
    """The points as ``--reward-schedule`` takes them: ``0:1,60:0``."""
    return ",".join(f"{step}:{weight:g}" for step, weight in schedule)


def read_schedule(text: str) -> list[Any]:
    """The points of ``STEP:WEIGHT,…`` as they stand there. Raises ValueError for what is not so written."""
    points = []
    for part in text.split(","):
        step, colon, weight = part.strip().partition(":")
        if not colon:
            raise ValueError(f"schedule: {part.strip()[:80]!r} is no STEP:WEIGHT; write 0:1,60:0, say")
        points.append([step, weight])
    return points
