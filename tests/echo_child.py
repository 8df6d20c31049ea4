"""The child that test_child talks to: it does what the request's ``do`` says."""

import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

from workbench.errors import RewardValueError
from workbench.sandbox.child import Emitter, serve

if "--fail-to-start" in sys.argv:
    raise RuntimeError("no such luck")
print("printed while starting")


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    match request.get("do"):
        case "exit":
            os._exit(request["code"])
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            threading.Event().wait()
        case "print":
            print("x" * request["times"])
            os.write(1, b"low level\n")
            print("to stderr", file=sys.stderr)
        case "read":
            return {"stdin": sys.stdin.read()}
        case "raise":
            raise KeyError("surprise")
        case "raise-ours":
            raise RewardValueError("bad value", reward="mine", rollout=1, step=2)
        case "count":
            for n in range(request["to"]):
                emit({"n": n})
        case "until-cancelled":
            emit({"started": True})
            emit._cancel.wait()
            return {"stopped": emit.cancelled()}
        case "not-json":
            return {"value": object()}
        case "leave-a-copy":
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
            os._exit(7)
        case "send":
            emit.send(request["message"].encode())
            if request.get("waits"):
                threading.Event().wait()
        case "last":
            emit.is_last = True
    return {"echo": request, "pid": os.getpid(), "args": sys.argv[1:]}


serve(handle)
