"""``StoredSection``: what methods that train on stored rows have in common; nothing is sampled but held-out answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from workbench.config import MethodSection, SharedConfig
from workbench.places import check_language_model

if TYPE_CHECKING:
    from workbench.data import Task
    from workbench.data.kinds import Kind

_LEAST_ROWS = 1000
"""Rows that are taken where there are that many, however few the run's steps ask for: epochs mix them all."""


class StoredSection(MethodSection):
    """Base of methods that train on rows of one kind: their batch, and what is checked of them."""

    kind: ClassVar[Kind]
    """The kind of rows."""
    batch_size: int = Field(default=32, ge=1, le=65_536)
    """Rows (demonstrations, pairs, labelled completions) in one step, over all ranks; all there are where fewer."""
    max_length: int = Field(default=1024, ge=2, le=131_072)
    """Tokens of prompt and completion together; what is longer is cut off, or left out where a score is learnt."""

    @property
    def rows_per_step(self) -> int:
        return self.batch_size

    @property
    def unit(self) -> str:
        """What a row is called, in the plural."""
        return self.kind

    @property
    def why_left_out(self) -> str:
        """What is wrong with rows that the run leaves out."""
        return f"they do not fit method.max_length, {self.max_length:,} tokens"

    def check(self, config: SharedConfig) -> None:
        ranks, micro = config.run.ranks, config.run.micro_batch_size
        if self.batch_size % ranks:
            raise ValueError(f"run.ranks: a batch of {self.batch_size} {self.unit} does not divide over {ranks} ranks")
        if micro is not None and self.batch_size // ranks % micro:
            raise ValueError(
                f"run.micro_batch_size: {micro} does not divide the {self.batch_size // ranks} {self.unit} of a "
                "rank's batch"
            )

    def check_files(self, config: SharedConfig) -> None:
        self.check_model(config)
        self.training_rows(config)
        self.held_out_rows(config)

    def check_model(self, config: SharedConfig) -> None:
        check_language_model(config.policy.path)

    def training_rows(self, config: SharedConfig) -> list[Any]:
        """The rows that the run trains on; a step takes all where they are fewer than a batch. Raises TaskError."""
        task = _rows(config)
        return list(task.some(self.kind, max(config.run.steps * self.batch_size, _LEAST_ROWS), config.seed))

    def steps_of_epochs(self, config: SharedConfig, epochs: float) -> int:
        return math.ceil(epochs * len(_rows(config).rows(self.kind)) / self.batch_size)

    def held_out_rows(self, config: SharedConfig) -> list[Any]:
        """The rows that the run is measured on; none where it measures nothing. Raises TaskError and ConfigError."""
        if not config.run.eval_every:
            return []
        rows = _rows(config).rows(self.kind, held_out=True)
        if config.task.data is None:
            return config.run.measured_rows(rows)
        # No row of a file is kept apart: eval_skip is prompts'.
        return [rows[i] for i in range(min(len(rows), config.run.eval_prompts))]

    def less_memory(self, config: SharedConfig) -> str:
        return (
            f"try shorter {self.unit} (method.max_length, now {self.max_length}), a smaller method.batch_size (now "
            f"{self.batch_size}) or a smaller run.micro_batch_size "
            f"(now {config.run.micro_batch_size or self.batch_size // config.run.ranks})"
        )


def _rows(config: SharedConfig) -> Task:
    from workbench.data import load_rows
    from workbench.data.tasks import prompted

    return prompted(load_rows(config.task), config.prompt)
