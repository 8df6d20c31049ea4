"""One operating-system process with its three pipes, seen from its parent. Knows frames, not requests."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.child.frames import FDS, BadFrameError, unpacked

KEPT_OUTPUT = 64 * 1024
LAUNCHED = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+")
"""Environment variables by which torchrun and accelerate tell a process which rank it is."""
_CHUNK = 1 << 20


def child_environment() -> dict[str, str]:
    """This process's environment, with this very package importable from wherever the child starts.

    torch's threads (GNU's OpenMP on Linux, LLVM's elsewhere) may spin only briefly while they wait for each other:
    spinning for as long as they do by default makes a run ten times slower once anything else uses the machine.

    A launcher's variables are left out: a child of one of its ranks is none of them.
    """
    root = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if not LAUNCHED.fullmatch(name)}
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1", **inherited, "PYTHONPATH": path}


class EndedError(Exception):
    """The process is gone or sent malformed data; says how, to follow the child's name."""


class Process:
    """One operating-system process with its three pipes. All reading and writing happens in ``pump``."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str] | None, folder: Path | None, max_frame: int
    ) -> None:
        request_end, self.requests = os.pipe()
        self.frames, frame_end = os.pipe()
        try:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=(request_end, frame_end),
                start_new_session=True,
                env={
                    **(child_environment() if environment is None else environment),
                    FDS: f"{request_end},{frame_end}",
                },
                cwd=folder,
            )
        except BaseException:
            os.close(self.requests)
            os.close(self.frames)
            raise
        finally:
            os.close(request_end)
            os.close(frame_end)
        assert self.popen.stdout is not None
        self.prints = self.popen.stdout.fileno()
        for fd in (self.requests, self.frames, self.prints):
            os.set_blocking(fd, False)
        self.outbox, self.inbox = bytearray(), bytearray()
        self.output = _Output()
        self.ready = False
        self.asked = 0
        self._max_frame = max_frame
        self._owner = os.getpid()
        self._ended = False

    @property
    def alive(self) -> bool:
        return not self._ended and self.popen.poll() is None

    def pump(self, seconds: float) -> list[dict[str, Any]]:
        """Move bytes for at most ``seconds`` or until something came; return the frames that are whole."""
        poll = select.poll()
        poll.register(self.frames, select.POLLIN)
        poll.register(self.prints, select.POLLIN)
        if self.outbox:
            poll.register(self.requests, select.POLLOUT)
        # Asked before reading. A copy forked by the child can keep the pipes open, so that they never say it is gone.
        gone = self.popen.poll() is not None
        read: bytes | None = None
        for fd, _ in poll.poll(seconds * 1000):
            if fd == self.requests:
                self._write()
            elif fd == self.prints:
                self.drain()
            else:
                read = _read(self.frames)
                self.inbox += read or b""
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
            code = self.popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipes"
        if code >= 0:
            return f"exited {code}"
        number = -code
        name = f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
        hint = "; the system may be out of memory" if number == signal.SIGKILL else ""
        return f"died of signal {number}{name}{hint}"

    def kill(self) -> None:
        """SIGKILL to the child's whole session group, if it still runs."""
        if self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill, reap and close. Does nothing in a forked copy of the parent."""
        if self._ended or os.getpid() != self._owner:
            return
        self.kill()
        self.popen.wait()
        self.drain()
        self._ended = True
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        os.close(self.requests)
        os.close(self.frames)


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
