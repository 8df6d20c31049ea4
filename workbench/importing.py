"""Imports of large libraries: what they make stays, so that nothing is gained by looking for garbage meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's collector of cycles rests inside. It takes a seventh of the time in which torch and TRL are imported."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not resting:
            gc.enable()
