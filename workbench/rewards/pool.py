"""Pool of reward workers, one per browser tab: bounded in number, idle ones ended."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from workbench.rewards.client import RewardWorker
from workbench.rewards.judges import Judges

KEPT = 8
IDLE_SECONDS = 600.0


class WorkerPool:
    """Gives each key a worker of its own. Safe from any thread.

    Over ``kept`` of them, the one longest unused ends, one in the middle of a call only if there is no other. One that
    was not asked for in ``idle_seconds`` ends too. Whoever asks again gets a new one. ``judges`` are all workers'.
    """

    def __init__(
        self,
        kept: int = KEPT,
        idle_seconds: float = IDLE_SECONDS,
        *,
        judges: Judges | None = None,
    ) -> None:
        self._kept, self._idle_seconds = kept, idle_seconds
        self._judges = judges
        self._lock = threading.Lock()
        self._workers: OrderedDict[str, tuple[RewardWorker, float]] = OrderedDict()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    def of(self, key: str) -> RewardWorker:
        with self._lock:
            worker = self._workers.pop(key)[0] if key in self._workers else RewardWorker(judges=self._judges)
            self._workers[key] = worker, time.monotonic()
            ended = [self._take_oldest() for _ in range(len(self._workers) - self._kept)]
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="idle reward workers", daemon=True)
                self._watcher.start()
        for old in ended:
            old.close()
        return worker

    def end(self, key: str) -> None:
        """End the worker of ``key``."""
        with self._lock:
            worker = self._workers.pop(key)[0] if key in self._workers else None
        if worker is not None:
            worker.close()

    def end_idle(self, now: float) -> None:
        """End the workers that were last asked for ``idle_seconds`` before ``now`` (of ``time.monotonic``)."""
        with self._lock:
            idle = [
                key
                for key, (worker, used) in self._workers.items()
                if now - used >= self._idle_seconds and not worker.is_busy
            ]
            ended = [self._workers.pop(key)[0] for key in idle]
        for worker in ended:
            worker.close()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            workers = [worker for worker, _ in self._workers.values()]
            self._workers.clear()
        for worker in workers:
            worker.close()

    def __len__(self) -> int:
        return len(self._workers)

    def _take_oldest(self) -> RewardWorker:
        *rest, newest = self._workers
        key = next((key for key in rest if not self._workers[key][0].is_busy), (rest or [newest])[0])
        return self._workers.pop(key)[0]

    def _watch(self) -> None:
        while not self._closed.wait(self._idle_seconds / 4):
            self.end_idle(time.monotonic())
