"""Steps of a completion: patterns and presets, text → character spans, character spans → token spans."""

from workbench.steps.pattern import NUMBERS, PRESETS, PatternKind, Preset, StepPattern
from workbench.steps.split import (
    Split,
    split_by_tokens,
    split_leniently,
    split_preview,
    split_steps,
    unsplit,
)
from workbench.steps.tokens import align_steps, token_texts

__all__ = [
    "NUMBERS",
    "PRESETS",
    "PatternKind",
    "Preset",
    "Split",
    "StepPattern",
    "align_steps",
    "split_by_tokens",
    "split_leniently",
    "split_preview",
    "split_steps",
    "token_texts",
    "unsplit",
]
