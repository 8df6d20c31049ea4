"""How completions are sampled."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from workbench.sections.section import Section


class SamplingConfig(Section):
    num_generations: int = Field(default=8, ge=2, le=64)
    """G, the rollouts of one prompt."""
    max_completion_length: int = Field(default=128, ge=1, le=32_768)
    """Tokens after which a completion is truncated."""
    temperature: float = Field(default=1.0, ge=0.001, le=10)
    """Divides the logits before sampling."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this much probability."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Sample from the k likeliest tokens; 0 for all."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=10)
    """Above 1 makes tokens already used less likely."""
    stop: list[str] = Field(default_factory=list, max_length=16)
    """Texts that end a completion, which is not truncated then; their tokens belong to it."""

    @field_validator("stop")
    @classmethod
    def _stop_is_text(cls, stop: list[str]) -> list[str]:
        if any(not text for text in stop):
            raise ValueError("an empty text would end every completion at its first token; leave it out")
        return stop

    @property
    def recorded(self) -> dict[str, Any]:
        """What a group's record says of how it was sampled."""
        return self.model_dump(exclude=set() if self.stop else {"stop"})
