"""The status of a run, as ``status.json`` holds it. ``RunDir`` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from workbench.sections.section import in_words

RunState = Literal["queued", "starting", "running", "finished", "stopped", "failed", "crashed"]
FINAL_STATES: frozenset[RunState] = frozenset({"finished", "stopped", "failed", "crashed"})


ProcessId = Annotated[int, Field(gt=0, lt=2**31)]
Time = Annotated[float, Field(ge=0, lt=253_402_300_800)]  # that calendars can show: before the year 10000


@dataclass(frozen=True)
class RunStatus:
    """State and progress of a run. Times are unix seconds; ``step`` of ``total_steps`` is training's progress.

    ``pid`` and ``pid_created`` name the run's first process (a launcher when ``ranks`` > 1) in a way that survives a
    process id used again. Until that process exists they name the one that is starting it, and ``launched`` is false.
    ``started`` is when the run got its device. ``stop_requested`` is when somebody asked the run to stop.

    ``behind`` names the run that a queued one waits for; ``now`` says that it is to wait no longer. ``resumed_from`` is
    the step of the checkpoint that the run last went on from, ``warnings`` what was met on the way that a reader should
    know, a checkpoint skipped say.
    """

    state: RunState
    reason: str = ""
    step: int = 0
    total_steps: int = 0
    created: Time = 0.0
    started: Time | None = None
    updated: Time = 0.0
    pid: ProcessId | None = None
    pid_created: float | None = None
    launched: bool = False
    ranks: int = 1
    device: str = ""
    behind: str | None = None
    now: bool = False
    stop_requested: Time | None = None
    resumed_from: int | None = None
    warnings: tuple[str, ...] = ()

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    @classmethod
    def from_json(cls, data: bytes) -> RunStatus:
        """What ``status.json`` holds. Raises ValueError naming what does not fit; unknown fields are left out."""
        try:
            return _ADAPTER.validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ValueError(
                f"{field}: {in_words(first)} (got {first['input']!r:.80})" if field else in_words(first)
            ) from error

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


_ADAPTER = TypeAdapter(RunStatus)
