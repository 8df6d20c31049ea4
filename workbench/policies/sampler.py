"""The group sampler: G completions of each prompt, the prompt computed once.

``model.generate`` prefills the same prompt G times. Here every distinct prompt goes through the model once, its
key-value cache is shared out to its G rows, and a row leaves the batch when it has finished. The distribution is that
of ``generate``: transformers' own logits processors, in ``generate``'s order, then one draw from the softmax.

Randomness is a table of uniform numbers, one a row and position, drawn from the seed alone. A row's draws therefore
depend neither on when other rows finish nor on how rows are spread over ranks: rank r of a run passes its
``first_row`` and samples just the rows a single process would have.

This module knows nothing of steps, rewards or training.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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

from workbench.config import SamplingConfig
from workbench.errors import PolicyError
from workbench.policies.load import Policy
from workbench.schema import Example, Group, Prompt, Rollout
from workbench.steps import token_texts


class UnshareableCache(PolicyError):
    """The model keeps a state other than keys and values, which this sampler cannot share out to a group."""


OnTokens = Callable[[list[tuple[int, int]]], None]
"""Called once a position with (row, token id) of every row still running."""


@dataclass
class Sampled:
    """The sampled ids of one row, with natural-log probabilities and entropies (nats) after the logits processors."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finished: bool = False


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
    seed: int = 0,
    on_tokens: OnTokens | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Group:
    """Sample the G rollouts of one prompt; the same arguments give the same group.

    ``cancelled`` is asked before every position; once it says yes, the group comes back as far as it got, its open
    rollouts marked truncated.

    Raises:
        PolicyError: if the prompt does not fit the model's context, or is a conversation and the tokenizer has no chat
            template.
    """
    sampling = SamplingConfig(
        num_generations=num_generations,
        max_completion_length=max_completion_length,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    prompt_ids = encode_prompt(policy.tokenizer, example.prompt)
    rows = sample_rows(
        policy.model,
        [prompt_ids] * num_generations,
        sampling,
        eos_token_ids=policy.eos_token_ids,
        pad_token_id=policy.tokenizer.pad_token_id,
        seed=seed,
        on_tokens=on_tokens,
        cancelled=cancelled,
    )
    return Group(
        prompt=example.prompt,
        rollouts=tuple(to_rollout(policy.tokenizer, row) for row in rows),
        columns=example.columns,
        policy=policy.name,
        sampling=sampling.model_dump()
        | {"seed": seed}
        | ({} if policy.adapter is None else {"adapter": policy.adapter})
        | _tail(policy.tokenizer, example.prompt, prompt_ids),
    )


def _tail(tokenizer: Any, prompt: Prompt, prompt_ids: Sequence[int]) -> dict[str, str]:
    """How a conversation's prompt ends once the chat template is through with it: templates may open a tag there."""
    return {} if isinstance(prompt, str) else {"prompt_tail": str(tokenizer.decode(list(prompt_ids[-16:])))}


def to_rollout(tokenizer: Any, row: Sampled) -> Rollout:
    return Rollout(
        token_ids=tuple(row.token_ids),
        texts=tuple(token_texts(tokenizer, row.token_ids)),
        finished=row.finished,
        logprobs=tuple(row.logprobs) or None,  # ids that something else sampled come without
        entropies=tuple(row.entropies) or None,
    )


def encode_prompt(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Ids of a prompt as TRL makes them: plain text as it is, messages through the chat template."""
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise PolicyError(
            "the prompt is a conversation and this tokenizer has no chat template; give the prompt as text"
        )
    else:
        ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)[
            "input_ids"
        ]
    if not ids:
        raise PolicyError("the prompt is empty; write something for the policy to answer")
    return list(ids)


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

    Raises:
        PolicyError: if prompt and completion do not fit the model's context together.
        UnshareableCache: if the model's state cannot be shared out, as recurrent ones' cannot.
    """
    limits = [sampling.max_completion_length] * len(prompt_ids) if limits is None else list(limits)
    _check_context(model, prompt_ids, limits)
    was_training = model.training
    model.eval()
    try:
        return _sample_rows(
            model,
            prompt_ids,
            sampling,
            frozenset(eos_token_ids),
            pad_token_id,
            _uniform_numbers(seed, first_row, len(prompt_ids), total_rows or len(prompt_ids)),
            limits,
            on_tokens,
            cancelled,
        )
    finally:
        model.train(was_training)


def _sample_rows(
    model: Any,
    prompt_ids: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    eos: frozenset[int],
    pad_token_id: int,
    uniform: Iterator[torch.Tensor],
    limits: Sequence[int],
    on_tokens: OnTokens | None,
    cancelled: Callable[[], bool] | None,
) -> list[Sampled]:
    device = model.device
    distinct = list(dict.fromkeys(tuple(ids) for ids in prompt_ids))
    place = {ids: i for i, ids in enumerate(distinct)}
    width = max(map(len, distinct))
    ids = torch.tensor([[pad_token_id] * (width - len(row)) + list(row) for row in distinct], device=device)  # (P, L)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in distinct], device=device)  # (P, L)
    # An adapter's own forward takes anything; what counts is whether the model under it places tokens by these ids.
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    takes_positions = "position_ids" in inspect.signature(base.forward).parameters

    def forward(tokens: torch.Tensor, mask: torch.Tensor, cache: Any) -> Any:
        extra = {}
        if takes_positions:
            extra["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        return model(tokens, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1, **extra)

    output = forward(ids, mask, None)
    rows = torch.tensor([place[tuple(row)] for row in prompt_ids], device=device)  # (B,)
    cache: Any = getattr(output, "past_key_values", None)
    try:
        cache.batch_select_indices(rows)
    except AttributeError as error:
        raise UnshareableCache(
            f"{type(base).__name__} keeps a state that cannot be shared out to a group (a recurrent or hybrid model); "
            "sample it with transformers' generate"
        ) from error
    logits = output.logits[rows, -1]  # (B, V)
    mask, seen = mask[rows], ids[rows]
    process = logits_processors(sampling, (mask == 0).sum(-1))
    sampled = [Sampled() for _ in prompt_ids]
    running = list(range(len(sampled)))
    for position in range(max(limits)):
        if cancelled is not None and cancelled():
            break
        scores = process(running)(seen, logits.float())  # (R, V)
        logprobs = scores.log_softmax(-1)
        tokens = draw(logprobs.exp(), next(uniform)[running].to(device))  # (R,)
        chosen = logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
        entropies = torch.special.entr(logprobs.exp()).sum(-1).tolist()
        token_list = tokens.tolist()
        for row, token, logprob, entropy in zip(running, token_list, chosen, entropies, strict=True):
            sampled[row].token_ids.append(token)
            sampled[row].logprobs.append(logprob)
            sampled[row].entropies.append(entropy)
            sampled[row].finished = token in eos
        if on_tokens is not None:
            on_tokens(list(zip(running, token_list, strict=True)))
        keep = [
            i
            for i, (row, token) in enumerate(zip(running, token_list, strict=True))
            if token not in eos and position + 1 < limits[row]
        ]
        if not keep:
            break
        if len(keep) < len(running):
            kept = torch.tensor(keep, device=device)
            cache.batch_select_indices(kept)
            mask, seen, tokens = mask[kept], seen[kept], tokens[kept]
            running = [running[i] for i in keep]
        mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)  # (R, L + t)
        seen = torch.cat([seen, tokens[:, None]], dim=1)
        logits = forward(tokens[:, None], mask, cache).logits[:, -1]
    return sampled


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


def logits_processors(sampling: SamplingConfig, padding: torch.Tensor) -> Callable[[list[int]], LogitsProcessorList]:
    """transformers' processors in the order ``generate`` applies them.

    The repetition penalty leaves out the left padding of each row, ``padding`` (B,), hence one list a set of rows.
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

    def process(rows: list[int]) -> LogitsProcessorList:
        if sampling.repetition_penalty == 1.0:
            return LogitsProcessorList(warpers)
        penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty, prompt_ignore_length=padding[rows])
        return LogitsProcessorList([penalty, *warpers])

    return process


def _check_context(model: Any, prompt_ids: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
    context = getattr(model.config, "max_position_embeddings", None)
    if context is None:
        return
    prompt, completion = max(((len(ids), limit) for ids, limit in zip(prompt_ids, limits, strict=True)), key=sum)
    if prompt + completion > context:
        raise PolicyError(
            f"a prompt of {prompt} tokens and {completion} completion tokens exceed the model's context of {context}; "
            f"set max_completion_length to {max(1, context - prompt)} or less, or shorten the prompt"
        )
