"""Functions of upper layers that lower layers call without importing them. The package's root fills these in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

watch: Callable[..., Any] | None = None
"""``watch(run, *panels, every)``: what ``Run.watch`` gives; ``workbench.display.live`` has it."""
