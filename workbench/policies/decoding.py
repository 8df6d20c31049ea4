"""Decoding state of a model: prefilled once per prompt, shared among a group's rows, advanced token by token.

Models that keep keys and values take prompts of any length side by side, the shorter ones padded on the left. Recurrent
and hybrid ones, whose state also changes where there is padding, take prompts of one length at a time. Of a model whose
state cannot be shared out, or whose steps differ from its own forward pass over the whole sequence (of those in
transformers 5.23: MiniMax, Nemotron-H, RecurrentGemma, RWKV, xLSTM, Zamba 2), no state is kept and every token costs a
forward pass over all before it. Which of the three a model is, is tried out on it once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from transformers import cache_utils

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
        _kinds[model], decoder = _tried_out(model, prompt_ids, rows, pad_token_id)
    elif _kinds[model] == "padded":
        decoder = CachedDecoder(model, prompt_ids, rows, pad_token_id, masked=True)
    else:
        decoder = None
    if decoder is not None:
        yield decoder
        return
    kind = CachedDecoder if _kinds[model] == "by length" else Decoder
    for length in sorted(set(map(len, prompt_ids))):
        rows = [row for row, ids in enumerate(prompt_ids) if len(ids) == length]
        yield kind(model, prompt_ids, rows)


def _tried_out(
    model: Any, prompt_ids: Sequence[Sequence[int]], rows: Sequence[int], pad_token_id: int
) -> tuple[Kind, Decoder | None]:
    """Return a model's kind, with the decoder that showed it where that is of use."""
    try:
        decoder = CachedDecoder(model, prompt_ids, rows, pad_token_id, masked=True)
    except FAILURES:
        return "whole", None
    cache = decoder.cache
    if type(cache) is cache_utils.DynamicCache and all(type(layer) in KEYS_AND_VALUES for layer in cache.layers):
        return "padded", decoder
    return _kind_of_state(model), None


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
