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

from workbench.child.frames import FDS, MAX_FRAME, READY, unpacked
from workbench.child.serve import Handler, converse

_FDS_OF_A_CHILD = 4
_PARENT_DEATH_SIGNAL = 1  # prctl(2)

Start = Callable[[Mapping[str, Any]], Handler]


def serve_forks(start: Start) -> NoReturn:
    """Fork a child for each request, in which ``start(about)`` returns what answers its requests, until nobody asks.

    Call it last, when everything slow is imported, in a process with one thread. ``start`` runs in the child alone.
    """

    def serve(about: Mapping[str, Any], requests: int, frames: int) -> NoReturn:
        try:
            converse(requests, frames, start(about))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    serve(*Forks(_asked(), outlive=False).serve())


def fork_off(prepare: Callable[[Mapping[str, Any]], None]) -> Mapping[str, Any]:
    """Fork a child for each request; return in each child, and only there, what it is started with.

    The children outlive this process and whoever asks for them. ``prepare(about)`` is done in the child before anybody
    is told its pid.
    """
    about, requests, frames = Forks(_asked(), outlive=True, prepare=prepare).serve()
    os.close(requests)
    os.close(frames)
    return about


def _asked() -> socket.socket:
    """The socket on which forks are asked for, once this process is as its children are to find it."""
    asked = socket.socket(fileno=int(os.environ.pop(FDS)))
    asked.set_inheritable(False)
    gc.collect()
    gc.freeze()  # the collector then leaves alone, and unwritten, the pages that all children share
    return asked


class Forks:
    """The children of this process, by the key that their asker gave them: pid, and where to tell how they end.

    Children that ``outlive`` it keep the place where that is told open, so that it is closed when both are gone.
    """

    def __init__(
        self, asked: socket.socket, *, outlive: bool, prepare: Callable[[Mapping[str, Any]], None] = lambda about: None
    ) -> None:
        self._asked, self._outlive, self._prepare = asked, outlive, prepare
        self._children: dict[int, tuple[int, int]] = {}
        self._inbox, self._descriptors = bytearray(), list[int]()
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)

    def serve(self) -> tuple[Mapping[str, Any], int, int]:
        """Return in each child: what it is started with, and its pipes to read requests from and to write frames to."""
        self._asked.send(READY)
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
                elif (child := self._answer()) is not None:
                    return child

    def _answer(self) -> tuple[Mapping[str, Any], int, int] | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._asked, 1 << 16, 8 * _FDS_OF_A_CHILD)
        except ConnectionResetError:  # gone without having heard that it can be asked
            data, descriptors = b"", []
        if not data:
            for key in () if self._outlive else list(self._children):
                self._kill(key)
            os._exit(0)
        self._inbox += data
        self._descriptors += descriptors
        for frame in unpacked(self._inbox, MAX_FRAME, check=False):
            if "kill" in frame:
                self._kill(frame["kill"])
            else:
                requests, frames, prints, told = (self._descriptors.pop(0) for _ in range(_FDS_OF_A_CHILD))
                if self._fork(frame["fork"], frame["about"], requests, frames, prints, told):
                    return frame["about"], requests, frames
        return None

    def _fork(self, key: int, about: Mapping[str, Any], requests: int, frames: int, prints: int, told: int) -> bool:
        """Whether this is the child."""
        zygote = os.getpid()
        unprepared, prepared = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.write(prints, f"{type(error).__name__}: {error}\n".encode())
            pid = None
        if pid == 0:
            self._enter_child(zygote, about, prints, told)
            os.close(unprepared)
            os.close(prepared)
            return True
        os.close(prepared)
        os.read(unprepared, 1)  # nothing, when the child is prepared or gone
        for fd in (requests, frames, prints, unprepared):
            os.close(fd)
        _tell(told, pid or 0)
        if pid is None:
            _tell(told, 1)
            os.close(told)
        else:
            self._children[key] = pid, told
        return False

    def _enter_child(self, zygote: int, about: Mapping[str, Any], prints: int, told: int) -> None:
        """In the child: leave nothing of the zygote's open."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            if self._outlive:
                os.set_inheritable(told, True)  # it may become another program
            else:
                _die_with(zygote)
                os.close(told)
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            self._asked.close()
            others = [fd for _, fd in self._children.values()]
            for fd in (prints, self._woken, self._wake, *others, *self._descriptors):
                os.close(fd)
            self._prepare(about)
        except BaseException:
            traceback.print_exc()
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
