"""A reward made of a reward model, wherever that runs. Knows no torch: the models are asked through ``Models``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from workbench.config import ModelConfig, Reduction
from workbench.errors import RewardCodeError
from workbench.rewards.protocol import Splitter
from workbench.rewards.returned import Score
from workbench.schema import Prompt, RewardKind
from workbench.steps import StepPattern, split_leniently


class Models(Protocol):
    """Who holds reward models: ``local.LocalModels`` in this process, or ``client.ModelWorker`` in a child."""

    def prepare(self, config: ModelConfig) -> None: ...

    def score_steps(
        self, config: ModelConfig, prompts: Sequence[Prompt], steps: Sequence[Sequence[str]]
    ) -> list[list[Score]]: ...

    def score_texts(
        self, config: ModelConfig, prompts: Sequence[Prompt], completions: Sequence[Any]
    ) -> list[Score]: ...


def model_function(
    name: str,
    kind: RewardKind,
    config: ModelConfig,
    models: Models,
    pattern: StepPattern | None,
    worker: Splitter | None = None,
) -> Callable[..., Any]:
    """The reward function of a model, in the ``steps`` or the ``outcome`` form of ``protocol``.

    A process reward model used as an outcome reward cuts completions by ``pattern``, in ``worker`` if there is one, and
    leaves one that cannot be cut unscored. Raises RewardCodeError where it has no pattern.
    """
    if kind == "step":

        def steps_scored(prompts: Any, completions: Any, steps: Any, **columns: Any) -> list[list[Score]]:
            return models.score_steps(config, prompts, steps)

        return steps_scored
    if config.format == "classifier":

        def texts_scored(prompts: Any, completions: Any, **columns: Any) -> list[Score]:
            return models.score_texts(config, prompts, completions)

        return texts_scored
    if pattern is None:
        raise RewardCodeError(
            f"reward {name!r} is a process reward model as an outcome reward and needs a step pattern", reward=name
        )

    def steps_reduced(prompts: Any, completions: Any, **columns: Any) -> list[Score]:
        texts = [completion if isinstance(completion, str) else completion[-1]["content"] for completion in completions]
        cut = _cut(texts, pattern, worker)
        return [reduced(scores, config.reduce) for scores in models.score_steps(config, prompts, cut)]

    return steps_reduced


def reduced(scores: Sequence[Score], how: Reduction) -> Score:
    """Step scores as one: the last, the least (both of 2305.20050, 2312.08935) or the product of all.

    None where there are none, or one is unscored.
    """
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    return {"last": lambda: known[-1], "min": lambda: min(known), "product": lambda: math.prod(known)}[how]()


def _cut(texts: Sequence[str], pattern: StepPattern, worker: Splitter | None) -> list[list[str]]:
    """Step texts of each completion; none for one that cannot be cut, which leaves it unscored."""
    splits = split_leniently(texts, pattern) if worker is None else worker.split(texts, pattern, leniently=True)
    return [
        [] if split.failed else [text[step.start : step.end] for step in split.steps]
        for text, split in zip(texts, splits, strict=True)
    ]
