"""The parent's side of a zygote: a process that has imported what its children need and forks them, warm.

The zygote (``forking``) has one thread, so that a fork is safe, and runs nothing but forks. It is asked over a socket,
which also hands over the child's ends of its pipes, and tells of each child through a pipe of the child's own: its pid
in a line, then, when it ended, its exit code in another. A zygote that died is replaced at the next launch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.child.frames import FDS, READY, packed
from workbench.child.process import Ends, Handle, Launcher, Spawned

END_SECONDS = 10.0
"""Time in which a child that was killed must be reported as ended; a zygote that does not say so is killed, too."""
_LOOK_SECONDS = 0.05
"""What a child's end or pid is waited for at a time: another thread may read of it in between."""


class Zygote:
    """Starts ``python -m module``, which calls ``serve_forks`` or ``fork_off``. Ends when nothing refers to it or to a
    child of it any more, and its children with it unless they are forked off. Safe between threads."""

    def __init__(
        self, module: str, *, options: Sequence[str] = (), environment: Mapping[str, str], outlived: bool = False
    ) -> None:
        """``options`` are the interpreter's own; ``environment`` is the whole environment; children that are forked off
        have ``outlived`` it."""
        self._patience = None if outlived else END_SECONDS
        self._command = [sys.executable, "-u", *options, "-m", module]
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._begin(ours, theirs)
        self._socket, self._ready = ours, False
        self._end = weakref.finalize(self, _end, self._process, ours, os.getpid(), self._patience or 0.0)

    def _begin(self, ours: socket.socket, theirs: socket.socket) -> Handle:
        """The process that is asked over ``ours`` and answers on ``theirs``."""
        return Spawned(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # it has nothing to say but why it cannot start
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env={**self._environment, FDS: str(theirs.fileno())},
            cwd="/",
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it has imported what its children need, and lives."""
        with self._lock:
            if not self._ready:
                with contextlib.suppress(OSError):  # nothing said yet
                    self._ready = self._socket.recv(1, socket.MSG_DONTWAIT) == READY
            return self._ready and self.alive

    def launcher(self, about: Mapping[str, Any]) -> Launcher:
        """Forks a child that is started with ``about`` (``serve_forks``)."""

        def launch(ends: Ends) -> Handle:
            return self._fork(about, ends)

        return launch

    def _fork(self, about: Mapping[str, Any], ends: Ends) -> Handle:
        status, told = os.pipe()
        try:
            with self._lock:
                if self._process.poll() is not None:
                    self._end()
                    self._start()
                key = next(self._keys)
                frame = packed({"fork": key, "about": dict(about)})
                socket.send_fds(self._socket, [frame], [ends.requests, ends.frames, ends.prints, told])
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(told)
        os.set_blocking(status, False)
        return Forked(self, self._process, key, status, self._patience)

    def kill_child(self, key: int) -> None:
        with self._lock, contextlib.suppress(OSError):  # it died, and its children with it
            self._socket.sendall(packed({"kill": key}))


class Forked:
    """A child of a zygote; a ``Handle``. One whose zygote died counts as killed: it goes with the zygote, or ends later
    with nobody to tell how."""

    def __init__(self, zygote: Zygote, process: Handle, key: int, status: int, patience: float | None) -> None:
        self._zygote, self._process, self._key, self._patience = zygote, process, key, patience
        self._status, self._told = status, b""
        self._code: int | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, status).atexit = False  # threads may ask until the very end of this process

    @property
    def pid(self) -> int:
        """Waits until it is known. Raises ProcessLookupError for a child that was never started."""
        while self.poll() is None and b"\n" not in self._told:
            select.select([self._status], [], [], _LOOK_SECONDS)
        pid = self._told.partition(b"\n")[0]
        if not pid:
            raise ProcessLookupError("the process that forks it has ended")
        return int(pid)

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None:
                try:
                    told = os.read(self._status, 64)
                except BlockingIOError:
                    return None
                self._told += told
                _, _, code = self._told.partition(b"\n")
                if code.endswith(b"\n"):
                    self._code = int(code)
                elif not told:
                    self._code = self._process.poll() or -signal.SIGKILL
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Without a timeout at most ``END_SECONDS``, as nothing but a broken zygote keeps it that long; for one that is
        forked off, as long as it lives."""
        patience = self._patience if timeout is None else timeout
        ends = math.inf if patience is None else time.monotonic() + patience
        while (code := self.poll()) is None:
            left = ends - time.monotonic()
            if left <= 0:
                if timeout is not None:
                    raise subprocess.TimeoutExpired("a forked child", timeout)
                self._process.kill()
                return -signal.SIGKILL
            select.select([self._status], [], [], min(left, _LOOK_SECONDS))
        return code

    def kill(self) -> None:
        if self.poll() is None:
            self._zygote.kill_child(self._key)


def _end(process: Handle, ours: socket.socket, owner: int, patience: float) -> None:
    """Does nothing in a forked copy of the parent."""
    if os.getpid() == owner:
        ours.close()  # at which it kills its children, unless they outlive it, and ends
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
        process.kill()
        process.wait()
