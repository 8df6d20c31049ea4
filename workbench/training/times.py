"""Times of a training step: what sampling and each reward function took on this rank.

It knows no trainer and nothing of how a reward is called.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from workbench.rewards.watch import slower_than

_log = logging.getLogger(__name__)


class Times:
    """Seconds of the last generation: ``sampling``, and ``rewards`` by function."""

    def __init__(self) -> None:
        self.sampling = 0.0
        self.rewards: dict[str, float] = {}
        self._named: set[str] = set()

    @contextmanager
    def of_sampling(self) -> Iterator[None]:
        """Time what is done within as sampling."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.sampling = time.perf_counter() - began

    def metrics(self) -> Mapping[str, float]:
        """``rewards/<name>/time`` and ``sampling_time``."""
        return {**{f"rewards/{name}/time": took for name, took in self.rewards.items()}, "sampling_time": self.sampling}

    def name_slow_rewards(self) -> None:
        """Say once of each reward function that takes longer than sampling: it sets the pace of the run."""
        for name in slower_than(self.rewards, self.sampling):
            if name not in self._named:
                self._named.add(name)
                message = "reward %r took %.2g s and sampling %.2g s: it sets the pace of this run"
                _log.warning(message, name, self.rewards[name], self.sampling)
