"""Where a run stands: the noun that ``status.json`` holds. How it is written, and by whom, is ``RunDir``'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RunState = Literal["queued", "starting", "running", "finished", "stopped", "failed", "crashed"]
FINAL_STATES: frozenset[RunState] = frozenset({"finished", "stopped", "failed", "crashed"})


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands. Times are unix seconds; ``step`` of ``total_steps`` is training's progress.

    ``pid`` and ``pid_created`` name the run's first process (a launcher when ``ranks`` > 1) in a way that survives a
    process id used again. Until that process exists they name the one that is starting it, and ``launched`` is false.
    ``started`` is when the run got its device. ``stop_requested`` is when somebody asked the run to stop.

    ``behind`` names the run that a queued one waits for. ``resumed_from`` is the step of the checkpoint that the run
    last went on from, ``warnings`` what was met on the way that a reader should know, a checkpoint skipped say.
    """

    state: RunState
    reason: str = ""
    step: int = 0
    total_steps: int = 0
    created: float = 0.0
    started: float | None = None
    updated: float = 0.0
    pid: int | None = None
    pid_created: float | None = None
    launched: bool = False
    ranks: int = 1
    device: str = ""
    behind: str | None = None
    stop_requested: float | None = None
    resumed_from: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES
