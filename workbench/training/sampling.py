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

    def encode(self, prompt: Prompt) -> list[int]:
        return encode_prompt(self.tokenizer, prompt, self.template_kwargs)

    @property
    def ends_within(self) -> bool:
        """Whether a completion may end, and not be truncated, without an end-of-sequence token."""
        return bool(self.stops) or self.environment is not None

    def record(self, prompt: Prompt) -> dict[str, Any]:
        """Return what a group's ``sampling`` says of this prompt, and of who answers its turns."""
        played = {} if self.environment is None else self.environment.recorded
        ends, stop = self._eos_token_ids, self.sampling.stop
        return prompt_record(self.tokenizer, prompt, self.template_kwargs, ends, stop) | played

    def all_thinking_open(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Return which prompts end inside a ``<think>`` block."""
        return [thinking_open(self.tokenizer, prompt, self.template_kwargs) for prompt in prompts]

    def rollout(self, row: Sampled) -> Rollout:
        return to_rollout(self.tokenizer, row)

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
            episodes, environment = None, self.environment
            if environment is not None:
                if measuring:
                    settings = environment.settings.model_copy(update={"on_environment_error": "row"})
                    environment = replace(environment, settings=settings)
                episodes = Episodes(environment, self.tokenizer, examples, self.template_kwargs)
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


_SPECIAL = 16  # tokens that a tokenizer may add to a text, at most


def within_context(task: Task, policy: Policy, config: SharedConfig, sampling: SamplingConfig, count: int) -> Task:
    """Return the task with those of its first ``count`` rows, and of the held-out ones in use, whose answers have room.

    Raises ConfigError, naming the row, for one that has none and is not to be skipped, or where all are too long.
    """
    context, longest = context_length(policy.model), getattr(config.method, "max_prompt_length", None)
    answer, kwargs = sampling.max_completion_length, config.prompt.template_kwargs
    if context is None and longest is None:
        return task
    room = min(length for length in (longest, context and context - answer) if length is not None)
    run = config.run
    held_out = max(run.eval_skip + run.eval_prompts if run.eval_steps else 0, run.watch_prompts)
    fitting, skipped = dict[str, list[Example]](), False
    for split, rows, most in (("training", task.examples, count), ("held-out", task.held_out, held_out)):
        examples = [rows[i] for i in range(min(len(rows), most))]
        lengths = []
        for prompt in (example.prompt for example in examples):
            if isinstance(prompt, str) and prompt and len(prompt.encode("utf-8", "replace")) + _SPECIAL <= room:
                lengths.append(0)  # too short to have more than ``room``, as a token stands for a byte at least
            else:
                lengths.append(len(encode_prompt(policy.tokenizer, prompt, kwargs)))
        long = [i for i, length in enumerate(lengths) if length > room]
        if long and (config.task.long_prompts != "skip" or len(long) == len(examples)):
            raise ConfigError(
                f"task.long_prompts: {len(long):,} of {len(examples):,} {split} prompts have more than {room:,} tokens "
                f"(row {long[0] + 1} has {lengths[long[0]]:,}), the least of method.max_prompt_length and the policy's "
                f"context ({context}) less method.sampling.max_completion_length ({answer}); change one of these, "
                "shorten the prompts, or set task.long_prompts to skip"
            )
        if long and os.environ.get("RANK", "0") == "0":
            print(f"task.long_prompts: skipped {len(long):,} of {len(examples):,} {split} rows", flush=True)
        fitting[split] = [row for row, length in zip(examples, lengths, strict=True) if length <= room]
        skipped = skipped or bool(long)
    return replace(task, examples=fitting["training"], held_out=fitting["held-out"]) if skipped else task
