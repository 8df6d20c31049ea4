"""Imports of large libraries: what they make stays, so that nothing is gained by looking for garbage meanwhile."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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


@contextmanager
def without_interfaces() -> Iterator[None]:
    """Gradio, imported inside, does not write anew what editors read of its components, a third of its import.

    ``gradio.component_meta`` leaves out the components whose class has no file.
    """
    getfile, inside = inspect.getfile, True

    def no_file(object: Any) -> str:
        if inside and str(getattr(object, "__module__", None)).startswith("gradio."):
            raise OSError("no interface is written for a component without a file")
        return getfile(object)

    inspect.getfile = no_file
    try:
        yield
    finally:
        inside = False
        if inspect.getfile is no_file:  # torch puts one of its own before it where it is imported inside
            inspect.getfile = getfile
