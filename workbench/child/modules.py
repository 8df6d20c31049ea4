"""Forked programs: ``python -m module`` in a copy of a process that has imported what it needs.

A forked program has the environment of who asked for it. The system shows a process's environment as it was when its
program was started; a variable that is to be seen there, a tag that others know the process by, is written over the
room that the zygote's own environment keeps for it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from workbench.child.forking import fork_off
from workbench.child.frames import FDS
from workbench.child.process import Copied, Handle
from workbench.child.zygote import Zygote

ROOM = "." * 1024
"""What the zygote's variable of the tag is: the longest tag that there is room for."""
_forked = False
_room = 0
"""Address of the room, once a tag was written there."""


def program_request(command: Sequence[str], environment: Mapping[str, str], tag: str) -> dict[str, Any]:
    """What ``fork_modules`` is asked for ``python -m command`` with; ``tag`` is the name of a variable in it.

    Raises ValueError for a tag that there is no room for.
    """
    if len(os.fsencode(environment[tag])) > len(ROOM):
        raise ValueError(f"a tag of {len(environment[tag]):,} characters has no room; the limit is {len(ROOM):,}")
    return {"command": list(command), "environment": dict(environment), "folder": os.getcwd(), "tag": tag}


def fork_modules() -> NoReturn:
    """Run a module in a fork for each request, until nobody asks; call it last, when everything slow is imported."""
    global _forked
    asked = fork_off(_take_on)
    _forked = True
    run_module(asked["command"])


def is_forked() -> bool:
    """Whether this process was forked with everything imported."""
    return _forked


class Copy(Zygote):
    """A zygote that is a copy of this process, which was forked with everything imported: nothing is imported again.

    Made while this process has one thread; what the copy forks outlives both. One that died is replaced only then.
    """

    def __init__(self) -> None:
        super().__init__("", environment={}, outlived=True)

    def _begin(self, ours: socket.socket, theirs: socket.socket) -> Handle:
        """Raises OSError in a process of several threads, some of which could hold what the copy would wait for."""
        if threading.active_count() > 1:
            raise OSError(f"this process has {threading.active_count()} threads, so that it cannot be copied")
        pid = os.fork()
        if pid:
            return Copied(pid)
        try:
            ours.close()
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ[FDS] = str(theirs.detach())
            fork_modules()
        except Exception:  # nothing of what the copied process was about to do is for the copy
            traceback.print_exc()
            sys.exit(1)


def run_module(command: Sequence[str]) -> NoReturn:
    """Go on as ``python -m command``."""
    module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _take_on(asked: Mapping[str, Any]) -> None:
    global _room
    tag = os.fsencode(asked["environment"][asked["tag"]])
    if not _room:  # in a copy of a process that was forked before, the variable's value has moved, but not its room
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        _room = libc.getenv(asked["tag"].encode())
    ctypes.memmove(_room, tag + b"\0", len(tag) + 1)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
