"""Threads that environments are called in, so that a policy goes on sampling while one of them thinks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any


class Lane:
    """A thread that does one call after another. What is made in it (a connection, say) is used in it alone.

    It is a daemon: a call that never ends keeps no process alive.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._work, name="environment", daemon=True).start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """What the call will come to, after those before it."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End the thread after the calls that it has."""
        self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
