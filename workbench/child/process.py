"""One operating-system process with its three pipes, seen from its parent. Knows frames, not requests."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workbench.child.frames import FDS, BadFrameError, unpacked

KEPT_OUTPUT = 64 * 1024
LAUNCHED = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+")
"""Environment variables by which torchrun and accelerate tell a process which rank it is."""
_CHUNK = 1 << 20
_LOOK_SECONDS = 0.02
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


def child_environment() -> dict[str, str]:
    """This process's environment, with this very package importable from wherever the child starts.

    A launcher's variables are left out: a child of one of its ranks is none of them.
    """
    root = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if not LAUNCHED.fullmatch(name)}
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return {**inherited, "PYTHONPATH": path}


def seen_by_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that what a child imports may read: not this package's own, nor those that name a running test."""
    return {name: value for name, value in environment.items() if not name.startswith(("WORKBENCH_", "PYTEST_"))}


class EndedError(Exception):
    """The process is gone or sent malformed data; says how, to follow the child's name."""


class Handle(Protocol):
    """A started process that its starter can wait for and end, as ``subprocess.Popen`` has it.

    ``poll`` and ``wait`` return its exit code, the negative number of a signal that it died of; ``wait`` raises
    subprocess.TimeoutExpired.
    """

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None:
        """SIGKILL to its whole session; does nothing where it has ended."""


@dataclass(frozen=True)
class Ends:
    """Descriptors that are the child's ends of its pipes: to read requests, to write frames, to print."""

    requests: int
    frames: int
    prints: int


Launcher = Callable[[Ends], Handle]
"""Starts a process that has these ends. Raises OSError."""


def spawn(module: str, args: Sequence[str] = ()) -> Launcher:
    """Starts ``python -m module *args`` in a session of its own."""

    def launch(ends: Ends) -> Handle:
        return Spawned(
            [sys.executable, "-u", "-m", module, *args],
            stdin=subprocess.DEVNULL,
            stdout=ends.prints,
            stderr=subprocess.STDOUT,
            pass_fds=(ends.requests, ends.frames),
            start_new_session=True,
            env={**child_environment(), FDS: f"{ends.requests},{ends.frames}"},
        )

    return launch


class Spawned(subprocess.Popen[bytes]):
    """A process that leads a session."""

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class Copied:
    """A fork of this process that leads a session. Safe between threads."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                self._code = os.waitstatus_to_exitcode(ended[1])
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        ends = time.monotonic() + (math.inf if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() >= ends:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            time.sleep(_LOOK_SECONDS)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it leads no session yet, and will find nobody to ask it
                os.killpg(self.pid, signal.SIGKILL)


class Process:
    """One operating-system process with its three pipes. All reading and writing happens in ``pump``."""

    def __init__(self, launch: Launcher, max_frame: int) -> None:
        request_end, self.requests = os.pipe()
        self.frames, frame_end = os.pipe()
        self.prints, print_end = os.pipe()
        try:
            self.handle = launch(Ends(request_end, frame_end, print_end))
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for fd in (request_end, frame_end, print_end):
                os.close(fd)
        for fd in (self.requests, self.frames, self.prints):
            os.set_blocking(fd, False)
        if _SET_PIPE_SIZE is not None:  # so that a batch of long texts is written at once
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.requests, _SET_PIPE_SIZE, _CHUNK)
        self.outbox, self.inbox = bytearray(), bytearray()
        self.output = _Output()
        self.ready = False
        self.asked = 0
        self._max_frame = max_frame
        self._owner = os.getpid()
        self._ended = False

    @property
    def alive(self) -> bool:
        return not self._ended and self.handle.poll() is None

    def pump(self, seconds: float) -> list[dict[str, Any]]:
        """Move bytes for at most ``seconds`` or until something came; return the frames that are whole."""
        poll = select.poll()
        poll.register(self.frames, select.POLLIN)
        poll.register(self.prints, select.POLLIN)
        if self.outbox:
            self._write()
        if self.outbox:
            poll.register(self.requests, select.POLLOUT)
        came = [fd for fd, _ in poll.poll(seconds * 1000)]
        # Asked before reading. A copy forked by the child can keep the pipes open, so that they never say it is gone.
        gone = self.frames not in came and self.handle.poll() is not None
        read: bytes | None = None
        if self.frames in came or gone:
            read = _read(self.frames)
            self.inbox += read or b""
        if self.prints in came:
            self.drain()
        try:
            frames = unpacked(self.inbox, self._max_frame)
        except BadFrameError as bad:
            raise EndedError(str(bad)) from bad
        if not frames and (read == b"" or (gone and read is None)):
            self.drain()
            raise EndedError(self._how())
        return frames

    def _write(self) -> None:
        # A broken pipe is an ended process, which pump finds out with its exit code.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            del self.outbox[: os.write(self.requests, self.outbox[:_CHUNK])]

    def drain(self) -> None:
        """Take what was printed so far: a chunk is more than the pipe holds."""
        self.output.add(_read(self.prints) or b"")

    def _how(self) -> str:
        try:
            code = self.handle.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipes"
        if code >= 0:
            return f"exited {code}"
        number = -code
        name = f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
        hint = "; the system may be out of memory" if number == signal.SIGKILL else ""
        return f"died of signal {number}{name}{hint}"

    def kill(self) -> None:
        """SIGKILL to the child's whole session, if it still runs."""
        self.handle.kill()

    def end(self) -> None:
        """Kill, reap and close. Does nothing in a forked copy of the parent."""
        if self._ended or os.getpid() != self._owner:
            return
        self.kill()
        self.handle.wait()
        self.drain()
        self._ended = True
        self._close_pipes()

    def _close_pipes(self) -> None:
        for fd in (self.requests, self.frames, self.prints):
            os.close(fd)


class _Output:
    """Printed bytes, of which the first and the last half of KEPT_OUTPUT are kept."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.head, self.tail, self.dropped = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = KEPT_OUTPUT // 2 - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        excess = len(self.tail) - KEPT_OUTPUT // 2
        if excess > 0:
            del self.tail[:excess]
            self.dropped += excess

    def text(self) -> str:
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace")
        return f"{head}\n… {self.dropped} bytes left out …\n{tail}"


def _read(fd: int) -> bytes | None:
    """What the pipe holds: empty at its end, None when there is nothing yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
