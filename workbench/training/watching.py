"""``Looks``: when the prompts or rows that a run watches are looked at."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import TrainerCallback

from workbench.checks.difficulty import calibration_error
from workbench.config import RunSection, SamplingConfig, SharedConfig
from workbench.data import Task, load_rows, load_task, prompted
from workbench.errors import PatternError, WorkbenchError
from workbench.policies.prompts import find_chat_template
from workbench.rewards import Reward, Sandbox, score_group, texts_after_thinking
from workbench.schema import (
    Group,
    HeldOutAnswer,
    OnAnswers,
    OnCredit,
    OnRows,
    Rollout,
    Step,
    StepScores,
    TokenMeasure,
    WatchedRow,
    WatchedText,
    prompt_text,
)
from workbench.steps import StepPattern, align_steps, split_leniently, split_rollouts, token_texts, unsplit
from workbench.training.generation import PolicySampler
from workbench.training.methods.base import Seen, StoredSection
from workbench.training.trainer import ProcessGRPOTrainer


class Looks(TrainerCallback):
    """Calls ``look(step)``, on all ranks, before training, every so many steps, and at the end."""

    def __init__(self, every: int, look: Callable[[int], None]) -> None:
        self._every, self._look = every, look

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.global_step:  # a resumed run has looked before its first step already
            self._look(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._look(state.global_step)


@contextmanager
def evaluating(trainer: Any) -> Iterator[None]:
    """The trainer's model without dropout and gradients, in its precision: no random number is drawn by measuring."""
    was_training = trainer.model_wrapped.training
    trainer.model_wrapped.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager():
            yield
    finally:
        trainer.model_wrapped.train(was_training)


ACCURACY_SEED = 1_000_003
"""Of the draws: the same at every measure, so that two measures differ by the policy alone."""
Measure = Callable[[], Mapping[str, float]]
"""Metrics of the trainer's model as it is now; called by all ranks, and the same on each."""


def measure_while_training(trainer: Any, run: RunSection, measures: list[Measure]) -> None:
    """Add what ``measures`` give to the metrics before training, every ``eval_steps`` steps, and at the end."""

    def look(step: int) -> None:
        measured = {name: value for measure in measures for name, value in measure().items()}
        if not step:
            trainer.log(measured)
            return
        for name, value in measured.items():
            trainer._metrics["train"][name].append(value)

    if measures:
        # First in line, so that the step's row is complete when it is recorded.
        trainer.callback_handler.callbacks.insert(0, Looks(run.eval_steps, look))


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
        rows = [task.held_out[i] for i in run.measured(len(task.held_out))]
        self._count = len(rows)
        accelerator = trainer.accelerator
        self._share = -(-self._count // accelerator.num_processes)  # rows a rank; the last may have fewer
        self._first = accelerator.process_index * self._share
        self._rows = rows[self._first : self._first + self._share]
        self._prompt_ids = [sampler.encode(row.prompt) for row in self._rows]
        self._chunk = max(1, sampler.rows_at_once or self._share)

    def __call__(self) -> dict[str, float]:
        """Sample and check the held-out rows now."""
        trainer = self._trainer
        matched, measured = 0, list[HeldOutAnswer]()
        for start in range(0, len(self._rows), self._chunk):
            chunk = slice(start, start + self._chunk)
            rows, place = self._rows[chunk], {"first_row": self._first + start, "total_rows": self._count}
            sampled = self._sampler(self._prompt_ids[chunk], ACCURACY_SEED, examples=rows, measuring=True, **place)
            rollouts = [self._sampler.rollout(row) for row in sampled]
            opened = self._sampler.all_thinking_open([row.prompt for row in rows])
            answers = texts_after_thinking(rollouts, self._read, opened)
            for rollout, answer, row in zip(rollouts, answers, rows, strict=True):
                right, found = self._task.check_answer(answer, row.columns)
                measured.append(HeldOutAnswer(prompt_text(row.prompt), rollout.text, right, found))
            if self._pattern is not None:
                splits = split_rollouts(rollouts, self._pattern, split_leniently, opened=opened)
                matched += sum(split.matched for split in splits)
        if self._on_answers is not None:  # ranks have consecutive rows: one after the other, theirs are in order
            everyone = gather_object(measured)
            if trainer.accelerator.is_main_process:
                self._on_answers(trainer.state.global_step, everyone)
        counts = [sum(row.right for row in measured), sum(row.answer == "" for row in measured), matched]
        sums = trainer.accelerator.reduce(torch.tensor(counts, device=trainer.accelerator.device), reduction="sum")
        right, without, matched = sums.tolist()
        share = {} if self._pattern is None else {"match_share": matched / self._count}
        return {"accuracy": right / self._count, "no_answer_share": without / self._count, **share}


WATCHED_SEED = 1_000_033
"""Of the draws: the same at every look, so that two looks differ by the policy alone."""


def watch_prompts(
    trainer: ProcessGRPOTrainer,
    task: Task,
    config: SharedConfig,
    sampling: SamplingConfig,
    rewards: Sequence[Reward],
    worker: Sandbox,
    on_watched: OnCredit,
) -> None:
    """Sample G completions of each of the first ``watch_prompts`` held-out rows (training rows where none are held
    out) at every look.

    Costs ``watch_prompts * G`` completions a look, beside ``prompts_per_step * G`` a step. Every rank samples all of
    them, which needs no exchange and takes no longer; the first one scores them.
    """
    source = task.held_out if len(task.held_out) else task.examples
    sampler, size = trainer.sample, sampling.num_generations
    rows = [source[i] for i in range(min(config.run.watch_prompts, len(source)))]

    def look(step: int) -> None:
        examples = [row for row in rows for _ in range(size)]
        ids = [sampler.encode(row.prompt) for row in examples]
        sampled = sampler(ids, WATCHED_SEED, examples=examples, measuring=True, first_row=0, total_rows=len(ids))
        if not trainer.accelerator.is_main_process:
            return
        rollouts = [sampler.rollout(row) for row in sampled]
        try:
            scored = [
                score_group(
                    Group(
                        prompt=row.prompt,
                        rollouts=tuple(rollouts[i * size : (i + 1) * size]),
                        columns=row.columns,
                        policy=config.policy.path,
                        sampling=sampling.recorded | {"step": step} | sampler.record(row.prompt),
                    ),
                    trainer.step_pattern,
                    [reward.at(trainer.state.global_step) for reward in rewards],
                    worker=worker,
                )
                for i, row in enumerate(rows)
            ]
            on_watched(step, trainer.credit_watched(scored))
        except WorkbenchError as error:
            print(f"the watched prompts of step {step} are not stored: {error}", flush=True)

    if rows:
        trainer.add_callback(Looks(config.run.watch_every, look))


TokenRows = Callable[[Sequence[Any]], list[dict[str, Any]]]
"""The rows of a task as the trainer's collator takes them; those that do not fit are left out."""
_LOOKED_THROUGH = 1000
"""Rows among which those are looked for that fit the method's longest length."""
_NAME = "watched"


Look = Callable[[Any, Any, Mapping[str, torch.Tensor]], Seen]
"""``look(trainer, row, batch)`` at a row of the task (a ``Pair``, say) and the collator's batch of it on the device."""


def watch_rows(
    trainer: Any, config: SharedConfig, measure: TokenMeasure, view: Look, rows: Sequence[Any], on_rows: OnRows
) -> None:
    """Look by a method's ``view`` at those of ``rows`` that are data sets of the trainer's own (``watched_sets``).

    The first rank tells ``on_rows``.
    """
    tokens = [(row, (trainer.eval_dataset or {}).get(f"{_NAME}-{i}")) for i, row in enumerate(rows)]
    fitting = [(row, data[0]) for row, data in tokens if data is not None and len(data)]
    if not fitting:
        return
    tokenizer, pattern = trainer.processing_class, load_task(config.task).pattern

    def look(step: int) -> None:
        seen = []
        with evaluating(trainer):
            for row, tokens in fitting:
                batch = trainer.data_collator([tokens])
                on_device = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
                seen.append(view(trainer, row, on_device))
        if trainer.accelerator.is_main_process:
            watched = []
            try:
                for prompt, shown, numbers in seen:
                    texts = tuple(watched_text(tokenizer, pattern, **text) for text in shown)
                    watched.append(WatchedRow(prompt, texts, (measure,), numbers, step))
                on_rows(step, watched)
            except WorkbenchError as error:
                print(f"the watched rows of step {step} are not stored: {error}", flush=True)

    trainer.add_callback(Looks(config.run.watch_every, look))


def watched_text(
    tokenizer: Any,
    pattern: StepPattern,
    name: str,
    ids: Sequence[int],
    values: Mapping[str, Sequence[float]],
    numbers: Mapping[str, float] | None = None,
    logprobs: Sequence[float] | None = None,
    ref_logprobs: Sequence[float] | None = None,
    steps: Sequence[Step] | None = None,
    labels: Sequence[float | None] = (),
) -> WatchedText:
    """Return a text with its tokens' own texts and its steps.

    ``values`` are by the keys of measures a number for each token, ``numbers`` what is known of the whole text.
    ``steps`` are character spans with their ``labels``; without them ``pattern`` finds the steps.
    """
    rollout = Rollout(
        token_ids=tuple(ids),
        texts=tuple(token_texts(tokenizer, ids)),
        finished=bool(ids) and ids[-1] == tokenizer.eos_token_id,
        logprobs=None if logprobs is None else tuple(logprobs),
        ref_logprobs=None if ref_logprobs is None else tuple(ref_logprobs),
    )
    if steps is None:
        try:
            steps = split_rollouts([rollout], pattern, split_leniently)[0].steps if rollout.texts else []
        except PatternError:
            if not pattern.by_tokens:
                raise
            steps = unsplit(rollout.text).steps  # how sure a policy was of it is not stored
    scored = StepScores(
        steps=tuple(steps),
        spans=tuple(align_steps(rollout.texts, steps)),
        scores={},
        rewards=tuple(labels) or (None,) * len(steps),
        outcome_scores={},
        outcome=None,
    )
    return WatchedText(name, rollout, scored, {key: tuple(row) for key, row in values.items()}, dict(numbers or {}))


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


def pair_metrics(margins: Sequence[float]) -> dict[str, float]:
    """``pair_accuracy`` (a margin of 0 counts half), ``margin`` and ``calibration_error`` of pairs.

    The probability that calibration is about is sigma(margin), and the chosen side is always the better one.
    """
    values = np.asarray(margins, dtype=np.float64)
    probabilities = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
    return {
        "pair_accuracy": float(np.mean((values > 0) + 0.5 * (values == 0))),
        "margin": float(np.mean(values)),
        "calibration_error": calibration_error(probabilities.tolist(), [1] * len(values)),
    }


def pair_numbers(margin: float) -> dict[str, float]:
    """Return the numbers above a watched pair."""
    return {"margin": margin, "σ(margin)": 1 / (1 + math.exp(-max(-700.0, min(700.0, margin))))}


def watched_rows(config: SharedConfig, token_rows: TokenRows) -> list[Any]:
    """The first ``watch_prompts`` held-out rows (training rows where none are held out) that fit ``max_length``."""
    method, has_template = config.method, find_chat_template(config.policy.path) is not None
    task = prompted(load_rows(config.task), config.prompt, has_template)
    assert isinstance(method, StoredSection)
    held_out = task.rows(method.kind, held_out=True)
    rows = held_out if len(held_out) else task.rows(method.kind)
    looked_through = (rows[i] for i in range(min(len(rows), _LOOKED_THROUGH)))
    return list(islice((row for row in looked_through if token_rows([row])), config.run.watch_prompts))


def watched_sets(rows: Sequence[Any], token_rows: TokenRows) -> dict[str, Dataset]:
    """A data set for each row, for the trainer to prepare with those that it is measured on; it may leave some out."""
    return {f"{_NAME}-{i}": Dataset.from_list(token_rows([row])) for i, row in enumerate(rows)}
