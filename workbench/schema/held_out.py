"""What a policy answered a held-out row when a run measured its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldOutAnswer:
    """One completion of a held-out row, and whether the task takes it for right.

    ``answer`` is what was read as its final answer: "" if none was found, None in files of earlier versions.
    """

    prompt: str
    text: str
    right: bool
    answer: str | None = None


OnAnswers = Callable[[int, list[HeldOutAnswer]], None]
"""Called with a training step and the answers of all measured rows, in their order."""
