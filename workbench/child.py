"""A child process spoken to in framed JSON: the only way the page's process reaches torch or a user's code.

A frame is a 4-byte big-endian length and that much UTF-8 JSON. Nothing is pickled, so a child cannot make its parent
run anything. Frames travel over two pipes of their own; the child's standard output and error are a third pipe that
the parent reads, bounds and keeps, so whatever is printed never mixes with a frame. Parent to child::

    {"request": {...}}   {"cancel": true}

Child to parent, any number of events and then one reply or error for each request::

    {"ready": true}   {"event": {...}}   {"reply": {...}}   {"error": {"type": …, "message": …, "attributes": …}}

Errors of ``workbench.errors`` arrive in the parent as what they were in the child. A child lives in a session of its
own, ends as soon as its parent is gone (its request pipe closes), and is replaced at the next call after it died.
This module does not know what is asked of a child.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench import errors
from workbench.errors import ChildDied, ChildFailed, ChildTimeout, WorkbenchError

START_SECONDS = 120.0
"""Time a child may take to import what it needs and say that it is ready; never part of a call's deadline."""
CANCEL_SECONDS = 10.0
"""Time a cancelled call may still take to reply before the child is killed."""
MAX_FRAME = 512 * 2**20
KEPT_OUTPUT = 64 * 1024
_FDS = "WORKBENCH_CHILD_FDS"
_HEADER = struct.Struct(">I")
_CHUNK = 1 << 20
_TICK = 0.05  # seconds between two looks at cancelled() and at whether the child still lives


class Child:
    """Starts ``python -m module *args`` at once; ``call`` asks it one thing at a time, from any thread."""

    def __init__(self, module: str, *, args: Sequence[str] = (), name: str = "child") -> None:
        self.name = name
        self._command = [sys.executable, "-u", "-m", module, *args]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> _Process:
        self._process = _Process(self._command)
        self._end = weakref.finalize(self, self._process.end)
        return self._process

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def pid(self) -> int:
        return self._process.popen.pid

    @property
    def output(self) -> str:
        """What the child printed during the last call (or since it started): the first and last 32 KB of it."""
        return self._process.output.text()

    def call(
        self,
        request: Mapping[str, Any],
        *,
        deadline: float,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Send ``request`` and return the reply.

        ``deadline`` is the most seconds the child may stay silent: an event restarts the clock, and start-up does not
        count. Past it the child is killed and ChildTimeout raised. ``cancelled`` is asked about every 50 ms; once it
        says True the child is told, and still has to reply. Raises ChildDied when the child ends by itself, ChildFailed
        when its handler raised, or the very WorkbenchError it raised.
        """
        packed = _packed({"request": dict(request)})
        with self._lock:
            if not self._process.alive:
                self._end()
                self._start()
            process = self._process
            process.output.clear()
            try:
                frame = self._converse(process, packed, deadline, on_event, cancelled)
            except BaseException:
                # Whatever the child still has to say belongs to no later call.
                self._end()
                raise
        if "error" in frame:
            raise _rebuilt(self.name, frame["error"])
        return dict(frame["reply"])

    def _converse(
        self,
        process: _Process,
        packed: bytes,
        deadline: float,
        on_event: Callable[[dict[str, Any]], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> dict[str, Any]:
        process.outbox += packed
        told = False
        limit, silent_since = deadline if process.ready else START_SECONDS, time.monotonic()
        while True:
            if cancelled is not None and not told and cancelled():
                process.outbox += _packed({"cancel": True})
                told, limit, silent_since = True, max(limit, CANCEL_SECONDS), time.monotonic()
            left = limit - (time.monotonic() - silent_since)
            if left <= 0:
                what = "gave no answer" if process.ready else "was not ready"
                raise ChildTimeout(f"{self.name} {what} in {limit:g} s and was ended", seconds=limit)
            try:
                frames = process.pump(min(left, _TICK))
            except _EndedError as ended:
                raise ChildDied(self._obituary(process, str(ended))) from None
            for frame in frames:
                silent_since = time.monotonic()
                if "ready" in frame:
                    process.ready, limit = True, max(deadline, CANCEL_SECONDS) if told else deadline
                elif "event" in frame:
                    if on_event is not None:
                        on_event(frame["event"])
                else:
                    process.drain()  # what was printed before the reply is in the pipe by now
                    return frame

    def _obituary(self, process: _Process, reason: str) -> str:
        last = process.output.text().strip().rpartition("\n")[2]
        if process.ready or not last:
            return f"{self.name} {reason}"
        return f"{self.name} {reason} before it was ready: {last}"

    def close(self) -> None:
        """End the child, also under a call of another thread (which raises ChildDied). A later call restarts it."""
        self._process.kill()
        with self._lock:
            self._end()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def child_environment() -> dict[str, str]:
    """This process's environment, with this very package importable from wherever the child starts.

    torch's threads (GNU's OpenMP on Linux, LLVM's elsewhere) may spin only briefly while they wait for each other:
    spinning for as long as they do by default makes a run ten times slower once anything else uses the machine.
    """
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1", **os.environ, "PYTHONPATH": path}


class _EndedError(Exception):
    """The process is gone or its frames make no sense; says how, to follow the child's name."""


class _Process:
    """One operating-system process with its three pipes. All reading and writing happens in ``pump``."""

    def __init__(self, command: list[str]) -> None:
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
                env={**child_environment(), _FDS: f"{request_end},{frame_end}"},
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
        frames = self._unpacked()
        if not frames and (read == b"" or (gone and read is None)):
            self.drain()
            raise _EndedError(self._how())
        return frames

    def _write(self) -> None:
        # A broken pipe is an ended process, which pump finds out with its exit code.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            del self.outbox[: os.write(self.requests, self.outbox[:_CHUNK])]

    def drain(self) -> None:
        """Take what was printed so far: a chunk is more than the pipe holds."""
        self.output.add(_read(self.prints) or b"")

    def _unpacked(self) -> list[dict[str, Any]]:
        frames = []
        while len(self.inbox) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self.inbox)
            if size > MAX_FRAME:
                raise _EndedError(f"sent a frame of {size} bytes; the limit is {MAX_FRAME}")
            if len(self.inbox) < _HEADER.size + size:
                break
            body = bytes(self.inbox[_HEADER.size : _HEADER.size + size])
            del self.inbox[: _HEADER.size + size]
            try:
                frame = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise _EndedError(f"sent a frame that is not JSON: {error}") from error
            if not isinstance(frame, dict) or not frame.keys() & {"ready", "event", "reply", "error"}:
                raise _EndedError(f"sent a frame of unknown kind: {body[:80]!r}")
            frames.append(frame)
        return frames

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


def _packed(frame: Mapping[str, Any]) -> bytes:
    # ASCII escapes carry lone surrogates, which UTF-8 refuses.
    body = json.dumps(frame, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return _HEADER.pack(len(body)) + body


def _rebuilt(name: str, error: Mapping[str, Any]) -> WorkbenchError:
    kind = getattr(errors, error["type"], None)
    if isinstance(kind, type) and issubclass(kind, WorkbenchError):
        return kind(error["message"], **error["attributes"])
    where = f"\n{error['traceback']}" if error.get("traceback") else ""
    return ChildFailed(f"{name} failed: {error['type']}: {error['message']}{where}")


# --- the child's side ---------------------------------------------------------------------------------------------


class Emitter:
    """What a handler answers with before its reply: ``emit({...})``; and how it learns that it should stop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._cancel = threading.Event()

    def __call__(self, event: Mapping[str, Any]) -> None:
        self._send(_packed({"event": dict(event)}))

    def cancelled(self) -> bool:
        """Whether the parent has cancelled the request at hand. A handler that sees it replies with what it has."""
        return self._cancel.is_set()

    def _send(self, frame: bytes) -> None:
        with self._lock:
            view = memoryview(frame)
            while view:
                view = view[os.write(self._fd, view) :]


def serve(handle: Callable[[dict[str, Any], Emitter], dict[str, Any]]) -> None:
    """Run the child's side: for each request send ``handle(request, emit)`` back, until the parent is gone.

    Call it last, when everything slow is imported: the parent's deadlines begin with the first request after it.
    What ``handle`` raises goes to the parent and the child serves on.
    """
    faulthandler.enable()
    incoming, outgoing = (int(fd) for fd in os.environ.pop(_FDS).split(","))
    for fd in (incoming, outgoing):
        os.set_inheritable(fd, False)
    emit = Emitter(outgoing)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests, emit), name="requests", daemon=True).start()
    emit._send(_packed({"ready": True}))
    while True:
        request = requests.get()
        try:
            frame = _packed({"reply": handle(request, emit)})
        except Exception as error:  # the parent is the boundary that reports it
            frame = _packed({"error": _described(error)})
        # User code may have closed or replaced them.
        with contextlib.suppress(ValueError, OSError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        emit._send(frame)


def _listen(fd: int, requests: queue.SimpleQueue[dict[str, Any]], emit: Emitter) -> None:
    """Read the parent's frames on a thread of its own, so that a cancel is heard and a lost parent ends the child."""
    try:
        with os.fdopen(fd, "rb") as stream:
            while len(header := stream.read(_HEADER.size)) == _HEADER.size:
                frame = json.loads(stream.read(_HEADER.unpack(header)[0]))
                if "cancel" in frame:
                    emit._cancel.set()
                else:
                    emit._cancel.clear()  # a cancel that came after its request's reply
                    requests.put(frame["request"])
    finally:
        os._exit(0)


def _described(error: Exception) -> dict[str, Any]:
    attributes = vars(error) if isinstance(error, WorkbenchError) else {}
    return {
        "type": type(error).__name__,
        "message": str(error),
        "attributes": {name: value for name, value in attributes.items() if not name.startswith("_")},
        "traceback": "".join(traceback.format_exception(error)),
    }
