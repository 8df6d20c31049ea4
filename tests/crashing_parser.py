"""A parser child that crashes the way a native one can, or hangs."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from workbench.sandbox.child import Emitter, serve


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    if request["format"] == "hang":
        threading.Event().wait()
    ctypes.string_at(0)
    return {}


if __name__ == "__main__":
    serve(handle)
