"""Atomic writes of files and folders, and the JSON of rows and status. Knows nothing of runs."""

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from workbench.errors import RunError


def sha256(path: Path) -> str:
    """Return the hash of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> Any:
    """Return the value that a JSON file holds. Raises OSError and ValueError."""
    return json.loads(path.read_bytes())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, meets either the old one whole or the new one whole."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_bytes(data)
        sync(draft)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {error}") from error


def move_in(draft: Path, parent: Path, name: str | None) -> Path:
    """Give a finished folder its name in ``parent``, where one taken gets the next free number; None: from the date."""
    for number in count(1):
        suffix = f"-{number}" if number > 1 else ""
        if name is None:
            path = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        else:
            path = parent / f"{name[: 80 - len(suffix)]}{suffix}"
        try:
            return draft.rename(path)  # refused by the system if there is a folder of that name that holds something
        except OSError:
            if not os.path.lexists(path):
                raise
    raise AssertionError("there is always a next number")


def no_room(error: BaseException | None, folder: Path | None = None) -> tuple[str, str] | None:
    """Return what a file had no room in and what to do, if that is why something failed; None for other causes.

    ``folder`` is where it was written, if that is known: libraries do not all say that its disk is full.
    """
    if folder is not None and shutil.disk_usage(folder).free < LEAST_FREE:
        return _NO_ROOM[-1][2:]
    while error is not None:
        text, number = str(error), getattr(error, "errno", None)
        for code, sign, what, advice in _NO_ROOM:
            if number == code or sign in text:
                return what, advice
        error = error.__cause__
    return None


_NO_ROOM = (
    (errno.EFBIG, "File too large", "a file grew over this process's size limit", "raise it (ulimit -f)"),
    (errno.EDQUOT, "quota exceeded", "the disk quota is used up", "free some space"),
    (errno.ENOSPC, "the disk is full", "the disk is full", "free some space"),  # an error of ours
    (errno.ENOSPC, "No space left", "the disk is full", "free some space"),
)
LEAST_FREE = 1 << 16
"""Bytes; with fewer a disk is full."""


def sync(path: Path) -> None:
    """Have the file's content on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def encode(data: Any) -> bytes:
    """One line of ASCII JSON (so that no character in a text can end a row), with null for what is not finite."""
    return json.dumps(_finite(data), allow_nan=False).encode("ascii")


def plain(value: Any) -> Any:
    """Return a scalar of numpy or torch as Python's own number; anything else that JSON does not have, as text."""
    return value.item() if hasattr(value, "item") else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if value is not None and not isinstance(value, (str, int, float)):
        value = plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
