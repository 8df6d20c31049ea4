"""The child's side: reads requests, answers them one after the other, and ends when its parent is gone."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from workbench.child.frames import FDS, HEADER, packed
from workbench.errors import WorkbenchError


class Emitter:
    """What a handler answers with before its reply: ``emit({...})``; and how it learns that it should stop."""

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


def serve(handle: Callable[[dict[str, Any], Emitter], dict[str, Any]]) -> None:
    """Run the child's side: for each request send ``handle(request, emit)`` back, until the parent is gone.

    Call it last, when everything slow is imported: the parent's deadlines begin with the first request after it.
    What ``handle`` raises goes to the parent and the child serves on.
    """
    faulthandler.enable()
    incoming, outgoing = (int(fd) for fd in os.environ.pop(FDS).split(","))
    for fd in (incoming, outgoing):
        os.set_inheritable(fd, False)
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
                    requests.put((frame["id"], frame["request"]))
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
