"""Forked programs: ``python -m module`` in a copy of a process that has imported what it needs.

A forked program has the environment of who asked for it. The system shows a process's environment as it was when its
program was started; a variable that is to be seen there, a tag that others know the process by, is written over the
room that the zygote's own environment keeps for it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from workbench.child.forking import fork_off

ROOM = "." * 1024
"""What the zygote's variable of the tag is: the longest tag that there is room for."""
_forked = False


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


def run_module(command: Sequence[str]) -> NoReturn:
    """Go on as ``python -m command``."""
    module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _take_on(asked: Mapping[str, Any]) -> None:
    tag = os.fsencode(asked["environment"][asked["tag"]])
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    ctypes.memmove(libc.getenv(asked["tag"].encode()), tag + b"\0", len(tag) + 1)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
