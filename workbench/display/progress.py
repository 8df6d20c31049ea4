"""How far something is: a bar in a notebook cell, a line in a terminal.

A ``Progress`` is called with what the workbench's functions report: ``check_reward``'s (done, of), or ``step_values``'
and ``read_groups``' events.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from types import TracebackType
from typing import Any, Self

from workbench.display.shell import running_shell

_LEAST = 0.1  # seconds between two drawings


class Progress:
    """``with Progress("groups") as told: check_reward(..., on_progress=told)``."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.done, self.total = 0, 0
        self._drawn = 0.0
        self._began = time.monotonic()
        self._handle: Any = None

    def __call__(self, done: int | Mapping[str, Any], total: int | None = None) -> None:
        event: Mapping[str, Any] = done if isinstance(done, Mapping) else {"done": done, "total": total}
        if "done" not in event:
            return
        self.done, self.total = int(event["done"]), int(event.get("total", event.get("of")) or 0)
        if self.done >= self.total or time.monotonic() - self._drawn > _LEAST:
            self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw(over=True)

    def __str__(self) -> str:
        return f"{self.done:,} of {self.total:,} {self.what}, {time.monotonic() - self._began:.0f} s"

    def html(self) -> str:
        label = f"<progress value='{self.done}' max='{max(self.total, 1)}' style='width:240px'></progress>"
        return f"<div>{label} <span style='font-variant-numeric:tabular-nums'>{escape(str(self))}</span></div>"

    def _draw(self, over: bool = False) -> None:
        self._drawn = time.monotonic()
        if running_shell() is None:
            print(f"\r{self}", end="\n" if over else "", file=sys.stderr, flush=True)
            return
        from IPython.display import HTML, display

        drawn = HTML(self.html())
        if self._handle is None:
            self._handle = display(drawn, display_id=True)
        else:
            self._handle.update(drawn)
