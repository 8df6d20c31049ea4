"""Sealing a process that is about to run somebody's code: limits, Landlock and seccomp, through ctypes alone.

The seal limits accidents: a loop that eats memory, a stray ``rm``, a print of 100 MB, a call out to the network. It is
no sandbox for strangers' code. Each layer is a module of its own; one that the system lacks is told, never silently
left out. Nothing here knows what a reward is.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.rewards.seal import landlock, limits, seccomp

__all__ = ["seal", "sealed_environment", "sealed_folder", "what_is_off"]

_PACKAGE = Path(__file__).resolve().parents[2]
_KEPT = frozenset(
    {"PATH", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "TZ", "VIRTUAL_ENV"}
    | {"WORKBENCH_RUN"}  # by which a run's processes are found when what started them has been killed
)
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom")


def sealed_environment(environment: dict[str, str]) -> dict[str, str]:
    """What of ``environment`` a sealed process may know: paths and language, no token and no proxy."""
    allowed = {name: value for name, value in environment.items() if name in _KEPT or name.startswith("LC_")}
    return {
        **allowed,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        # Each thread's arena and stack count against the address space.
        "MALLOC_ARENA_MAX": "2",
        **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")},
    }


def sealed_folder(scratch: Path) -> dict[str, str]:
    """The variables that name the one folder a sealed process may write to."""
    return {"HOME": str(scratch), "TMPDIR": str(scratch)}


def seal(scratch: Path) -> list[str]:
    """Seal this process for good; only ``scratch`` stays writable. Returns a sentence for each layer that is missing.

    Call it when everything slow is imported and before any thread is started that runs foreign code.
    """
    layers = [
        limits.restrict(),
        landlock.restrict(readable=list(_readable()), writable=[scratch], devices=[Path("/dev/null")]),
        seccomp.restrict(),
    ]
    return [reason for reason in layers if reason is not None]


def what_is_off(error: BaseException | None) -> str | None:
    """What the seal refused, where ``error`` or one that it was raised in place of says so."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, MemoryError):
            return f"the limit is {limits.MEMORY >> 30} GB"
        if isinstance(error, socket.gaierror):
            return "network is off"
        if isinstance(error, OSError) and error.errno in _OFF:
            return _OFF[error.errno]
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


_OFF = {
    seccomp.NETWORK_ERROR: "network is off",
    seccomp.PROCESS_ERROR: "processes are off",
    errno.EACCES: "file access is off",
    errno.EFBIG: f"a file may have {limits.FILE >> 20} MB",
    errno.EMFILE: f"{limits.DESCRIPTORS} files may be open",
}


def _readable() -> Iterator[Path]:
    """What the interpreter needs to import: its own folders and this package, but not the folder this package is in."""
    yield _PACKAGE
    for place in (*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path):
        path = Path(os.path.realpath(place)) if place else None
        if path is not None and path != _PACKAGE.parent and path.exists():
            yield path
