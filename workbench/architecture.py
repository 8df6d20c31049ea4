"""What kind of model a local folder holds, by its ``config.json``: told before anything is loaded, without torch.

Of a Hub id nothing is known here; the loaders say what is wrong with one.
"""

from __future__ import annotations

import json
from typing import Any

from workbench.errors import PolicyError, shown
from workbench.packages import lacking
from workbench.places import checkpoint_or, local_path

STEP_FORMAT, STEP_SEPARATOR = "step_format", "step_separator"
"""Settings of a process reward model that was trained here, which say what it reads; public models have neither."""
END_TOKEN = "end_token"
"""Setting of a classifier that was trained here: whether plain text ends with the end-of-sequence token."""
_TOKENIZERS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
_SCORERS = ("SequenceClassification", "TokenClassification", "RewardModel")
_WRITERS = ("CausalLM", "LMHeadModel", "ConditionalGeneration")


def architecture(path: str) -> str:
    """The first architecture that a folder's config.json names; "" where there is none."""
    named = _described(path).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def labels(path: str) -> int:
    """How many labels a folder's classifier has; 2, as transformers has it, where none are named."""
    named = _described(path).get("id2label")
    return len(named) if isinstance(named, dict) else 2


def saved_setting(path: str, name: str) -> Any:
    """A setting of a folder's config.json; None where there is none."""
    return _described(path).get(name)


def _described(path: str) -> dict[str, Any]:
    """A folder's config.json; empty where there is none that can be read."""
    folder = local_path(checkpoint_or(path))
    try:
        config = {} if folder is None else json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def missing_package(path: str) -> str | None:
    """What to say where a folder's tokenizer or quantised weights are read by a package that is not installed."""
    saved = saved_setting(path, "quantization_config")
    method = saved.get("quant_method") if isinstance(saved, dict) else None
    weights = lacking("quant_method", method, f"the weights of {shown(path)}")
    return weights or lacking("tokenizer", _tokenizer(path), f"the tokenizer of {shown(path)}")


def _tokenizer(path: str) -> str | None:
    """What a folder's tokenizer was made by; None where transformers reads it by itself."""
    folder = local_path(checkpoint_or(path))
    if folder is None or (folder / "tokenizer.json").exists():
        return None
    file = next((folder / name for name in _TOKENIZERS if (folder / name).is_file()), None)
    if file is None:
        return None
    with file.open("rb") as stream:
        return "SentencePiece" if stream.read(1) == b"\n" else "tiktoken"  # protobuf, or lines of base64


def scores_text(path: str) -> bool:
    """Whether a folder holds a classifier or a reward model."""
    return architecture(path).endswith(_SCORERS)


def writes_text(path: str) -> bool:
    """Whether a folder holds a language model."""
    return architecture(path).endswith(_WRITERS)


def check_language_model(path: str, *, may_judge: bool = False) -> None:
    """Raises PolicyError for the folder of a classifier or reward model, which cannot be sampled from.

    ``may_judge``: a language model that was trained to judge steps by the signs it writes after them is one, too.
    """
    advice = "give a language model as the policy, and this one as a reward (model.path of a reward, --reward-model)"
    if scores_text(path):
        raise PolicyError(f"policy {path!r} is a {architecture(path)}, which scores text and writes none; {advice}")
    if not may_judge and (form := saved_setting(path, STEP_FORMAT)) is not None:
        raise PolicyError(
            f"policy {path!r} is a process reward model of format {form!r}, trained to judge steps by signs; {advice}"
        )
