"""Watched rows: a few fixed rows of a method that trains on stored ones, as its model sees them while it learns.

A method says by a ``View`` which number each token of a row's texts gets; rows, steps, the times of the looks and who
is told are shared. A look is a forward pass without dropout and gradients on every rank, so that a run's numbers are
the same with and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from datasets import Dataset

from workbench.config import SharedConfig
from workbench.data import load_rows, load_task
from workbench.data.tasks import prompted
from workbench.errors import PatternError, WorkbenchError
from workbench.rewards.score import split_rollouts
from workbench.schema import OnRows, Rollout, Step, StepScores, TokenMeasure, WatchedRow, WatchedText
from workbench.steps import StepPattern, align_steps, split_leniently, token_texts, unsplit
from workbench.training.common import evaluating
from workbench.training.looks import Looks
from workbench.training.methods.method import Listeners
from workbench.training.methods.stored import StoredSection

TokenRows = Callable[[Sequence[Any]], list[dict[str, Any]]]
"""The rows of a task as the trainer's collator takes them; those that do not fit are left out."""
_LOOKED_THROUGH = 1000
"""Rows among which those are looked for that fit the method's longest length."""
_NAME = "watched"


@dataclass(frozen=True)
class Text:
    """One text of a row, as a view gives it: its ids, and by the keys of the view's measures a number for each.

    ``numbers`` is what is known of the whole text. ``steps`` are character spans with their ``labels``; without them
    the task's pattern finds the steps.
    """

    name: str
    ids: Sequence[int]
    values: Mapping[str, Sequence[float]]
    numbers: Mapping[str, float] = field(default_factory=dict)
    logprobs: Sequence[float] | None = None
    ref_logprobs: Sequence[float] | None = None
    steps: Sequence[Step] | None = None
    labels: Sequence[float | None] = ()


@dataclass(frozen=True)
class Seen:
    """A row as the model sees it: the prompt that it reads, the row's texts, and numbers of the whole row."""

    prompt: str
    texts: Sequence[Text]
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """What a method shows of a row: ``look(trainer, row, batch)``, and what its numbers mean.

    ``row`` is the task's (a ``Pair``, say), ``batch`` the trainer's collator's of that row alone, on the device.
    """

    measures: tuple[TokenMeasure, ...]
    look: Callable[[Any, Any, Mapping[str, torch.Tensor]], Seen]


class WatchedRows(Looks):
    """Looks at rows by a method's view; the first rank tells ``on_rows``."""

    def __init__(
        self, trainer: Any, config: SharedConfig, view: View, rows: Sequence[tuple[Any, Any]], on_rows: OnRows
    ) -> None:
        super().__init__(config)
        self._trainer, self._view, self._rows, self._on_rows = trainer, view, rows, on_rows
        self._pattern = load_task(config.task).pattern

    @classmethod
    def add_to(cls, trainer: Any, config: SharedConfig, view: View, rows: Sequence[Any], listeners: Listeners) -> None:
        """Watch those of ``rows`` that the trainer has as data sets of their own (see ``watched_sets``)."""
        tokens = [(row, (trainer.eval_dataset or {}).get(f"{_NAME}-{i}")) for i, row in enumerate(rows)]
        fitting = [(row, data[0]) for row, data in tokens if data is not None and len(data)]
        if fitting and listeners.on_rows is not None:
            trainer.add_callback(cls(trainer, config, view, fitting, listeners.on_rows))

    def look(self, step: int) -> None:
        trainer = self._trainer
        seen = []
        with evaluating(trainer):
            for row, tokens in self._rows:
                batch = trainer.data_collator([tokens])
                on_device = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
                seen.append(self._view.look(trainer, row, on_device))
        if trainer.accelerator.is_main_process:
            try:
                self._on_rows(step, [self._watched(step, row) for row in seen])
            except WorkbenchError as error:
                print(f"the watched rows of step {step} are not stored: {error}", flush=True)

    def _watched(self, step: int, seen: Seen) -> WatchedRow:
        tokenizer = self._trainer.processing_class
        texts = tuple(watched_text(tokenizer, text, self._pattern) for text in seen.texts)
        return WatchedRow(seen.prompt, texts, self._view.measures, dict(seen.numbers), step)


def _steps_of(rollout: Rollout, pattern: StepPattern) -> Sequence[Step]:
    """One unmatched step where the pattern asks for what a stored text does not have: how sure a policy was of it."""
    try:
        return split_rollouts([rollout], pattern, split_leniently)[0].steps
    except PatternError:
        if not pattern.by_tokens:
            raise
        return unsplit(rollout.text).steps


def watched_text(tokenizer: Any, text: Text, pattern: StepPattern) -> WatchedText:
    """A text with its tokens' own texts and its steps."""
    rollout = Rollout(
        token_ids=tuple(text.ids),
        texts=tuple(token_texts(tokenizer, text.ids)),
        finished=bool(text.ids) and text.ids[-1] == tokenizer.eos_token_id,
        logprobs=None if text.logprobs is None else tuple(text.logprobs),
        ref_logprobs=None if text.ref_logprobs is None else tuple(text.ref_logprobs),
    )
    steps = text.steps
    if steps is None:
        steps = _steps_of(rollout, pattern) if rollout.texts else []
    scored = StepScores(
        steps=tuple(steps),
        spans=tuple(align_steps(rollout.texts, steps)),
        scores={},
        rewards=tuple(text.labels) or (None,) * len(steps),
        outcome_scores={},
        outcome=None,
    )
    values = {key: tuple(values) for key, values in text.values.items()}
    return WatchedText(text.name, rollout, scored, values, dict(text.numbers))


def completion(
    input_ids: torch.Tensor, mask: torch.Tensor, *per_token: torch.Tensor
) -> tuple[list[int], list[int], list[list[float]]]:
    """The ids before and under ``mask`` (both (T,)), and of each (T − 1,) of numbers, which are those of the tokens
    after the first, what is under it. A first token, which nothing is before, belongs to the prompt.
    """
    under = mask.bool().clone()
    under[0] = False
    first = int(under.nonzero()[0]) if under.any() else len(under)
    numbers = [row[under[1:]].float().tolist() for row in per_token]
    return input_ids[:first].tolist(), input_ids[under].tolist(), numbers


def watched_rows(config: SharedConfig, token_rows: TokenRows) -> list[Any]:
    """The first ``watch_prompts`` held-out rows (training rows where none are held out) that fit ``max_length``."""
    method, task = config.method, prompted(load_rows(config.task), config.prompt)
    assert isinstance(method, StoredSection)
    held_out = task.rows(method.kind, held_out=True)
    rows = held_out if len(held_out) else task.rows(method.kind)
    looked_through = (rows[i] for i in range(min(len(rows), _LOOKED_THROUGH)))
    return list(islice((row for row in looked_through if token_rows([row])), config.run.watch_prompts))


def watched_sets(rows: Sequence[Any], token_rows: TokenRows) -> dict[str, Dataset]:
    """A data set for each row, for the trainer to prepare with those that it is measured on; it may leave some out."""
    return {f"{_NAME}-{i}": Dataset.from_list(token_rows([row])) for i, row in enumerate(rows)}
