"""What a training method gives the workbench: its section, its trainer, and what its page shows.

Light at import: pages and commands read sections and metrics without loading torch or trl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.config import MethodSection
from workbench.schema import OnAnswers, OnCredit, OnPass, OnRows


class Trainer(Protocol):
    """What a run's process asks of a trainer: transformers' own methods and those of ``training.saving``."""

    @property
    def state(self) -> Any: ...
    def train(self, resume_from_checkpoint: str | None = None) -> Any: ...
    def remove_callback(self, callback: Any) -> None: ...
    def load_weights(self, folder: Path) -> None: ...
    def save_final(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Listeners:
    """Who is told of what a trainer does: of groups it samples, where a method samples any, and of every event."""

    on_rollouts: OnCredit | None = None
    """Gets the groups that are trained on."""
    on_watched: OnCredit | None = None
    """Gets the groups of the run's watched prompts."""
    on_rows: OnRows | None = None
    """Gets the run's watched rows, by methods that train on stored rows."""
    on_answers: OnAnswers | None = None
    """Gets the answers to the held-out rows whenever accuracy is measured; on the first rank."""
    on_pass: OnPass | None = None
    """Gets what each optimiser step over a generation that ``on_rollouts`` got computed its loss from."""
    callbacks: Sequence[Any] = ()
    """transformers' ``TrainerCallback`` objects."""


NOBODY = Listeners()


class Build(Protocol):
    """Make a trainer of a configuration whose ``method`` is this method's section; checkpoints go to ``output_dir``.

    Raises WorkbenchError for anything in the configuration that cannot be loaded or cannot work together.
    """

    def __call__(self, config: Any, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer: ...


@dataclass(frozen=True)
class Method:
    """``metrics`` are the names of ``metrics.jsonl`` that its page shows first; ``has_rollouts``: it stores groups.

    ``settings`` are the fields of its section that its form shows first; the others are folded away. All where none are
    named. ``when`` says what it needs and when to choose it, in a sentence or two for its form.
    """

    section: type[MethodSection]
    build: Build
    metrics: tuple[str, ...]
    has_rollouts: bool = False
    settings: tuple[str, ...] = ()
    when: str = ""

    @property
    def name(self) -> str:
        return str(self.section.model_fields["name"].default)

    @property
    def summary(self) -> str:
        """One line on the method: the first of its section's docstring."""
        return (self.section.__doc__ or "").strip().splitlines()[0]
