"""The files of a run's stored rollouts: one of each training step, and of each look at the watched prompts or rows.

``rollouts/step-000012.parquet`` holds a generation's groups, ``watched-000020.parquet`` what the policy answers the
watched prompts, or what the model makes of the watched rows. How a file is laid out is ``rundir.rollouts``' business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from workbench.errors import RunError
from workbench.files import sync
from workbench.schema import Credit, WatchedRow

T = TypeVar("T")
_FILE = re.compile(r"(step|watched)-(\d{6,})\.parquet")


class Rollouts:
    """The stored rollouts in ``folder`` of the run called ``run``.

    ``watched`` ones are those of the watched prompts, sampled beside training: they are kept apart.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    def write(self, step: int, credits: Sequence[Credit], *, watched: bool = False) -> None:
        """Store the groups of one generation; ``read`` gives them back equal, floats bit for bit.

        What cannot come back as it was, lone surrogates and tuples in columns, is described in ``rundir.rollouts``.
        Raises RunError.
        """
        from workbench.rundir import rollouts

        self._write(step, watched, lambda path: rollouts.write(path, credits))

    def write_rows(self, step: int, rows: Sequence[WatchedRow]) -> None:
        """Store what the model makes of the watched rows after a step; ``read_rows`` gives it back equal."""
        from workbench.rundir import rollouts

        self._write(step, True, lambda path: rollouts.write_watched(path, rows))

    def _write(self, step: int, watched: bool, write: Callable[[Path], None]) -> None:
        path = self._path(step, watched)
        draft = path.with_name(f".{path.name}.tmp")
        try:
            path.parent.mkdir(exist_ok=True)
            write(draft)
            sync(draft)
            os.replace(draft, path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise RunError(f"rollouts of run {self._run!r} cannot be written at step {step}: {error}") from error

    def steps(self, *, watched: bool = False) -> list[int]:
        """The training steps whose rollouts, or watched rollouts, are stored, ascending."""
        names = (_FILE.fullmatch(name) for name in (os.listdir(self._folder) if self._folder.is_dir() else ()))
        return sorted(int(match[2]) for match in names if match and (match[1] == "watched") is watched)

    def written(self, step: int, *, watched: bool = False) -> int:
        """When a step's rollouts were last written, in nanoseconds; 0 where there are none. A resume writes again."""
        try:
            return self._path(step, watched).stat().st_mtime_ns
        except OSError:
            return 0

    def drop(self, after: int) -> None:
        """Remove the rollouts of later steps than ``after``, watched ones included."""
        for watched in (False, True):
            for step in self.steps(watched=watched):
                if step > after:
                    self._path(step, watched).unlink(missing_ok=True)

    def read(self, step: int, *, watched: bool = False) -> list[Credit]:
        """The groups stored for one training step, in the order they were written. Raises RunError."""
        from workbench.rundir import rollouts

        return self._read(step, watched, rollouts.read)

    def read_rows(self, step: int) -> list[WatchedRow]:
        """The watched rows stored after one training step. Raises RunError."""
        from workbench.rundir import rollouts

        return self._read(step, True, rollouts.read_watched)

    def _read(self, step: int, watched: bool, read: Callable[[Path], list[T]]) -> list[T]:
        path = self._path(step, watched)
        if not path.is_file():
            steps = self.steps(watched=watched)
            stored = f"stored are {len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "none are stored yet"
            kind = "watched rollouts" if watched else "rollouts"
            raise RunError(f"run {self._run!r} has no {kind} of step {step}; {stored}")
        try:
            return read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"rollouts of run {self._run!r} at step {step} cannot be read ({path}): {error}") from error

    def _path(self, step: int, watched: bool) -> Path:
        return self._folder / f"{'watched' if watched else 'step'}-{step:06d}.parquet"
