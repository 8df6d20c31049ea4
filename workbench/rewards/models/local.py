"""Reward models held by this process: the notebook's, the shell's, and every rank's of a training run."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from workbench.config import ModelConfig
from workbench.errors import RewardError
from workbench.rewards.models.load import good_label, load_model
from workbench.rewards.models.model import Classifier, ProcessModel
from workbench.rewards.returned import Score
from workbench.schema import Prompt

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

    def module_scored(prompts: Any, completions: Any, **columns: Any) -> list[Score]:
        return classifier.score(prompts, completions)

    return module_scored


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
