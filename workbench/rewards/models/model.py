"""Reward models: found and read, applied to a batch, and kept loaded.

A model is a folder saved by ``save_pretrained``, or a Hub id. Only safetensors are read, and a repository's own code
runs only when the configuration says so. Qwen2.5-Math-PRM, whose head is not among transformers' own, needs no such
consent: ``Qwen2ForProcessRewardModel`` below is that head.

``ProcessModel`` gives every step a score in [0, 1], ``Classifier`` every completion one. Scores are remembered by what
was read. Texts longer than the model's context are unscored where they pass it. ``step_batch`` and
``StepHead`` are also what process reward models are trained through. ``LocalModels`` keeps what is loaded: for the
notebook, the shell, the model worker and every rank of a training run.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Qwen2Model,
    Qwen2PreTrainedModel,
)
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import cached_file

from workbench.config import ModelConfig, ModelFormat
from workbench.errors import RewardError
from workbench.models.find import model_path
from workbench.models.weights import (
    HEADS,
    check_finite,
    check_loaded,
    check_sizes,
    context_length,
    loading_options,
    pick_device,
    quiet_loading,
    read_model,
    read_tokenizer,
    refusals,
    with_merged_adapter,
)
from workbench.places import END_TOKEN, STEP_BETA, STEP_FORMAT, STEP_SEPARATOR, hub_problem, local_path
from workbench.rewards.models.formats import FORMATS, Format, Reading, read_steps, sign_ids
from workbench.rewards.protocol import Score
from workbench.schema import Prompt

REFERENCE = "reference"
"""The folder inside an implicit process reward model's that holds the model it is compared with."""


class Qwen2ForProcessRewardModel(Qwen2PreTrainedModel):
    """Qwen2.5-Math-PRM (arXiv 2501.07301): Qwen2 with Linear, ReLU, Linear to 2 logits a token, (B, T, 2).

    Module names are those of the published weights.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.score = torch.nn.Sequential(
            torch.nn.Linear(config.hidden_size, config.hidden_size),
            torch.nn.ReLU(),
            torch.nn.Linear(config.hidden_size, 2),
        )
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, use_cache: bool = False
    ) -> TokenClassifierOutput:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache).last_hidden_state
        return TokenClassifierOutput(logits=self.score(hidden))


def load_model(config: ModelConfig, device: str = "auto") -> ProcessModel | Classifier:
    """Load what ``config`` describes, onto ``device`` (``auto`` is this rank's GPU where there is one).

    Raises RewardError if it cannot be found or read, or is not what its format says.
    """
    where = model_path(config.path)
    if local_path(where) is None and (problem := hub_problem(where, certain=True)):
        raise RewardError(problem)
    with refusals(f"reward model {config.path!r}", RewardError), quiet_loading(where):
        tokenizer = read_tokenizer(where, config.trust_remote_code)
        model = _read(config, where, device)
        check_finite(model)
    if config.format == "classifier":
        label = good_label(model.config, config)
        return Classifier(
            model,
            tokenizer,
            label=label,
            probability=config.output == "probability",
            end_token=_ends(model, where) if config.end_token is None else config.end_token,
            batch_size=config.batch_size,
        )
    form = FORMATS[config.format]
    separator = getattr(model.config, STEP_SEPARATOR, None) if config.separator is None else config.separator
    reference = None
    if form.answer == "likelihood":
        with refusals(f"reward model '{config.path}/{REFERENCE}'", RewardError), quiet_loading(where):
            reference = _read_reference(where, model)
    return ProcessModel(model, tokenizer, form, separator=separator, batch_size=config.batch_size, reference=reference)


def reference_of(where: str, model: Any) -> Any:
    """The frozen reference of an implicit reward model that begins as ``model``, loaded from ``where``.

    It is the one that was saved with it, or ``model`` as it is now.
    """
    if not (Path(where) / REFERENCE).is_dir():
        return copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    return _read_reference(where, model)


def _read_reference(where: str, model: Any) -> Any:
    reference, info = read_model(AutoModelForCausalLM, where, dtype=model.dtype, subfolder=REFERENCE)
    check_loaded(reference, info)
    check_finite(reference)
    return reference.to(model.device).eval().requires_grad_(requires_grad=False)


def _ends(model: Any, where: str) -> bool:
    """Return whether a classifier learnt from plain text with an end token, by its configuration or TRL's model card.

    A model trained here has the setting. ``RewardTrainer`` saves a card with its tag and always adds the token.
    """
    if (said := getattr(model.config, END_TOKEN, None)) is not None:
        return bool(said)
    card = cached_file(
        where,
        "README.md",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    head = Path(card).read_text(encoding="utf-8", errors="replace").split("---")[1:2] if card else []
    return any("- reward-trainer" in text.split("\n") for text in head)


def load_trained(
    path: str,
    where: str,
    adapters: Mapping[str, float],
    name: ModelFormat = "classifier",
    *,
    separator: str | None = None,
    end_token: bool = False,
    trust_remote_code: bool = False,
    dtype: str = "float32",
    attention: str = "auto",
) -> tuple[Any, Any]:
    """Load a reward model to train in the format ``name``, on the CPU, and its tokenizer.

    A classifier has a single logit; the formats with a head of two labels take a language model or a process reward
    model, the others a language model as it is. Of a language model a head is new, drawn from torch's generator; a
    reward model keeps its own. ``where`` is what ``path`` stands for, ``adapters`` what is added to its weights, and
    how much of each. Format, ``separator`` and ``end_token`` are written into the model's configuration, which is saved
    with it. Raises RewardError if it cannot be read, or its head has other labels.
    """
    settings: dict[str, Any] = {STEP_FORMAT: name, STEP_SEPARATOR: separator}
    if name == "classifier":
        settings = {END_TOKEN: end_token}
    options = loading_options(torch.device("cpu"), dtype, attention)
    if dtype == "auto":
        options["dtype"] = "auto"  # as they are saved: the trainer decides
    with refusals(f"reward model {path!r}", RewardError), quiet_loading(where):
        tokenizer = read_tokenizer(where, trust_remote_code)
        described = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        kind = _class_of(name, described.architectures)
        if kind is not AutoModelForCausalLM:
            options["num_labels"] = 1 if name == "classifier" else 2
        model, info = read_model(kind, where, _trust(kind, trust_remote_code), **options)
        body = "" if kind is AutoModelForCausalLM else f"{model.base_model_prefix}."  # a head may be new
        check_loaded(model, {**info, "missing_keys": [key for key in info["missing_keys"] if key.startswith(body)]})
        for adapter, weight in adapters.items():
            model = with_merged_adapter(model, adapter, weight)
        check_finite(model)
    for setting, value in settings.items():
        setattr(model.config, setting, value)
    return model, tokenizer


def _class_of(name: ModelFormat, architectures: list[str] | None) -> Any:
    """Return the class that reads a model of these architectures in the format ``name``."""
    if name == "classifier":
        return AutoModelForSequenceClassification
    if FORMATS[name].answer != "head":
        return AutoModelForCausalLM
    published = architectures == [Qwen2ForProcessRewardModel.__name__]
    return Qwen2ForProcessRewardModel if published else AutoModelForTokenClassification


def _trust(kind: Any, trust_remote_code: bool) -> bool | None:
    return None if kind is Qwen2ForProcessRewardModel else trust_remote_code


def _read(config: ModelConfig, where: str, device: str) -> Any:
    target, rank = pick_device(device, RewardError), os.environ.get("LOCAL_RANK")
    if rank is not None and target == torch.device("cuda"):
        target = torch.device(f"cuda:{rank}")
    check_sizes(where)
    described = AutoConfig.from_pretrained(where, trust_remote_code=config.trust_remote_code)
    trained = getattr(described, STEP_FORMAT, None)
    if trained in FORMATS and trained != config.format:
        raise RewardError(
            f"reward model {config.path!r} was trained in format {trained!r} and format {config.format!r} reads it "
            f"otherwise; set format to {trained!r}"
        )
    kind = _class_of(config.format, described.architectures)
    if config.trust_remote_code and config.format != "classifier" and kind is not AutoModelForCausalLM:
        kind = AutoModel
    held = loading_options(target, "auto", quantisation=config.quantisation, whole=HEADS)
    model, info = read_model(kind, where, _trust(kind, config.trust_remote_code), **held)
    if missing := sorted(info["missing_keys"]):
        raise RewardError(
            f"reward model {config.path!r} has no weights for {', '.join(missing[:3])}, so as format "
            f"{config.format!r} it would score at random; its architecture is {described.architectures}, choose the "
            "format it was trained in"
        )
    check_loaded(model, info)
    return model.to(target) if config.quantisation == "none" else model


def good_label(model_config: Any, config: ModelConfig) -> int | None:
    """The index of the label that scores; None for a single logit. Raises RewardError for one that is not there."""
    count = model_config.num_labels
    names = {str(name): int(index) for index, name in model_config.id2label.items()}
    if config.label is not None:
        index = names.get(config.label, int(config.label) if config.label.isdigit() else -1)
        if not 0 <= index < count or count == 1:
            raise RewardError(f"label {config.label!r} is none of {config.path!r}'s: {', '.join(names)}")
        return index
    if count > 2:
        raise RewardError(f"{config.path!r} has {count} labels; name the good one in label: {', '.join(names)}")
    return None if count == 1 else 1


# --- applied ------------------------------------------------------------------------------------------------------

REMEMBERED = 1024
"""Readings whose scores are kept; the oldest go first."""


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
    """Reads two logits a step, wrong and right, off a model in ``form``, both in training and in scoring.

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
    return logits.gather(-1, inputs["input_ids"][:, 1:, None])[..., 0] - logits.logsumexp(-1)


class _Scorer:
    """A model in evaluation mode on its device, and the scores that it gave last, by what was read for each."""

    def __init__(self, model: Any, tokenizer: Any, batch_size: int) -> None:
        self.model, self.tokenizer, self.batch_size = model.eval(), tokenizer, batch_size
        self._scores: dict[Reading, list[Score]] = {}

    def score_readings(self, readings: Sequence[Reading]) -> list[list[Score]]:
        """Return each reading's scores, remembered ones and the others from the model; None past its context."""
        new = dict.fromkeys(reading for reading in readings if reading not in self._scores)
        fitting = {reading: [at for at in reading.positions if at < self.limit] for reading in new}
        todo = sorted(filter(fitting.get, new), key=lambda reading: len(reading.ids))  # alike need little padding
        for start in range(0, len(todo), self.batch_size):
            batch = todo[start : start + self.batch_size]
            cut = [replace(one, ids=one.ids[: self.limit], positions=tuple(fitting[one])) for one in batch]
            self._scores |= dict(zip(batch, map(list, self._forward(cut)), strict=True))
        of_each = [self._scores.get(one, []) for one in readings]
        for reading in list(self._scores)[:-REMEMBERED]:
            del self._scores[reading]
        return [
            [*scores, *[None] * (len(one.positions) - len(scores))]
            for one, scores in zip(readings, of_each, strict=True)
        ]

    def _forward(self, batch: Sequence[Reading]) -> list[list[float]]:
        """Return a score for each position of each reading."""
        raise NotImplementedError

    @cached_property
    def limit(self) -> int:
        return context_length(self.model) or 2**31


class ProcessModel(_Scorer):
    """A process reward model in one of ``formats.FORMATS``."""

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
        super().__init__(model, tokenizer, batch_size)
        self.form, self.separator, self.reference = form, separator, reference

    def score(self, prompts: Sequence[Prompt], steps: Sequence[Sequence[str]]) -> list[list[Score]]:
        """A score in [0, 1] for each step of each completion; None past the model's context.

        Raises RewardError for a tokenizer or a head that does not fit the format.
        """
        readings = [
            read_steps(self.tokenizer, self.form, prompt, texts, self.separator)
            for prompt, texts in zip(prompts, steps, strict=True)
        ]
        known = iter(self.score_readings([reading for of_completion in readings for reading in of_completion or ()]))
        return [
            [None] * len(texts) if of_completion is None else [score for _ in of_completion for score in next(known)]
            for of_completion, texts in zip(readings, steps, strict=True)
        ]

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Reading]) -> list[list[float]]:
        inputs = step_batch(batch, self.tokenizer.pad_token_id, self.model.device)
        right = self._head(self.model, inputs).softmax(-1)[:, 1].cpu()  # (S,)
        return [values.tolist() for values in right.split([len(reading.positions) for reading in batch])]

    @cached_property
    def _head(self) -> StepHead:
        return StepHead.of(self.model, self.tokenizer, self.form, self.reference)


class Classifier(_Scorer):
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
        super().__init__(model, tokenizer, batch_size)
        # transformers reads the answer at the last token that is not the *config's* pad; TRL sets it for that reason.
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        self.label, self.probability, self.end_token = label, probability, end_token

    def score(self, prompts: Sequence[Prompt], completions: Sequence[Any]) -> list[Score]:
        """One score a completion, of prompt and completion together; None past the model's context.

        A single logit is the score itself; of several labels it is the log-odds of the chosen one. Raises RewardError
        for messages and a tokenizer without a chat template.
        """
        rows = [
            classifier_ids(self.tokenizer, prompt, completion, end_token=self.end_token)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        return [score for (score,) in self.score_readings([Reading(tuple(ids), (len(ids) - 1,)) for ids in rows])]

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Reading]) -> list[list[float]]:
        ids, mask = padded([reading.ids for reading in batch], self.tokenizer.pad_token_id, self.model.device)
        logits = logits_of(self.model(input_ids=ids, attention_mask=mask)).float()  # (B, labels)
        if self.label is None:
            values = logits[:, 0].sigmoid() if self.probability else logits[:, 0]
        elif self.probability:
            values = logits.softmax(-1)[:, self.label]
        else:
            others = logits.clone()
            others[:, self.label] = -torch.inf
            values = logits[:, self.label] - others.logsumexp(-1)
        return [[value] for value in values.cpu().tolist()]


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


# --- kept loaded --------------------------------------------------------------------------------------------------

KEPT = 2
"""Models kept loaded; the longest unused goes first."""


class LocalModels:
    """Loads reward models when they are first asked for, onto ``device``, and keeps as many as ``kept``.

    A folder that changed is read again.
    """

    def __init__(self, device: str = "auto", *, kept: int = KEPT) -> None:
        self.device, self.kept = device, max(kept, 1)
        self._loaded: OrderedDict[tuple[str, float], ProcessModel | Classifier] = OrderedDict()

    def prepare(self, config: ModelConfig) -> Any:
        """Return the model, loaded now if it is not yet. Raises RewardError."""
        key = (config.model_dump_json(), changed(config.path))
        if key not in self._loaded:
            while len(self._loaded) >= self.kept:  # its memory is free before the new one needs it
                self._loaded.popitem(last=False)
            self._loaded[key] = load_model(config, self.device)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def score(self, config: ModelConfig, prompts: Sequence[Prompt], answers: Sequence[Any]) -> list[Any]:
        """Return a score in [0, 1] a step of each answer, or a classifier's score of each; None past the context.

        An answer is a completion's steps, or for a classifier the completion. Raises RewardError.
        """
        return list(self.prepare(config).score(prompts, answers))


def module_function(module: Any) -> Callable[..., list[Score]]:
    """The outcome reward function of a sequence classifier that is loaded already, on the device it is on.

    Its tokenizer comes from where it came from. Raises RewardError where that is nowhere.
    """
    path = str(getattr(getattr(module, "config", None), "_name_or_path", ""))
    try:
        tokenizer = read_tokenizer(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RewardError(
            f"the module's tokenizer cannot be loaded from {path!r}, where its config says it is from; load the module "
            "with from_pretrained, or give a RewardConfig with model.path"
        ) from error
    classifier = Classifier(
        module, tokenizer, label=good_label(module.config, ModelConfig(path=path or "module", format="classifier"))
    )
    return lambda prompts, completions, **columns: classifier.score(prompts, completions)


@cache
def shared_models() -> LocalModels:
    """Return the models that callers without their own share."""
    return LocalModels()


def changed(path: str) -> float:
    """Return when a folder's files last changed; 0 for a Hub id."""
    folder, newest = Path(path).expanduser(), 0.0
    for file in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # a run that saves replaces its files
            newest = max(newest, file.stat().st_mtime)
    return newest
