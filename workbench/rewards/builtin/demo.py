"""The demonstration scorer of the articles: easy to see through, and so a good first thing to look at."""

from __future__ import annotations


def length_and_mistake(prompt: object, step: str, **columns: object) -> float | None:
    """0.01 for each character of the step, less 0.3 if it says "mistake": a scorer to watch, not to train with."""
    return 0.01 * len(step) - (0.3 if "mistake" in step.lower() else 0.0)
