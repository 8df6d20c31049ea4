"""The run itself: how long, on what, and what is measured, saved and reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import Field

from workbench.errors import ConfigError
from workbench.sections.section import Section

T = TypeVar("T")
Sharding = Literal["none", "fsdp", "zero2", "zero3"]
"""How ranks share weights, gradients and optimiser: not at all, by FSDP, or by DeepSpeed's ZeRO 2 or 3."""


class RunSection(Section):
    steps: int = Field(default=90, ge=1, le=1_000_000)
    """Optimiser steps."""
    epochs: float | None = Field(default=None, gt=0, le=100_000)
    """Passes over the training rows, which set the steps when the run is started; none for as many as `steps`."""
    micro_batch_size: int | None = Field(default=None, ge=1, le=1_000_000)
    """Completions in one forward and backward pass; None for the whole batch."""
    eval_every: int = Field(default=30, ge=0, le=1_000_000)
    """Steps between two measures of held-out accuracy; 0 for none."""
    eval_prompts: int = Field(default=200, ge=1, le=1_000_000)
    """Held-out prompts in one measure."""
    eval_skip: int = Field(default=0, ge=0, le=1_000_000)
    """Held-out prompts before the first that is measured: settings are chosen on others than are reported."""
    watch_prompts: int = Field(default=2, ge=0, le=64)
    """Held-out prompts answered again with the same seed, or stored rows read again, to be looked at; 0 for none."""
    watch_every: int = Field(default=10, ge=1, le=1_000_000)
    """Steps between two such looks."""
    save_every: int = Field(default=20, ge=0, le=1_000_000)
    """Steps between two checkpoints to resume from, a multiple of num_iterations; 0 for none."""
    keep_checkpoints: int = Field(default=2, ge=1, le=1000)
    """Newest checkpoints that are kept."""
    ranks: int = Field(default=1, ge=1, le=64)
    """Processes that share the batch."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a GPU where there is one."""
    report_to: list[Literal["trackio", "wandb", "tensorboard"]] = Field(default_factory=list)
    """Trackers that get configuration, metrics, alarms and heatmaps too; each must be installed."""
    project: str = Field(default="process-grpo", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._ -]+$")
    """The project that trackers list the run under."""

    @property
    def last_measured(self) -> int:
        """How many held-out rows there are up to the last that is measured; 0 where none is."""
        return self.eval_skip + self.eval_prompts if self.eval_every else 0

    def measured_rows(self, held_out: Sequence[T]) -> list[T]:
        """The rows that the run is measured on. Raises ConfigError where `eval_skip` leaves none."""
        return [held_out[i] for i in self.measured(len(held_out))]

    def measured(self, count: int) -> range:
        """Which of so many held-out rows the run is measured on. Raises ConfigError where `eval_skip` leaves none."""
        if count and self.eval_skip >= count:
            raise ConfigError(
                f"run.eval_skip: {self.eval_skip} leaves none of the task's {count} held-out prompts; lower it"
            )
        return range(self.eval_skip, min(self.eval_skip + self.eval_prompts, count))
