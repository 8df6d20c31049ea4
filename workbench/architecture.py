"""What kind of model a local folder holds, by its ``config.json``: told before anything is loaded, without torch.

Of a Hub id nothing is known here; the loaders say what is wrong with one.
"""

from __future__ import annotations

import json

from workbench.errors import PolicyError
from workbench.places import local_path

_SCORERS = ("SequenceClassification", "TokenClassification", "RewardModel")
_WRITERS = ("CausalLM", "LMHeadModel", "ConditionalGeneration")


def architecture(path: str) -> str:
    """The first architecture that a folder's config.json names; "" where there is none."""
    folder = local_path(path)
    if folder is None:
        return ""
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0])
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return ""


def scores_text(path: str) -> bool:
    """Whether a folder holds a classifier or a reward model."""
    return architecture(path).endswith(_SCORERS)


def writes_text(path: str) -> bool:
    """Whether a folder holds a language model."""
    return architecture(path).endswith(_WRITERS)


def check_language_model(path: str) -> None:
    """Raises PolicyError for the folder of a classifier or reward model, which cannot be sampled from."""
    if scores_text(path):
        raise PolicyError(
            f"policy {path!r} is a {architecture(path)}, which scores text and writes none; give a language model as "
            "the policy, and this one as a reward (model.path of a reward, --reward-model)"
        )
