"""The sealed processes of a reward worker: one for each reward function, one for patterns, and what bounds them all.

Each is forked, when it is first called, from one warm process that all reward workers of this process share, and works
in a folder of its own. Each has the limits of ``seal``; what all of one worker hold together in memory and on disk is
measured here, and where it is too much the one that holds most is ended. The one unused longest ends when there are too
many.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from workbench.child import Child, Zygote, child_environment
from workbench.child.process import Launcher, spawn
from workbench.errors import ChildDied, ChildFailed
from workbench.rewards.scratch import MAX_BYTES, MAX_FILES, Scratch, usage
from workbench.rewards.seal import limits, sealed_environment
from workbench.rewards.wire import UNSEALED

MOST = 32
"""Reward functions of one worker that have a process at a time."""
MAX_REPLY = 64 * 2**20
Key = tuple[str, str] | None
"""A function's code and name; None for patterns."""
_MEASURED_SECONDS = 0.05  # between two looks at all processes
_PAGE = os.sysconf("SC_PAGE_SIZE")
_zygotes: WeakValueDictionary[tuple[Any, ...], Zygote] = WeakValueDictionary()
_zygotes_lock = threading.Lock()


def warm_zygote() -> Zygote:
    """The process that forks all workers' processes; started where there is none, ended with the last that needs it."""
    environment = sealed_environment(child_environment())
    key = (os.getpid(), *sorted(environment.items()))
    with _zygotes_lock:
        zygote = _zygotes.get(key)
        if zygote is None:
            # -P: the folder a child works in is no place to import from.
            zygote = _zygotes[key] = Zygote("workbench.rewards.worker", options=["-P"], environment=environment)
        return zygote


class OverrunError(Exception):
    """All processes together hold too much and this one most of it; says of what."""


class SealedChild:
    """One sealed process, forked by ``zygote``, with its folder. Raises OSError where it cannot be started.

    Code there may import modules that lie in ``beside``.
    """

    def __init__(self, zygote: Zygote, folder: Path, beside: str | None) -> None:
        self._begin()
        self.folder = folder
        self._zygote = zygote
        self.child = _child(zygote.launcher({"folder": str(folder), "beside": beside}))
        self.close = finalize(self, _end, self.child, folder)

    def _begin(self) -> None:
        self.lock = threading.Lock()
        """Held during a call."""
        self.callers = 0
        """Threads that are in a call or wait for the lock."""
        self.overrun = ""
        """Which limit of all together it was ended for, until a call has said so."""
        self.size = self.files = self.memory = 0
        self.loaded = 0
        """The process that has loaded the function's code."""

    @property
    def has_loaded(self) -> bool:
        return self.child.ready and self.child.pid == self.loaded

    def measure_files(self) -> None:
        self.size, self.files = usage(self.folder)

    def measure_memory(self) -> None:
        """What it holds beyond what it has from the process that it was forked from."""
        own = _private_bytes(self.child.pid) if self.child.ready else 0
        self.memory = max(0, own - _private_bytes(self._zygote.pid))


def _child(start: Launcher) -> Child:
    return Child(start, name="worker", events=False, max_frame=MAX_REPLY)


class UnsealedChild(SealedChild):
    """A process with its user's rights, environment and folder, and without limits, for code that was trusted."""

    def __init__(self, beside: str | None) -> None:
        self._begin()
        self.child = _child(spawn("workbench.rewards.worker", [UNSEALED, *([beside] if beside else [])]))
        self.close = finalize(self, _end, self.child, None)

    def measure_files(self) -> None:
        """It may write where it likes."""

    def measure_memory(self) -> None:
        """It may hold what there is."""


def _end(child: Child, folder: Path | None) -> None:
    child.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _private_bytes(pid: int) -> int:
    """Resident memory that is no file's; 0 where there is no /proc to tell it."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE


class SealedChildren:
    """The sealed processes of one reward worker. Safe between threads; a process answers one call at a time.

    With ``unsealed`` they are processes with their user's rights.
    """

    def __init__(self, most: int = MOST, *, unsealed: bool = False) -> None:
        self._most, self._unsealed = most, unsealed
        self._lock = threading.Lock()
        self._children: OrderedDict[Key, SealedChild] = OrderedDict()
        self.folders: dict[Key, str] = {}
        """The folder of modules that a function may import, where it has one."""
        self._scratch: Scratch | None = None
        self._measured = 0.0

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return any(sealed.callers for sealed in self._all())

    @property
    def pids(self) -> dict[Key, int]:
        """The process of each function, and of patterns."""
        with self._lock:
            return {key: sealed.child.pid for key, sealed in self._children.items()}

    def _all(self) -> list[SealedChild]:
        with self._lock:
            return list(self._children.values())

    @contextmanager
    def held(self, key: Key) -> Iterator[SealedChild]:
        """The process for ``key``, for one call; started if there is none. Raises ChildDied where that fails."""
        with self._lock:
            try:
                sealed = self._taken(key)
            except OSError as error:
                raise _not_started(error) from error
            sealed.callers += 1
            surplus = self._surplus()
        for other in surplus:
            other.close()
        try:
            with sealed.lock:
                yield sealed
        finally:
            with self._lock:
                sealed.callers -= 1

    def _taken(self, key: Key) -> SealedChild:
        if key not in self._children and self._unsealed:
            self._children[key] = UnsealedChild(self.folders.get(key))
        elif key not in self._children:
            if self._scratch is None:
                self._scratch = Scratch()
                self._remove = finalize(self, self._scratch.remove)
            self._children[key] = SealedChild(warm_zygote(), self._scratch.new_folder(), self.folders.get(key))
        self._children.move_to_end(key)
        return self._children[key]

    def _surplus(self) -> list[SealedChild]:
        """Takes out the functions unused longest beyond the most there may be, but none in a call."""
        functions = [key for key in self._children if key is not None]
        idle = [key for key in functions if not self._children[key].callers]
        return [self._children.pop(key) for key in idle[: max(0, len(functions) - self._most)]]

    def ask(self, sealed: SealedChild, request: dict[str, Any], deadline: float) -> dict[str, Any]:
        """The reply of a process that is ``held``. Raises ChildError, or whatever the process raised."""
        try:
            self._bound(sealed)
            try:
                reply = sealed.child.call(request, deadline=deadline, cancelled=lambda: self._bound(sealed))
            except ChildFailed:
                # An earlier call has worn it out, or broken what the worker itself is made of: builtins.len, say.
                sealed.child.close()
                reply = sealed.child.call(request, deadline=deadline, cancelled=lambda: self._bound(sealed))
            sealed.measure_files()
            self._bound(sealed, measured=True)
        except (OverrunError, ChildDied) as error:
            if not sealed.overrun:
                raise
            self._drop(sealed)
            raise ChildDied(sealed.overrun) from error
        except OSError as error:  # closed by another thread meanwhile
            raise _not_started(error) from error
        return reply

    def _bound(self, caller: SealedChild, *, measured: bool = False) -> bool:
        """End whichever process holds most where all together hold too much; all are measured every 50 ms.

        With ``measured`` the caller was just now, too. Never True: no process is asked to end. Raises OverrunError
        where ``caller`` was ended.
        """
        due = time.monotonic() - self._measured > _MEASURED_SECONDS
        if due or measured:
            self._end_largest(caller, measure=due)
        if caller.overrun:
            raise OverrunError(caller.overrun)
        return False

    def _end_largest(self, caller: SealedChild, *, measure: bool) -> None:
        children = [sealed for sealed in self._all() if not sealed.overrun]
        if measure:
            for sealed in children:
                sealed.measure_files()
                sealed.measure_memory()
            self._measured = time.monotonic()
        for what, limit, sentence in _TOGETHER:
            if sum(getattr(sealed, what) for sealed in children) > limit:
                most = max(children, key=lambda sealed: int(getattr(sealed, what)))
                most.overrun = sentence
                if most is not caller:
                    most.child.kill()
                    shutil.rmtree(most.folder, ignore_errors=True)

    def _drop(self, sealed: SealedChild) -> None:
        with self._lock:
            for key in [key for key, other in self._children.items() if other is sealed]:
                del self._children[key]
        sealed.close()

    def end(self, key: Key) -> None:
        """End the process of ``key``. The next call starts a new one."""
        with self._lock:
            sealed = self._children.pop(key, None)
        if sealed is not None:
            sealed.close()

    def close(self) -> None:
        """End all of them, also under the calls of other threads (which raise ChildDied)."""
        with self._lock:
            children, self._children = self._children, OrderedDict()
            scratch, self._scratch = self._scratch, None
        for sealed in children.values():
            sealed.close()
        if scratch is not None:
            self._remove()


def _not_started(error: OSError) -> ChildDied:
    return ChildDied(f"its process cannot be started ({error.strerror or error}); try again")


_FILES = (
    f"the folders of the reward functions held over {MAX_BYTES >> 20} MB or {MAX_FILES:,} files, this one's most of "
    "them, and its worker was ended; let the code write less, or remove what it wrote"
)
_MEMORY = (
    f"the reward functions held over {limits.MEMORY >> 30} GB of memory together, this one most of it, and its worker "
    "was ended; let the code hold less"
)
_TOGETHER = (("size", MAX_BYTES, _FILES), ("files", MAX_FILES, _FILES), ("memory", limits.MEMORY, _MEMORY))
"""What all processes may hold together, and what is said of the one that is ended."""
