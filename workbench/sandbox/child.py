"""A child process that answers requests and can be killed: JSON over a ``multiprocessing`` connection.

The parent sends ``{"request": {...}, "number": n}`` and ``{"cancel": true}``. The child sends ``{"ready": true}`` once,
and for each request any number of ``{"event": {...}}`` and then ``{"reply": {...}}`` or ``{"error": {...}}``, each with
the request's number. A child that sends anything else, or speaks unasked, is ended. Nothing is pickled. The connection
is the child's standard input; what it prints is a pipe that the parent reads, bounds and keeps.

A child is ``python -m module`` in a session of its own, started by ``subprocess`` and not by ``multiprocessing``, which
would import the caller's main module once more: a training run's torch, or a script without a guard. It ends as soon as
its parent is gone, and is replaced at the next call after it died. This module does not know what is asked of a child.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from workbench import errors
from workbench.errors import ChildDied, ChildFailed, ChildTimeout, WorkbenchError

LARGEST = 512 << 20
"""Bytes of one message from a child, where its parent takes so many."""
KEPT_OUTPUT = 64 << 10
"""Bytes of what a call printed that are kept, the last ones."""
START_SECONDS = 120.0
"""Time a child may take to import what it needs; never part of a call's deadline."""
CANCEL_SECONDS = 10.0
"""Time a cancelled call may still take to reply before the child is killed."""
LAUNCHED = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+")
"""Environment variables by which torchrun and accelerate tell a process which rank it is."""
_TICK = 0.05  # seconds between two looks at cancelled() and at whether the child still lives


def child_environment() -> dict[str, str]:
    """Return this process's environment, with this package importable from wherever the child starts.

    A launcher's variables are left out: a child of one of its ranks is none of them.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return {**{name: value for name, value in os.environ.items() if not LAUNCHED.fullmatch(name)}, "PYTHONPATH": path}


def is_json(value: Any) -> bool:
    """Return whether a value can be sent to or from a child."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


class Child(contextlib.AbstractContextManager["Child"]):
    """Starts ``python -m module *args`` at once; ``call`` asks it one thing at a time, from any thread."""

    def __init__(
        self,
        module: str,
        *,
        args: Sequence[str] = (),
        name: str = "child",
        environment: Mapping[str, str] | None = None,
        largest: int = LARGEST,
    ) -> None:
        """``name`` is what errors call it; ``environment`` is all of its environment, by default this process's.

        ``largest`` is the most bytes that one of its messages may have.
        """
        self.name = name
        self._largest, self._numbers = largest, itertools.count()
        self._command = [sys.executable, "-u", "-m", module, *args]
        self._environment = environment
        self._lock = threading.RLock()
        self._start()

    def start(self) -> None:
        """Start a new process if the last one has ended, or spoken unasked; the next call need not wait for it then."""
        with self._lock:
            process = self._process
            if not process.alive or (process.ready and process.connection.poll()):
                self._end()
                self._start()

    def _start(self) -> None:
        self._process = _Process(self._command, child_environment() if self._environment is None else self._environment)
        self._end = weakref.finalize(self, self._process.end)

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def pid(self) -> int:
        return self._process.popen.pid

    @property
    def output(self) -> str:
        """Return what the child printed during the last call (or while it started): the last 64 KB of it."""
        return self._process.text

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
        with self._lock:
            self.start()
            process = self._process
            try:
                message = self._converse(process, request, deadline, on_event, cancelled)
            except BaseException:
                self._end()  # what the child still has to say belongs to no later call
                raise
            if message["last"]:
                self._end()
        if "error" in message:
            error = message["error"]
            kind = getattr(errors, error["type"], None)
            if isinstance(kind, type) and issubclass(kind, WorkbenchError):
                raise kind(error["message"], **error["attributes"])
            raise ChildFailed(f"{self.name} failed: {error['type']}: {error['message']}\n{error['traceback']}")
        reply: dict[str, Any] = message["reply"]
        return reply

    def _converse(
        self,
        process: _Process,
        request: Mapping[str, Any],
        deadline: float,
        on_event: Callable[[dict[str, Any]], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> dict[str, Any]:
        process.output, number = b"", next(self._numbers)
        process.send({"request": request, "number": number})
        limit, silent_since, cancel_sent = deadline if process.ready else START_SECONDS, time.monotonic(), False
        while True:
            if not cancel_sent and cancelled is not None and cancelled():
                process.send({"cancel": True})
                cancel_sent, limit, silent_since = True, max(limit, CANCEL_SECONDS), time.monotonic()
            left = limit - (time.monotonic() - silent_since)
            if left <= 0:
                what = "gave no answer" if process.ready else "was not ready"
                raise ChildTimeout(f"{self.name} {what} in {limit:g} s and was ended", seconds=limit)
            try:
                message = process.receive(min(left, _TICK), number, self._largest)
            except (EOFError, OSError, ValueError, RecursionError) as error:
                how = process.how_it_ended(error)
                last = "" if process.ready else process.text.strip().rpartition("\n")[2]
                raise ChildDied(f"{self.name} {how}{f' before it was ready: {last}' if last else ''}") from None
            if message is None:
                continue
            silent_since = time.monotonic()
            if "ready" in message:
                process.ready, limit = True, max(deadline, CANCEL_SECONDS) if cancel_sent else deadline
                process.output = b""
            elif "event" not in message:
                return message
            elif on_event is not None:
                on_event(message["event"])

    def kill(self) -> None:
        """End the process without waiting for its end; a call under way raises ChildDied."""
        self._process.kill()

    def close(self) -> None:
        """End the child, also under a call of another thread (which raises ChildDied). A later call restarts it."""
        self.kill()
        with self._lock:
            self._end()

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Process:
    """One process, its connection and its output."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self.prints, prints = os.pipe()
        try:
            with theirs:
                self.popen = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=prints,
                    stderr=prints,
                    start_new_session=True,
                    env=environment,
                )
        except BaseException:
            ours.close()
            os.close(self.prints)
            raise
        finally:
            os.close(prints)
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # of a message that has begun
            ours.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", int(START_SECONDS), 0))
        self.connection = Connection(ours.detach())
        os.set_blocking(self.prints, False)
        self.output, self.ready, self._owner = b"", False, os.getpid()

    @property
    def text(self) -> str:
        """Return what was printed, and that its beginning is missing if it is."""
        kept = self.output[-KEPT_OUTPUT:].decode("utf-8", "replace")
        return kept if len(self.output) <= KEPT_OUTPUT else f"… the beginning is left out …\n{kept}"

    @property
    def alive(self) -> bool:
        return not self.connection.closed and self.popen.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended, which receiving tells
            self.connection.send_bytes(_pack(message))

    def receive(self, seconds: float, number: int, largest: int) -> dict[str, Any] | None:
        """Return the child's next message, None if there is none yet.

        Raises EOFError if the child has ended, and OSError, ValueError or RecursionError for what is not JSON of at
        most ``largest`` bytes, or no part of the answer to request ``number``.
        """
        came = wait([self.connection, self.prints], seconds)
        if self.connection in came:
            message: dict[str, Any] = json.loads(self.connection.recv_bytes(largest))
            if not isinstance(message, dict) or message.get("number") != (number if self.ready else None):
                raise ValueError("it answers nothing that was asked")
            self.drain()  # what was printed before it is in the pipe by now
            return message
        if self.prints in came:
            self.drain()
        # A copy of itself that the child has left can keep the connection open.
        if not came and self.popen.poll() is not None:
            raise EOFError
        return None

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            # More than a pipe holds; a byte too many says that some are left out.
            self.output = (self.output + os.read(self.prints, 1 << 20))[-KEPT_OUTPUT - 1 :]

    def how_it_ended(self, error: Exception) -> str:
        if not isinstance(error, EOFError | ConnectionError):
            return f"sent what is no message ({error}) and was ended"
        try:
            code = self.popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        finally:
            self.drain()
        if code >= 0:
            return f"exited {code}"
        hint = "; the system may be out of memory" if code == -signal.SIGKILL else ""
        return f"died of signal {-code} ({signal.Signals(-code).name}){hint}"

    def kill(self) -> None:
        """SIGKILL to the child and what it has started, unless this is a forked copy of its parent."""
        if os.getpid() == self._owner and not self.connection.closed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def end(self) -> None:
        if os.getpid() == self._owner and not self.connection.closed:
            self.kill()
            self.popen.wait()
            self.drain()
            self.connection.close()
            os.close(self.prints)


def mark_prints(rollout: int) -> None:
    """Write into what this process prints that what follows is printed for this rollout (``read_prints``)."""
    os.write(1, b"\x1e%d\n" % rollout)


def read_prints(output: str) -> dict[int | None, str]:
    """Return what was printed for each rollout by its number, under None what was for no one of them."""
    first, *others = re.split(r"\x1e(\d+)\n", output)
    prints = {None: first} | dict(zip(map(int, others[::2]), others[1::2], strict=True))
    return {place: text for place, text in prints.items() if text}


def _pack(message: Mapping[str, Any]) -> bytes:
    """Raises ValueError or TypeError for what JSON cannot hold. ``json.loads`` reads lone surrogates back."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# --- the child's side -------------------------------------------------------------------------------------------------


class Emitter:
    """Sends events before the reply, ``emit({...})``, and tells whether the request was cancelled."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self.number = -1
        """Of the request that is answered."""
        self.is_last = False
        """Set by a handler that has used its process up: the parent ends it after the reply, and starts another."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.send(_pack({"event": event, "number": self.number}))

    def cancelled(self) -> bool:
        """Return whether the parent has cancelled the request. A handler that sees it replies with what it has."""
        return self._cancel.is_set()

    def send(self, data: bytes) -> None:
        with self._lock:
            self._connection.send_bytes(data)


@contextlib.contextmanager
def heartbeat(emit: Callable[[dict[str, Any]], None], event: Callable[[float], dict[str, Any]]) -> Iterator[None]:
    """Send ``event(seconds)`` at once and then every second, so that slow work is not taken for a hang."""
    over = threading.Event()
    began = time.monotonic()

    def beat() -> None:
        while not over.is_set():
            emit(event(time.monotonic() - began))
            over.wait(1.0)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


Handler = Callable[[dict[str, Any], Emitter], dict[str, Any]]
"""Answers a child's requests: ``handle(request, emit)`` returns the reply."""


def serve(handle: Handler) -> NoReturn:
    """Run the child's side: for each request send ``handle(request, emit)`` back, until the parent is gone.

    Call it last, when everything slow is imported: the parent's deadlines begin with the first request after it.
    What ``handle`` raises goes to the parent and the child serves on.
    """
    connection = Connection(os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    faulthandler.enable()
    emit = Emitter(connection)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:  # on a thread of its own, so that a cancel is heard and a lost parent ends the child
        try:
            while True:
                message = json.loads(connection.recv_bytes())
                if "cancel" in message:
                    emit._cancel.set()
                    continue
                emit._cancel.clear()  # a cancel that came after its request's reply
                requests.put(message)
        finally:
            os._exit(0)

    threading.Thread(target=listen, name="requests", daemon=True).start()
    emit.send(_pack({"ready": True}))
    while True:
        message = requests.get()
        emit.number = message["number"]
        try:
            data = _pack({"reply": handle(message["request"], emit), "last": emit.is_last, "number": emit.number})
        except Exception as error:  # the parent is the boundary that reports it: as the closest class of ``errors``
            classes = [kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind]
            told = {
                "type": (classes or [type(error)])[0].__name__,
                "message": str(error),
                "attributes": {name: v for name, v in vars(error).items() if classes and not name.startswith("_")},
                "traceback": "".join(traceback.format_exception(error)),
            }
            data = _pack({"error": told, "last": emit.is_last, "number": emit.number})
        with contextlib.suppress(ValueError, OSError, AttributeError):  # user code may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        emit.send(data)
