"""What trainers on stored rows are built with: transformers' arguments, the rows as tokens, and held-out accuracy.

Shared by the methods whose section is a ``StoredSection``. How a row becomes tokens is the methods' own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset, disable_progress_bars

from workbench.config import SamplingConfig, SharedConfig
from workbench.data import load_task
from workbench.data.tasks import prompted
from workbench.environments import load_environment
from workbench.errors import ConfigError
from workbench.policies.load import Policy
from workbench.rewards import RewardWorker
from workbench.schema import OnAnswers
from workbench.training.accuracy import HeldOutAccuracy, Measure
from workbench.training.common import evaluating, shared_arguments
from workbench.training.methods.stored import StoredSection
from workbench.training.prompts import within_context
from workbench.training.sampling import PolicySampler
from workbench.training.watched_rows import TokenRows, watched_sets

Numbers = Callable[[Mapping[str, torch.Tensor]], Sequence[Any]]
"""Of a batch from the trainer's collator: what is measured of each of its rows."""
MEASURED = "measured"
"""The name of the data set that a trainer is measured on, among those it is given beside its training rows."""


def arguments(config: SharedConfig, output_dir: Path) -> dict[str, Any]:
    """Arguments of transformers' ``TrainingArguments`` for a method on stored rows."""
    disable_progress_bars()  # nobody who reads a run's log can act on them
    return {
        **shared_arguments(config, output_dir, _section(config).batch_size // config.run.ranks),
        "gradient_checkpointing": config.optimiser.gradient_checkpointing,
    }


def training_set(config: SharedConfig, token_rows: TokenRows) -> Dataset:
    """The run's rows as tokens. Raises TaskError for bad rows and ConfigError where none fits ``max_length``."""
    method = _section(config)
    stored = method.training_rows(config)
    doubts = Counter(doubt for row in stored if (doubt := getattr(row, "doubt", "")))
    for doubt, count in doubts.items():
        _say(f"warning: {count:,} of {len(stored):,} {method.unit}: {doubt}")
    rows = _fitting(method, stored, token_rows)
    if not rows:
        raise ConfigError(
            f"method.max_length: none of the {method.unit} fits {method.max_length} tokens; set it higher"
        )
    if len(rows) < method.batch_size:
        _say(f"note: a step takes {len(rows)} {method.unit}, all there are, and not {method.batch_size}")
    return Dataset.from_list(rows)


def held_out_sets(config: SharedConfig, token_rows: TokenRows, watched: Sequence[Any] = ()) -> dict[str, Dataset]:
    """The rows as tokens that the run is measured on, ``measured``, and each of those that it watches.

    Raises TaskError and ConfigError.
    """
    method = _section(config)
    rows = _fitting(method, method.held_out_rows(config), token_rows)
    return ({MEASURED: Dataset.from_list(rows)} if rows else {}) | watched_sets(watched, token_rows)


def _fitting(method: StoredSection, rows: Sequence[Any], token_rows: TokenRows) -> list[dict[str, Any]]:
    fitting = token_rows(rows)
    if left_out := len(rows) - len(fitting):
        _say(f"{left_out:,} of {len(rows):,} {method.unit} are left out: {method.why_left_out}")
    return fitting


def _say(line: str) -> None:
    """Write a line of the run's log, once for all ranks."""
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)


class HeldOutRows:
    """Measures the trainer's held-out rows; ranks share them, a batch of training's at a time.

    ``numbers(batch)`` gives what is measured of each row of a batch as the trainer's collator makes it, ``metrics``
    makes metrics of all rows' numbers.
    """

    def __init__(self, trainer: Any, numbers: Numbers, metrics: Callable[[Sequence[Any]], Mapping[str, float]]) -> None:
        self._trainer, self._numbers, self._metrics = trainer, numbers, metrics

    def __call__(self) -> Mapping[str, float]:
        trainer, rows = self._trainer, self._trainer.eval_dataset[MEASURED]
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        share = -(-len(rows) // ranks)
        mine = [rank + i * ranks for i in range(share)]  # past the end on some ranks: all do as many forward passes
        size, measured = trainer.args.per_device_train_batch_size, list[tuple[int, Any]]()
        for start in range(0, share, size):
            places = mine[start : start + size]
            batch = trainer.data_collator([rows[place % len(rows)] for place in places])
            batch = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
            with evaluating(trainer):
                measured += zip(places, self._numbers(batch), strict=True)
        everyone = dict(gather_object(measured))
        return self._metrics([everyone[place] for place in range(len(rows))])


def held_out_measure(
    trainer: Any, numbers: Numbers, metrics: Callable[[Sequence[Any]], Mapping[str, float]]
) -> list[Measure]:
    """The measure of ``HeldOutRows``, where the trainer has held-out rows."""
    return [HeldOutRows(trainer, numbers, metrics)] if MEASURED in (trainer.eval_dataset or {}) else []


def held_out_accuracy(
    trainer: Any, config: SharedConfig, policy: Policy, sampling: SamplingConfig, on_answers: OnAnswers | None
) -> list[Measure]:
    """The measure of accuracy, and of answers in steps, where the run measures and the task can check answers."""
    task = within_context(prompted(load_task(config.task), config.prompt), policy, config, sampling, 0)
    if not config.run.eval_every or not task.can_check or not len(task.held_out):
        return []
    rows_at_once = trainer.args.per_device_train_batch_size
    environment = load_environment(config.environment, RewardWorker)
    sampler = PolicySampler(trainer, sampling, rows_at_once, config.prompt.template_kwargs, environment)
    return [HeldOutAccuracy(trainer, sampler, task, config.run, task.pattern, on_answers=on_answers)]


def _section(config: SharedConfig) -> StoredSection:
    assert isinstance(config.method, StoredSection)
    return config.method
