"""Exact-answer accuracy on a fixed held-out set, sampled as training samples, every few steps of a run."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from workbench.config import TrainingConfig
from workbench.policies.sampler import encode_prompt
from workbench.tasks import Task
from workbench.training.trainer import ProcessGRPOTrainer

SEED = 1_000_003
"""Of the draws: the same at every measure, so that two measures differ by the policy alone."""


class HeldOutAccuracy(TrainerCallback):
    """Adds ``accuracy`` (0 to 1) to the metrics before training, every ``eval_every`` steps, and at the end.

    One completion is sampled for each of the first ``eval_prompts`` held-out rows, at the run's temperature; ranks
    share the rows. A measure over n rows has a standard error of about sqrt(a(1 - a) / n).
    """

    def __init__(self, trainer: ProcessGRPOTrainer, task: Task, training: TrainingConfig) -> None:
        self._trainer = trainer
        self._task = task
        self._every = training.eval_every
        accelerator = trainer.accelerator
        # The same number of rows on every rank, as the sampler's table of draws wants it.
        count = min(training.eval_prompts, len(task.held_out))
        share = max(1, count // accelerator.num_processes)
        first = accelerator.process_index * share
        self._rows = task.held_out[first : first + share]
        self._prompt_ids = [encode_prompt(trainer.processing_class, row.prompt) for row in self._rows]

    def measure(self) -> float:
        """Sample and check the held-out rows now."""
        rows = self._trainer.sample(self._prompt_ids, SEED)
        texts = [self._trainer.processing_class.decode(row.token_ids, skip_special_tokens=True) for row in rows]
        right = sum(self._task.answer_is_right(text, row.columns) for text, row in zip(texts, self._rows, strict=True))
        counts = torch.tensor([right, len(rows)], device=self._trainer.accelerator.device)
        total = self._trainer.accelerator.reduce(counts, reduction="sum")
        return float(total[0] / total[1])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            self._trainer.log({"accuracy": self.measure()})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._trainer._metrics["train"]["accuracy"].append(self.measure())
