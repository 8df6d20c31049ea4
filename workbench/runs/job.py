"""What a run and a pipeline are alike in: a directory with a status and a log, and a process that can be stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from workbench.rundir import RunDir, RunStatus


@dataclass(frozen=True)
class Job(ABC):
    """Named by its directory; what it does, and how it is stopped, a subclass knows."""

    path: Path

    @cached_property
    def dir(self) -> RunDir:
        return RunDir(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def log_tail(self, lines: int = 50) -> list[str]:
        return self.dir.log_tail(lines)

    @abstractmethod
    def status(self) -> RunStatus:
        """How it stands."""

    @abstractmethod
    def stop(self) -> RunStatus:
        """End it, and return its final status."""

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Stop it if the block is left by an exception, Ctrl+C included."""
        try:
            yield self
        except BaseException:
            if not self.status().final:
                self.stop()
            raise
