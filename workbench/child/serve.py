"""The child's side: reads requests, answers them one after the other, and ends when its parent is gone."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from workbench import errors
from workbench.child.frames import FDS, HEADER, packed, read_request
from workbench.errors import WorkbenchError


class Emitter:
    """Sends events before the reply, ``emit({...})``, and tells whether the request was cancelled."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._request = 0
        self._lock = threading.Lock()
        self._cancel = threading.Event()

    def __call__(self, event: Mapping[str, Any]) -> None:
        self._send(packed({"event": dict(event), "id": self._request}))

    def cancelled(self) -> bool:
        """Whether the parent has cancelled the request at hand. A handler that sees it replies with what it has."""
        return self._cancel.is_set()

    def _send(self, frame: bytes) -> None:
        with self._lock:
            view = memoryview(frame)
            while view:
                view = view[os.write(self._fd, view) :]


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
"""What answers a child's requests: ``handle(request, emit)`` returns the reply."""


def serve(handle: Handler) -> NoReturn:
    """Run the child's side: for each request send ``handle(request, emit)`` back, until the parent is gone.

    Call it last, when everything slow is imported: the parent's deadlines begin with the first request after it.
    What ``handle`` raises goes to the parent and the child serves on.
    """
    incoming, outgoing = (int(fd) for fd in os.environ.pop(FDS).split(","))
    for fd in (incoming, outgoing):
        os.set_inheritable(fd, False)
    converse(incoming, outgoing, handle)


def converse(incoming: int, outgoing: int, handle: Handler) -> NoReturn:
    """``serve`` over these two pipes."""
    faulthandler.enable()
    emit = Emitter(outgoing)
    requests: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, requests, emit), name="requests", daemon=True).start()
    emit._send(packed({"ready": True}))
    while True:
        number, request = requests.get()
        emit._request = number
        try:
            frame = packed({"reply": handle(request, emit), "id": number})
        except Exception as error:  # the parent is the boundary that reports it
            frame = packed({"error": _described(error), "id": number})
        # User code may have closed or replaced them.
        with contextlib.suppress(ValueError, OSError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        emit._send(frame)


def _listen(fd: int, requests: queue.SimpleQueue[tuple[int, dict[str, Any]]], emit: Emitter) -> None:
    """Read the parent's frames on a thread of its own, so that a cancel is heard and a lost parent ends the child."""
    try:
        with os.fdopen(fd, "rb") as stream:
            while len(header := stream.read(HEADER.size)) == HEADER.size:
                frame = json.loads(stream.read(HEADER.unpack(header)[0]))
                if "cancel" in frame:
                    emit._cancel.set()
                else:
                    emit._cancel.clear()  # a cancel that came after its request's reply
                    requests.put((frame["id"], read_request(frame, stream.read(frame["bytes"]))))
    finally:
        os._exit(0)


def _described(error: Exception) -> dict[str, Any]:
    attributes = vars(error) if isinstance(error, WorkbenchError) else {}
    return {
        "type": _known_type(error),
        "message": str(error),
        "attributes": {name: value for name, value in attributes.items() if not name.startswith("_")},
        "traceback": "".join(traceback.format_exception(error)),
    }


def _known_type(error: Exception) -> str:
    """The name of the closest class that ``errors`` has, so that the parent can raise it; of others their own."""
    classes = type(error).__mro__
    return next(
        (kind.__name__ for kind in classes if getattr(errors, kind.__name__, None) is kind), classes[0].__name__
    )
