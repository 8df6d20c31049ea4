"""Following a run's metrics log: the rows since the last read, until the run is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from workbench.errors import RunError
from workbench.rundir import RunDir, RunStatus

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class News:
    """One reading of a run: its status, the rows since the look before, and whether they replace all earlier ones."""

    status: RunStatus
    rows: Rows
    restarted: bool


class MetricsReader:
    """One reader's place in a metrics log. ``cursor`` is the byte from which it reads on."""

    def __init__(self, run: RunDir, cursor: int = 0) -> None:
        self.run = run
        self.cursor = cursor

    def read(self) -> tuple[Rows, bool]:
        """The rows written since, and whether they are all rows anew: the log was resumed or replaced since the last
        look, so that what was read before is superseded. Raises RunError for a log that cannot be read."""
        try:
            rows, self.cursor = self.run.read_metrics(self.cursor)
        except RunError:
            if not self.cursor:
                raise
            rows, self.cursor = self.run.read_metrics()
            return rows, True
        return rows, False

    def follow(self, status: Callable[[], RunStatus], pause: Callable[[], object]) -> Iterator[News]:
        """Look at the run until it is over, or ``pause``, called between two looks, returns something true."""
        while True:
            now = status()  # asked before reading: no row follows a final status
            yield News(now, *self.read())
            if now.final or pause():
                return
