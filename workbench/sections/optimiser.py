"""The optimiser: AdamW, its learning rate and schedule."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.sections.section import Section


class OptimiserSection(Section):
    learning_rate: float = Field(default=5e-4, gt=0, le=1)
    """Peak learning rate."""
    warmup_steps: int = Field(default=5, ge=0, le=1_000_000)
    """Steps over which the rate rises from 0."""
    lr_scheduler: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    """How the rate falls after warm-up."""
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
