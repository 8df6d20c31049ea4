"""Exact-answer accuracy on a fixed held-out set, sampled as training samples, every few steps of a run."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from workbench.sections import RunSection
from workbench.tasks import Task
from workbench.training.sampling import PolicySampler

SEED = 1_000_003
"""Of the draws: the same at every measure, so that two measures differ by the policy alone."""


class HeldOutAccuracy(TrainerCallback):
    """Adds ``accuracy`` (0 to 1) to the metrics before training, every ``eval_every`` steps, and at the end.

    One completion is sampled for each of the first ``eval_prompts`` held-out rows, with the run's sampling
    parameters; ranks share the rows.

    A measure over n rows has a standard error of about sqrt(a(1 - a) / n).
    """

    def __init__(self, trainer: Any, sampler: PolicySampler, task: Task, run: RunSection) -> None:
        self._trainer, self._sampler = trainer, sampler
        self._task = task
        self._every = run.eval_every
        self._count = min(run.eval_prompts, len(task.held_out))
        accelerator = trainer.accelerator
        self._share = -(-self._count // accelerator.num_processes)  # rows a rank; the last may have fewer
        self._first = accelerator.process_index * self._share
        self._rows = task.held_out[self._first : min(self._first + self._share, self._count)]
        self._prompt_ids = [sampler.encode(row.prompt) for row in self._rows]
        self._chunk = max(1, sampler.rows_at_once or self._share)

    def measure(self) -> float:
        """Sample and check the held-out rows now."""
        trainer = self._trainer
        right = 0
        for start in range(0, len(self._rows), self._chunk):
            chunk = slice(start, start + self._chunk)
            first = self._first + start
            sampled = self._sampler(self._prompt_ids[chunk], SEED, first_row=first, total_rows=self._count)
            texts = [self._sampler.rollout(row).text for row in sampled]
            right += sum(
                self._task.answer_is_right(text, row.columns)
                for text, row in zip(texts, self._rows[chunk], strict=True)
            )
        everyone = trainer.accelerator.reduce(torch.tensor(right, device=trainer.accelerator.device), reduction="sum")
        return int(everyone) / self._count

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:  # resumed: measured before the first step already
            return
        self._trainer.log({"accuracy": self.measure()})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._trainer._metrics["train"]["accuracy"].append(self.measure())
