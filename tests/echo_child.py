"""The child that test_child talks to: it does what the request's ``do`` says."""

import os
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
        case "print":
            print("x" * request["times"])
            os.write(1, b"low level\n")
            print("to stderr", file=sys.stderr)
        case "raise":
            raise KeyError("surprise")
        case "raise-ours":
            raise RewardValueError("bad value", reward="mine", rollout=1, step=2)
        case "until-cancelled":
            emit({"started": True})
            emit._cancel.wait()
            return {"stopped": emit.cancelled()}
        case "not-json":
            return {"value": object()}
        case "send":
            emit.send(request["message"].encode())
            if request.get("waits"):
                threading.Event().wait()
    return {"echo": request, "pid": os.getpid(), "args": sys.argv[1:]}


serve(handle)
