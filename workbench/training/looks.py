"""``Looks``: when the prompts or rows that a run watches are looked at."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from workbench.config import SharedConfig


class Looks(TrainerCallback):
    """Base of what is looked at before training, every ``watch_every`` steps, and at the end."""

    def __init__(self, config: SharedConfig) -> None:
        self._every = config.run.watch_every

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.global_step:  # a resumed run has looked before its first step already
            self.look(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self.look(state.global_step)

    def look(self, step: int) -> None:
        """Look after ``step``; called by all ranks."""
        raise NotImplementedError
