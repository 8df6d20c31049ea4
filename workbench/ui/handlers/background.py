"""Work that takes longer than an answer may: done on a thread of its own, telling how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TypeVar

from workbench.errors import WorkbenchError

T = TypeVar("T")
Hear = Callable[[str], None]
"""Called with a line that says how far the work is."""


def heard(work: Callable[[Hear], T], cancel: threading.Event) -> Generator[str | T]:
    """Run ``work`` on a thread: the newest of what it says, then what it returns. Raises what it raises.

    Whoever stops listening sets ``cancel``.
    """
    said: list[str] = []
    results: list[T] = []
    errors: list[WorkbenchError] = []
    news = threading.Event()

    def hear(text: str) -> None:
        said[:] = [text]
        news.set()

    def run() -> None:
        try:
            results.append(work(hear))
        except WorkbenchError as error:
            errors.append(error)
        finally:
            news.set()

    thread = threading.Thread(target=run, name="work of a page", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            news.wait(0.5)
            news.clear()
            if said:
                yield said.pop()
    finally:
        if thread.is_alive():  # whoever was listening went away
            cancel.set()
    thread.join()
    yield from said
    if errors:
        raise errors[0]
    if not results:
        raise WorkbenchError("the work ended without a result; try again")
    yield results[0]
