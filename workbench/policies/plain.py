"""A plain decode step for models of Llama's shape (``shape``): a static cache of keys and values, updated in place.

The prompt goes through the model's own forward, once for a group. From then on a step is a dozen operations a layer on
the model's own weights; nothing is concatenated, and a mask is read only where prompts differ in length. The rows still
running are always the first of the cache: when a row ends, the last one takes its place. The cache holds ``CHUNK``
tokens of each completion at first and twice as many whenever it is full, so that memory follows what is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache

from workbench.policies.decoding import CachedDecoder, Decoder, decoders
from workbench.policies.shape import Layer, NotOfThisShape, Shape, shape_of

CHUNK = 32

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, queries (R, H, D), keys and values (R, K, D)) → (R, H D): stores keys and values, and attends to all."""


class _Prefilled(CachedDecoder):
    """Keeps every position of the prompts, also in layers with a sliding window."""

    def _prefilled(self, tokens: torch.Tensor) -> torch.Tensor:
        output = self._forward(tokens, past_key_values=DynamicCache(), use_cache=True)
        self.cache = output.past_key_values
        logits: torch.Tensor = output.logits[:, -1]
        return logits


class PlainDecoder(Decoder):
    """Decodes by ``shape``, all rows side by side, those of shorter prompts padded on the left.

    ``most``: the most tokens that will be sampled of any row.
    """

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
        kept = [part for layer in start.cache.layers for part in (layer.keys, layer.values)]
        self._cache = torch.stack(kept)  # (2 N, R, K, L, D): of each layer keys, then values
        self._ids = self.seen
        self._reserve(CHUNK)

    def advance(self, tokens: torch.Tensor, keep: Sequence[int]) -> None:
        if len(keep) < len(self.rows):
            tokens = tokens[self._closed_up(keep)]
        if self._length == self._ids.shape[1]:
            self._reserve(2 * (self._length - self._prompt))
        rows, column = len(self.rows), self._length
        self._length += 1
        self._ids[:rows, column] = tokens
        self.seen = self._ids[:rows, : self._length]
        if self._padded:
            angles = self._angles[column - self.padding]  # (R, 2, 1, D)
            mask = self._mask[:rows, None, None, : self._length]
        else:
            angles, mask = self._angles[column], None  # (2, 1, D)
        slots = self._cache[:, :rows, :, column].unbind(0)
        filled = self._cache[:, :rows, :, : self._length].unbind(0)

        def attend(place: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            slots[2 * place].copy_(key)
            slots[2 * place + 1].copy_(value)
            return self._attended(place, query, filled[2 * place], filled[2 * place + 1], mask)

        self.logits = decode(self._shape, tokens, angles, attend)

    def _attended(
        self, place: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Attention of each row's token to the columns given; the heads of a key stand in for positions."""
        layer, shape = self._shape.layers[place], self._shape
        if layer.window is not None and layer.window < self._length:
            keys, values = keys[:, :, -layer.window :], values[:, :, -layer.window :]
            mask = None if mask is None else mask[..., -layer.window :]
        query = query.view(len(query), shape.key_heads, -1, shape.head_size)  # (R, K, H / K, D)
        mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=layer.scaling)
        return mixed.reshape(len(query), -1)

    def _closed_up(self, keep: Sequence[int]) -> torch.Tensor:
        """Let the other rows leave; the last ones take their places. Returns the places now, of those before."""
        rows, staying = len(keep), set(keep)
        free = [place for place in range(rows) if place not in staying]
        moved = [place for place in keep if place >= rows]
        order = list(range(rows))
        for place, last in zip(free, moved, strict=True):
            order[place] = last
        if free:
            filled = self._cache[:, :, :, : self._length]
            filled[:, free] = filled[:, moved]
            self._ids[free] = self._ids[moved]
            self._mask[free] = self._mask[moved]
        self.rows = [self.rows[place] for place in order]
        places = torch.tensor(order, device=self._ids.device)
        self.padding = self.padding[places]
        return places

    def _reserve(self, tokens: int) -> None:
        """Make room for so many completion tokens, for the rows still running."""
        rows, filled, before = len(self.rows), self._length, self._cache
        columns = self._prompt + min(tokens, self._most)
        self._cache = before.new_empty(len(before), rows, *before.shape[2:3], columns, before.shape[4])
        self._cache[:, :, :, :filled] = before[:, :rows, :, :filled]
        ids = self._ids.new_zeros(rows, columns)
        ids[:, :filled] = self._ids[:rows, :filled]
        self._ids = ids
        places = torch.arange(columns, device=ids.device)
        self._mask = torch.zeros(rows, columns, device=ids.device, dtype=before.dtype)
        self._mask.masked_fill_(places < self.padding[:, None], -torch.inf)
        self._angles = angles_of(self._shape, places)


def decoding_of(model: Any) -> str:
    """How a model's tokens are decoded as it is now: "plain step", or through transformers, and why."""
    try:
        shape_of(model)
    except NotOfThisShape as reason:
        return f"transformers' own step ({reason})"
    return "plain step"


def decoders_of(model: Any, prompt_ids: Sequence[Sequence[int]], pad_token_id: int, most: int) -> Iterator[Decoder]:
    """A plain decoder of all rows where the model is of Llama's shape, else those of its own forward."""
    try:
        shape = shape_of(model)
    except NotOfThisShape:
        yield from decoders(model, prompt_ids, pad_token_id)
    else:
        yield PlainDecoder(model, shape, prompt_ids, range(len(prompt_ids)), pad_token_id, most)


def angles_of(shape: Shape, positions: torch.Tensor) -> torch.Tensor:
    """Cosines and sines of positions (L,), as ``turned`` has them: (L, 2, 1, D)."""
    dtype = torch.empty(1, 1, device=positions.device, dtype=shape.dtype)
    cosines, sines = (part[0] for part in shape.rotary(dtype, positions[None]))  # (L, D)
    half = shape.head_size // 2
    return torch.stack([cosines, torch.cat([-sines[:, :half], sines[:, half:]], dim=1)], dim=1)[:, :, None]


def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary positions of heads (R, H, D): transformers' ``x cos + rotate_half(x) sin``, the sign in the angles."""
    cosines, sines = angles.unbind(-3)  # (1, D) or (R, 1, D)
    halves = heads.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return torch.addcmul(heads * cosines, halves, sines)


def decode(shape: Shape, tokens: torch.Tensor, angles: torch.Tensor, attend: Attend) -> torch.Tensor:
    """The logits (R, V) that follow tokens (R,) at the positions of ``angles``."""
    hidden = shape.embedding(tokens)  # (R, d)
    for place, layer in enumerate(shape.layers):
        hidden = _after(layer, place, hidden, shape, angles, attend)
    return shape.head(shape.norm(hidden))


def _after(
    layer: Layer, place: int, hidden: torch.Tensor, shape: Shape, angles: torch.Tensor, attend: Attend
) -> torch.Tensor:
    """The hidden states (R, d) after one layer."""
    rows, normed = len(hidden), layer.norm(hidden)
    query = layer.query(normed).view(rows, shape.heads, shape.head_size)
    key = layer.key(normed).view(rows, shape.key_heads, shape.head_size)
    value = layer.value(normed).view(rows, shape.key_heads, shape.head_size)
    if layer.query_norm is not None and layer.key_norm is not None:
        query, key = layer.query_norm(query), layer.key_norm(key)
    query, key = turned(torch.cat([query, key], dim=1), angles).split([shape.heads, shape.key_heads], dim=1)
    hidden = layer.output(hidden, attend(place, query, key, value))
    normed = layer.mlp_norm(hidden)
    return layer.down(hidden, layer.activation(layer.gate(normed)) * layer.up(normed))
