"""Steps of a completion: patterns and presets, text → character spans, character spans → token spans."""

from workbench.steps.align import align_steps
from workbench.steps.pattern import PatternKind, StepPattern
from workbench.steps.presets import PRESETS, Preset
from workbench.steps.split import split_all, split_steps
from workbench.steps.tokens import token_texts

__all__ = [
    "PRESETS",
    "PatternKind",
    "Preset",
    "StepPattern",
    "align_steps",
    "split_all",
    "split_steps",
    "token_texts",
]
