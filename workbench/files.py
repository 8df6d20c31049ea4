"""Atomic writes of files and folders, reads that end, and the JSON of rows and status. Knows nothing of runs."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from workbench.errors import RunError

MOST_BYTES = 64 * 2**20
"""Of a file that is read whole. The largest that is written, 500 held-out answers, takes 48 MB at most."""


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """A regular file, open for reading.

    Raises OSError for anything else: a pipe that nobody writes to would be waited for, a device may have no end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is no regular file")
        yield file


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file. Raises OSError, also for one of over ``most`` bytes."""
    with opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise OSError(f"{path.name} has {size:,} bytes; the limit is {most:,}")
        return file.read(most)


def sha256(path: Path) -> str:
    """Return the hash of a regular file's content. Raises OSError."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Return the value that a JSON file holds. Raises OSError as ``read_file``, ValueError for what is no JSON."""
    try:
        return json.loads(read_file(path, most))
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, meets either the old one whole or the new one whole."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_bytes(data)
        sync(draft)
        os.replace(draft, path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def move_in(draft: Path, parent: Path, name: str | None) -> Path:
    """Give a finished folder its name in ``parent``, where one taken gets the next free number; None: from the date."""
    number = 1
    while True:
        if name is None:
            path = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        else:
            suffix = f"-{number}" if number > 1 else ""
            path = parent / f"{name[: 80 - len(suffix)]}{suffix}"
        number += 1
        if os.path.lexists(path):
            continue
        try:
            draft.rename(path)  # refused by the system if a folder of that name has appeared meanwhile
        except OSError:
            if not path.exists():
                raise
            continue
        return path


def no_room(error: BaseException | None) -> tuple[str, str] | None:
    """Return what a file had no room in and what to do, if that is why something failed; None for other causes."""
    while error is not None:
        text, number = str(error), getattr(error, "errno", None)
        for code, sign, *words in _NO_ROOM:
            if number == code or sign in text:
                return words[0], words[1]
        error = error.__cause__
    return None


_NO_ROOM = (
    (errno.EFBIG, "File too large", "a file grew over this process's size limit", "raise it (ulimit -f)"),
    (errno.EDQUOT, "quota exceeded", "the disk quota is used up", "free some space"),
    (errno.ENOSPC, "No space left", "the disk is full", "free some space"),
    (errno.ENOSPC, "PytorchStreamWriter failed", "the disk is full", "free some space"),
)


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


_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def decode(line: bytes) -> dict[str, Any]:
    """Read one JSON object. Raises ValueError, saying what is wrong, for anything else."""
    try:
        row = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} of it is not UTF-8") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except json.JSONDecodeError as error:  # whose own message speaks of "line 1"
        raise ValueError(f"{error.msg} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {type(row).__name__}")
    return row


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
