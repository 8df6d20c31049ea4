"""Child processes that exchange framed JSON: the only way the page's process reaches torch or a user's code.

A frame is a 4-byte big-endian length and that much UTF-8 JSON; a request's ``texts`` follow it as they are. Nothing is
pickled, so a child cannot make its parent run anything. Frames travel over two pipes of their own; the child's standard
output and error are a third pipe that the parent reads, bounds and keeps, so whatever is printed never mixes with a
frame. Parent to child::

    {"request": {...}, "id": 7, "bytes": 0}   {"cancel": true}

Child to parent, any number of events and then one reply or error for each request, under the request's number::

    {"ready": true}   {"event": {...}, "id": 7}   {"reply": {...}, "id": 7}
    {"error": {"type": …, "message": …, "attributes": …, "traceback": …}, "id": 7}

The parent checks the shape of every frame, because a user's code can find the pipe and write to it. Errors of
``workbench.errors`` arrive in the parent as what they were in the child. A child lives in a session of its own, ends
as soon as its parent is gone (its request pipe closes), and is replaced at the next call after it died. This package
does not know what is asked of a child.

A child is a module that is spawned, or a copy that a ``Zygote`` forks of itself when it has imported what is slow. A
zygote may also fork off processes that nobody talks to and that outlive it; one of those may have a ``Copy`` of
itself fork others.
"""

from workbench.child.forking import serve_forks
from workbench.child.frames import MAX_FRAME, is_json
from workbench.child.modules import ROOM, Copy, fork_modules, is_forked, program_request, run_module
from workbench.child.parent import START_SECONDS, Child
from workbench.child.process import KEPT_OUTPUT, Ends, Handle, child_environment, seen_by_libraries
from workbench.child.serve import Emitter, Handler, heartbeat, serve
from workbench.child.zygote import Zygote

__all__ = [
    "KEPT_OUTPUT",
    "MAX_FRAME",
    "ROOM",
    "START_SECONDS",
    "Child",
    "Copy",
    "Emitter",
    "Ends",
    "Handle",
    "Handler",
    "Zygote",
    "child_environment",
    "fork_modules",
    "heartbeat",
    "is_forked",
    "is_json",
    "program_request",
    "run_module",
    "seen_by_libraries",
    "serve",
    "serve_forks",
]
