"""Warm starts: a process that has imported what training imports, and forks each run, ready to train.

The imports are most of the time between Start and the first step. Whoever is about to start runs calls ``warm_up``; a
run that is started before the process is ready starts as it would without. Only on Linux, only while neither what
libraries may read from the environment nor this package's source has changed, and only for runs on the CPU: CUDA does
not survive a fork, so a run that has a GPU becomes a new program (``become``). It knows nothing of what a run does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from workbench.child import (
    ROOM,
    Copy,
    Ends,
    Handle,
    Zygote,
    child_environment,
    is_forked,
    program_request,
    run_module,
    seen_by_libraries,
)
from workbench.runs.processes import TAG

MODULE = "workbench.process.forks"
FREE_BYTES = 4 * 2**30
"""Memory that must be free for a process to be kept warm; it takes half a gigabyte, which its runs share."""
PACKAGE = Path(__file__).parents[1]
_POLL = 0.02


class Warm:
    """The warm process, ``python -m module``, if there is one, and what it imported. Safe between threads."""

    def __init__(self, module: str = MODULE, source: Path = PACKAGE) -> None:
        self._module, self._source = module, source
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._imported: Imported | None = None

    def up(self) -> None:
        environment = child_environment()
        imported = Imported.now(environment, self._source)
        with self._lock:
            fits = self._zygote is not None and self._zygote.alive and self._imported == imported
            if fits or psutil.virtual_memory().available < FREE_BYTES:
                return
            with suppress(OSError):  # runs start cold then
                self._zygote = self._started({**environment, TAG: ROOM})
                self._imported = imported

    def _started(self, environment: Mapping[str, str]) -> Zygote:
        if is_forked():  # a pipeline's process, say, which has imported all that its stages need
            return Copy()
        return Zygote(self._module, options=["-P"], environment=environment, outlived=True)

    def wait(self) -> None:
        """Until it is ready, if there is one."""
        zygote = self._zygote
        while zygote is not None and zygote.alive and not zygote.ready:
            time.sleep(_POLL)

    def zygote(self) -> Zygote | None:
        """Ready to fork what this process would start."""
        with self._lock:
            if self._zygote is None or not self._zygote.ready:
                return None
            return self._zygote if self._imported == Imported.now(child_environment(), self._source) else None


@dataclass(frozen=True)
class Imported:
    """What a process imports depends on: the environment that libraries see, and when the source last changed."""

    environment: Mapping[str, str]
    changed_ns: int

    @classmethod
    def now(cls, environment: Mapping[str, str], source: Path) -> Imported:
        changed = [0]
        for file in source.rglob("*.py"):
            with suppress(FileNotFoundError):  # an editor has just put another in its place
                changed.append(file.stat().st_mtime_ns)
        return cls(seen_by_libraries(environment), max(changed))


_warm = Warm()


def warm_up(*, wait: bool = False) -> None:
    """Have a process import what training imports, if there is none yet; returns at once, or when that is done.

    Who starts several runs one after the other waits: the first of them would import the same meanwhile.
    """
    if sys.platform == "linux":
        _warm.up()
        if wait:
            _warm.wait()


def is_warm() -> bool:
    """Whether a run that is started now starts warm."""
    return _warm.zygote() is not None


def start_warm(command: Sequence[str], environment: Mapping[str, str], log: int) -> Handle | None:
    """Start ``python -m command`` by a fork, with its output in ``log``; None where it has to be started cold."""
    zygote = _warm.zygote()
    if zygote is None:
        return None
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        handle = zygote.launcher(program_request(command, environment, TAG))(Ends(nothing, nothing, log))
        return handle if handle.pid else None
    except (OSError, ValueError):  # it has just ended; the run's path is too long for a tag
        return None
    finally:
        os.close(nothing)


def become(command: Sequence[str], *, on_cpu: bool) -> NoReturn:
    """Go on as ``command``, Python's ``-m`` and a module: here where all is imported already, else as a new program."""
    if is_forked() and on_cpu:
        run_module(command[2:])
    os.execv(command[0], list(command))
