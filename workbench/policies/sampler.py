"""The group sampler: G completions of each prompt, the prompt computed once; their tokens under a reference policy.

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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any

import torch
from numpy.random import SeedSequence
from torch.nn import functional
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from workbench.config import EnvironmentSection, PromptSection, SamplingConfig
from workbench.errors import PolicyError
from workbench.models.weights import context_length
from workbench.policies.decoding import Decoder, decoders_of
from workbench.policies.load import Policy
from workbench.policies.prompts import Episodes, StopStrings, encode_prompt, prompt_record
from workbench.policies.served import SHAPED, Server, shaping
from workbench.rewards.environments import TextEnvironment, load_environment
from workbench.sandbox.client import shared_sandbox
from workbench.schema import Example, Group, Prompt, Rollout, Turn
from workbench.steps import token_texts

OnTokens = Callable[[list[tuple[int, int]]], None]
"""Called once a position with (row, token id) of every row still running."""


@dataclass
class Sampled:
    """The sampled ids of one row, with natural-log probabilities and entropies (nats) after the logits processors.

    ``raw_logprobs`` are those after the temperature alone; ``stop`` is the stop string that ended it. Of an episode,
    ``mask`` is 1 for each token that was sampled and 0 for an observation's, whose probabilities are left at 0, and
    ``turns`` are its turns and observations.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    raw_logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finished: bool = False
    stop: str | None = None
    mask: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def policy_length(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.mask) if self.mask else len(self.token_ids)


ROWS_AT_ONCE = 64

AnyEnvironment = str | type[TextEnvironment] | Mapping[str, Any] | EnvironmentSection
"""A built-in environment's name, a class, or a section of a configuration."""


def sample_group(
    policy: Policy,
    example: Example | Prompt,
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
    environment: AnyEnvironment | None = None,
    seed: int = 0,
    on_tokens: OnTokens | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Group:
    """Sample the G rollouts of one prompt, which may be a task's row; the same arguments give the same group.

    ``stop`` are texts that end a completion; ``system``, ``template_kwargs`` and ``apply_template`` say how the prompt
    is put to the policy (``PromptSection``): the group's prompt is what comes of them. With an ``environment`` each
    completion is an episode: a built-in's name, a class with ``stop``, ``reset`` and ``reply``, which runs here, or a
    section (``EnvironmentSection``), whose code runs in the sandbox. ``max_completion_length`` counts its tokens,
    too.

    ``cancelled`` is asked before every position; once it says yes, the group comes back as far as it got, its open
    rollouts marked truncated.

    Raises:
        PolicyError: if the prompt does not fit the model's context, or is a conversation and the tokenizer has no chat
            template.
        EngineError: for an answer of the policy's server that is an error or does not come.
        ConfigError: for a setting out of range, or an environment that there is not.
        EpisodeError: for what is no environment, or one that fails, where such an error ends the run.
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
    row = example if isinstance(example, Example) else Example(example)
    has_template = policy.tokenizer.chat_template is not None
    prompt = prompting.of(row.prompt, has_template=has_template, system=row.system)
    asked = Example(prompt, row.columns)
    return next(
        sample_groups(
            policy,
            [asked],
            sampling,
            seed,
            template_kwargs=prompting.template_kwargs,
            environment=environment,
            on_tokens=on_tokens,
            cancelled=cancelled,
        )
    )


def sample_groups(
    policy: Policy,
    examples: Sequence[Example],
    sampling: SamplingConfig,
    seed: int,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    environment: AnyEnvironment | None = None,
    on_tokens: OnTokens | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[Group]:
    """Yield the group of each example; the same arguments give the same groups, however many rows are sampled at once.

    ``on_tokens`` gets rows by their numbers among those that are sampled at once. Raises as ``sample_group`` does.
    """
    generations, stops = sampling.num_generations, StopStrings(policy.tokenizer, sampling.stop)
    size = max(1, rows_at_once // generations)
    for start in range(0, len(examples), size):
        chunk = examples[start : start + size]
        encoded = [encode_prompt(policy.tokenizer, row.prompt, template_kwargs) for row in chunk]
        rows_of = [row for row in chunk for _ in range(generations)]
        prompts = [ids for ids in encoded for _ in range(generations)]
        loaded = None if environment is None else load_environment(environment, shared_sandbox)
        episodes = None if loaded is None else Episodes(loaded, policy.tokenizer, rows_of, template_kwargs)
        recorded: dict[str, Any] = {} if policy.adapter is None else {"adapter": policy.adapter}
        recorded |= {"merge": dict(policy.merged)} if policy.merged else {}
        watch: dict[str, Any] = {"on_tokens": on_tokens, "cancelled": cancelled}
        if policy.server is not None:
            if episodes is not None:
                raise PolicyError("environment.name: a policy on a server plays no episodes; leave the environment out")
            ends = policy.eos_token_ids
            rows = sample_served(policy.server, prompts, sampling, ends, stops, (seed, start), **watch)
            lacks = [policy.server.note, SHAPED if shaping(sampling) else ""]
            recorded |= {"server": said} if (said := "; ".join(filter(None, lacks))) else {}
        else:
            rows = sample_rows(
                policy.model,
                prompts,
                sampling,
                eos_token_ids=policy.eos_token_ids,
                pad_token_id=policy.tokenizer.pad_token_id,
                seed=seed,
                first_row=start * generations,
                total_rows=len(examples) * generations,
                stops=stops,
                episodes=episodes,
                **watch,
            )
        if episodes is not None and episodes.failure is not None:
            raise episodes.failure
        recorded |= {} if episodes is None else episodes.environment.recorded
        for i, example in enumerate(chunk):
            yield Group(
                prompt=example.prompt,
                rollouts=tuple(
                    to_rollout(policy.tokenizer, row) for row in rows[i * generations : (i + 1) * generations]
                ),
                columns=example.columns,
                policy=policy.name,
                sampling=sampling.recorded
                | {"seed": seed}
                | recorded
                | prompt_record(policy.tokenizer, example.prompt, template_kwargs, policy.eos_token_ids, sampling.stop),
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
        mask=tuple(row.mask) or None,
        turns=tuple(row.turns),
    )


def ended(token_ids: Sequence[int], eos_token_ids: Collection[int], stops: StopStrings) -> Sampled:
    """Return ids that something else sampled, with how they ended."""
    ids = list(token_ids)
    finished = bool(ids) and ids[-1] in eos_token_ids
    return Sampled(ids, finished=finished, stop=None if finished else stops.ends(ids))


def sample_served(
    server: Server,
    prompt_ids: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    eos_token_ids: Sequence[int],
    stops: StopStrings,
    seed: int | tuple[int, ...],
    **watch: Any,
) -> list[Sampled]:
    """Have a server sample a completion a row; neighbouring rows with equal ids are one request, as a group is.

    ``watch`` are ``on_tokens`` and ``cancelled``. Raises EngineError.
    """
    runs = [(ids, len(list(rows))) for ids, rows in groupby(prompt_ids)]
    seeds = SeedSequence(seed).generate_state(len(runs)) >> 2  # a server adds the number of the completion
    asked = [(ids, count, int(of_run)) for (ids, count), of_run in zip(runs, seeds, strict=True)]
    rows = []
    for answer in chain.from_iterable(server.sample(asked, sampling, eos_token_ids, **watch)):
        ends = [place for place, token in enumerate(answer.ids) if token in eos_token_ids]
        length = min(ends, default=len(answer.ids)) + 1  # told to stop at a text, a server may not stop at these
        row = ended(answer.ids[:length], eos_token_ids, stops)
        if not row.finished:
            row.stop = row.stop or answer.stop
        if answer.logprobs is not None and not shaping(sampling):
            row.logprobs = row.raw_logprobs = answer.logprobs[:length]
        rows.append(row)
    return rows


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
    episodes: Episodes | None = None,
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
        episodes: of the rows, which are ended with the call; None for completions of one turn. All rows come back as
            far as they got where ``episodes.failure`` says that the run is over.

    Raises:
        PolicyError: if prompt and completion do not fit the model's context together.
    """
    limits = [sampling.max_completion_length] * len(prompt_ids) if limits is None else list(limits)
    _check_context(model, prompt_ids, limits)
    total_rows = total_rows or len(prompt_ids)
    if streams is None:
        streams = partial(uniform_numbers, seed, first_row, len(prompt_ids), total_rows)
    was_training = model.training
    model.eval()
    sampled, eos = [Sampled() for _ in prompt_ids], frozenset(eos_token_ids)
    is_cancelled = cancelled or (lambda: False)

    def has_ended(number: int) -> bool:
        """Return whether a row's last token ended it (an id, its limit, a stop string, its episode), and mark how."""
        row, limit = sampled[number], limits[number]
        if episodes is not None:
            return episodes.ended(number, row, eos, stops, limit)
        row.finished = row.token_ids[-1] in eos
        row.stop = stops.ends(row.token_ids) if stops and not row.finished else None
        return row.finished or row.stop is not None or len(row.token_ids) >= limit

    try:
        for decoder in decoders_of(model, prompt_ids, pad_token_id, max(limits)):
            _sample_rows(decoder, sampled, sampling, has_ended, episodes, streams(), on_tokens, is_cancelled)
    finally:
        model.train(was_training)
        if episodes is not None:
            episodes.close(sampled)
    return sampled


def _sample_rows(
    decoder: Decoder,
    sampled: Sequence[Sampled],
    sampling: SamplingConfig,
    has_ended: Callable[[int], bool],
    episodes: Episodes | None,
    numbers: Iterator[torch.Tensor],
    on_tokens: OnTokens | None,
    cancelled: Callable[[], bool],
) -> None:
    """Sample the decoder's rows to their ends, into their places in ``sampled``."""
    process = logits_processors(sampling)
    numbers, rows, places = _uploaded(numbers, decoder.logits.device), None, None
    reshapes = bool(sampling.top_k or sampling.min_p) or sampling.top_p < 1.0 or sampling.repetition_penalty != 1.0
    while not cancelled():
        if rows is not decoder.rows:  # rows have left: their places are uploaded once
            rows = decoder.rows
            places = torch.tensor(rows, device=decoder.logits.device)
        put = {} if episodes is None else episodes.next_tokens(rows)
        with torch.inference_mode():
            logits = decoder.logits.float()  # (R, V)
            scores = process(decoder.padding)(decoder.seen, logits)
            logprobs = scores.log_softmax(-1)
            probabilities = logprobs.exp()
            tokens = draw(probabilities, next(numbers)[places])  # (R,)
            if put:
                tokens[list(put)] = torch.tensor(list(put.values()), device=tokens.device)
            of_tokens = _of_tokens(logprobs, tokens)
            unshaped = _of_tokens((logits / sampling.temperature).log_softmax(-1), tokens) if reshapes else of_tokens
            found = (tokens, of_tokens, unshaped, torch.special.entr(probabilities).sum(-1))
            ids, chosen, raw, entropies = torch.stack([values.double() for values in found]).tolist()  # one wait
            token_list = [int(token) for token in ids]
        for place in range(len(rows)):
            row, known = sampled[rows[place]], place not in put  # an observation's token has no probabilities
            if known and math.isnan(chosen[place]):
                raise PolicyError(
                    f"the policy gives no probabilities at position {len(row.token_ids) + 1} (its logits are NaN or "
                    "infinite): it overflows in its dtype or its weights are damaged; load it in float32, or an "
                    "earlier checkpoint"
                )
            row.token_ids.append(token_list[place])
            row.logprobs.append(chosen[place] if known else 0.0)
            row.raw_logprobs.append(raw[place] if known else 0.0)
            row.entropies.append(entropies[place] if known else 0.0)
            if episodes is not None:
                row.mask.append(int(known))
        if on_tokens is not None:
            on_tokens(list(zip(rows, token_list, strict=True)))
        keep = [place for place, row in enumerate(rows) if not has_ended(row)]
        if not keep or (episodes is not None and episodes.failure is not None):
            return
        decoder.advance(tokens, keep)


def _of_tokens(logprobs: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logprobs.gather(-1, tokens[:, None])[:, 0]


def logits_processors(sampling: SamplingConfig) -> Callable[[torch.Tensor], LogitsProcessorList]:
    """transformers' processors in the order ``generate`` applies them.

    The repetition penalty leaves out the left padding of each row, (R,), hence one list a set of rows.
    """
    known: tuple[tuple[bool, type[Any], Any], ...] = (
        (sampling.temperature != 1.0, TemperatureLogitsWarper, sampling.temperature),
        (sampling.top_k > 0, TopKLogitsWarper, sampling.top_k),
        (sampling.top_p < 1.0, TopPLogitsWarper, sampling.top_p),
        (sampling.min_p is not None, MinPLogitsWarper, sampling.min_p),
    )
    warpers = [kind(value) for is_asked, kind, value in known if is_asked]

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
    if (longest := max(map(len, prompt_ids))) >= context:
        raise PolicyError(
            f"a prompt of {longest:,} tokens leaves no room for an answer in the model's context of {context:,}; "
            f"shorten it by {longest - context + 1:,} tokens or more, or take a policy with a longer context"
        )
    if prompt + completion > context:
        raise PolicyError(
            f"a prompt of {prompt} tokens and {completion} completion tokens exceed the model's context of {context}; "
            f"set max_completion_length to {context - prompt} or less, or shorten the prompt"
        )


Streams = Callable[[], Iterator[torch.Tensor]]
"""Starts the random numbers anew: for each position, (B,) float64 in [0, 1), one a row."""


# --- uniform random numbers, one a row and position, and the draw that they make from a distribution --------------


def uniform_numbers(seed: int, first_row: int, rows: int, total_rows: int) -> Iterator[torch.Tensor]:
    """For each position, this caller's (rows,) of the table; drawn for every row, so that a row keeps its own."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.rand(total_rows, generator=generator, dtype=torch.float64)[first_row : first_row + rows]


AHEAD = 32
"""Positions whose numbers are uploaded at once: a GPU would wait for each."""


def _uploaded(numbers: Iterator[torch.Tensor], device: torch.device) -> Iterator[torch.Tensor]:
    while ahead := list(islice(numbers, AHEAD)):
        yield from torch.stack(ahead).to(device)


BLOCK = 1024


def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Inverse-CDF sampling: probabilities (R, V) and uniform numbers (R,) in [0, 1) to token ids (R,) int64.

    In float64, so that a token of probability 0 is never drawn and rounding of the sum does not matter. A large
    vocabulary is summed by blocks of 1,024 first, then token by token in the block that was drawn.
    """
    uniform, tokens = uniform.double(), probabilities.shape[-1]
    if tokens <= BLOCK:
        return _draw_from(probabilities.double(), uniform)[0]
    blocks = functional.pad(probabilities, (0, -tokens % BLOCK)).unflatten(-1, (-1, BLOCK))  # (R, V / 1024, 1024)
    block, uniform = _draw_from(blocks.sum(-1, dtype=torch.float64), uniform)
    inside = blocks[torch.arange(len(blocks), device=block.device), block].double()
    return block * BLOCK + _draw_from(inside, uniform)[0]


def _draw_from(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which of the weights (R, N) are drawn, (R,), and where in them the numbers lie, in [0, 1)."""
    cdf = weights.cumsum(-1)
    target = (uniform * cdf[:, -1])[:, None]
    place = torch.searchsorted(cdf, target, right=True).clamp(max=weights.shape[-1] - 1)  # of NaN, past the end
    weight = weights.gather(-1, place)
    rest = (target - cdf.gather(-1, place) + weight) / weight
    return place[:, 0], rest[:, 0].clamp(min=0, max=1 - 2**-53)


# --- a group's tokens under a reference policy: shares of the KL divergence, and ratios ---------------------------


@torch.no_grad()
def with_reference(policy: Policy, group: Group, *, cancelled: Callable[[], bool] | None = None) -> Group:
    """Return the group, each rollout with ``ref_logprobs``: natural-log probabilities of its tokens under ``policy``.

    They are taken at the temperature that the group was sampled at, as TRL takes those of its reference policy, and
    without top-k, top-p and the like. A policy that sampled a group without those is its own reference up to rounding.
    ``cancelled`` is asked before every rollout; once it says yes, the group comes back as it was.

    Raises:
        PolicyError: if the policy has another vocabulary than the group's tokens, or too short a context.
    """
    ids = encode_prompt(policy.tokenizer, group.prompt, group.sampling.get("template_kwargs"))
    temperature = float(group.sampling.get("temperature") or 1.0)
    rows = []
    for number, rollout in enumerate(group.rollouts, start=1):
        if cancelled is not None and cancelled():
            return group
        _check_tokens(policy, rollout, number)
        context = context_length(policy.model)
        if context is not None and len(ids) + len(rollout) > context:
            raise PolicyError(
                f"prompt and rollout {number} have {len(ids) + len(rollout):,} tokens and {policy.name!r} reads at "
                f"most {context:,}; take a reference policy with a longer context"
            )
        tokens = torch.tensor([[*ids, *rollout.token_ids]], device=policy.device)
        logits = policy.model(input_ids=tokens).logits[0, len(ids) - 1 : -1].float() / temperature  # (T, V)
        logprobs = _of_tokens(torch.log_softmax(logits, dim=-1), tokens[0, len(ids) :])
        rows.append(replace(rollout, ref_logprobs=rollout.of_sampled(tuple(logprobs.tolist()))))
    return replace(group, rollouts=tuple(rows), sampling={**group.sampling, "reference": policy.name})


def _check_tokens(policy: Policy, rollout: Rollout, number: int) -> None:
    """Refuses a policy with another vocabulary: it would judge other words than those that were sampled."""
    other = "take a reference policy with the tokenizer that sampled the group"
    rows = policy.model.get_input_embeddings().weight.shape[0]
    if max(rollout.token_ids, default=0) >= rows:
        raise PolicyError(
            f"rollout {number} has the token id {max(rollout.token_ids)} and {policy.name!r} knows {rows:,}; {other}"
        )
    for token, text, known in zip(
        rollout.token_ids, rollout.texts, token_texts(policy.tokenizer, rollout.token_ids), strict=True
    ):
        if text != known:
            raise PolicyError(
                f"token id {token} of rollout {number} is {text!r} in the group and {known!r} in the vocabulary of "
                f"{policy.name!r}; {other}"
            )
