"""Per-tab background jobs with cancellation: no tab starts the same kind of job twice.

It does not know what the work is, nor run it.
"""

from __future__ import annotations

import threading


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
