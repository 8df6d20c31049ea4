"""What a policy answered a held-out row when a run measured its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldOutAnswer:
    """One completion of a held-out row, and whether the task takes it for right."""

    prompt: str
    text: str
    right: bool


OnAnswers = Callable[[int, list[HeldOutAnswer]], None]
"""Called with a training step and the answers of all measured rows, in their order."""
