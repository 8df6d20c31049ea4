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


class BackgroundWork(Generic[P, T]):
    """``with BackgroundWork(work, cancel) as running``: iterate for its progress, then ask for ``running.result()``.

    ``work`` is called on a thread with a function that reports progress; of several reports that wait, only the newest
    is passed on. Leaving the block before the work is over sets ``cancel``.
    """

    def __init__(self, work: Callable[[Callable[[P], None]], T], cancel: threading.Event) -> None:
        self._work, self._cancel = work, cancel
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
        going = True
        while going:
            newest = report = self._reports.get()
            while report is not None and not self._reports.empty():
                report = self._reports.get()
                newest = report or newest
            going = report is not None
            if newest is not None:
                yield newest[0]

    def result(self) -> T:
        """What the work returned, once it is over. Raises the WorkbenchError that it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._results:
            raise WorkbenchError("the work ended without a result; try again")
        return self._results[0]
