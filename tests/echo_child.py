"""The child that test_child talks to: it does what the request's ``do`` says."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

from workbench.child import Emitter, serve
from workbench.child.frames import packed
from workbench.errors import RewardValueError

if "--fail-to-start" in sys.argv:
    raise RuntimeError("no such luck")
print("printed while starting")


def error(kind: str, attributes: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    described = {"type": kind, "message": "no", "attributes": attributes, "traceback": ""}
    return {"error": described, "id": emit._request}


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
        case "two-kinds":
            emit._send(packed({"reply": {}, "event": {}, "id": emit._request}))
        case "text-for-a-reply":
            emit._send(packed({"reply": "text", "id": emit._request}))
        case "error-without-message":
            emit._send(packed({"error": {"type": "RewardError"}, "id": emit._request}))
        case "odd-attributes":
            emit._send(packed(error("RewardError", {"line": [1]}, emit)))
        case "unknown-attributes":
            emit._send(packed(error("RewardError", {"colour": "red"}, emit)))
        case "no-error-of-ours":
            emit._send(packed(error("SystemExit", {}, emit)))
        case "number":
            return {"number": emit._request}
        case "answer-twice":
            emit._send(packed({"reply": {"forged": True}, "id": emit._request}))
        case "answer-ahead":
            emit._send(packed({"reply": {"forged": True}, "id": emit._request + 1}))
        case "ready-again":
            emit._send(packed({"ready": True}))
        case "nonsense":
            emit._send(b"\x00\x00\x00\x03[1]")
        case "huge":
            emit._send(b"\xff\xff\xff\xff")
    return {"echo": request, "pid": os.getpid(), "args": sys.argv[1:]}


serve(handle)
