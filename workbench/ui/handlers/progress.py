"""Work on a thread: the newest progress while it runs, and its result."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from workbench.errors import WorkbenchError

P = TypeVar("P")
T = TypeVar("T")
REPEAT_SECONDS = 1.0


class BackgroundWork(Generic[P, T]):
    """``with BackgroundWork(work, cancel) as running``: iterate for its progress, then ask for ``running.result()``.

    ``work`` is called on a thread with a function that reports progress; of several reports that wait, only the newest
    is passed on, and again after every ``REPEAT_SECONDS`` without another, as the page may show something else by then:
    the answer to what was changed just before. ``first`` is passed on so where nothing was reported yet. Leaving the
    block before the work is over sets ``cancel``.
    """

    def __init__(
        self, work: Callable[[Callable[[P], None]], T], cancel: threading.Event, first: P | None = None
    ) -> None:
        self._work, self._cancel = work, cancel
        self._first = None if first is None else (first,)
        self._reports: queue.SimpleQueue[tuple[P] | None] = queue.SimpleQueue()  # None ends them
        self._results: list[T] = []
        self._error: WorkbenchError | None = None
        # In the context of the event whose work it is, by which it is known who asks.
        here = contextvars.copy_context()
        self._thread = threading.Thread(target=here.run, args=[self._run], name="work of a page", daemon=True)

    def _run(self) -> None:
        try:
            self._results.append(self._work(lambda report: self._reports.put((report,))))
        except WorkbenchError as error:
            self._error = error
        finally:
            self._reports.put(None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._cancel.set()

    def __iter__(self) -> Iterator[P]:
        newest, going = self._first, True
        while going:
            heard = self._heard()
            newest = next(filter(None, reversed(heard)), newest)
            going = None not in heard
            if newest is not None and heard != [None]:
                yield newest[0]

    def _heard(self) -> list[tuple[P] | None]:
        """The reports since the last ones; none after a silence."""
        try:
            heard = [self._reports.get(timeout=REPEAT_SECONDS)]
        except queue.Empty:
            return []
        while not self._reports.empty():
            heard.append(self._reports.get())
        return heard

    def result(self) -> T:
        """What the work returned, once it is over. Raises the WorkbenchError that it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._results:
            raise WorkbenchError("the work ended without a result; try again")
        return self._results[0]
