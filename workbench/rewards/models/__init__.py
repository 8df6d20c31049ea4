"""Reward models: classifiers that score whole completions, and process reward models that score every step.

``formats`` says what each public kind of process reward model reads and where its scores stand; ``model`` runs a model
over batches; ``load`` finds and reads one; ``reward`` makes a reward of it. ``client`` is for a process that must not
import torch and asks ``worker``, a child. The package itself imports no torch; names resolve when used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.rewards.models.client import ModelWorker
    from workbench.rewards.models.formats import guess_format
    from workbench.rewards.models.local import LocalModels
    from workbench.rewards.models.model import Classifier, ProcessModel

__all__ = ["Classifier", "LocalModels", "ModelWorker", "ProcessModel", "guess_format"]

_HOMES = {
    "Classifier": "model",
    "LocalModels": "local",
    "ModelWorker": "client",
    "ProcessModel": "model",
    "guess_format": "formats",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"workbench.rewards.models.{_HOMES[name]}"), name)
