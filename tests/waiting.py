"""Waiting for what another process or thread does: as long as a busy machine may take, never for ever."""

import time
from collections.abc import Callable
from typing import TypeVar

SECONDS = 300.0
T = TypeVar("T")


def wait_for(found: Callable[[], T | None], what: str) -> T:
    """What ``found`` returns once that is neither None nor False; fails with ``what`` where it does not come."""
    end = time.monotonic() + SECONDS
    while True:
        value = found()
        if value is not None and value is not False:
            return value
        assert time.monotonic() < end, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.02)
