"""The optimiser, its learning rate and schedule."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from workbench.sections.section import Section

Optimiser = Literal[
    "adamw_torch_fused",
    "adamw_torch",
    "adafactor",
    "sgd",
    "adagrad",
    "rmsprop",
    "stable_adamw",
    "adamw_bnb_8bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion_32bit",
    "lion_8bit",
    "paged_lion_8bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_8bit",
    "galore_adamw",
    "apollo_adamw",
]
"""transformers' names of optimisers that a run can be resumed with."""


class OptimiserSection(Section):
    learning_rate: float = Field(default=3.5e-4, gt=0, le=1)
    """Peak learning rate."""
    optim: Optimiser = Field(default="adamw_torch_fused", title="Optimiser")
    """The optimiser (transformers' names); 8-bit and paged ones, Lion and AdEMAMix are bitsandbytes'."""
    warmup_steps: int = Field(default=5, ge=0, le=1_000_000)
    """Steps over which the rate rises from 0."""
    warmup_ratio: float | None = Field(default=None, ge=0, lt=1)
    """Share of all steps over which the rate rises, in place of warmup_steps."""
    lr_scheduler: Literal[
        "linear", "cosine", "constant_with_warmup", "constant", "cosine_with_restarts", "polynomial", "inverse_sqrt"
    ] = "linear"
    """How the rate falls after warm-up; constant has none."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam β₁."""
    adam_beta2: float = Field(default=0.99, ge=0, lt=1)
    """Adam β₂."""
    adam_epsilon: float = Field(default=1e-6, ge=1e-30, le=1)
    """Added to Adam's denominator."""
    weight_decay: float = Field(default=0.0, ge=0, le=1000)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(default=0.5, ge=0, le=1e9)
    """Gradient clipping threshold."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the backward pass."""

    def warmup(self, steps: int) -> int:
        """Of so many steps, those over which the rate rises."""
        return self.warmup_steps if self.warmup_ratio is None else math.ceil(self.warmup_ratio * steps)
