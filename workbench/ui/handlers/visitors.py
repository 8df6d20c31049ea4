"""What visitors of a public Space may do, and how much: every rule of visitor mode, and no other module has one.

Settings are let through by a list, so that a setting nobody thought of is refused: it has to be as it is by default
unless it is named here as free, or as bounded. A refusal says why, and that a duplicate of the Space has everything.
``Draft`` asks ``Limits`` whenever it makes something of its settings, ``Services`` asks ``Visitors`` for what is no
setting: files, code, judges, and the time of the processor. Each visitor has a workspace of its own.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.assets import EMBEDDED
from workbench.config import EnvironmentSection, PolicySection, RewardConfig, SamplingConfig, TaskSection
from workbench.config.run import RunConfig
from workbench.data import TASKS
from workbench.errors import ConfigError, RewardError, WorkbenchError, shown
from workbench.places import RUN, is_of_run
from workbench.policies.client import ModelWorker, OnEvent
from workbench.policies.step_values import StepValues
from workbench.runs import list_runs
from workbench.schema import Example, Group
from workbench.schema.numbers import counted
from workbench.steps import StepPattern

REMEDY = "duplicate this Space, which is then yours and has everything"
FOLDER = "visitors"
"""In the workspace; a folder for each visitor, which is a workspace of its own."""
VISITOR = re.compile(r"[0-9a-f]{32}")
KEPT_SECONDS = 24 * 3600.0
"""Since a visitor last did anything; then the folder goes."""
HOUR = 3600.0
FREE = frozenset(
    {
        "name", "seed", "policy.path", "task.name", "prompt.system", "prompt.apply_template",
        "environment.name", "environment.max_turns", "environment.max_observation_length",  # built in, without code
        "run.eval_every", "run.eval_skip", "run.watch_every", "run.save_every", "run.device", "run.micro_batch_size",
        "optimiser.learning_rate", "optimiser.warmup_steps", "optimiser.warmup_ratio", "optimiser.lr_scheduler",
        "optimiser.adam_beta1", "optimiser.adam_beta2", "optimiser.adam_epsilon", "optimiser.weight_decay",
        "optimiser.max_grad_norm",
        "method.name", "method.mask_truncated_completions", "method.on_reward_error", "method.max_reward_errors",
        "method.loss_type", "method.beta", "method.epsilon", "method.epsilon_high", "method.gamma", "method.lam",
        "method.kl_coef", "method.score_clip", "method.whiten", "method.critic", "method.value_coef",
        "method.epsilon_value", "method.label_smoothing", "method.center_rewards_coefficient", "method.format",
        "method.until_first_error", "method.sync_ref_model", "method.ref_model_mixup_alpha",
        "method.ref_model_sync_steps",
    }
)  # fmt: skip
"""Fields of a configuration that may hold anything they can hold."""
FREE_PARTS = ("method.pattern.", "method.credit.", "method.rewards", "method.sampling.")
"""Beginnings of others: checked apart, in the sandbox, or arithmetic."""


@dataclass(frozen=True)
class Limits:
    """The most that a visitor may ask for; plain numbers, and the rules that need nothing else."""

    steps: int = 90
    """Optimiser steps of a run."""
    rows: int = 64
    """Completions, or stored rows, of a training step."""
    group: int = 16
    """Rollouts of a group."""
    tokens: int = 256
    """Of a completion."""
    measured: int = 200
    """Held-out prompts of a measure."""
    continuations: int = 8
    """From the end of a step, where its value is estimated."""
    runs: int = 1
    """Of a visitor that are not over."""
    all_runs: int = 8
    """Of all visitors that are not over."""
    sampled_an_hour: int = 3_000_000
    """Tokens of a visitor, each completion counted at its full length."""

    def check_policy(self, field: str, name: str | None) -> None:
        """Raises ConfigError for anything but the embedded policies and the visitor's own runs."""
        if name and name not in EMBEDDED and not is_of_run(name):
            raise ConfigError(
                f"{field}: visitors of this Space load no models of their own, and {shown(name)} is neither one of "
                f"{', '.join(EMBEDDED)} nor {RUN}NAME; take one of these, or {REMEDY}"
            )

    def check_loading(self, policy: Mapping[str, Any]) -> None:
        """Raises ConfigError for weights that are held, or changed, in any other way than by default."""
        settings = {name: value for name, value in policy.items() if name not in ("path", "lora")}
        self._check_leaves({"policy": settings}, {"policy": PolicySection().model_dump()})

    def check_task(self, section: TaskSection) -> None:
        """Raises ConfigError for rows that do not come with the workbench, and for any other way to read those."""
        if section.name not in TASKS:
            raise ConfigError(
                f"task.name: visitors of this Space read no files and nothing of the Hub, and {shown(section.name)} is "
                f"none of {', '.join(TASKS)}; take one of these, or {REMEDY}"
            )
        self._check_leaves({"task": section.model_dump()}, {"task": TaskSection().model_dump()})

    def check_sampling(self, sampling: SamplingConfig) -> None:
        """Raises ConfigError for a group that is larger, or longer, than a visitor's may be."""
        self._most("method.sampling.num_generations", sampling.num_generations, self.group)
        self._most("method.sampling.max_completion_length", sampling.max_completion_length, self.tokens)

    def check_reward(self, reward: RewardConfig) -> None:
        """Raises RewardError for anything but built-in functions, reward models of runs, and values by sampling."""
        what = None
        if reward.code is not None:
            what = "run no code of their own"
        elif reward.judge is not None:
            what = "ask no judges"
        elif reward.model is not None and (not is_of_run(reward.model.path) or reward.model.trust_remote_code):
            what = f"load no reward models but {RUN}NAME, what a run of theirs has trained"
        elif reward.monte_carlo is not None and reward.monte_carlo.continuations > self.continuations:
            what = f"sample at most {self.continuations} continuations, not {reward.monte_carlo.continuations}"
        if what is not None:
            raise RewardError(
                f"{reward.name}: visitors of this Space {what}; take a built-in function, or {REMEDY}",
                reward=reward.name,
            )

    def check_environment(self, environment: EnvironmentSection | None) -> None:
        """Raises ConfigError for an environment that brings code, and for longer episodes than by default."""
        if environment is None:
            return
        if environment.code is not None:
            raise ConfigError(
                "environment.code: visitors of this Space run no code of their own; take a built-in environment, or "
                f"{REMEDY}"
            )
        usual = EnvironmentSection()
        for name in ("max_turns", "max_observation_length"):
            self._most(f"environment.{name}", getattr(environment, name), getattr(usual, name))

    def check_values(self, continuations: int, outcome: RewardConfig) -> None:
        """Raises ConfigError or RewardError for values of steps that take more, or other code, than a visitor has."""
        self._most("continuations", continuations, self.continuations)
        self.check_reward(outcome)

    def check_run(self, config: RunConfig) -> None:
        """Raises ConfigError or RewardError for a run that is not a visitor's."""
        method = config.method
        self.check_policy("policy.path", config.policy.path)
        self.check_task(config.task)
        self.check_environment(config.environment)
        for reward in method.reward_functions:
            self.check_reward(reward)
            if reward.monte_carlo is not None:
                raise RewardError(
                    f"{reward.name}: a run of a visitor estimates no values at each step; switch it off, or {REMEDY}",
                    reward=reward.name,
                )
        if (sampling := getattr(method, "sampling", None)) is not None:
            self.check_sampling(sampling)
        self._most("run.steps", config.run.steps, self.steps)
        self._most("run.eval_prompts", config.run.eval_prompts, self.measured)
        self._most("the rows of a step", method.rows_per_step, self.rows)
        usual = RunConfig.parse({"method": {"name": method.name}})
        bounded = {"run.steps", "run.eval_prompts", "method.prompts_per_step", "method.batch_size", "origins"}
        self._check_leaves(config.model_dump(), usual.model_dump(), bounded)

    def _check_leaves(
        self, values: Mapping[str, Any], usual: Mapping[str, Any], bounded: frozenset[str] | set[str] = frozenset()
    ) -> None:
        """Raises ConfigError for the first value that is neither free nor as it is by default."""
        known = dict(_flat(usual))
        for path, value in _flat(values):
            free = path in FREE or path in bounded or path.startswith(FREE_PARTS)
            if not free and value != known.get(path):
                raise ConfigError(
                    f"{path}: for visitors of this Space it stays {shown(known.get(path))}, not {shown(value)}; leave "
                    f"it, or {REMEDY}"
                )

    @staticmethod
    def _most(field: str, value: int, most: int) -> None:
        if value > most:
            raise ConfigError(
                f"{field}: visitors of this Space have at most {most:,}, not {value:,}; lower it, or {REMEDY}"
            )


def about_limits(limits: Limits) -> str:
    """What the page says to visitors at its top."""
    return (
        f"You are visiting: built-in rewards, the embedded policy, runs of up to {limits.steps} steps. For your own "
        f"code, models and files, {REMEDY}."
    )


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def tokens_of(config: RunConfig) -> int:
    """The most tokens that a run samples, each completion at its full length: training, measures, watched prompts."""
    run, sampling = config.run, getattr(config.method, "sampling", SamplingConfig())
    completions = run.steps * config.method.rollouts_per_step
    if run.eval_every:
        completions += (run.steps // run.eval_every + 2) * run.eval_prompts
    completions += (run.steps // run.watch_every + 2) * run.watch_prompts * sampling.num_generations
    return completions * sampling.max_completion_length


class Visitors:
    """The visitors of a page: whose request it is, their folders, and what they have used. Safe from any thread.

    ``asking`` gives the visitor whose request is being answered, "" outside of any.
    """

    def __init__(self, root: Path, asking: Callable[[], str], limits: Limits = Limits()) -> None:
        self.limits, self._root, self._asking = limits, root / FOLDER, asking
        self._lock = threading.Lock()
        self._sampled: dict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self._seen: dict[str, float] = {}

    def workspace(self) -> Path:
        """The folder of the visitor who asks; nothing is made before something is written there."""
        visitor = self._asking()
        if not VISITOR.fullmatch(visitor):  # outside of any request, too: nothing is every visitor's
            raise WorkbenchError(f"{shown(visitor)} is no visitor; reload the page")
        self._note(visitor)
        return self._root / visitor

    def refuse(self, what: str) -> None:
        """Raises ConfigError: visitors do not do this at all."""
        raise ConfigError(f"visitors of this Space {what}; {REMEDY}")

    def left(self, *, now: float | None = None) -> int:
        """The tokens that the visitor may still sample."""
        now = time.monotonic() if now is None else now
        with self._lock:
            used = self._sampled[self._asking()]
            while used and used[0][0] <= now - HOUR:
                used.popleft()
            return self.limits.sampled_an_hour - sum(count for _, count in used)

    def spend(self, tokens: int, *, now: float | None = None) -> None:
        """Take tokens off what the visitor may sample in an hour. Raises ConfigError for more than is left."""
        now = time.monotonic() if now is None else now
        most, left = self.limits.sampled_an_hour, self.left(now=now)
        with self._lock:
            used, total = self._sampled[self._asking()], most - left
            if tokens > left or not left:
                wait = f"in {max(1, round((used[0][0] + HOUR - now) / 60))} min, " if used else ""
                raise ConfigError(
                    f"visitors of this Space sample at most {most:,} tokens an hour; this would be {tokens:,} beside "
                    f"the {total:,} so far: try again {wait}with fewer, or {REMEDY}"
                )
            used.append((now, tokens))

    def admit(self, config: RunConfig | None = None) -> None:
        """Let a run be started, or with None resumed. Raises WorkbenchError where it, or one more, is too much."""
        live = [_live(folder) for folder in self._folders()]
        if (count := _live(self.workspace())) >= self.limits.runs:
            raise ConfigError(
                f"visitors of this Space have {counted(self.limits.runs, 'run')} at a time, and {count} of yours is "
                f"not over; stop it or wait, or {REMEDY}"
            )
        if sum(live) >= self.limits.all_runs:
            raise ConfigError(f"{sum(live)} runs of visitors train or wait already; try again later, or {REMEDY}")
        if config is not None:
            self.limits.check_run(config)
            self.spend(tokens_of(config))

    def _note(self, visitor: str) -> None:
        now = time.monotonic()
        with self._lock:
            new = visitor not in self._seen
            self._seen[visitor] = now
        if new:
            self.sweep()

    def sweep(self, now: float | None = None) -> None:
        """Remove the folders of visitors who have done nothing for a day and have no run."""
        now = time.monotonic() if now is None else now
        with self._lock:
            gone = [visitor for visitor, seen in self._seen.items() if now - seen > KEPT_SECONDS]
            for visitor in gone:
                del self._seen[visitor]
                self._sampled.pop(visitor, None)
            known = set(self._seen)
        for folder in self._folders():
            old = folder.name in gone or time.time() - folder.stat().st_mtime > KEPT_SECONDS
            if folder.name not in known and old and not _live(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [folder for folder in self._root.iterdir() if folder.is_dir()]
        return []


class MeteredModels(ModelWorker):
    """A model worker that takes what it is asked to sample off what the visitor may."""

    def __init__(self, path_of: Callable[[str], str], visitors: Visitors) -> None:
        super().__init__(path_of)
        self._visitors = visitors

    def sample(self, policy: str, example: Example, sampling: SamplingConfig, **options: Any) -> Group | None:
        self._visitors.limits.check_environment(options.get("environment"))
        self._visitors.limits.check_sampling(sampling)
        self._visitors.spend(sampling.num_generations * sampling.max_completion_length)
        return super().sample(policy, example, sampling, **options)

    def step_values(
        self,
        policy: str,
        group: Group,
        pattern: StepPattern,
        outcome: RewardConfig,
        *,
        k: int = 8,
        on_event: OnEvent | None = None,
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> StepValues | None:
        """As many tokens as its steps take, which nobody knows before they are cut: it ends where none are left."""
        self._visitors.limits.check_values(k, outcome)
        self._visitors.spend(0)
        left, taken = self._visitors.left(), 0

        def count(event: dict[str, Any]) -> None:
            nonlocal taken
            taken = event.get("tokens", taken)
            if on_event is not None:
                on_event(event)

        def over() -> bool:
            return taken > left or (cancelled is not None and cancelled())

        try:
            return super().step_values(policy, group, pattern, outcome, k=k, on_event=count, cancelled=over, **options)
        finally:
            self._visitors.spend(min(taken, left))


def _live(workspace: Path) -> int:
    """Runs that are not over."""
    return sum(not run.summary().final for run in list_runs(workspace))
