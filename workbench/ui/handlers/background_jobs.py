"""What is kept by tab: the newest entries of a dictionary, and background jobs with cancellation.

No tab starts the same kind of job twice. This module does not know what the work is, nor run it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A dictionary of the ``most`` entries that were set last; setting one again makes it the newest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


class Works:
    """One kind of work, by tab. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}

    def begin(self, tab: str) -> threading.Event | None:
        """The event that is set when the tab cancels; None where the tab is at it already."""
        with self._lock:
            return None if tab in self._running else self._running.setdefault(tab, threading.Event())

    def end(self, tab: str) -> None:
        with self._lock:
            self._running.pop(tab, None)

    def going(self, tab: str) -> bool:
        with self._lock:
            return tab in self._running

    def cancel(self, tab: str) -> bool:
        """Whether there was something to cancel."""
        with self._lock:
            cancel = self._running.get(tab)
        if cancel is None:
            return False
        cancel.set()
        return True
