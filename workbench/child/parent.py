"""The parent's side: starts a child, asks it one thing at a time, keeps the deadline, replaces it when it died."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.child.frames import MAX_FRAME, packed, packed_request, rebuilt
from workbench.child.process import EndedError, Launcher, Process, spawn
from workbench.errors import ChildDied, ChildTimeout

START_SECONDS = 120.0
"""Time a child may take to import what it needs and say that it is ready; never part of a call's deadline."""
CANCEL_SECONDS = 10.0
"""Time a cancelled call may still take to reply before the child is killed."""
_TICK = 0.05  # seconds between two looks at cancelled() and at whether the child still lives


class _StrayFrameError(Exception):
    """A frame that is none of the call's own; says which, to follow the child's name."""


class Child:
    """Starts a process at once; ``call`` asks it one thing at a time, from any thread."""

    def __init__(
        self,
        start: str | Launcher,
        *,
        args: Sequence[str] = (),
        name: str = "child",
        events: bool = True,
        max_frame: int = MAX_FRAME,
    ) -> None:
        """``start`` is the module that ``python -m`` runs, with ``args``, or what starts another process.

        With ``events`` False an event is as wrong as any malformed frame, and so is one of more than ``max_frame``
        bytes.
        """
        self.name = name
        self._launch = spawn(start, args) if isinstance(start, str) else start
        self._events, self._max_frame = events, max_frame
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> Process:
        self._process = Process(self._launch, self._max_frame)
        self._end = weakref.finalize(self, self._process.end)
        return self._process

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def ready(self) -> bool:
        """Whether it runs and has said, during a call, that it is ready."""
        return self._process.ready and self._process.alive

    @property
    def pid(self) -> int:
        return self._process.handle.pid

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
        with self._lock:
            try:
                frame = self._asked(request, deadline, on_event, cancelled)
            except _StrayFrameError:
                # Somebody in the child wrote to the pipe during an earlier call. A new child has had none.
                self._end()
                try:
                    frame = self._asked(request, deadline, on_event, cancelled)
                except _StrayFrameError as stray:
                    self._end()
                    raise ChildDied(f"{self.name} sent {stray} and was ended") from None
        if "error" in frame:
            raise rebuilt(self.name, frame["error"])
        return dict(frame["reply"])

    def _asked(
        self,
        request: Mapping[str, Any],
        deadline: float,
        on_event: Callable[[dict[str, Any]], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> dict[str, Any]:
        process = self._process
        if not process.alive:
            self._end()
            process = self._start()
        process.asked = secrets.randbits(53)  # what runs in the child cannot answer a later call in advance
        process.outbox += packed_request(request, process.asked)
        process.output.clear()
        try:
            return self._converse(process, deadline, on_event, cancelled)
        except BaseException:
            # Whatever the child still has to say belongs to no later call.
            self._end()
            raise

    def _converse(
        self,
        process: Process,
        deadline: float,
        on_event: Callable[[dict[str, Any]], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> dict[str, Any]:
        cancel_sent = False
        limit, silent_since = deadline if process.ready else START_SECONDS, time.monotonic()
        while True:
            if cancelled is not None and not cancel_sent and cancelled():
                process.outbox += packed({"cancel": True})
                cancel_sent, limit, silent_since = True, max(limit, CANCEL_SECONDS), time.monotonic()
            left = limit - (time.monotonic() - silent_since)
            if left <= 0:
                what = "gave no answer" if process.ready else "was not ready"
                raise ChildTimeout(f"{self.name} {what} in {limit:g} s and was ended", seconds=limit)
            try:
                frames = process.pump(min(left, _TICK))
            except EndedError as ended:
                raise ChildDied(self._obituary(process, str(ended))) from None
            for frame in frames:
                if "ready" in frame and not process.ready:
                    silent_since = time.monotonic()
                    process.ready, limit = True, max(deadline, CANCEL_SECONDS) if cancel_sent else deadline
                elif frame.get("id") != process.asked or ("event" in frame and not self._events):
                    raise _StrayFrameError(f"a frame that nobody asked for ({', '.join(frame)})")
                elif "event" in frame:
                    silent_since = time.monotonic()
                    if on_event is not None:
                        on_event(frame["event"])
                else:
                    process.drain()  # what was printed before the reply is in the pipe by now
                    return frame

    def _obituary(self, process: Process, reason: str) -> str:
        last = process.output.text().strip().rpartition("\n")[2]
        if process.ready or not last:
            return f"{self.name} {reason}"
        return f"{self.name} {reason} before it was ready: {last}"

    def kill(self) -> None:
        """End the process without waiting for its end; a call under way raises ChildDied."""
        self._process.kill()

    def close(self) -> None:
        """End the child, also under a call of another thread (which raises ChildDied). A later call restarts it."""
        self.kill()
        with self._lock:
            self._end()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
