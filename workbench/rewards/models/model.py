"""A loaded reward model applied to a batch: padded forward passes and a cache of earlier scores.

``ProcessModel`` gives every step a score in [0, 1], ``Classifier`` every completion one. A causal model's score of a
step depends only on what was read up to it, so scores are remembered by that prefix; whether a model is causal is
found out by trying. Texts longer than the model's context are unscored where they pass it. Neither class knows where
the model came from. ``step_batch`` and ``StepHead`` are also what process reward models are trained through.
"""

from __future__ import annotations

import hashlib
import inspect
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from workbench.errors import RewardError
from workbench.places import STEP_BETA
from workbench.rewards.models.formats import Format, Reading, read_steps, sign_ids
from workbench.rewards.protocol import Score
from workbench.schema import Prompt

REMEMBERED = 65_536
"""Scores kept; the longest unused go first."""


class Memory:
    """Scores by the ids that were read for them, at most ``REMEMBERED``."""

    def __init__(self) -> None:
        self._scores: OrderedDict[bytes, float] = OrderedDict()
        self.hits = 0

    def get(self, key: bytes) -> float | None:
        if key in self._scores:
            self.hits += 1
            self._scores.move_to_end(key)
        return self._scores.get(key)

    def put(self, key: bytes, score: float) -> None:
        self._scores[key] = score
        if len(self._scores) > REMEMBERED:
            self._scores.popitem(last=False)


def _key(ids: Sequence[int], position: int = -1) -> bytes:
    return hashlib.blake2b(array("q", [*ids, position]).tobytes(), digest_size=16).digest()


def step_batch(readings: Sequence[Reading], pad: int, device: Any = "cpu") -> dict[str, torch.Tensor]:
    """``input_ids`` and ``attention_mask``, (B, T), and where the S steps' scores stand: ``rows``, ``positions``, (S,).

    ``begins`` (B,) is the first token of each answer. Right-padded; steps are in the readings' order.
    """
    ids, mask = padded([reading.ids for reading in readings], pad, device)
    at = [(row, position) for row, reading in enumerate(readings) for position in reading.positions]
    rows, positions = torch.tensor(at, dtype=torch.long, device=device).reshape(-1, 2).unbind(1)
    begins = torch.tensor([reading.begins for reading in readings], device=device)
    return {"input_ids": ids, "attention_mask": mask, "rows": rows, "positions": positions, "begins": begins}


@dataclass(frozen=True)
class StepHead:
    """How two logits a step, wrong and right, are read off a model in ``form``, whether it is trained or scores.

    ``signs``: the ids of "+" and "-", of a format that asks a language model. ``accepts``: what its forward takes.
    ``reference``: the frozen model whose likelihood an implicit reward model is compared with, and ``beta`` its weight.
    """

    form: Format
    signs: tuple[int, int] | None
    accepts: frozenset[str]
    reference: Any = None
    beta: float = 1.0

    @classmethod
    def of(cls, model: Any, tokenizer: Any, form: Format, reference: Any = None) -> StepHead:
        """Raises RewardError for a tokenizer that does not fit the format."""
        signs = sign_ids(tokenizer, form) if form.answer == "signs" else None
        accepts = frozenset(inspect.signature(model.forward).parameters)
        return cls(form, signs, accepts, reference, getattr(model.config, STEP_BETA, 1.0))

    def __call__(self, model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(S, 2) float32 of a ``step_batch``; ``model`` may be wrapped. Raises RewardError for another kind of head."""
        inputs: dict[str, Any] = {name: batch[name] for name in ("input_ids", "attention_mask")}
        if "use_cache" in self.accepts:
            inputs["use_cache"] = False
        rows, positions = batch["rows"], batch["positions"]
        if self.reference is not None:
            with torch.no_grad():
                before = _log_probs(self.reference.to(batch["input_ids"].device), inputs)
            moved = _log_probs(model, inputs) - before  # (B, T - 1), of token 1 and those after it
            in_answer = torch.arange(1, moved.shape[1] + 1, device=moved.device) >= batch["begins"][:, None]
            sums = torch.nn.functional.pad((moved * in_answer).cumsum(-1), (1, 0))
            value = self.beta * sums[rows, positions]
            return torch.stack([torch.zeros_like(value), value], dim=-1)
        if "logits_to_keep" in self.accepts:  # a language model's logits are large; most positions need none
            inputs["logits_to_keep"], positions = positions.unique(return_inverse=True)
        logits = logits_of(model(**inputs))[rows, positions].float()  # (S, V or labels)
        if self.signs is not None:
            return logits[:, [self.signs[1], self.signs[0]]]
        if logits.shape[-1] == 1:
            return torch.cat([torch.zeros_like(logits), logits], dim=-1)
        if logits.shape[-1] != 2:
            raise RewardError(
                f"format {self.form.name!r} needs a head of 2 labels (wrong, right) and this model has "
                f"{logits.shape[-1]}; is the format right?"
            )
        return logits


def _log_probs(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """log p of each token but the first, (B, T - 1) float32."""
    logits = logits_of(model(**inputs))[:, :-1].float()
    chosen = logits.gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]
    return chosen - logits.logsumexp(-1)


class ProcessModel:
    """A process reward model in one of ``formats.FORMATS``, in evaluation mode on its device."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        form: Format,
        *,
        separator: str | None = None,
        batch_size: int = 16,
        reference: Any = None,
    ) -> None:
        self.model, self.tokenizer, self.form = model.eval(), tokenizer, form
        self.separator, self.batch_size, self.reference = separator, batch_size, reference
        self.memory = Memory()

    def score(self, prompts: Sequence[Prompt], steps: Sequence[Sequence[str]]) -> list[list[Score]]:
        """A score in [0, 1] for each step of each completion; None past the model's context.

        Raises RewardError for a tokenizer or a head that does not fit the format.
        """
        readings = [
            read_steps(self.tokenizer, self.form, prompt, texts, self.separator)
            for prompt, texts in zip(prompts, steps, strict=True)
        ]
        known = self._known([reading for of_completion in readings for reading in of_completion or ()])
        return [
            [None] * len(texts)
            if of_completion is None
            else [known.get(self._key(reading, at)) for reading in of_completion for at in reading.positions]
            for of_completion, texts in zip(readings, steps, strict=True)
        ]

    def _known(self, readings: Sequence[Reading]) -> dict[bytes, Score]:
        """Every reading's scores by key: remembered ones, and the others from the model."""
        known: dict[bytes, Score] = {}
        missing: dict[Reading, None] = {}
        for reading in readings:
            for at in reading.positions:
                key = self._key(reading, at)
                score = known[key] if key in known else self.memory.get(key)
                known[key] = score
                if score is None and at < self.limit:
                    missing[reading] = None
        todo = sorted(missing, key=lambda reading: len(reading.ids))  # neighbours of like length need little padding
        for start in range(0, len(todo), self.batch_size):
            batch = todo[start : start + self.batch_size]
            for reading, values in zip(batch, self._forward(batch), strict=True):
                for at, value in zip([at for at in reading.positions if at < self.limit], values, strict=True):
                    key = self._key(reading, at)
                    known[key] = value
                    self.memory.put(key, value)
        return known

    def _key(self, reading: Reading, at: int) -> bytes:
        return _key(reading.ids[: at + 1], reading.begins) if self.is_causal else _key(reading.ids, at)

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Reading]) -> list[list[float]]:
        within = [
            replace(
                reading,
                ids=reading.ids[: self.limit],
                positions=tuple(at for at in reading.positions if at < self.limit),
            )
            for reading in batch
        ]
        inputs = step_batch(within, self.tokenizer.pad_token_id, self.model.device)
        right = self._head(self.model, inputs).softmax(-1)[:, 1].cpu()  # (S,)
        return [values.tolist() for values in right.split([len(reading.positions) for reading in within])]

    @cached_property
    def _head(self) -> StepHead:
        return StepHead.of(self.model, self.tokenizer, self.form, self.reference)

    @cached_property
    def limit(self) -> int:
        return context_of(self.model)

    @cached_property
    @torch.inference_mode()
    def is_causal(self) -> bool:
        """Whether a later token leaves the logits of an earlier one alone, tried on two short rows."""
        low, high = 0, self.model.get_input_embeddings().num_embeddings - 1
        rows = torch.tensor([[low, high, low, low], [low, high, low, high]], device=self.model.device)
        logits = logits_of(self.model(input_ids=rows, attention_mask=torch.ones_like(rows)))
        return bool(torch.allclose(logits[0, :3].float(), logits[1, :3].float(), atol=1e-3))


class Classifier:
    """A sequence classifier: one score a text. ``label`` is the good one's index, None where there is but one logit."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        label: int | None,
        probability: bool = False,
        end_token: bool = False,
        batch_size: int = 16,
    ) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        # transformers reads the answer at the last token that is not the *config's* pad; TRL sets it for that reason.
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        self.label, self.probability, self.end_token, self.batch_size = label, probability, end_token, batch_size
        self.memory = Memory()

    def score(self, prompts: Sequence[Prompt], completions: Sequence[Any]) -> list[Score]:
        """One score a completion, of prompt and completion together; None past the model's context.

        A single logit is the score itself; of several labels it is the log-odds of the chosen one. Raises RewardError
        for messages and a tokenizer without a chat template.
        """
        rows = [
            classifier_ids(self.tokenizer, prompt, completion, end_token=self.end_token)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        limit = context_of(self.model)
        known: dict[bytes, Score] = {_key(ids): self.memory.get(_key(ids)) for ids in rows}
        missing = {tuple(ids) for ids in rows if len(ids) <= limit and known[_key(ids)] is None}
        todo = sorted(missing, key=lambda ids: (len(ids), ids))
        for start in range(0, len(todo), self.batch_size):
            batch = todo[start : start + self.batch_size]
            for ids, value in zip(batch, self._forward(batch), strict=True):
                known[_key(ids)] = value
                self.memory.put(_key(ids), value)
        return [known[_key(ids)] for ids in rows]

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Sequence[int]]) -> list[float]:
        ids, mask = padded(batch, self.tokenizer.pad_token_id, self.model.device)
        logits = logits_of(self.model(input_ids=ids, attention_mask=mask)).float()  # (B, labels)
        if self.label is None:
            values = logits[:, 0].sigmoid() if self.probability else logits[:, 0]
        elif self.probability:
            values = logits.softmax(-1)[:, self.label]
        else:
            others = logits.clone()
            others[:, self.label] = -torch.inf
            values = logits[:, self.label] - others.logsumexp(-1)
        return [float(value) for value in values.cpu()]


def classifier_ids(tokenizer: Any, prompt: Prompt, completion: Any, *, end_token: bool = False) -> list[int]:
    """Return what a sequence classifier reads of a prompt and a completion, where it is trained as where it scores.

    As TRL scores with a module: messages through the chat template, text as it is, and no special tokens added, except
    by tokenizers that have a classification token, whose models read their answer there. With ``end_token`` plain text
    is read as TRL's ``RewardTrainer`` trains on it: ended by the end-of-sequence token unless it ends so already, with
    the special tokens that the tokenizer adds. Raises RewardError for messages and a tokenizer without a chat template.
    """
    if isinstance(prompt, str):
        text = prompt + (completion if isinstance(completion, str) else completion[-1]["content"])
        if end_token and (end := tokenizer.eos_token):
            return list(tokenizer(text if text.endswith(end) else text + end)["input_ids"])
    elif tokenizer.chat_template is None:
        raise RewardError("the prompt is a conversation and the reward model's tokenizer has no chat template")
    else:
        said = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)
        text = tokenizer.apply_chat_template([*prompt, *said], tokenize=False)
    special = tokenizer.cls_token_id is not None
    return list(tokenizer(text, add_special_tokens=special)["input_ids"]) or [tokenizer.pad_token_id]


def padded(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and mask, each (B, T) int64."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *([pad] * (width - len(row)))] for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    return ids, mask


def logits_of(output: Any) -> torch.Tensor:
    """A model's logits, also of one whose own code returns a tuple."""
    logits: torch.Tensor = output.logits if hasattr(output, "logits") else output[0]
    return logits


def context_of(model: Any) -> int:
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else 2**31
