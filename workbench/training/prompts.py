"""Prompts that the policy cannot answer within its context, found before the first step of a run.

What is done about them is the configuration's to say (``task.long_prompts``). Nothing is known here of sampling.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.config import SamplingConfig, SharedConfig
from workbench.data import Task
from workbench.errors import ConfigError
from workbench.policies.load import Policy, context_length
from workbench.policies.prompts import encode_prompt
from workbench.schema import Example

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
