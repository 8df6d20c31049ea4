"""The group sampler: G completions of each prompt, the prompt computed once.

``model.generate`` prefills the same prompt G times. Here every distinct prompt goes through the model once, its state
is shared out to its G rows, and a row leaves the batch when it has finished (``plain``, ``decoding``). The distribution
is that of ``generate``: transformers' own logits processors, in ``generate``'s order, then one draw from the softmax.

Randomness is a table of uniform numbers, one a row and position, drawn from the seed alone. A row's draws therefore
depend neither on when other rows finish nor on how rows are spread over ranks: rank r of a run passes its
``first_row`` and samples just the rows a single process would have.

This module knows nothing of steps, rewards or training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from workbench.errors import PolicyError
from workbench.policies.decoding import Decoder
from workbench.policies.load import Policy, context_length
from workbench.policies.plain import decoders_of
from workbench.policies.prompts import encode_prompt, prompt_record
from workbench.policies.stops import StopStrings
from workbench.schema import Example, Group, Rollout
from workbench.sections import PromptSection, SamplingConfig
from workbench.steps import token_texts

OnTokens = Callable[[list[tuple[int, int]]], None]
"""Called once a position with (row, token id) of every row still running."""
Streams = Callable[[], Iterator[torch.Tensor]]
"""Starts the random numbers anew: for each position, (B,) float64 in [0, 1), one a row."""


@dataclass
class Sampled:
    """The sampled ids of one row, with natural-log probabilities and entropies (nats) after the logits processors.

    ``raw_logprobs`` are those after the temperature alone; ``stop`` is the stop string that ended it.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    raw_logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finished: bool = False
    stop: str | None = None


def sample_group(
    policy: Policy,
    example: Example,
    *,
    num_generations: int = 8,
    max_completion_length: int = 128,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[str] = (),
    system: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    apply_template: str = "auto",
    seed: int = 0,
    on_tokens: OnTokens | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Group:
    """Sample the G rollouts of one prompt; the same arguments give the same group.

    ``stop`` are texts that end a completion; ``system``, ``template_kwargs`` and ``apply_template`` say how the prompt
    is put to the policy (``PromptSection``): the group's prompt is what comes of them.

    ``cancelled`` is asked before every position; once it says yes, the group comes back as far as it got, its open
    rollouts marked truncated.

    Raises:
        PolicyError: if the prompt does not fit the model's context, or is a conversation and the tokenizer has no chat
            template.
        ConfigError: for a setting out of range.
    """
    sampling = SamplingConfig(
        num_generations=num_generations,
        max_completion_length=max_completion_length,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stop=list(stop),
    )
    prompting = PromptSection.parse(
        {"system": system, "template_kwargs": template_kwargs or {}, "apply_template": apply_template}
    )
    prompt = prompting.of(example.prompt)
    prompt_ids = encode_prompt(policy.tokenizer, prompt, prompting.template_kwargs)
    rows = sample_rows(
        policy.model,
        [prompt_ids] * num_generations,
        sampling,
        eos_token_ids=policy.eos_token_ids,
        pad_token_id=policy.tokenizer.pad_token_id,
        seed=seed,
        stops=StopStrings(policy.tokenizer, sampling.stop),
        on_tokens=on_tokens,
        cancelled=cancelled,
    )
    return Group(
        prompt=prompt,
        rollouts=tuple(to_rollout(policy.tokenizer, row) for row in rows),
        columns=example.columns,
        policy=policy.name,
        sampling=sampling.recorded
        | {"seed": seed}
        | ({} if policy.adapter is None else {"adapter": policy.adapter})
        | prompt_record(policy.tokenizer, prompt, prompting.template_kwargs),
    )


def to_rollout(tokenizer: Any, row: Sampled) -> Rollout:
    return Rollout(
        token_ids=tuple(row.token_ids),
        texts=tuple(token_texts(tokenizer, row.token_ids)),
        finished=row.finished,
        logprobs=tuple(row.logprobs) or None,  # ids that something else sampled come without
        raw_logprobs=tuple(row.raw_logprobs) or None,
        entropies=tuple(row.entropies) or None,
        stop=row.stop,
    )


def ended(token_ids: Sequence[int], eos_token_ids: Collection[int], stops: StopStrings) -> Sampled:
    """Ids that something else sampled, with how they ended."""
    ids = list(token_ids)
    finished = bool(ids) and ids[-1] in eos_token_ids
    return Sampled(ids, finished=finished, stop=None if finished else stops.ends(ids))


@torch.no_grad()
def sample_rows(
    model: Any,
    prompt_ids: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    *,
    eos_token_ids: Sequence[int],
    pad_token_id: int,
    seed: int,
    first_row: int = 0,
    total_rows: int | None = None,
    limits: Sequence[int] | None = None,
    streams: Streams | None = None,
    stops: StopStrings | None = None,
    on_tokens: OnTokens | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[Sampled]:
    """Sample one completion a row; equal prompts are prefilled once.

    Args:
        prompt_ids: one list of ids a row; a group is G rows with the same ids.
        eos_token_ids: ids that finish a row.
        seed: of the table of uniform numbers.
        first_row, total_rows: this call's first row in that table and the table's height, for a caller that holds a
            part of a larger batch (a rank).
        limits: the most tokens of each row, at least 1; by default ``sampling.max_completion_length`` of all.
        streams: of numbers to draw with, in place of that table.
        stops: texts that finish a row, too; needed where ``sampling`` has any.

    Raises:
        PolicyError: if prompt and completion do not fit the model's context together.
    """
    limits = [sampling.max_completion_length] * len(prompt_ids) if limits is None else list(limits)
    _check_context(model, prompt_ids, limits)
    total_rows = total_rows or len(prompt_ids)
    if streams is None:
        streams = partial(_uniform_numbers, seed, first_row, len(prompt_ids), total_rows)
    was_training = model.training
    model.eval()
    sampled = [Sampled() for _ in prompt_ids]
    ends = _Ends(frozenset(eos_token_ids), limits, stops)
    try:
        for decoder in decoders_of(model, prompt_ids, pad_token_id, max(limits)):
            _sample_rows(decoder, sampled, sampling, ends, streams(), on_tokens, cancelled)
    finally:
        model.train(was_training)
    return sampled


@dataclass(frozen=True)
class _Ends:
    """What ends a row: an id, its limit of tokens, or a stop string."""

    eos: frozenset[int]
    limits: Sequence[int]
    stops: StopStrings | None

    def ended(self, row: int, sampled: Sampled) -> bool:
        """Whether the row's last token ended it, and marks how."""
        sampled.finished = sampled.token_ids[-1] in self.eos
        if not sampled.finished and self.stops:
            sampled.stop = self.stops.ends(sampled.token_ids)
        return sampled.finished or sampled.stop is not None or len(sampled.token_ids) >= self.limits[row]


def _sample_rows(
    decoder: Decoder,
    sampled: Sequence[Sampled],
    sampling: SamplingConfig,
    ends: _Ends,
    uniform: Iterator[torch.Tensor],
    on_tokens: OnTokens | None,
    cancelled: Callable[[], bool] | None,
) -> None:
    """Sample the decoder's rows to their ends, into their places in ``sampled``."""
    process = logits_processors(sampling)
    for position in range(max(ends.limits[row] for row in decoder.rows)):
        if cancelled is not None and cancelled():
            return
        rows = decoder.rows
        with torch.inference_mode():
            logits = decoder.logits.float()  # (R, V)
            scores = process(decoder.padding)(decoder.seen, logits)
            logprobs = scores.log_softmax(-1)
            probabilities = logprobs.exp()
            tokens = draw(probabilities, next(uniform)[rows].to(logits.device))  # (R,)
            chosen = _of_tokens(logprobs, tokens)
            raw = _of_tokens((logits / sampling.temperature).log_softmax(-1), tokens) if _reshapes(sampling) else chosen
            entropies = torch.special.entr(probabilities).sum(-1).tolist()
            token_list = tokens.tolist()
        if any(map(math.isnan, chosen)):
            raise PolicyError(
                f"the policy gives no probabilities at position {position + 1} (its logits are NaN or infinite): it "
                "overflows in its dtype or its weights are damaged; load it in float32, or an earlier checkpoint"
            )
        for row, token, logprob, raw_logprob, entropy in zip(rows, token_list, chosen, raw, entropies, strict=True):
            sampled[row].token_ids.append(token)
            sampled[row].logprobs.append(logprob)
            sampled[row].raw_logprobs.append(raw_logprob)
            sampled[row].entropies.append(entropy)
        if on_tokens is not None:
            on_tokens(list(zip(rows, token_list, strict=True)))
        keep = [place for place, row in enumerate(rows) if not ends.ended(row, sampled[row])]
        if not keep:
            return
        decoder.advance(tokens, keep)


def _reshapes(sampling: SamplingConfig) -> bool:
    """Whether anything but the temperature changes what is sampled from."""
    return bool(sampling.top_k) or sampling.top_p < 1.0 or bool(sampling.min_p) or sampling.repetition_penalty != 1.0


def _of_tokens(logprobs: torch.Tensor, tokens: torch.Tensor) -> list[float]:
    values: list[float] = logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
    return values


def _uniform_numbers(seed: int, first_row: int, rows: int, total_rows: int) -> Iterator[torch.Tensor]:
    """For each position, this caller's (rows,) of the table; drawn for every row, so that a row keeps its own."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.rand(total_rows, generator=generator, dtype=torch.float64)[first_row : first_row + rows]


def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Inverse-CDF sampling: probabilities (R, V) and uniform numbers (R,) in [0, 1) to token ids (R,) int64.

    In float64, so that a token of probability 0 is never drawn and rounding of the sum does not matter.
    """
    cdf = probabilities.double().cumsum(-1)
    tokens = torch.searchsorted(cdf, (uniform.double() * cdf[:, -1])[:, None], right=True)[:, 0]
    return tokens.clamp(max=probabilities.shape[-1] - 1)


def logits_processors(sampling: SamplingConfig) -> Callable[[torch.Tensor], LogitsProcessorList]:
    """transformers' processors in the order ``generate`` applies them.

    The repetition penalty leaves out the left padding of each row, (R,), hence one list a set of rows.
    """
    warpers: list[Any] = []
    if sampling.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p is not None:
        warpers.append(MinPLogitsWarper(sampling.min_p))

    def process(padding: torch.Tensor) -> LogitsProcessorList:
        if sampling.repetition_penalty == 1.0:
            return LogitsProcessorList(warpers)
        penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty, prompt_ignore_length=padding)
        return LogitsProcessorList([penalty, *warpers])

    return process


def _check_context(model: Any, prompt_ids: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
    context = context_length(model)
    if context is None:
        return
    prompt, completion = max(((len(ids), limit) for ids, limit in zip(prompt_ids, limits, strict=True)), key=sum)
    if prompt + completion > context:
        raise PolicyError(
            f"a prompt of {prompt} tokens and {completion} completion tokens exceed the model's context of {context}; "
            f"set max_completion_length to {max(1, context - prompt)} or less, or shorten the prompt"
        )
