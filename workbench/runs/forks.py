"""Entry point of the warm process (``warm``): imports what training imports and forks runs.

A forked run has the environment of who started it, its tag included. The system shows a process's environment as it was
when its program was started; so the tag is written over the room that is kept for it there.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.child import fork_off
from workbench.runs import warm
from workbench.runs.processes import TAG

IMPORTED = ("workbench.process.child", "workbench.training.trainer", "workbench.runs")


def main(imported: Sequence[str] = IMPORTED) -> None:
    tag_address = _address_of(TAG)
    for module in imported:
        importlib.import_module(module)

    def take_on(about: Mapping[str, Any]) -> None:
        tag = os.fsencode(about["environment"][TAG])
        ctypes.memmove(tag_address, tag + b"\0", len(tag) + 1)
        os.environ.clear()
        os.environ.update(about["environment"])
        os.chdir(about["folder"])

    about = fork_off(take_on)
    warm.forked = True
    module, *arguments = about["command"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _address_of(name: str) -> int:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address: int = getenv(name.encode())
    return address


if __name__ == "__main__":
    main()
