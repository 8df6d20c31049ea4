"""Exact-answer accuracy on a fixed held-out set, sampled as training samples, every few steps of a run."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from workbench.config import TrainingConfig
from workbench.policies.sampler import UnshareableCache, encode_prompt, to_rollout
from workbench.tasks import Task
from workbench.training.trainer import ProcessGRPOTrainer

SEED = 1_000_003
"""Of the draws: the same at every measure, so that two measures differ by the policy alone."""


class HeldOutAccuracy(TrainerCallback):
    """Adds ``accuracy`` (0 to 1) to the metrics before training, every ``eval_every`` steps, and at the end.

    One completion is sampled for each of the first ``eval_prompts`` held-out rows, at the run's temperature; ranks
    share the rows. A model that the group sampler cannot sample is not measured, and the log says so.

    A measure over n rows has a standard error of about sqrt(a(1 - a) / n).
    """

    def __init__(self, trainer: ProcessGRPOTrainer, task: Task, training: TrainingConfig) -> None:
        self._trainer = trainer
        self._task = task
        self._every = training.eval_every
        self._count = min(training.eval_prompts, len(task.held_out))
        accelerator = trainer.accelerator
        self._share = -(-self._count // accelerator.num_processes)  # rows a rank; the last may have fewer
        self._first = accelerator.process_index * self._share
        self._rows = task.held_out[self._first : min(self._first + self._share, self._count)]
        self._prompt_ids = [encode_prompt(trainer.processing_class, row.prompt) for row in self._rows]
        rank_batch = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
        # What generation has memory for; a CPU has enough for all, and is faster with all at once.
        self._chunk = self._share if accelerator.device.type == "cpu" else rank_batch

    def measure(self) -> float:
        """Sample and check the held-out rows now."""
        trainer = self._trainer
        total_rows = self._share * trainer.accelerator.num_processes
        right = 0
        for start in range(0, len(self._rows), max(1, self._chunk)):
            chunk = slice(start, start + self._chunk)
            sampled = trainer.sample(
                self._prompt_ids[chunk], SEED, first_row=self._first + start, total_rows=total_rows
            )
            texts = [to_rollout(trainer.processing_class, row).text for row in sampled]
            right += sum(
                self._task.answer_is_right(text, row.columns)
                for text, row in zip(texts, self._rows[chunk], strict=True)
            )
        everyone = trainer.accelerator.reduce(torch.tensor(right, device=trainer.accelerator.device), reduction="sum")
        return int(everyone) / self._count

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:  # resumed: measured before the first step already
            return
        base = self._measure_if_possible()
        if base is not None:
            self._trainer.log({"accuracy": base})

    def _measure_if_possible(self) -> float | None:
        try:
            return self.measure()
        except UnshareableCache as error:
            print(f"accuracy on held-out rows is not measured in this run: {error}", flush=True)
            self._every = 0
            return None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._every:
            return
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            accuracy = self._measure_if_possible()
            if accuracy is not None:
                self._trainer._metrics["train"]["accuracy"].append(accuracy)
