"""Rewards, wherever they run, and what they say of completions: a score for every step and every completion.

A reward is a function with a name, a kind and a weight: a built-in, somebody's code, a judge or a reward model. Scoring
splits and aligns completions and calls the rewards; what the scores are worth to a token is not its business. One call
of each function scores the whole batch, however many prompts it has. ``score_both`` scores a group with two lists of
rewards: a function that both have is called once, so that the sides differ by what was changed and not by a judge asked
twice. Knows no torch: models are asked through ``Models``.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

from workbench.config import ModelConfig, Reduction
from workbench.config.rewards import Point, weight_at
from workbench.errors import RewardCodeError, RewardError
from workbench.rewards.answers import without_thinking
from workbench.rewards.builtin import find_builtin
from workbench.rewards.judges import judge_function, shared_judges
from workbench.rewards.protocol import (
    Batch,
    Log,
    Score,
    as_reward,
    call_reward,
    check_kind,
    form_of,
    is_async,
    kind_of,
    read_signature,
    weighted_sum,
)
from workbench.rewards.source import RewardConfig
from workbench.sandbox.child import read_prints
from workbench.sandbox.client import Sandbox, SandboxFunction, shared_sandbox
from workbench.schema import Group, Prompt, RewardKind, RewardSummary, Rollout, ScoredGroup, StepScores
from workbench.steps import (
    Split,
    StepPattern,
    align_rollout,
    rollout_texts,
    split_leniently,
    split_preview,
    split_rollouts,
    step_texts,
)


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
        object.__setattr__(self, "function", as_reward(self.function, self.kind))
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
        if not isinstance(self.function, SandboxFunction):
            return call_reward(self.name, self.function, batch), ""
        reply, printed = self.function.sandbox.score(self.function.code, self.name, batch.as_json, self.kind)
        vars(batch.log).update(reply["logged"])
        return reply["scores"], printed


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
        spec = RewardConfig(name=spec)
    if isinstance(spec, RewardConfig):
        reward = _of_config(spec, worker, models, pattern)
        return replace(reward, schedule=spec.points).at(0) if spec.schedule else reward
    given, spec = spec, as_reward(spec)
    is_class = inspect.isclass(spec)
    if spec is given and not is_class and callable(getattr(spec, "forward", None)):
        # An nn.Module, told without importing torch.
        from workbench.rewards.models.model import module_function

        origin = str(getattr(getattr(spec, "config", None), "_name_or_path", "") or type(spec).__name__)
        return Reward(origin.rstrip("/").rpartition("/")[2], "outcome", module_function(spec))
    if is_class or not callable(spec):
        raise RewardCodeError(f"{spec!r} is no reward; give a built-in's name, a function, NAME() or a RewardConfig")
    model = getattr(given, "__self__", given)
    name = type(model).__name__ if hasattr(model, "forward") else getattr(spec, "__name__", type(spec).__name__)
    return Reward(name, kind_of(form_of(read_signature(spec, name))), spec, waits=is_async(spec))


def _of_config(
    spec: RewardConfig, worker: Sandbox | None, models: Models | None, pattern: StepPattern | None
) -> Reward:
    name, kind, weight = spec.name, spec.kind, spec.weight
    if spec.model is not None:
        if models is None:
            from workbench.rewards.models.model import shared_models  # imports torch

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
        if not builtin.in_worker:
            return Reward(name, kind, builtin.function_with(spec.options), weight)
        code = builtin.source_with(spec.options)
    elif spec.options:
        raise RewardCodeError(
            f"reward {name!r} is your own code and options are for built-in ones; write {', '.join(spec.options)} into "
            "the code",
            reward=name,
        )
    function = (worker or shared_sandbox()).function(code, name, spec.folder, kind)
    return Reward(name, kind, function, weight, code, waits=function.concurrent)


class Models(Protocol):
    """A holder of reward models: ``models.model.LocalModels`` in this process, or ``policies.client.ModelWorker``."""

    def prepare(self, config: ModelConfig) -> Any: ...

    def score(self, config: ModelConfig, prompts: Sequence[Prompt], answers: Sequence[Any]) -> list[Any]: ...


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
        return lambda prompts, completions, steps, **columns: models.score(config, prompts, steps)
    if config.format == "classifier":
        return lambda prompts, completions, **columns: models.score(config, prompts, completions)
    if pattern is None:
        raise RewardCodeError(
            f"reward {name!r} is a process reward model as an outcome reward and needs a step pattern", reward=name
        )

    def steps_reduced(prompts: Any, completions: Any, **columns: Any) -> list[Score]:
        texts = [completion if isinstance(completion, str) else completion[-1]["content"] for completion in completions]
        splits = split_leniently(texts, pattern) if worker is None else worker.split(texts, pattern, leniently=True)
        cut = [  # one that cannot be cut has no steps, which leaves it unscored
            [] if split.failed else step_texts(text, split.steps) for text, split in zip(texts, splits, strict=True)
        ]
        return [reduced(scores, config.reduce) for scores in models.score(config, prompts, cut)]

    return steps_reduced


def reduced(scores: Sequence[Score], how: Reduction) -> Score:
    """Step scores as one: the last, the least (both of 2305.20050, 2312.08935) or the product of all.

    None where there are none, or one is unscored.
    """
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    return known[-1] if how == "last" else min(known) if how == "min" else math.prod(known)


# --- scoring ----------------------------------------------------------------------------------------------------------

Spec = str | Callable[..., Any] | RewardConfig | Reward
"""A built-in's name, a function, a configuration or a reward."""


def score_group(
    group: Group,
    pattern: StepPattern,
    rewards: Sequence[Spec],
    *,
    worker: Sandbox | None = None,
    models: Models | None = None,
) -> ScoredGroup:
    """Split and score one group.

    ``rewards`` are built-ins' names, functions, configurations or ``Reward`` objects. With a ``worker`` the pattern and
    all code among the rewards run there; without one the pattern runs in this process and code in a shared worker.
    Reward models are held by ``models``, by default in this process. Raises PatternError and RewardError and the errors
    under them, which name the rollout and the step.
    """
    splits = split_group(group, pattern, worker=worker)
    return score_split(group, splits, rewards, worker=worker, models=models, pattern=pattern)


def split_group(group: Group, pattern: StepPattern, *, worker: Sandbox | None = None) -> list[Split]:
    """Steps and matches of each rollout. Raises PatternError and those under it."""
    split = partial(split_preview, total=math.inf) if worker is None else worker.split
    return split_rollouts(group.rollouts, pattern, split, opened=[group.thinking_open] * len(group))


def score_split(
    group: Group,
    splits: Sequence[Split],
    rewards: Sequence[Spec],
    *,
    worker: Sandbox | None = None,
    models: Models | None = None,
    pattern: StepPattern | None = None,
    trainer_state: Any = None,
    known: dict[Any, Called] | None = None,
) -> ScoredGroup:
    """Score one group whose rollouts are split like this. Raises RewardError and the errors under it.

    ``pattern`` is what cut them; a process reward model that is an outcome reward needs it. ``trainer_state`` is what
    functions get as that, by default that before a first step. What functions gave is put into ``known``, and a
    function that is in it is not called.
    """
    loaded = [load_reward(spec, worker, models=models, pattern=pattern) for spec in rewards]
    known = {} if known is None else known
    keys = {reward.name: _function(spec) for reward, spec in zip(loaded, rewards, strict=True)}
    called, count = {name: known[key] for name, key in keys.items() if key in known}, len(group.rollouts)
    rows = [{**group.columns, **rollout.columns} for rollout in group.rollouts]
    opened, prompts = [group.thinking_open] * count, [group.prompt] * count
    scored, summaries = _score(
        prompts, group.rollouts, rows, splits, loaded, pattern, called, opened=opened, trainer_state=trainer_state
    )
    known.update({keys[name]: gave for name, gave in called.items()})
    return ScoredGroup(group, settle(scored, summaries), summaries, asdict(pattern) if pattern else {})


def score_completions(
    prompts: Sequence[Prompt],
    rollouts: Sequence[Rollout],
    columns: Sequence[Mapping[str, Any]],
    pattern: StepPattern,
    rewards: Sequence[Reward],
    *,
    completions: Sequence[Any] | None = None,
    opened: Sequence[bool] | None = None,
    worker: Sandbox | None = None,
    budget: ErrorBudget | None = None,
    trainer_state: Any = None,
) -> tuple[list[StepScores], tuple[RewardSummary, ...]]:
    """Split and score B completions of any number of prompts: ``prompts``, ``rollouts`` and ``columns`` have B entries.

    A completion that cannot be split in time is one unmatched step without a score, like one of over 1,000 steps: one
    degenerate sample must not end a training run. Errors of a reward are tolerated up to ``budget``. The pattern runs
    in ``worker`` if there is one. ``completions`` are what the functions see in place of the rollouts' texts,
    ``opened`` says which prompts end inside a ``<think>`` block, ``trainer_state`` is what functions get as that. An
    error's ``rollout`` is the index into the completions. The sums are ``settle``'s to finish, group by group. Raises
    as ``score_group`` does otherwise.
    """
    split = split_leniently if worker is None else partial(worker.split, leniently=True)
    splits = split_rollouts(rollouts, pattern, split, opened=opened)
    return _score(
        prompts,
        rollouts,
        columns,
        splits,
        rewards,
        pattern,
        {},
        opened=opened,
        completions=completions,
        budget=budget,
        trainer_state=trainer_state,
    )


def texts_after_thinking(rollouts: Sequence[Rollout], pattern: StepPattern | None, opened: Sequence[bool]) -> list[str]:
    """Return what a task looks for the answer in: what rewards read, without thinking that the prompt began."""
    read = rollout_texts(rollouts, pattern, opened)
    begun = thinking_read(rollouts, read, opened)
    return [without_thinking(text, opened=flag) for text, flag in zip(read, begun, strict=True)]


def thinking_read(rollouts: Sequence[Rollout], read: Sequence[str], opened: Sequence[bool]) -> list[bool]:
    """Return which rollouts are read from inside a ``<think>`` block: none if the pattern leaves thinking out."""
    return [flag and text == rollout.text for rollout, text, flag in zip(rollouts, read, opened, strict=True)]


def _score(
    prompts: Sequence[Prompt],
    rollouts: Sequence[Rollout],
    rows: Sequence[Mapping[str, Any]],
    splits: Sequence[Split],
    rewards: Sequence[Reward],
    pattern: StepPattern | None,
    called: dict[str, Called],
    *,
    opened: Sequence[bool] | None = None,
    completions: Sequence[Any] | None = None,
    budget: ErrorBudget | None = None,
    trainer_state: Any = None,
) -> tuple[list[StepScores], tuple[RewardSummary, ...]]:
    if not rollouts:
        return [], ()
    texts, answers = [rollout.text for rollout in rollouts], rollout_texts(rollouts, pattern, opened)
    # Without a token there is nothing to credit, and no step.
    steps = [split.steps if len(rollout) else [] for rollout, split in zip(rollouts, splits, strict=True)]
    spans = [align_rollout(rollout, row) for rollout, row in zip(rollouts, steps, strict=True)]
    turns = [[rollout.turn_of(last) for _, last in row] for rollout, row in zip(rollouts, spans, strict=True)]
    before = [["", *(text or "" for text in rollout.observations)] for rollout in rollouts]
    if completions is None:
        completions = [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(prompts, answers, strict=True)
        ]
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
    if any(begun := thinking_read(rollouts, answers, opened or [False] * len(rollouts))):
        columns["thinking_open"] = begun
    batch = Batch(
        prompts=prompts,
        completions=completions,
        columns=columns,
        steps=list(map(step_texts, texts, steps)),
        completion_ids=[rollout.token_ids for rollout in rollouts],
        step_ends=[[last for _, last in row] for row in spans],
        turn=turns,
        observation=[[texts[n] for n in row] for texts, row in zip(before, turns, strict=True)],
        trainer_state=trainer_state,
    )
    if twice := [name for name, count in Counter(reward.name for reward in rewards).items() if count > 1]:
        raise RewardCodeError(f"two rewards are named {twice[0]!r}; give each its own name", reward=twice[0])
    asked = [reward for reward in rewards if reward.name not in called]
    waiting = [reward for reward in asked if reward.waits]
    with ThreadPoolExecutor(max(1, len(waiting)), thread_name_prefix="reward") as pool:
        # Those that wait for others are under way while the rest compute.
        started = {reward.name: pool.submit(_call, reward, batch, budget) for reward in waiting}
        for reward in asked:
            called[reward.name] = started[reward.name].result() if reward.waits else _call(reward, batch, budget)
    weights = {reward.name: reward.weight for reward in rewards}
    scored = []
    for i, row in enumerate(steps):
        unscored = (None,) * len(row)
        given = {reward.name: called[reward.name][0][i] for reward in rewards}
        scores = {reward.name: tuple(given[reward.name]) for reward in rewards if reward.kind == "step"}
        outcomes = {reward.name: given[reward.name] for reward in rewards if reward.kind == "outcome"}
        failed = [name for name, values in scores.items() if FAILED in values]
        scores |= dict.fromkeys(scores if splits[i].failed else failed, unscored)
        sums = [weighted_sum({name: values[k] for name, values in scores.items()}, weights) for k in range(len(row))]
        logged = {reward.name: called[reward.name][1].of(i, len(row)) for reward in rewards}
        scored.append(
            StepScores(
                steps=tuple(row),
                spans=tuple(spans[i]),
                scores=scores,
                rewards=unscored if any(weights[name] for name in failed) else tuple(sums),
                outcome_scores=outcomes,
                outcome=weighted_sum(outcomes, weights),
                logged={name: extra for name, extra in logged.items() if extra},
                unsplit=splits[i].failed,
            )
        )
    return scored, tuple(replace(called[reward.name][2], weight=reward.weight) for reward in rewards)


Called = tuple[list[Any], Log, RewardSummary]
"""What a reward function gave a batch, what it logged, and what is said of it."""


def _call(reward: Reward, batch: Batch, budget: ErrorBudget | None) -> Called:
    """Return what a reward gave the batch: a score a completion, or a list with one a step of each."""
    began, batch = time.perf_counter(), replace(batch, log=Log())
    scores, printed = reward.score(batch) if budget is None else budget.score(reward, batch)
    seconds = time.perf_counter() - began
    metrics: dict[str, list[float]] = {}
    for name, value in batch.log.metrics:
        metrics.setdefault(name, []).append(value)
    summary = RewardSummary(
        reward.name,
        reward.kind,
        reward.weight,
        seconds,
        read_prints(printed),
        metrics,
        reward.judges_all,
        batch.log.read_as,
    )
    return scores, batch.log, summary


def settle(scored: Sequence[StepScores], rewards: Sequence[RewardSummary]) -> tuple[StepScores, ...]:
    """Return a group's scores without the sums that miss a score, which would count it as 0.

    A completion is unscored if an outcome reward that counts gave it None and scored another completion of the group; a
    function that scores none of the group has no part in it. So is a step that a function with ``judges_all`` left out;
    any other step reward's None says that the step is none of its business, and the other functions' scores count.
    """
    weights = {reward.name: reward.weight for reward in rewards}
    counted = {reward.name for reward in rewards if reward.weight}
    judges = {reward.name for reward in rewards if reward.weight and reward.judges_all}
    outcomes = {name for row in scored for name, score in row.outcome_scores.items() if score is not None} & counted
    steps = {name for row in scored for name, scores in row.scores.items() if any(s is not None for s in scores)}
    return tuple(
        replace(
            row,
            rewards=tuple(
                None if any(row.scores[name][k] is None for name in steps & judges) else reward
                for k, reward in enumerate(row.rewards)
            ),
            outcome=None
            if any(row.outcome_scores[name] is None for name in outcomes)
            else weighted_sum(row.outcome_scores, weights),
        )
        for row in scored
    )


def score_both(
    group: Group,
    pattern: StepPattern,
    rewards: Sequence[Spec],
    others: Sequence[Spec],
    *,
    worker: Sandbox | None = None,
    models: Models | None = None,
) -> tuple[ScoredGroup, ScoredGroup]:
    """The group scored with ``rewards`` and with ``others``; ``compare_credits`` holds their credits side by side.

    Arguments and errors are those of ``score_group``.
    """
    splits, known = split_group(group, pattern, worker=worker), dict[Any, Called]()
    options: dict[str, Any] = {"worker": worker, "models": models, "pattern": pattern, "known": known}
    return score_split(group, splits, rewards, **options), score_split(group, splits, others, **options)


def _function(spec: Spec) -> Any:
    """Return what two specs of one function have in common: all but its weight."""
    if isinstance(spec, str):
        spec = RewardConfig(name=spec)
    if isinstance(spec, RewardConfig):
        return spec.model_dump_json(exclude={"weight", "schedule"})
    return (spec.name, spec.kind, spec.function) if isinstance(spec, Reward) else spec


FAILED = math.inf
"""Stands for the scores of a rollout's steps that a function failed on; no function may return it."""


class ErrorBudget:
    """Counts the errors of reward functions and raises when there are more than ``limit``.

    ``on_error`` is told of each error that is let pass.
    """

    def __init__(self, limit: int, on_error: Callable[[RewardError], None] = lambda error: None) -> None:
        self.limit = limit
        self.spent = 0
        self._reported = 0
        self._last: RewardError | None = None
        self._on_error = on_error
        self._lock = threading.Lock()

    def check(self, spent: int) -> None:
        """Raises RewardError if ``spent`` (this budget's, or the sum over ranks) is over the limit."""
        if spent <= self.limit:
            return
        last = self._last
        raise RewardError(
            f"{spent} errors of reward functions; method.max_reward_errors is {self.limit}"
            + (f". The last was: {last}" if last is not None else ""),
            reward=last.reward if last else None,
            line=last.line if last else None,
        )

    def new(self) -> int:
        """Errors since the last call."""
        new, self._reported = self.spent - self._reported, self.spent
        return new

    def score(self, reward: Reward, batch: Batch) -> tuple[list[Any], str]:
        """``reward.score`` in which what failed is unscored; the steps of a rollout that failed are ``FAILED``.

        A function that is called step by step fails on one rollout alone and is called again for the others; of a
        function that sees all of them at once nothing is known, and all are unscored. Raises RewardError, with the last
        error's own place, once it is one too many.
        """
        scores: list[Any] = [[None] * len(texts) for texts in batch.steps]
        remaining: list[Sequence[str]] = list(batch.steps)
        while reward.kind == "outcome" or any(remaining):
            try:
                scored, printed = reward.score(replace(batch, steps=remaining))
            except RewardError as error:
                with self._lock:  # rewards that wait for others are called on threads
                    self.spent += 1
                    self._last = error
                    self.check(self.spent)
                    self._on_error(error)
                if reward.kind == "outcome":
                    return [None] * len(batch), ""
                if error.rollout is None or form_of(reward.signature) != "step":
                    break
                remaining[error.rollout] = ()  # so that the others keep their numbers
                scores[error.rollout] = [FAILED] * len(scores[error.rollout])
            else:
                if reward.kind == "step":
                    scored = [
                        row if texts else none for row, texts, none in zip(scored, remaining, scores, strict=True)
                    ]
                return scored, printed
        return scores, ""
