"""Measures on held-out rows every few steps of a run, and exact-answer accuracy, sampled as training samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from workbench.config import RunSection
from workbench.data import Task
from workbench.rewards.score import split_rollouts, spoken, texts_read
from workbench.schema import HeldOutAnswer, OnAnswers
from workbench.schema.rollouts import prompt_text
from workbench.steps import StepPattern, split_leniently
from workbench.training.sampling import PolicySampler

SEED = 1_000_003
"""Of the draws: the same at every measure, so that two measures differ by the policy alone."""
Measure = Callable[[], Mapping[str, float]]
"""Metrics of the trainer's model as it is now; called by all ranks, and the same on each."""


class HeldOut(TrainerCallback):
    """Adds what ``measures`` give to the metrics before training, every ``eval_every`` steps, and at the end."""

    def __init__(self, trainer: Any, run: RunSection, measures: list[Measure]) -> None:
        self._trainer, self._every, self._measures = trainer, run.eval_every, measures

    @classmethod
    def add_to(cls, trainer: Any, run: RunSection, measures: list[Measure]) -> None:
        """Measure while ``trainer`` trains, if there is anything to measure."""
        if measures:
            # First in line, so that the step's row is complete when it is recorded.
            trainer.callback_handler.callbacks.insert(0, cls(trainer, run, measures))

    def _measure(self) -> dict[str, float]:
        return {name: value for measure in self._measures for name, value in measure().items()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:  # resumed: measured before the first step already
            return
        self._trainer.log(self._measure())

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            for name, value in self._measure().items():
                self._trainer._metrics["train"][name].append(value)


class HeldOutAccuracy:
    """Measures ``accuracy`` and ``no_answer_share`` (0 to 1): one completion is sampled for each of the run's measured
    rows, with its sampling parameters; ranks share the rows. With a ``pattern`` also ``match_share``: in how many it
    finds steps.
    ``read`` is the pattern that may leave thinking out of what is checked.

    ``on_answers`` is called on the first rank with the training step and what was answered.

    A measure over n rows has a standard error of about sqrt(a(1 - a) / n).
    """

    def __init__(
        self,
        trainer: Any,
        sampler: PolicySampler,
        task: Task,
        run: RunSection,
        pattern: StepPattern | None = None,
        read: StepPattern | None = None,
        on_answers: OnAnswers | None = None,
    ) -> None:
        self._trainer, self._sampler, self._pattern, self._read = trainer, sampler, pattern, read
        self._task, self._on_answers = task, on_answers
        rows = run.measured_rows(task.held_out)
        self._count = len(rows)
        accelerator = trainer.accelerator
        self._share = -(-self._count // accelerator.num_processes)  # rows a rank; the last may have fewer
        self._first = accelerator.process_index * self._share
        self._rows = rows[self._first : self._first + self._share]
        self._prompt_ids = [sampler.encode(row.prompt) for row in self._rows]
        self._chunk = max(1, sampler.rows_at_once or self._share)

    def measure(self) -> float:
        """The accuracy now."""
        return self()["accuracy"]

    def __call__(self) -> dict[str, float]:
        """Sample and check the held-out rows now."""
        trainer = self._trainer
        matched, measured = 0, list[HeldOutAnswer]()
        for start in range(0, len(self._rows), self._chunk):
            chunk = slice(start, start + self._chunk)
            first = self._first + start
            place = {"first_row": first, "total_rows": self._count}
            examples = self._rows[chunk]
            sampled = self._sampler(self._prompt_ids[chunk], SEED, examples=examples, measuring=True, **place)
            rollouts = [self._sampler.rollout(row) for row in sampled]
            rows, texts = self._rows[chunk], [rollout.text for rollout in rollouts]
            prompts = [row.prompt for row in rows]
            opened = self._sampler.all_thinking_open(prompts)
            answers = spoken(rollouts, texts_read(rollouts, self._read, opened), opened)
            for text, answer, row in zip(texts, answers, rows, strict=True):
                right, found = self._task.checked(answer, row.columns)
                measured.append(HeldOutAnswer(prompt_text(row.prompt), text, right, found))
            if self._pattern is not None:
                splits = split_rollouts(rollouts, self._pattern, split_leniently, opened=opened)
                matched += sum(split.matched for split in splits)
        self._tell(measured)
        counts = [sum(row.right for row in measured), sum(row.answer == "" for row in measured), matched]
        sums = trainer.accelerator.reduce(torch.tensor(counts, device=trainer.accelerator.device), reduction="sum")
        right, without, matched = sums.tolist()
        share = {} if self._pattern is None else {"match_share": matched / self._count}
        return {"accuracy": right / self._count, "no_answer_share": without / self._count, **share}

    def _tell(self, measured: list[HeldOutAnswer]) -> None:
        """Ranks have consecutive rows, so that theirs one after the other are all in order."""
        if self._on_answers is None:
            return
        everyone = gather_object(measured)
        if self._trainer.accelerator.is_main_process:
            self._on_answers(self._trainer.state.global_step, everyone)
