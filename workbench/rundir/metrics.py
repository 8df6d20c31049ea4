"""``metrics.jsonl``: one JSON object a row, only ever appended to, whole rows or nothing.

::

    {"schema": 1}                                             the version of what follows; absent means 1
    {"step": 1, "loss": 0.5, …}                               a logged step
    {"step": 2, "loss": null, "not_finite": {"loss": "nan"}}  NaN and infinities are null, and named
    {"event": "resumed", "step": 1, …}                        the run went on from step 1: step 2 above is superseded

A row is one ``os.write`` on an O_APPEND descriptor: once it returns, no death of the process can lose the row. Rows are
on the disk (fsync) with the first one after a second, so that a death of the machine loses few. Readers take no lock:
they hold a byte cursor, leave an unterminated last row for later, and skip and name a corrupt one.

Knows nothing of what a metric means, nor of the other files of a run.
"""

import io
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import RunError
from workbench.files import encode, no_room, plain

HEADER = encode({"schema": 1}) + b"\n"
NOT_FINITE = "not_finite"
SYNC_SECONDS = 1.0


class MetricsWriter:
    """The open log of the one process that writes it. ``run`` is the run's name, for messages."""

    def __init__(self, path: Path, run: str) -> None:
        self._run = run
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        # A row that an earlier writer left torn is closed, or it would take the first one of this writer along.
        self._torn = bool(size) and os.pread(self._fd, 1, size - 1) != b"\n"
        self._synced = time.monotonic()

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row. Raises RunError when it could not be written whole, as on a full disk."""
        values = {name: plain(value) if hasattr(value, "item") else value for name, value in row.items()}
        # Written as null, and named.
        lost = {str(name): str(v) for name, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
        line = encode({**values, NOT_FINITE: lost} if lost else row) + b"\n"
        if self._torn:
            line = b"\n" + line
        written = 0
        try:
            while written < len(line):  # more than once only where the system cuts a row short; it says why at the next
                written += os.write(self._fd, line[written:])
        except OSError as error:
            self._torn = self._torn or written > 0
            problem = (no_room(error) or [str(error)])[0]
            raise RunError(
                f"metrics of run {self._run!r}, step {row.get('step')}: {written} of {len(line)} bytes: {problem}"
            ) from error
        self._torn = False
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Have every row on the disk before going on. Raises RunError when the disk refuses."""
        self._synced = time.monotonic()
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise RunError(f"metrics of run {self._run!r} do not reach the disk: {error}") from error

    def close(self) -> None:
        try:
            self.sync()
        finally:
            os.close(self._fd)


@dataclass(frozen=True)
class Reading:
    """Result of one read of the log.

    ``rows`` are in order and hold no step that a resume superseded. ``corrupt`` maps the byte offset of each unreadable
    row to what is wrong with it. ``resumed_from`` is the lowest step that a resume met in this look went on from: rows
    of later steps that were read earlier are superseded.
    """

    rows: list[dict[str, Any]]
    cursor: int
    corrupt: dict[int, str] = field(default_factory=dict)
    resumed_from: int | None = None


def read(path: Path, run: str, cursor: int = 0) -> Reading:
    """The rows from byte ``cursor`` on. Raises OSError, and RunError for a cursor that does not fit."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if cursor and (not 0 < cursor <= size or os.pread(file.fileno(), 1, cursor - 1) != b"\n"):
            raise RunError(
                f"run {run!r}: no row of metrics.jsonl ({size} bytes) begins at byte {cursor}; read again from 0"
            )
        file.seek(cursor)
        block = file.read(size - cursor)
        begin, rows = cursor, list[dict[str, Any]]()
        corrupt: dict[int, str] = {}
        resumed_from: int | None = None
        for number, line in enumerate(io.BytesIO(block[: block.rfind(b"\n") + 1]), start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                line_number = number + os.pread(file.fileno(), begin, 0).count(b"\n")
                corrupt[cursor] = f"metrics.jsonl, line {line_number}: {error}"
            else:
                if row.get("event") == "resumed":
                    step = row["step"]
                    rows = [row for row in rows if (row.get("step") or 0) <= step]
                    resumed_from = step if resumed_from is None else min(step, resumed_from)
                elif cursor or "schema" not in row:
                    rows.append(row)
            cursor += len(line)
    return Reading(rows, cursor, corrupt, resumed_from)


def resumed(step: int, **more: Any) -> dict[str, Any]:
    """Return the row that says a run went on from ``step``."""
    return {"event": "resumed", "step": step, **more}


def restore(row: Mapping[str, Any]) -> dict[str, Any]:
    """``row`` with its NaN and infinities as they were measured, and without the flag."""
    values = {name: value for name, value in row.items() if name != NOT_FINITE}
    return values | {name: float(text) for name, text in row.get(NOT_FINITE, {}).items()}
