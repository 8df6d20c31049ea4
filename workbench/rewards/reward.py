"""A reward: a function with a name, a kind and a weight, wherever it runs.

It is a built-in, somebody's code, a judge or a reward model. Knows no torch: models are asked through ``Models``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

from workbench.config import ModelConfig, Reduction, RewardConfig
from workbench.config.rewards import Point, weight_at
from workbench.errors import RewardCodeError, RewardError
from workbench.rewards.builtin import find_builtin
from workbench.rewards.judges import judge_function, shared_judges
from workbench.rewards.logged import ARGUMENTS
from workbench.rewards.protocol import (
    Batch,
    Score,
    as_reward,
    call_reward,
    check_kind,
    form_of,
    is_async,
    kind_of,
    read_signature,
)
from workbench.rewards.sandbox import Sandbox, SandboxFunction, shared_sandbox
from workbench.schema import Prompt, RewardKind
from workbench.steps import StepPattern, split_leniently


@dataclass(frozen=True)
class Reward:
    """A reward function: ``function`` scores steps or whole completions, as ``kind`` says, and counts ``weight`` times.

    ``code`` is the source of a function that runs in the sandbox; ``function`` then calls it there. One that
    ``waits`` for others, a server say, is called while other rewards are. In training, one with a ``schedule`` counts
    as that says at each step; ``weight`` is then that of step 0. One that ``judges_all`` is asked about every step, so
    that its None is a step it could not judge, not one that is none of its business.
    """

    name: str
    kind: RewardKind
    function: Callable[..., Any] | SandboxFunction
    weight: float = 1.0
    code: str | None = None
    waits: bool = False
    schedule: tuple[Point, ...] = ()
    judges_all: bool = False

    def at(self, step: int) -> Reward:
        """The reward with its weight after so many optimiser steps."""
        return replace(self, weight=weight_at(self.schedule, step)) if self.schedule else self

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", as_reward(self.function))
        check_kind(self.name, self.signature, self.kind)

    @cached_property
    def signature(self) -> inspect.Signature:
        if isinstance(self.function, SandboxFunction):
            return self.function.signature
        return read_signature(self.function, self.name)

    def score(self, batch: Batch) -> tuple[list[Any], str]:
        """Return one score a completion, or a list with one a step of each, and what the function printed.

        What a function of this process prints is not caught. Raises RewardError and the errors under it.
        """
        if isinstance(self.function, SandboxFunction):
            return self.function.sandbox.score(self.function.code, self.name, batch)
        return call_reward(self.name, self.function, batch), ""

    @property
    def outcome_function(self) -> Callable[..., list[Score]]:
        """This outcome reward as TRL takes it, under this reward's name and with what it returns checked."""
        if self.kind != "outcome":
            raise RewardCodeError(f"reward {self.name!r} scores steps; TRL takes outcome rewards", reward=self.name)

        def outcome(
            prompts: Sequence[Any],
            completions: Sequence[Any],
            completion_ids: Sequence[Sequence[int]] | None = None,
            **columns: Any,
        ) -> list[Score]:
            state, log_extra, log_metric = (columns.pop(argument, None) for argument in ARGUMENTS)
            batch = Batch(prompts, completions, columns, completion_ids=completion_ids, trainer_state=state)
            scores: list[Score] = self.score(batch)[0]
            for column, values in batch.log.extra.items() if log_extra is not None else ():
                log_extra(column, values)
            for name, value in batch.log.metrics if log_metric is not None else ():
                log_metric(name, value)
            return scores

        outcome.__name__ = outcome.__qualname__ = self.name
        return outcome


def load_reward(
    spec: str | Callable[..., Any] | RewardConfig | Reward,
    worker: Sandbox | None = None,
    *,
    models: Models | None = None,
    pattern: StepPattern | None = None,
) -> Reward:
    """A built-in reward by name, a function of yours, or of a file (``FILE.py::NAME``), or what a configuration says.

    A sequence classifier (``nn.Module``) is an outcome reward, with the tokenizer of where it was loaded from, as in
    TRL. A function's kind is read from its signature. Code in a configuration runs in ``worker``, by default one
    shared by this process; a reward model is held by ``models``, by default in this process itself. Where it is an
    outcome reward that scores steps it cuts completions by ``pattern``, in ``worker`` if one is given.

    Raises RewardCodeError for a name that is not built in, code that defines no usable function, or a kind that its
    signature contradicts; RewardError for a reward model that cannot be loaded.
    """
    if isinstance(spec, Reward):
        return spec
    if isinstance(spec, str):
        spec = RewardConfig(name=spec) if ".py" in spec else RewardConfig(name=spec, kind=find_builtin(spec).kind)
    if isinstance(spec, RewardConfig):
        reward = _of_config(spec, worker, models, pattern)
        return replace(reward, schedule=spec.points).at(0) if spec.schedule else reward
    given, spec = spec, as_reward(spec)
    if spec is given and callable(getattr(spec, "forward", None)):  # an nn.Module, told without importing torch
        from workbench.rewards.models.load import module_function

        origin = str(getattr(getattr(spec, "config", None), "_name_or_path", "") or type(spec).__name__)
        return Reward(origin.rstrip("/").rpartition("/")[2], "outcome", module_function(spec))
    if not callable(spec):
        raise RewardCodeError(f"{spec!r} is no reward; give a built-in's name, a function or a RewardConfig")
    name = type(given).__name__ if hasattr(given, "forward") else getattr(spec, "__name__", type(spec).__name__)
    return Reward(name, kind_of(form_of(read_signature(spec, name))), spec, waits=is_async(spec))


def _of_config(
    spec: RewardConfig, worker: Sandbox | None, models: Models | None, pattern: StepPattern | None
) -> Reward:
    name, kind, weight = spec.name, spec.kind, spec.weight
    if spec.model is not None:
        if models is None:
            from workbench.rewards.models.load import shared_models  # imports torch

            models = shared_models()
        try:
            models.prepare(spec.model)
        except RewardError as error:
            error.reward = error.reward or name
            raise
        return Reward(
            name, kind, model_function(name, kind, spec.model, models, pattern, worker), weight, judges_all=True
        )
    if spec.judge is not None:
        judges = (worker and worker.judges) or shared_judges()
        return Reward(name, kind, judge_function(name, kind, spec.judge, judges), weight, waits=True, judges_all=True)
    if spec.asks_policy:
        raise RewardCodeError(
            f"reward {name!r} asks the policy, which this call does not have; use it in a training run, or take "
            "wb.step_values(…).as_reward() or wb.beliefs(…).as_reward()",
            reward=name,
        )
    code = spec.code
    if code is None:
        builtin = find_builtin(name)
        builtin.check(spec.options)
        if builtin.called is not None and not builtin.in_worker:
            called = partial(builtin.called, **spec.options) if spec.options else builtin.called
            return Reward(name, kind, called, weight)
        code = builtin.source_with(spec.options)
    elif spec.options:
        raise RewardCodeError(
            f"reward {name!r} is your own code and options are for built-in ones; write {', '.join(spec.options)} into "
            "the code",
            reward=name,
        )
    function = (worker or shared_sandbox()).function(code, name, spec.folder)
    return Reward(name, kind, function, weight, code, waits=function.concurrent)


class Models(Protocol):
    """Who holds reward models: ``models.load.LocalModels`` in this process, or ``policies.client.ModelWorker``."""

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
    worker: Sandbox | None = None,
) -> Callable[..., Any]:
    """The reward function of a model, in the ``steps`` or the ``outcome`` form of ``protocol``.

    A process reward model used as an outcome reward cuts completions by ``pattern``, in ``worker`` if there is one, and
    leaves one that cannot be cut unscored. Raises RewardCodeError where it has no pattern.
    """
    if kind == "step":
        return lambda prompts, completions, steps, **columns: models.score_steps(config, prompts, steps)
    if config.format == "classifier":
        return lambda prompts, completions, **columns: models.score_texts(config, prompts, completions)
    if pattern is None:
        raise RewardCodeError(
            f"reward {name!r} is a process reward model as an outcome reward and needs a step pattern", reward=name
        )

    def steps_reduced(prompts: Any, completions: Any, **columns: Any) -> list[Score]:
        texts = [completion if isinstance(completion, str) else completion[-1]["content"] for completion in completions]
        splits = split_leniently(texts, pattern) if worker is None else worker.split(texts, pattern, leniently=True)
        cut = [  # one that cannot be cut has no steps, which leaves it unscored
            [] if split.failed else [text[step.start : step.end] for step in split.steps]
            for text, split in zip(texts, splits, strict=True)
        ]
        return [reduced(scores, config.reduce) for scores in models.score_steps(config, prompts, cut)]

    return steps_reduced


def reduced(scores: Sequence[Score], how: Reduction) -> Score:
    """Step scores as one: the last, the least (both of 2305.20050, 2312.08935) or the product of all.

    None where there are none, or one is unscored.
    """
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    return known[-1] if how == "last" else min(known) if how == "min" else math.prod(known)
