"""Ways in which a run's files get damaged, each with the message that must name it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.rundir import RunDir, checkpoints
from workbench.runs import Run

Corruption = Callable[[Run], str | None]
"""Damages a run that is over; returns the message that names it, None if there was none."""


def _checkpoint(damage: Callable[[Path], object], pattern: str) -> Corruption:
    """Damage the newest checkpoint: it must be named, and the one before it taken."""

    def corrupt(run: Run) -> str | None:
        newest, before = checkpoints.saved(run.dir.checkpoints)[:2]
        damage(newest.path)
        found, skipped = checkpoints.newest_valid(run.dir.checkpoints)
        named = next((what for what in skipped if re.search(f"{newest.name}: .*{pattern}", what)), None)
        return named if found == before else None

    return corrupt


def _flip(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "model.safetensors").write_bytes(data)


def _log_row(run: Run) -> str | None:
    """A row in the middle: named with its line, and every other row still read."""
    path = run.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"\x00" * (len(lines[2]) - 1) + b"\n"  # as a disk that lost a block leaves it
    path.write_bytes(b"".join(lines))
    reader = RunDir(run.path)
    steps = [row["step"] for row in reader.read_metrics()[0]]
    whole = [*range(1, len(lines))]
    whole.remove(2)
    named = next((what for what in reader.warnings() if "metrics.jsonl, line 3:" in what), None)
    return named if steps == whole[: len(steps)] and len(steps) >= len(whole) - 1 else None


def _refused(name: str, ask: Callable[[Run], object]) -> Corruption:
    """A file cut in half: who asks for it is told which one and why."""

    def corrupt(run: Run) -> str | None:
        path = run.path / name
        os.truncate(path, path.stat().st_size // 2)
        try:
            ask(Run(run.path))
        except WorkbenchError as error:
            return str(error)
        return None

    return corrupt


CORRUPTIONS: dict[str, Corruption] = {
    "a flipped bit in a checkpoint": _checkpoint(_flip, "SHA-256 differs"),
    "a checkpoint cut short": _checkpoint(lambda path: os.truncate(path / "model.safetensors", 100), "has 100 bytes"),
    "a checkpoint's file lost": _checkpoint(lambda path: (path / "model.safetensors").unlink(), "is missing"),
    "a checkpoint without manifest": _checkpoint(
        lambda path: (path / "manifest.json").unlink(), "not written to its end"
    ),
    "a pickle put into a checkpoint": _checkpoint(lambda path: (path / "x.bin").touch(), "use safetensors"),
    "a row of the log": _log_row,
    "the status cut short": _refused("status.json", lambda run: run.status()),
}
