"""Finding and reading a reward model: a folder saved by ``save_pretrained``, or a Hub id.

Only safetensors are read, and a repository's own code runs only when the configuration says so. Qwen2.5-Math-PRM, whose
head is not among transformers' own, needs no such consent: ``Qwen2ForProcessRewardModel`` below is that head.
``LocalModels`` keeps what is loaded: for the notebook, the shell, the model worker and every rank of a training run.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    Qwen2Model,
    Qwen2PreTrainedModel,
)
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import cached_file

from workbench.config import ModelConfig, ModelFormat
from workbench.errors import RewardError
from workbench.places import END_TOKEN, STEP_FORMAT, STEP_SEPARATOR, hub_problem, local_path
from workbench.rewards.models.formats import FORMATS, model_path
from workbench.rewards.models.model import Classifier, ProcessModel
from workbench.rewards.protocol import Score
from workbench.schema import Prompt
from workbench.weights import (
    HEADS,
    WeightsError,
    check_config,
    check_finite,
    check_loaded,
    quantised,
    quiet_loading,
    with_merged_adapter,
)

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
    with _refusals(config.path), quiet_loading(where):
        tokenizer = _tokenizer(where, config.trust_remote_code)
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
        with _refusals(f"{config.path}/{REFERENCE}"), quiet_loading(where):
            reference = _read_reference(where, model)
    return ProcessModel(model, tokenizer, form, separator=separator, batch_size=config.batch_size, reference=reference)


def reference_of(where: str, model: Any) -> Any:
    """The frozen reference of an implicit reward model that begins as ``model``, loaded from ``where``.

    It is the one that was saved with it, or ``model`` as it is now.
    """
    if (Path(where) / REFERENCE).is_dir():
        return _read_reference(where, model)
    return copy.deepcopy(model).eval().requires_grad_(requires_grad=False)


def _read_reference(where: str, model: Any) -> Any:
    options = _OPTIONS | {"dtype": model.dtype, "subfolder": REFERENCE}
    reference, info = AutoModelForCausalLM.from_pretrained(where, **options)
    check_loaded(reference, info)
    check_finite(reference)
    return reference.to(model.device).eval().requires_grad_(requires_grad=False)


def _ends(model: Any, where: str) -> bool:
    """Whether a classifier learnt from plain text with an end token: its configuration says so, or TRL's model card.

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
    quantisation: str = "none",
    device: str = "cpu",
) -> tuple[Any, Any]:
    """Load a reward model to train in the format ``name``, on the CPU, and its tokenizer.

    A classifier has a single logit; the formats with a head of two labels take a language model or a process reward
    model, the others a language model as it is. Of a language model a head is new, drawn from torch's generator; a
    reward model keeps its own. ``where`` is what ``path`` stands for, ``adapters`` what is added to its weights, and
    how much of each. In 4 or 8 bits the model lies on ``device``. Format, ``separator`` and ``end_token`` are written
    into the model's configuration, which is saved with it. Raises RewardError if it cannot be read, or its head has
    other labels.
    """
    kind: Any = AutoModelForSequenceClassification
    labels, settings = 1, dict[str, Any]({END_TOKEN: end_token})
    if name != "classifier":
        with _refusals(path):
            described = AutoConfig.from_pretrained(where, trust_remote_code=trust_remote_code)
        published = described.architectures == [Qwen2ForProcessRewardModel.__name__]
        kind, labels = Qwen2ForProcessRewardModel if published else AutoModelForTokenClassification, 2
        settings = {STEP_FORMAT: name, STEP_SEPARATOR: separator}
        if FORMATS[name].answer != "head":
            kind, labels = AutoModelForCausalLM, 0
    options = _OPTIONS | ({"num_labels": labels} if labels else {})
    options |= {} if attention == "auto" else {"attn_implementation": attention}
    if kind is not Qwen2ForProcessRewardModel:
        options["trust_remote_code"] = trust_remote_code
    options["dtype"] = getattr(torch, dtype, "auto")
    if quantisation != "none":
        target = torch.device(device)
        options["dtype"] = torch.float32 if dtype == "auto" and target.type == "cpu" else options["dtype"]
        options |= _in_bits(quantisation, target, options["dtype"])
    with _refusals(path), quiet_loading(where):
        tokenizer = _tokenizer(where, trust_remote_code)
        model, info = kind.from_pretrained(where, **options)
        body = f"{model.base_model_prefix}." if labels else ""  # a head may be new
        check_loaded(model, {**info, "missing_keys": [key for key in info["missing_keys"] if key.startswith(body)]})
        for adapter, weight in adapters.items():
            model = with_merged_adapter(model, adapter, weight)
        check_finite(model)
    for setting, value in settings.items():
        setattr(model.config, setting, value)
    return model, tokenizer


_OPTIONS: dict[str, Any] = {
    "use_safetensors": True,
    "output_loading_info": True,
    "ignore_mismatched_sizes": True,  # so that they can be named
}


def _in_bits(quantisation: str, device: torch.device, compute: Any) -> dict[str, Any]:
    """What ``from_pretrained`` is told of weights in few bits, which it puts where they stay."""
    return {"device_map": {"": device}, "quantization_config": quantised(quantisation, device, compute, HEADS)}


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    """Turns what is wrong with a model's files into one sentence about ``path``."""
    try:
        yield
    except RewardError:
        raise
    except WeightsError as error:
        raise RewardError(f"reward model {path!r} cannot be used: {error}") from error
    except Exception as error:  # whatever a damaged file or configuration leads to in three libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RewardError(f"reward model {path!r} cannot be loaded: {reason}") from error


def _tokenizer(where: str, trust_remote_code: bool) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=trust_remote_code)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _read(config: ModelConfig, where: str, device: str) -> Any:
    if device != "cpu" and not torch.cuda.is_available():
        if device != "auto":
            raise RewardError(f"device {device!r} was asked for and torch sees no GPU here; use 'auto' or 'cpu'")
        device = "cpu"
    rank = os.environ.get("LOCAL_RANK")
    target = torch.device(device)
    if device in ("auto", "cuda"):
        target = torch.device("cuda" if rank is None else f"cuda:{rank}")
    options = {**_OPTIONS, "dtype": torch.float32 if target.type == "cpu" else "auto"}
    described = AutoConfig.from_pretrained(where, trust_remote_code=config.trust_remote_code)
    check_config(described)
    trained = getattr(described, STEP_FORMAT, None)
    if trained in FORMATS and trained != config.format:
        raise RewardError(
            f"reward model {config.path!r} was trained in format {trained!r} and format {config.format!r} reads it "
            f"otherwise; set format to {trained!r}"
        )
    published = described.architectures == [Qwen2ForProcessRewardModel.__name__] and not config.trust_remote_code
    kind: Any = AutoModel if config.trust_remote_code else AutoModelForTokenClassification
    if config.format == "classifier":
        kind = AutoModelForSequenceClassification
    elif FORMATS[config.format].answer != "head":
        kind = AutoModelForCausalLM
    elif published:
        kind = Qwen2ForProcessRewardModel
    if kind is not Qwen2ForProcessRewardModel:
        options["trust_remote_code"] = config.trust_remote_code
    in_bits = config.quantisation != "none"
    if in_bits:
        options |= _in_bits(config.quantisation, target, options["dtype"])
    model, info = kind.from_pretrained(where, **options)
    if missing := sorted(info["missing_keys"]):
        raise RewardError(
            f"reward model {config.path!r} has no weights for {', '.join(missing[:3])}, so as format "
            f"{config.format!r} it would score at random; its architecture is {described.architectures}, choose the "
            "format it was trained in"
        )
    check_loaded(model, info)
    return model if in_bits else model.to(target)


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


KEPT = 2
"""Models kept loaded; the longest unused goes first."""


class LocalModels:
    """Loads reward models when they are first asked for, onto ``device``, and keeps as many as ``kept``.

    A folder that changed is read again.
    """

    def __init__(self, device: str = "auto", *, kept: int = KEPT) -> None:
        self.device, self.kept = device, max(kept, 1)
        self._loaded: OrderedDict[tuple[str, float], ProcessModel | Classifier] = OrderedDict()

    def prepare(self, config: ModelConfig) -> None:
        """Load it now, so that what is wrong with it is said before anything waits for it. Raises RewardError."""
        self.take(config)

    def take(self, config: ModelConfig) -> ProcessModel | Classifier:
        key = (config.model_dump_json(), changed(config.path))
        if key not in self._loaded:
            while len(self._loaded) >= self.kept:  # its memory is free before the new one needs it
                self._loaded.popitem(last=False)
            self._loaded[key] = load_model(config, self.device)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def score_steps(
        self, config: ModelConfig, prompts: Sequence[Prompt], steps: Sequence[Sequence[str]]
    ) -> list[list[Score]]:
        """A score in [0, 1] a step of each completion; None past the model's context. Raises RewardError."""
        model = self.take(config)
        if not isinstance(model, ProcessModel):
            raise RewardError(f"{config.path!r} is a classifier and scores whole completions, not steps")
        return model.score(prompts, steps)

    def score_texts(self, config: ModelConfig, prompts: Sequence[Prompt], completions: Sequence[Any]) -> list[Score]:
        """A classifier's score a completion. Raises RewardError."""
        model = self.take(config)
        if not isinstance(model, Classifier):
            raise RewardError(f"{config.path!r} is a process reward model; it needs the completions' steps")
        return model.score(prompts, completions)


def module_function(module: Any) -> Callable[..., list[Score]]:
    """The outcome reward function of a sequence classifier that is loaded already, on the device it is on.

    Its tokenizer comes from where it came from. Raises RewardError where that is nowhere.
    """
    path = str(getattr(getattr(module, "config", None), "_name_or_path", ""))
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise RewardError(
            f"the module's tokenizer cannot be loaded from {path!r}, where its config says it is from; load the module "
            "with from_pretrained, or give a RewardConfig with model.path"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    label = good_label(module.config, ModelConfig(path=path or "module", format="classifier"))
    classifier = Classifier(module, tokenizer, label=label)
    return lambda prompts, completions, **columns: classifier.score(prompts, completions)


@cache
def shared_models() -> LocalModels:
    """Those of whoever brings none of their own."""
    return LocalModels()


def changed(path: str) -> float:
    """When a folder's files last changed; 0 for a Hub id."""
    folder, newest = Path(path).expanduser(), 0.0
    for file in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # a run that saves replaces its files
            newest = max(newest, file.stat().st_mtime)
    return newest
