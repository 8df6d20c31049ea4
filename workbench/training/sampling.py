"""Sampling from the policy while it is trained: for generation, held-out accuracy and the watched prompts.

Works with any trainer of transformers. What is sampled for, and how it is scored, is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trl.models import unwrap_model_for_generation

from workbench.config import SamplingConfig, SharedConfig
from workbench.data import Task
from workbench.environments import Environment
from workbench.errors import ConfigError, EpisodeError
from workbench.policies.episodes import Episodes
from workbench.policies.load import Policy, context_length, eos_token_ids
from workbench.policies.plain import decoding_of
from workbench.policies.prompts import StopStrings, encode_prompt, prompt_record, thinking_open
from workbench.policies.sampler import Sampled, sample_rows, to_rollout
from workbench.schema import Example, Prompt, Rollout


class PolicySampler:
    """Samples from a trainer's model as it is now, by one set of sampling parameters.

    Args:
        trainer: a transformers trainer, after its ``__init__``.
        sampling: temperature, lengths and the rest.
        rows_at_once: rows a rank has memory for; None for all.
        template_kwargs: of the chat template.
        environment: who answers the policy's turns, where completions are episodes.

    ``failure`` is the error of an environment that is to end the run, after the call in which it happened.
    """

    def __init__(
        self,
        trainer: Any,
        sampling: SamplingConfig,
        rows_at_once: int | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._trainer, self.sampling, self.environment = trainer, sampling, environment
        self.failure: EpisodeError | None = None
        self.tokenizer = trainer.processing_class
        self.template_kwargs = dict(template_kwargs or {})
        self.stops = StopStrings(self.tokenizer, sampling.stop)
        # A CPU has memory for all, and is faster with all at once.
        self.rows_at_once = None if trainer.accelerator.device.type == "cpu" else rows_at_once
        self._eos_token_ids = eos_token_ids(trainer.accelerator.unwrap_model(trainer.model), self.tokenizer)
        self._decoding = ""

    def encode(self, prompt: Prompt) -> list[int]:
        return encode_prompt(self.tokenizer, prompt, self.template_kwargs)

    @property
    def ends_within(self) -> bool:
        """Whether a completion may end, and not be truncated, without an end-of-sequence token."""
        return bool(self.stops) or self.environment is not None

    def record(self, prompt: Prompt) -> dict[str, Any]:
        """What a group's ``sampling`` says of this prompt, and of who answers its turns."""
        played = {} if self.environment is None else self.environment.recorded
        ends, stop = self._eos_token_ids, self.sampling.stop
        return prompt_record(self.tokenizer, prompt, self.template_kwargs, ends, stop) | played

    def all_thinking_open(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Which prompts end inside a ``<think>`` block."""
        return [thinking_open(self.tokenizer, prompt, self.template_kwargs) for prompt in prompts]

    def rollout(self, row: Sampled) -> Rollout:
        return to_rollout(self.tokenizer, row)

    def _say_decoding(self, model: Any) -> None:
        """Write to the run's log how tokens are decoded, once and whenever that changes."""
        decoding = decoding_of(model)
        if decoding != self._decoding and self._trainer.accelerator.is_main_process:
            print(f"sampling: tokens are decoded by the {decoding}", flush=True)
        self._decoding = decoding

    def __call__(
        self,
        prompt_ids: Sequence[Sequence[int]],
        seed: int,
        *,
        examples: Sequence[Example] = (),
        measuring: bool = False,
        first_row: int | None = None,
        total_rows: int | None = None,
    ) -> list[Sampled]:
        """Sample a completion for each of this rank's rows, as one process with all ranks' rows would.

        ``examples`` are the rows' own, which an environment begins with; ``measuring``: no error of it ends the run.
        ``first_row`` and ``total_rows`` say where the rows lie among all ranks'; by default every rank has as many.
        """
        trainer, accelerator = self._trainer, self._trainer.accelerator
        if first_row is None or total_rows is None:
            first_row = accelerator.process_index * len(prompt_ids)
            total_rows = accelerator.num_processes * len(prompt_ids)
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped,
                accelerator,
                gather_deepspeed3_params=getattr(trainer.args, "ds3_gather_for_generation", True),
                gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
            ) as model,
            accelerator.autocast(),
        ):
            self._say_decoding(model)
            episodes = self._episodes(examples, measuring)
            rows = sample_rows(
                model,
                prompt_ids,
                self.sampling,
                eos_token_ids=self._eos_token_ids,
                pad_token_id=self.tokenizer.pad_token_id,
                seed=seed,
                first_row=first_row,
                total_rows=total_rows,
                stops=self.stops,
                episodes=episodes,
            )
        self.failure = None if episodes is None else episodes.failure
        for row in rows if self.failure is not None else ():
            if not row.token_ids:  # never begun, and TRL takes no completion without a token
                row.token_ids, row.mask = [self._eos_token_ids[0]], [0]
                row.logprobs, row.raw_logprobs, row.entropies = [0.0], [0.0], [0.0]
        return rows

    def _episodes(self, examples: Sequence[Example], measuring: bool) -> Episodes | None:
        if self.environment is None:
            return None
        environment = self.environment
        if measuring:
            settings = environment.settings.model_copy(update={"on_environment_error": "row"})
            environment = replace(environment, settings=settings)
        return Episodes(environment, self.tokenizer, examples, self.template_kwargs)


_SPECIAL = 16  # tokens that a tokenizer may add to a text, at most


def within_context(task: Task, policy: Policy, config: SharedConfig, sampling: SamplingConfig, count: int) -> Task:
    """The task with those of its first ``count`` rows, and of the held-out ones in use, whose answers have room.

    Raises ConfigError, naming the row, for one that has none and is not to be skipped, or where all are too long.
    """
    context, longest = context_length(policy.model), getattr(config.method, "max_prompt_length", None)
    if context is None and longest is None:
        return task
    held_out = max(config.run.last_measured, config.run.watch_prompts)
    room = min(length for length in (longest, _room(context, sampling)) if length is not None)
    skips = config.task.long_prompts == "skip"
    kwargs = config.prompt.template_kwargs
    rows = {"training": _first(task.examples, count), "held-out": _first(task.held_out, held_out)}
    fitting: dict[str, list[Example]] = {}
    for split, examples in rows.items():
        lengths = [_length(policy.tokenizer, example, room, kwargs) for example in examples]
        long = [i for i, length in enumerate(lengths) if length > room]
        if long and (not skips or len(long) == len(examples)):
            raise ConfigError(_too_long(split, long, lengths, room, context, sampling.max_completion_length))
        if long and os.environ.get("RANK", "0") == "0":
            print(f"task.long_prompts: skipped {len(long):,} of {len(examples):,} {split} rows", flush=True)
        fitting[split] = [example for example, length in zip(examples, lengths, strict=True) if length <= room]
    if len(fitting["training"]) == len(rows["training"]) and len(fitting["held-out"]) == len(rows["held-out"]):
        return task
    return replace(task, examples=fitting["training"], held_out=fitting["held-out"])


def _room(context: int | None, sampling: SamplingConfig) -> int | None:
    return None if context is None else context - sampling.max_completion_length


def _too_long(
    split: str, long: Sequence[int], lengths: Sequence[int], room: int, context: int | None, answer: int
) -> str:
    row, tokens, longest = long[0] + 1, lengths[long[0]], max(lengths)
    whose = f"task.long_prompts: the prompts of {len(long):,} of {len(lengths):,} {split} rows"
    if context is None or room < context - answer:
        return (
            f"{whose} have more than the {room:,} tokens of method.max_prompt_length; row {row} has {tokens:,}. Set "
            "that higher, shorten the prompts, or set task.long_prompts to skip"
        )
    if longest < context:
        return (
            f"{whose} leave no room for an answer of {answer} tokens in the policy's context of {context:,}; row {row} "
            f"has {tokens:,} tokens. Set method.sampling.max_completion_length to {context - longest} or less, shorten "
            "the prompts, or set task.long_prompts to skip"
        )
    return (
        f"{whose} do not fit the policy's context of {context:,} tokens; row {row} has {tokens:,}. Shorten the "
        "prompts, or set task.long_prompts to skip, which leaves out such rows as long as others are left"
    )


def _first(examples: Sequence[Example], count: int) -> list[Example]:
    return [examples[i] for i in range(min(len(examples), count))]


def _length(tokenizer: Any, example: Example, room: int, template_kwargs: Mapping[str, Any]) -> int:
    """Tokens of a prompt; 0 for a text too short to have more than ``room``, as a token stands for a byte at least."""
    prompt = example.prompt
    if isinstance(prompt, str) and prompt and len(prompt.encode("utf-8", "replace")) + _SPECIAL <= room:
        return 0
    return len(encode_prompt(tokenizer, prompt, template_kwargs))
