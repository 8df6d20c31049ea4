"""The zygote's side: forks a warm child for each request, reaps it and tells its exit code (``zygote``)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from workbench.child.frames import FDS, MAX_FRAME, unpacked
from workbench.child.serve import Handler, converse

_FDS_OF_A_CHILD = 4
_PARENT_DEATH_SIGNAL = 1  # prctl(2)

Start = Callable[[Mapping[str, Any]], Handler]


def serve_forks(start: Start) -> NoReturn:
    """Fork a child for each request, in which ``start(about)`` returns what answers its requests, until nobody asks.

    Call it last, when everything slow is imported, in a process with one thread. ``start`` runs in the child alone.
    """
    asked = socket.socket(fileno=int(os.environ.pop(FDS)))
    asked.set_inheritable(False)
    gc.collect()
    gc.freeze()  # the collector then leaves alone, and unwritten, the pages that all children share
    Forks(asked, start).serve()


class Forks:
    """The children of this process, by the key that their asker gave them: pid, and where to tell how they end."""

    def __init__(self, asked: socket.socket, start: Start) -> None:
        self._asked, self._start = asked, start
        self._children: dict[int, tuple[int, int]] = {}
        self._inbox, self._descriptors = bytearray(), list[int]()
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        poll = select.poll()
        poll.register(self._asked, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                else:
                    self._answer()

    def _answer(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._asked, 1 << 16, 8 * _FDS_OF_A_CHILD)
        if not data:
            for key in list(self._children):
                self._kill(key)
            os._exit(0)
        self._inbox += data
        self._descriptors += descriptors
        for frame in unpacked(self._inbox, MAX_FRAME, check=False):
            if "kill" in frame:
                self._kill(frame["kill"])
            else:
                fds = [self._descriptors.pop(0) for _ in range(_FDS_OF_A_CHILD)]
                self._fork(frame["fork"], frame["about"], *fds)

    def _fork(self, key: int, about: Mapping[str, Any], requests: int, frames: int, prints: int, told: int) -> None:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.write(prints, f"{type(error).__name__}: {error}\n".encode())
            pid = None
        if pid == 0:
            self._run(zygote, about, requests, frames, prints, told)
        for fd in (requests, frames, prints):
            os.close(fd)
        _tell(told, pid or 0)
        if pid is None:
            _tell(told, 1)
            os.close(told)
        else:
            self._children[key] = pid, told

    def _run(
        self, zygote: int, about: Mapping[str, Any], requests: int, frames: int, prints: int, told: int
    ) -> NoReturn:
        """In the child: leave nothing of the zygote's open, and serve."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _die_with(zygote)
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            self._asked.close()
            others = [fd for _, fd in self._children.values()]
            for fd in (prints, told, self._woken, self._wake, *others, *self._descriptors):
                os.close(fd)
            converse(requests, frames, self._start(about))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _kill(self, key: int) -> None:
        if key in self._children:
            pid, _ = self._children[key]
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it leads no session yet
                os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for key, (pid, told) in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[key]
                _tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)


def _tell(told: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(told, f"{number}\n".encode())


def _die_with(parent: int) -> None:
    """Linux kills this process when the one that forked it ends; elsewhere its closed pipe does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
