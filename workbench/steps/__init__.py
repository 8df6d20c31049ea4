"""Steps of a completion: patterns and presets, text → character spans, character spans → token spans."""

from workbench.steps.pattern import MAX_BYTES, NUMBERS, PRESETS, PatternKind, Preset, StepPattern
from workbench.steps.split import (
    MAX_STEPS,
    PREVIEW_TIMEOUT,
    TIMEOUT,
    Split,
    align_rollout,
    answer_texts,
    rollout_texts,
    split_answers,
    split_by_tokens,
    split_leniently,
    split_preview,
    split_rollouts,
    split_steps,
    step_texts,
    turn_texts,
    unsplit,
)
from workbench.steps.tokens import align_steps, token_texts

__all__ = [
    "MAX_BYTES",
    "MAX_STEPS",
    "NUMBERS",
    "PRESETS",
    "PREVIEW_TIMEOUT",
    "TIMEOUT",
    "PatternKind",
    "Preset",
    "Split",
    "StepPattern",
    "align_rollout",
    "align_steps",
    "answer_texts",
    "rollout_texts",
    "split_answers",
    "split_by_tokens",
    "split_leniently",
    "split_preview",
    "split_rollouts",
    "split_steps",
    "step_texts",
    "token_texts",
    "turn_texts",
    "unsplit",
]
