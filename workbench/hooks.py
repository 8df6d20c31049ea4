"""Functions of upper layers that lower layers call without importing them. The package's root fills these in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

watch: Callable[..., Any] | None = None
"""``watch(run, *panels, every)``: what ``Run.watch`` gives; ``workbench.views.notebook`` has it."""
find_checkpoint: Callable[[str], Path] | None = None
"""``find_checkpoint(reference)``: the folder that run:NAME or run:NAME@STEP names; ``workbench.runs`` has it."""
reward_kind: Callable[[str, str | None], str] | None = None
"""``reward_kind(name, code)``: what a reward function scores, "step" or "outcome"; ``workbench.rewards`` has it."""
reward_in_file: Callable[[str], dict[str, Any]] | None = None
"""``reward_in_file(text)``: the reward that FILE.py::NAME names; ``workbench.rewards`` has it."""
