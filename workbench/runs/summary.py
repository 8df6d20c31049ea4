"""Summary of a run for lists: the columns that page, API, command line and notebook choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class RunSummary:
    """A run's status and the settings that tell it from others; ``state`` is "unreadable", and ``reason`` says why,
    where they cannot be read. Times are unix seconds."""

    name: str
    state: str
    reason: str
    final: bool = True
    resumable: bool = False
    stopping: bool = False
    """Somebody asked it to stop, and it has not ended yet."""
    behind: str | None = None
    step: int | None = None
    total_steps: int | None = None
    created: float | None = None
    started: float | None = None
    updated: float | None = None
    task: str | None = None
    policy: str | None = None
    scheme: str | None = None
    seed: int | None = None
    gives: Literal["policy", "reward model"] | None = None
    """What its last checkpoint is, which run:NAME names; None for a run that has not finished."""
    policies: tuple[str, ...] = ()
    """What names its policy's checkpoints in the place of a policy, the newest first: run:NAME of a finished run, and
    run:NAME@STEP."""

    @property
    def readable(self) -> bool:
        return self.state != "unreadable"

    def row(self, *columns: str) -> dict[str, Any]:
        """These fields by name, None where unknown."""
        return {name: getattr(self, name) for name in columns}
