"""The last lines of a run's log."""

from __future__ import annotations

import os
from pathlib import Path

from workbench.files import opened
from workbench.redact import redact

_TAIL_BYTES = 64 * 1024


def tail(path: Path, lines: int) -> list[str]:
    """The last lines, without secrets; of a line redrawn with carriage returns, its last state.

    No line without a file; of one that cannot be read, a line that says why.
    """
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{path.name} cannot be read: {error.strerror or error}"]
    rows = [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
    if size > _TAIL_BYTES:
        rows = rows[1:]  # the first one is cut
    return redact("\n".join(rows[-lines:])).split("\n") if text else []
