"""Decoding state of a model: prefilled once per prompt, shared among a group's rows, advanced token by token.

Models that keep keys and values take prompts of any length side by side, the shorter ones padded on the left. Recurrent
and hybrid ones, whose state also changes where there is padding, take prompts of one length at a time. Of a model whose
state cannot be shared out, or whose steps differ from its own forward pass over the whole sequence (of those in
transformers 5.23: MiniMax, Nemotron-H, RecurrentGemma, RWKV, xLSTM, Zamba 2), no state is kept and every token costs a
forward pass over all before it. Which of the three a model is, is tried out on it once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn import functional
from transformers import DynamicCache, cache_utils

from workbench.models.weights import free_memory

Kind = Literal["padded", "by length", "whole"]
KEYS_AND_VALUES = (
    cache_utils.DynamicLayer,
    cache_utils.DynamicSlidingWindowLayer,
    cache_utils.DynamicIndexedLayer,
    cache_utils.DummyLayer,
)
PROBE_PROMPT, PROBE_STEPS = 8, 16
TOLERANCE = 5e-5
"""Of natural-log probabilities in float32, between a model's steps and its forward pass; states that agree are within
2e-5. In 16 bits rounding alone makes 0.1, and 0.3 are allowed."""

FAILURES = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a model raises whose state is not what it seems to be; a forward pass of its own says whether it is that."""

_kinds: WeakKeyDictionary[Any, Kind] = WeakKeyDictionary()


class Decoder:
    """The rows of a batch that are being sampled.

    This one keeps nothing: each token costs a forward pass over everything before it. Others keep the model's state.
    ``logits`` (R, V) of the next token, ``seen`` (R, L) ids with left padding, ``padding`` (R,) how much of it, and
    ``rows``, their places among all prompts.
    """

    rows: list[int]
    logits: torch.Tensor
    seen: torch.Tensor
    padding: torch.Tensor

    def __init__(
        self,
        model: Any,
        prompt_ids: Sequence[Sequence[int]],
        rows: Sequence[int],
        pad_token_id: int = 0,
        *,
        masked: bool = False,
    ) -> None:
        """``masked``: prompts of several lengths. Recurrent models multiply their input by a mask, also where the one
        token of a step meets the mask of its whole sequence, so they get none."""
        self.model, self.rows, self._masked = model, list(rows), masked
        # An adapter's own forward takes anything; what counts is what the model under it takes.
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._takes_positions = "position_ids" in inspect.signature(base.forward).parameters
        distinct = list(dict.fromkeys(tuple(prompt_ids[row]) for row in self.rows))
        place = {ids: i for i, ids in enumerate(distinct)}
        width = max(map(len, distinct))
        padded = [[pad_token_id] * (width - len(ids)) + list(ids) for ids in distinct]
        blanks = [[0] * (width - len(ids)) + [1] * len(ids) for ids in distinct]
        tokens = torch.tensor(padded, device=model.device)  # (P, L)
        self.mask = torch.tensor(blanks, device=model.device)
        logits = self._prefilled(tokens)  # (P, V)
        shared = torch.tensor([place[tuple(prompt_ids[row])] for row in self.rows], device=model.device)  # (B,)
        self._select(shared)
        self.logits, self.seen, self.mask = logits[shared], tokens[shared], self.mask[shared]
        self.padding = (self.mask == 0).sum(-1)

    def advance(self, tokens: torch.Tensor, keep: Sequence[int]) -> None:
        """Append a token (R,) to the rows at the places ``keep``; the others leave."""
        if len(keep) < len(self.rows):
            places = torch.tensor(keep, device=self.seen.device)
            self._select(places)
            self.seen, self.mask, self.padding = self.seen[places], self.mask[places], self.padding[places]
            self.rows, tokens = [self.rows[place] for place in keep], tokens[places]
        self.seen = torch.cat([self.seen, tokens[:, None]], dim=1)
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], dim=1)
        self.logits = self._advanced(tokens)

    def _prefilled(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._forward(tokens, use_cache=False).logits[:, -1]

    def _select(self, rows: torch.Tensor) -> None:
        pass

    def _advanced(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._prefilled(self.seen)

    def _forward(self, tokens: torch.Tensor, **state: Any) -> Any:
        if self._takes_positions:
            state["position_ids"] = (self.mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        mask = self.mask if self._masked else None
        return self.model(tokens, attention_mask=mask, logits_to_keep=1, **state)


class CachedDecoder(Decoder):
    """Keeps what the model returns of its state, under the name that the model has for it."""

    def _prefilled(self, tokens: torch.Tensor) -> torch.Tensor:
        output = self._forward(tokens, past_key_values=None, use_cache=True)
        self._name = next(
            (name for name in ("past_key_values", "cache_params") if getattr(output, name, None) is not None), ""
        )
        self.cache: Any = getattr(output, self._name, None)
        return output.logits[:, -1]

    def _select(self, rows: torch.Tensor) -> None:
        if hasattr(self.cache, "reorder_cache"):
            self.cache.reorder_cache(rows)

    def _advanced(self, tokens: torch.Tensor) -> torch.Tensor:
        output = self._forward(tokens[:, None], use_cache=True, **{self._name: self.cache})
        return output.logits[:, -1]


def decoders(model: Any, prompt_ids: Sequence[Sequence[int]], pad_token_id: int) -> Iterator[Decoder]:
    """Decoders of all rows by the model's own forward: one for all, or, where its state asks for it, one a length."""
    rows = list(range(len(prompt_ids)))
    if model not in _kinds:
        _kinds[model] = _find_kind(model, prompt_ids, rows, pad_token_id)
    if _kinds[model] == "padded":
        yield CachedDecoder(model, prompt_ids, rows, pad_token_id, masked=True)
        return
    kind = CachedDecoder if _kinds[model] == "by length" else Decoder
    for length in sorted(set(map(len, prompt_ids))):
        rows = [row for row, ids in enumerate(prompt_ids) if len(ids) == length]
        yield kind(model, prompt_ids, rows)


def _find_kind(model: Any, prompt_ids: Sequence[Sequence[int]], rows: Sequence[int], pad_token_id: int) -> Kind:
    try:
        cache = CachedDecoder(model, prompt_ids, rows, pad_token_id, masked=True).cache
    except FAILURES:
        return "whole"
    if type(cache) is cache_utils.DynamicCache and all(type(layer) in KEYS_AND_VALUES for layer in cache.layers):
        return "padded"
    return _kind_of_state(model)


def _kind_of_state(model: Any) -> Kind:
    """Compare steps from the model's shared state, with a row less, with its forward pass."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (2, PROBE_PROMPT + PROBE_STEPS), generator=generator)
    tokens = tokens[[0, 1, 0, 1, 1]].to(model.device)  # two prompts for five rows, of which three stay
    prompts, steps, stay = tokens[:, :PROBE_PROMPT].tolist(), tokens[:, PROBE_PROMPT:], [1, 2, 4]
    try:
        decoder = CachedDecoder(model, prompts, range(5))
        decoder.advance(steps[:, 0], stay)
        logits = [decoder.logits]
        for place in range(1, PROBE_STEPS):
            decoder.advance(steps[stay, place], [0, 1, 2])
            logits.append(decoder.logits)
        stepped = torch.stack(logits, dim=1).float().log_softmax(-1)  # (3, S, V)
    except FAILURES:
        return "whole"
    at_once = model(tokens[stay], use_cache=False).logits.float().log_softmax(-1)[:, PROBE_PROMPT:]
    allowed = TOLERANCE if model.dtype in (torch.float32, torch.float64) else 0.3
    return "by length" if bool((stepped - at_once).abs().max() <= allowed) else "whole"


# --- a plain decode step for models of Llama's shape: a static cache of keys and values, updated in place -------------
#
# The prompt goes through the model's own forward, once for a group. From then on a step is a dozen operations a layer
# on the model's own weights; nothing is concatenated, and a mask is read only where prompts differ in length. The rows
# still running are always the first of the cache: when a row ends, the last one takes its place. The cache holds
# ``CHUNK`` tokens of each completion at first and twice as many whenever it is full, so that memory follows what is
# sampled.
#
# Of Llama's shape are transformers' Llama, Qwen 2, Qwen 3 and Mistral: RMSNorm, rotary positions, grouped-query
# attention and a gated MLP. ``shape_of`` gives their layers as functions that read the model's own weights, so that
# what an optimiser makes of them is what is read. Linear layers of LoRA, and those with hooks, are called as modules;
# reading the bare weights of the others makes a step of 8 rows a fifth faster.

CHUNK = 32

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, queries (R H, D), keys (R K, D), values (R, K D)) → (R, H D): stores both, and attends."""


class _Prefilled(CachedDecoder):
    """Keeps every position of the prompts, also in layers with a sliding window."""

    def _prefilled(self, tokens: torch.Tensor) -> torch.Tensor:
        output = self._forward(tokens, past_key_values=DynamicCache(), use_cache=True)
        self.cache = output.past_key_values
        return output.logits[:, -1]


class PlainDecoder(Decoder):
    """Decodes by ``shape``, all rows side by side, those of shorter prompts padded on the left.

    ``most``: the most tokens that will be sampled of any row.
    """

    multiple = 1
    """The cache has a multiple of so many columns."""

    def __init__(
        self,
        model: Any,
        shape: Shape,
        prompt_ids: Sequence[Sequence[int]],
        rows: Sequence[int],
        pad_token_id: int,
        most: int,
    ) -> None:
        start = _Prefilled(model, prompt_ids, rows, pad_token_id, masked=True)
        self.rows, self.logits, self.seen, self.padding = start.rows, start.logits, start.seen, start.padding
        self._shape, self._most, self._prompt = shape, most, self.seen.shape[1]
        self._length = self._prompt  # columns that are filled
        self._padded = bool(self.padding.any())
        kept = [part.flatten(0, 1) for layer in start.cache.layers for part in (layer.keys, layer.values)]
        self._cache = torch.stack(kept)  # (2 N, R K, L, D): of each layer keys, then values
        self._ids = self.seen
        self._reserve(CHUNK)

    @torch.inference_mode()
    def advance(self, tokens: torch.Tensor, keep: Sequence[int]) -> None:
        if len(keep) < len(self.rows):
            tokens = tokens[self._close_up(keep)]
        if self._length == self._ids.shape[1]:
            self._reserve(2 * (self._length - self._prompt))
        rows, column, heads = len(self.rows), self._length, len(self.rows) * self._shape.key_heads
        self._length += 1
        self._ids[:rows, column] = tokens
        self.seen = self._ids[:rows, : self._length]
        slots = self._cache[:, :heads, column].unbind(0)  # (R K, D)
        filled = self._cache[:, :heads, : self._length].unbind(0)  # (R K, L, D)
        mask = self._mask[:heads, None, : self._length] if self._padded else None  # (R K, 1, L)

        def attend(place: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            slots[2 * place].copy_(key)
            slots[2 * place + 1].copy_(value.view(heads, -1))
            query = query.view(heads, -1, self._shape.head_size)  # (R K, H / K, D): heads stand in for positions
            layer, keys, values = self._shape.layers[place], filled[2 * place], filled[2 * place + 1]
            near = mask
            if layer.window is not None:
                keys, values = keys[:, -layer.window :], values[:, -layer.window :]
                near = None if mask is None else mask[..., -layer.window :]
            return attention(query, keys, values, near, layer.scaling).view(rows, -1)

        position = column - self.padding if self._padded else column
        self.logits = decode(self._shape, tokens, self._turns[position], attend)

    def _close_up(self, keep: Sequence[int]) -> torch.Tensor:
        """Let the other rows leave; the last ones take their places. Returns the places now, of those before."""
        rows, staying = len(keep), set(keep)
        free = [place for place in range(rows) if place not in staying]
        moved = [place for place in keep if place >= rows]
        order = list(range(rows))
        for place, last in zip(free, moved, strict=True):
            order[place] = last
        self.rows = [self.rows[place] for place in order]
        places = torch.tensor(order, device=self._ids.device)
        self.padding = self.padding[places]
        if free:
            self._ids[free] = self._ids[moved]
            heads = torch.arange(self._shape.key_heads, device=places.device)
            to, of = (
                (torch.tensor(rows, device=places.device)[:, None] * len(heads) + heads).flatten()
                for rows in (free, moved)
            )
            filled = self._cache[:, :, : self._length]
            filled[:, to] = filled[:, of]
            self._mask[to] = self._mask[of]
        return places

    def _reserve(self, tokens: int) -> None:
        """Make room for so many completion tokens, for the rows still running."""
        shape, before, filled, rows = self._shape, self._cache, self._length, len(self.rows)
        columns = -(-(self._prompt + min(tokens, self._most)) // self.multiple) * self.multiple
        self._cache = before.new_empty(len(before), rows * shape.key_heads, columns, shape.head_size)
        self._cache[:, :, :filled] = before[:, : rows * shape.key_heads, :filled]
        ids = self._ids.new_zeros(rows, columns)
        ids[:, :filled] = self._ids[:rows, :filled]
        self._ids = ids
        places = torch.arange(columns, device=ids.device)
        blank = torch.zeros(rows, columns, device=ids.device, dtype=before.dtype)
        blank.masked_fill_(places < self.padding[:, None], -torch.inf)
        self._mask = blank.repeat_interleave(shape.key_heads, dim=0)  # (R K, L)
        self._turns = turns(shape, places)


class FixedDecoder(PlainDecoder):
    """The plain step over memory that stays where it is, so that CUDA replays it as one graph.

    A GPU waits for the launches of a step's hundreds of operations; a graph is one launch. Every reserved column is
    attended to, those not yet filled under a mask. Rows that have ended are computed along until half of the rows are
    left, since a graph is captured for one number of rows and columns.
    """

    multiple = 64  # as fused kernels want masks
    _column: torch.Tensor
    _places: torch.Tensor
    _graph: torch.cuda.CUDAGraph | None

    @torch.inference_mode()
    def advance(self, tokens: torch.Tensor, keep: Sequence[int]) -> None:
        if len(keep) < len(self.rows):
            kept = torch.tensor(keep, device=tokens.device)
            self.rows, tokens = [self.rows[place] for place in keep], tokens[kept]
            self.padding, self._ids, self._places = self.padding[kept], self._ids[kept], self._places[kept]
        if self._length == self._ids.shape[1]:
            self._reserve(2 * (self._length - self._prompt))
        elif 2 * len(self.rows) <= len(self._tokens):
            self._reserve(self._ids.shape[1] - self._prompt)
        self._ids[:, self._length] = tokens
        self._tokens[self._places] = tokens
        self._column.fill_(self._length)
        self._length += 1
        self.seen = self._ids[:, : self._length]
        self.logits = self._stepped()[self._places]

    def _stepped(self) -> torch.Tensor:
        """Return the logits of all rows, by a graph on a GPU, which is captured the first time."""
        if self._column.device.type != "cuda":
            return self._step()
        if self._graph is None:
            warm = torch.cuda.Stream()
            warm.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(warm):
                self._step()
            torch.cuda.current_stream().wait_stream(warm)
            graph = self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the GPU
                self._output = self._step()
        self._graph.replay()
        return self._output

    def _step(self) -> torch.Tensor:
        heads, columns = self._mask.shape
        ahead = self._columns[None] - self._column  # (1, L), above 0 where nothing is yet
        masks = {
            window: self._mask.masked_fill(
                ahead > 0 if window is None else (ahead > 0) | (ahead <= -window), -torch.inf
            ).view(heads, 1, columns)
            for window in {layer.window for layer in self._shape.layers}
        }

        def attend(place: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            layer, keys, values = self._shape.layers[place], self._cache[2 * place], self._cache[2 * place + 1]
            keys.index_copy_(1, self._column, key.view(heads, 1, -1))
            values.index_copy_(1, self._column, value.view(heads, 1, -1))
            query = query.view(heads, -1, self._shape.head_size)
            return attention(query, keys, values, masks[layer.window], layer.scaling).view(len(self._tokens), -1)

        return decode(self._shape, self._tokens, self._turns[self._column - self._offsets], attend)

    def _reserve(self, tokens: int) -> None:
        if hasattr(self, "_places"):  # the running rows first, in their order
            heads = torch.arange(self._shape.key_heads, device=self._places.device)
            self._cache = self._cache[:, (self._places[:, None] * len(heads) + heads).flatten()]
        before, filled = self._cache, self._length
        super()._reserve(max(tokens, 4 * CHUNK))
        self._cache[:, :, filled:] = 0  # a masked column counts 0 times what it holds
        self._places = torch.arange(len(self.rows), device=before.device)
        self._columns = torch.arange(self._cache.shape[2], device=before.device)
        self._tokens, self._offsets = torch.zeros_like(self._places), self.padding.clone()
        self._column, self._graph = torch.zeros(1, dtype=torch.long, device=before.device), None


def decoding_of(model: Any) -> str:
    """Say how a model's tokens are decoded as it is now: "plain step", or through transformers, and why."""
    try:
        shape_of(model)
    except NotOfThisShape as reason:
        return f"transformers' own step ({reason})"
    return "plain step"


def decoders_of(model: Any, prompt_ids: Sequence[Sequence[int]], pad_token_id: int, most: int) -> Iterator[Decoder]:
    """Yield a plain decoder of all rows where the model is of Llama's shape, else those of its own forward."""
    try:
        shape = shape_of(model)
    except NotOfThisShape:
        yield from decoders(model, prompt_ids, pad_token_id)
    else:
        kind = FixedDecoder if model.device.type == "cuda" else PlainDecoder
        yield kind(model, shape, prompt_ids, range(len(prompt_ids)), pad_token_id, most)


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> torch.Tensor:
    """Attend from a token's queries (R K, H / K, D) to the positions of keys and values (R K, L, D)."""
    if query.device.type != "cpu" or query.dtype != torch.float32:
        mask = None if mask is None else mask[None]  # four dimensions, as fused kernels want them
        return functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=mask, scale=scaling
        )[0]
    scores = torch.bmm(query, keys.transpose(1, 2)).mul_(scaling)  # faster on a CPU for one token
    return torch.bmm((scores if mask is None else scores.add_(mask)).softmax(-1), values)


def turns(shape: Shape, positions: torch.Tensor) -> torch.Tensor:
    """Cosines and sines of positions (L,): (L, 2, D), the sign of transformers' ``rotate_half`` in the sines."""
    like = torch.empty(1, 1, device=positions.device, dtype=shape.dtype)
    cosines, sines = (part[0] for part in shape.rotary(like, positions[None]))  # (L, D)
    half = shape.head_size // 2
    return torch.stack([cosines, torch.cat([-sines[:, :half], sines[:, half:]], dim=1)], dim=1)


def turned(heads: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Heads (R H, D) by a rotation (D, D) for all, or by one for each row (R, D, D)."""
    if matrix.dim() == 2:
        return torch.mm(heads, matrix)
    return torch.bmm(heads.view(len(matrix), -1, heads.shape[-1]), matrix).view(heads.shape)


def decode(shape: Shape, tokens: torch.Tensor, turn: torch.Tensor, attend: Attend) -> torch.Tensor:
    """Return the logits (R, V) that follow tokens (R,) at the positions of ``turn``."""
    hidden = shape.embedding(tokens)  # (R, d)
    # A head times this (…, D, D) is x cos + rotate_half(x) sin: one operation for all heads.
    cosines, sines = turn.unbind(-2)
    same = torch.eye(turn.shape[-1], device=turn.device, dtype=turn.dtype)
    other_half = same.roll(turn.shape[-1] // 2, 0)
    matrix = torch.addcmul(same * cosines[..., None, :], other_half, sines[..., None, :])
    for place, layer in enumerate(shape.layers):
        normed = layer.norm(hidden)
        query = layer.query(normed).view(-1, shape.head_size)
        key = layer.key(normed).view(-1, shape.head_size)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = layer.query_norm(query), layer.key_norm(key)
        mixed = attend(place, turned(query, matrix), turned(key, matrix), layer.value(normed))
        hidden = layer.output(hidden, mixed)
        normed = layer.mlp_norm(hidden)
        hidden = layer.down(hidden, layer.activation(layer.gate(normed)) * layer.up(normed))
    return shape.head(shape.norm(hidden))


# --- models of Llama's shape --------------------------------------------------------------------------------------

MODELS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM")
ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the length of the sequence."""
ATTENTION = ("sdpa", "eager")
LORA = ("peft.tuners.lora.model", "peft.tuners.lora.layer")
"""Where peft has a model with LoRA and its linear layers."""

Apply = Callable[[torch.Tensor], torch.Tensor]
Add = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(residual, input) → residual + linear(input)."""


class NotOfThisShape(Exception):
    """The reason that a model's tokens are not decoded by these layers, in words that follow a colon."""


@dataclass(frozen=True)
class Layer:
    """One layer: what is computed from a token's hidden state (R, d), attention apart.

    ``window`` is how many positions a token attends to, itself included; None for all.
    """

    norm: Apply
    query: Apply
    key: Apply
    value: Apply
    query_norm: Apply | None
    key_norm: Apply | None
    output: Add
    mlp_norm: Apply
    gate: Apply
    up: Apply
    activation: Apply
    down: Add
    scaling: float
    window: int | None

    @classmethod
    def of(cls, layer: Any, window: int | None) -> Layer:
        """A decoder layer's functions on its own weights. Raises NotOfThisShape for a layer that a hook changes."""
        attention, mlp = layer.self_attn, layer.mlp
        for module in (layer, attention, mlp):  # none of which is called
            if not _is_untouched(module):
                raise NotOfThisShape(f"the forward of its {type(module).__name__} has a hook or was replaced")
        norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        return cls(
            norm=_norm(layer.input_layernorm),
            query=_linear(attention.q_proj),
            key=_linear(attention.k_proj),
            value=_linear(attention.v_proj),
            query_norm=norms and _norm(norms[0]),
            key_norm=norms and _norm(norms[1]),
            output=_added(attention.o_proj),
            mlp_norm=_norm(layer.post_attention_layernorm),
            gate=_linear(mlp.gate_proj),
            up=_linear(mlp.up_proj),
            activation=functional.silu if type(mlp.act_fn).__name__ == "SiLUActivation" else mlp.act_fn,
            down=_added(mlp.down_proj),
            scaling=attention.scaling,
            window=window,
        )


@dataclass(frozen=True)
class Shape:
    """A model's layers, heads and ends. ``rotary(x, positions)`` gives cosines and sines."""

    embedding: Apply
    layers: tuple[Layer, ...]
    norm: Apply
    head: Apply
    rotary: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    key_heads: int
    head_size: int
    dtype: torch.dtype


def shape_of(model: Any) -> Shape:
    """Return a causal language model's layers as they are now. Raises NotOfThisShape with the reason."""
    if hasattr(model, "peft_config"):
        configs = model.peft_config.values()
        if type(model.base_model).__module__ != LORA[0] or any(c.alora_invocation_tokens for c in configs):
            raise NotOfThisShape(f"its adapter is a {type(model.base_model).__name__}")
        model = model.base_model.model
    if model.device.type == "meta":
        raise NotOfThisShape("its weights are on a server")
    if type(model).__name__ not in MODELS:
        raise NotOfThisShape(f"no plain step is known for {type(model).__name__}")
    if torch.is_autocast_enabled(model.device.type):
        raise NotOfThisShape("autocast is on")
    config, base = model.config, model.model
    if base.rotary_emb.rope_type not in ROTARY:
        raise NotOfThisShape(f"rotary positions of type {base.rotary_emb.rope_type!r}")
    if config._attn_implementation not in ATTENTION:
        raise NotOfThisShape(f"attention by {config._attn_implementation!r}")
    layers = base.layers[: config.num_hidden_layers]
    whole = config.sliding_window if type(model).__name__ == "MistralForCausalLM" else None
    return Shape(
        embedding=base.embed_tokens,
        layers=tuple(Layer.of(layer, getattr(layer.self_attn, "sliding_window", whole)) for layer in layers),
        norm=_norm(base.norm),
        head=_linear(model.lm_head),
        rotary=base.rotary_emb,
        key_heads=config.num_key_value_heads,
        head_size=layers[0].self_attn.head_dim,
        dtype=model.dtype,
    )


@torch.no_grad()
def sampling_copy(model: Any, dtype: torch.dtype) -> Any:
    """Return a model that samples as ``model`` does now: its weights in ``dtype``, LoRA merged into them.

    Of weights that are in ``dtype`` already nothing is copied. Raises NotOfThisShape for a model without a plain step,
    an adapter that is more than a sum of weights, and if the copy would take most of the memory that is free.
    """
    shape_of(model)
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    with torch.device("meta"):
        copy = type(base)(base.config)
    weights: dict[str, torch.Tensor] = {}
    held = dict[int, torch.Tensor]()  # by what they were: tied weights stay one
    room = free_memory(base.device) / 2
    for of, module in copy.named_modules():
        layer = base.get_submodule(of)
        adapted = type(layer).__module__ == LORA[1]
        plain = layer.base_layer if adapted else layer
        if module._parameters and type(plain) is not type(module):
            raise NotOfThisShape(f"{of} is a {type(plain).__name__}")
        for name, value in plain.named_parameters(recurse=False) if module._parameters else ():
            if adapted and name == "weight":
                made = _merge_lora(layer).to(dtype)
            else:
                made = held.setdefault(id(value), value.detach().to(dtype))
            weights[f"{of}.{name}"] = made
            room -= made.nbytes if made.data_ptr() != value.data_ptr() else 0
            if room < 0:
                raise NotOfThisShape("a copy of its weights would take over half of the free memory")
    copy.load_state_dict(weights, assign=True)
    copy.model.rotary_emb = base.model.rotary_emb  # its angles are no weights, and stay in float32
    return copy.requires_grad_(False).eval()


def _merge_lora(layer: Any) -> torch.Tensor:
    """Return a linear layer's weights with its active adapters of LoRA."""
    weight = layer.base_layer.weight
    for name in () if layer.disable_adapters or layer.merged else layer.active_adapters:
        if name in layer.lora_variant or layer.lora_bias.get(name):
            raise NotOfThisShape("its LoRA is more than a sum of weights")
        weight = weight + layer.get_delta_weight(name) if name in layer.scaling else weight
    return weight


def _is_untouched(module: nn.Module) -> bool:
    """Return whether a module has its class's own forward and no hook: its weights say all."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _norm(module: Any) -> Apply:
    weight = module.weight
    if not _is_untouched(module):
        return module
    if weight.dtype != torch.float32 or weight.device.type != "cpu":  # a kernel of its own, of the seven of the module
        return lambda hidden: functional.rms_norm(hidden, weight.shape, weight, module.variance_epsilon)
    epsilon, size = torch.tensor(module.variance_epsilon, device=weight.device), weight.shape[0]

    def normed(hidden: torch.Tensor) -> torch.Tensor:  # fewer operations than functional.rms_norm has on a CPU
        squares = torch.linalg.vecdot(hidden, hidden)
        return (hidden * torch.add(epsilon, squares, alpha=1 / size).rsqrt_()[:, None]).mul_(weight)

    return normed


def _linear(module: Any) -> Apply:
    if _is_bare(module):
        weight, bias = module.weight, module.bias
        return lambda hidden: functional.linear(hidden, weight, bias)
    return module


def _added(module: Any) -> Add:
    if _is_bare(module) and module.bias is None and module.weight.dtype == torch.float32:
        transposed = module.weight.t()
        return lambda residual, hidden: torch.addmm(residual, hidden, transposed)
    return lambda residual, hidden: residual + module(hidden)


def _is_bare(module: Any) -> bool:
    """Return whether a linear layer is its weights alone; LoRA's and those with hooks are called as modules.

    Raises NotOfThisShape for a layer that is not known: quantised, say.
    """
    if type(module) is not nn.Linear and type(module).__module__ != LORA[1]:
        raise NotOfThisShape(f"a linear layer is a {type(module).__name__}")
    return type(module) is nn.Linear and _is_untouched(module)
