"""What each optimiser step over a stored generation computed its loss from: one Parquet file a step.

``passes/step-000013.parquet`` has one row a rollout, in the order of the generation's groups; what the step's rollouts
share is JSON in the file's metadata, under ``pass``. What the numbers mean is said by ``schema.LossPass``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import RunError
from workbench.files import opened, sync
from workbench.schema import LossPass, LossSettings, RolloutPass

_FILE = re.compile(r"step-(\d{6,})\.parquet")
_numbers = pa.list_(pa.float32())
_OF_ROLLOUTS = ("logprobs", "old_logprobs", "weights", "bonus")
_SCHEMA = pa.schema([("micro_batch", pa.int32()), *((name, _numbers) for name in _OF_ROLLOUTS)])
_HEAD = ("step", "generation", "number", "tokens", "loss", "router")


class Passes:
    """The stored passes in ``folder`` of the run called ``run``."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    def write(self, seen: LossPass) -> None:
        """Store a step, whole or not at all. Raises RunError."""
        path = self._path(seen.step)
        draft = path.with_name(f".{path.name}.tmp")
        head = {name: getattr(seen, name) for name in _HEAD} | {"settings": dataclasses.asdict(seen.settings)}
        schema = _SCHEMA.with_metadata({b"pass": json.dumps(head).encode()})
        table = pa.Table.from_pylist([vars(row) for row in seen.rollouts], schema=schema)
        try:
            self._folder.mkdir(exist_ok=True)
            pq.write_table(table, draft, use_dictionary=False, compression="zstd")
            sync(draft)
            os.replace(draft, path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise RunError(f"the loss of run {self._run!r} cannot be written at step {seen.step}: {error}") from error

    def steps(self) -> list[int]:
        """The training steps that are stored, ascending."""
        names = (_FILE.fullmatch(name) for name in (os.listdir(self._folder) if self._folder.is_dir() else ()))
        return sorted(int(match[1]) for match in names if match)

    def read(self, step: int) -> LossPass:
        """A stored step. Raises RunError where there is none, or the file is damaged."""
        try:
            return _read(self._path(step))
        except FileNotFoundError as error:
            steps = self.steps()
            stored = f"stored are {len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "none is stored"
            raise RunError(f"run {self._run!r} has no loss of step {step}; {stored}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"the loss of run {self._run!r} at step {step} cannot be read: {error}") from error

    def of_generation(self, step: int) -> list[LossPass]:
        """The stored passes over the generation of a step, in order; none for a run of an earlier version."""
        passes: list[LossPass] = []
        while self._path(step).is_file():
            read = self.read(step)
            if passes and read.generation != passes[0].generation:
                break
            passes.append(read)
            step += 1
        return passes

    def drop(self, after: int) -> None:
        """Remove later steps than ``after``."""
        for step in self.steps():
            if step > after:
                self._path(step).unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.parquet"


def _read(path: Path) -> LossPass:
    with opened(path) as file:
        table = pq.ParquetFile(file).read()
    head: dict[str, Any] = json.loads((table.schema.metadata or {})[b"pass"])
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in head["settings"].items()
    }
    rows = [
        RolloutPass(
            row["micro_batch"],
            *(None if row.get(name) is None else np.array(row[name], np.float32) for name in _OF_ROLLOUTS),
        )
        for row in table.to_pylist()
    ]
    known = {name: head[name] for name in _HEAD if name in head}  # files of version 0.4 lack the router
    return LossPass(**known, settings=LossSettings(**settings), rollouts=tuple(rows))
