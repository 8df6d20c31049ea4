"""Checks of a whole configuration before its run is queued: files, columns, code, packages and devices it asks for.

What a section can tell of itself was checked when it was parsed (``sections``). What needs the policy's weights or a
GPU is seen when the run loads them. ``launch.start`` is the one caller, so that page, command line and notebook refuse
the same things in the same words. No torch is loaded; code and patterns run in a sealed worker, which ends here too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from workbench.config import JudgeConfig, ModelConfig, RewardConfig
from workbench.config.reading import MAX_BYTES
from workbench.config.run import RunConfig
from workbench.data import HUB, TASKS, Task, load_task, tasks_kept
from workbench.data.read import parts_of
from workbench.environments import load_environment
from workbench.errors import ConfigError, RewardError, TaskError, WorkbenchError, did_you_mean, shown
from workbench.packages import OPTIONAL, lacking
from workbench.places import absolute, hub_problem, local_path
from workbench.policies.embedded import EMBEDDED
from workbench.policies.find import chat_template, check_policy, has_chat_template
from workbench.policies.templates import check_template_kwargs
from workbench.rewards import RewardWorker, find_builtin, load_reward
from workbench.rewards.judges import key_of, reach, rubric_columns
from workbench.rewards.models.formats import check_bits, model_path
from workbench.rewards.protocol import columns_of
from workbench.runs import devices
from workbench.runs.check_weights import check_weights
from workbench.steps import PRESETS, StepPattern

TRACKERS = tuple(OPTIONAL["run.report_to"].values)
_REACHED_SECONDS = 3.0
_ROWS = 1000  # of an embedded task, looked at for their columns


@tasks_kept()
def checked(config: RunConfig, *, without_rows: bool = False) -> RunConfig:
    """The configuration with absolute paths, so that it means the same from any folder.

    ``without_rows``: the rows that it trains on are not there yet, and are not looked at.

    Raises the WorkbenchError of what would keep the run from working; ConfigError, with a line for each, for several.
    """
    config = with_absolute_paths(config)
    problems: list[WorkbenchError] = []

    def attempt(check: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except WorkbenchError as error:
            problems.append(error)
            return None

    attempt(_read_trl, config)
    attempt(_check_vllm_server, config)
    attempt(_check_size, config)
    attempt(_check_device, config)
    attempt(check_trackers, config.run.report_to)
    folder = attempt(_check_policy, config)
    attempt(check_weights, config, folder)
    task = attempt(_task_of, config)
    if task is not None or config.task.name.startswith(HUB):
        attempt(config.method.check_model if without_rows else config.method.check_files, config)
    if config.run.epochs is not None and not without_rows:
        attempt(_count_steps, config, task)
    if task is not None:
        attempt(_check_prompts, config, task, folder)
        if config.run.eval_every and task.can_check:
            attempt(config.run.measured, len(task.held_out))
    with _worker(config) as worker:
        attempt(_check_pattern, getattr(config.method, "pattern", None), worker)
        attempt(load_environment, config.environment, lambda: worker)
        columns = None if task is None else _columns(task)
        rewards = config.method.reward_functions
        # The rewards that a configuration has where nobody chose any need an answer in every row.
        chosen = {reward.name for reward in rewards} - {"step_correctness", "answer_correctness"}
        if task is not None and task.unchecked and columns and "answer" in columns and not chosen:
            problems.append(TaskError(f"{task.unchecked}; give every row one, or choose a reward that reads the rows"))
            rewards = []
        for reward in rewards:
            attempt(_check_reward, reward, config, columns, worker)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(map(str, problems))))
    return config


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """A copy in which what lies on this machine is named by its absolute path."""
    config = config.model_copy(deep=True)
    if config.policy.path not in EMBEDDED:
        config.policy.path = absolute(config.policy.path)
    if config.policy.adapter is not None:
        config.policy.adapter = absolute(config.policy.adapter)
    for merged in config.policy.merged_names:
        merged.path = absolute(merged.path)
    if config.task.name not in TASKS and not config.task.name.startswith(HUB):
        config.task.name = absolute(config.task.name)
    if config.task.data is not None:
        config.task.data = absolute(config.task.data)
    for reward in config.method.reward_functions:
        if reward.model is not None:
            reward.model.path = absolute(reward.model.path)
    return config


def _check_policy(config: RunConfig) -> Path | None:
    return check_policy(config.policy, merges=config.method.reward_format is not None)


def _check_size(config: RunConfig) -> None:
    if (size := len(config.to_yaml())) > MAX_BYTES:
        raise ConfigError(
            f"the configuration has {size:,} characters as YAML; the limit is {MAX_BYTES:,}: shorten its code and texts"
        )


def _read_trl(config: RunConfig) -> None:
    """Give what is passed on to TRL the types that it has there."""
    if config.method.trl:
        config.method.trl = config.method.trl_values()


def _check_vllm_server(config: RunConfig) -> None:
    """Whether anything listens where completions are to be sampled, for which TRL would wait for minutes."""
    trl = config.method.trl
    if not trl.get("use_vllm") or trl.get("vllm_mode") != "server":
        return
    host, port = trl.get("vllm_server_host", "0.0.0.0"), trl.get("vllm_server_port", 8000)  # TRL's own
    address = trl.get("vllm_server_base_url") or f"http://{host}:{port}"
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), _REACHED_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"method.trl.vllm_mode: no vLLM server answers at {address} ({error}); start one there with trl vllm-serve "
            f"--model {config.policy.path}, or set vllm_mode to colocate"
        ) from error


def _count_steps(config: RunConfig, task: Task | None) -> None:
    """Give a run that is told its epochs as many steps."""
    assert config.run.epochs is not None
    if task is None and config.task.data is None:
        raise ConfigError(
            "run.epochs: the rows of a data set of the Hub are counted when the run reads them; set run.steps"
        )
    steps = config.method.steps_of_epochs(config, config.run.epochs)
    try:
        config.run.steps = steps
    except ValidationError as error:
        raise ConfigError(
            f"run.epochs: {config.run.epochs:g} epochs of this data are {steps:,} steps and the most are 1,000,000; "
            "lower it"
        ) from error


def _check_device(config: RunConfig) -> None:
    devices.check_count(devices.pool(config.run.device), config.run.ranks)


def check_trackers(names: Sequence[str]) -> None:
    """Raises ConfigError for a tracker whose package is not installed."""
    for tracker in names:
        if problem := lacking("run.report_to", tracker):
            raise ConfigError(problem)


def _task_of(config: RunConfig) -> Task | None:
    """The task, but of a data set of the Hub, which may be large, only that it is there."""
    name = config.task.name
    try:
        if not name.startswith(HUB):
            return load_task(config.task)
        repository, _, _ = parts_of(name)
    except TaskError as error:
        field = "" if str(error).startswith("task.") else "task.name: "
        raise TaskError(f"{field}{error}") from error
    if local_path(repository) is None and (problem := hub_problem(repository, kind="dataset")):
        raise TaskError(f"task.name: {problem}")
    return None


def _columns(task: Task) -> frozenset[str]:
    return frozenset(name for i in range(_looked_at(task)) for name in task[i].columns)


def _looked_at(task: Task) -> int:
    """How many rows are: all of a file, of an embedded task some of what are all alike."""
    return min(len(task), _ROWS) if task.name in TASKS else len(task)


def _check_prompts(config: RunConfig, task: Task, folder: Path | None) -> None:
    """Raises ConfigError for conversations with a policy that has no template for them, PolicyError for arguments that
    its template does not read."""
    if folder is None:
        return
    section, lacks = config.prompt, f"{config.policy.path!r} has no chat template"
    if has_chat_template(folder):
        check_template_kwargs(chat_template(folder), section.template_kwargs)
        return
    for name in ("system", "template_kwargs"):
        if getattr(section, name):
            raise ConfigError(f"prompt.{name}: {lacks} to put it in; leave it out, or take a policy trained on chats")
    talks = next((i for i in range(_looked_at(task)) if not isinstance(section.of(task[i].prompt), str)), None)
    if section.apply_template == "always" and talks is not None:
        raise ConfigError(f"prompt.apply_template: {lacks} that could always be applied; set it to auto or never")
    if talks is not None:
        raise ConfigError(
            f"policy.path: {lacks}, and the prompt of row {talks + 1} of {config.task.name!r} is a conversation; give "
            "prompts as text, set prompt.apply_template to never, or take a policy trained on conversations"
        )


# -- code, in a worker ------------------------------------------------------------------------------------------------


@contextmanager
def _worker(config: RunConfig) -> Iterator[RewardWorker]:
    """A reward worker with the run's own deadline; its process is started by the first call."""
    deadline = getattr(config.method, "reward_deadline", None)
    with RewardWorker() if deadline is None else RewardWorker(deadline) as worker:
        yield worker


def _check_pattern(pattern: StepPattern | None, worker: RewardWorker) -> None:
    if pattern is None or pattern in (StepPattern(), *(preset.pattern for preset in PRESETS.values())):
        return
    try:
        _ = pattern.numbers if pattern.by_tokens else worker.split([], pattern)
    except WorkbenchError as error:
        raise ConfigError(f"method.pattern: {error}") from error


def _check_reward(
    reward: RewardConfig, config: RunConfig, columns: frozenset[str] | None, worker: RewardWorker
) -> None:
    """Load it as the run would, and see that the task has the columns it reads; a model is only looked for."""
    if reward.model is not None:
        _check_model(reward.name, reward.model)
        return
    needed: Iterable[str]
    if reward.judge is not None:
        _check_judge(reward.name, reward.judge)
        needed = rubric_columns(reward.judge.rubric)
    elif reward.monte_carlo is not None:
        outcome = find_builtin(reward.monte_carlo.outcome)
        if outcome.kind != "outcome":
            raise ConfigError(f"reward {reward.name!r}: {outcome.name!r} scores steps; name an outcome reward")
        needed = outcome.columns
    else:
        loaded = load_reward(reward, worker)
        needed = columns_of(loaded.signature) if reward.code is not None else find_builtin(reward.name).columns
    missing = [] if columns is None else [name for name in needed if name not in columns]
    if columns is not None and missing:
        raise ConfigError(
            f"reward {reward.name!r} needs the column {missing[0]!r}, which no row of task {config.task.name!r} has"
            f"{did_you_mean(missing[0], columns)}; its columns are {', '.join(sorted(columns)) or 'none'}: add it, or "
            "take another reward"
        )


def _check_judge(name: str, judge: JudgeConfig) -> None:
    """Whether its key is in the environment, and anything listens at its endpoint."""
    try:
        key_of(judge)
        reach(judge)
    except RewardError as error:
        raise RewardError(f"reward {name!r}: {error}", reward=name) from error


def _check_model(name: str, model: ModelConfig) -> None:
    check_bits(model)
    where = model_path(model.path)
    folder = local_path(where)
    problem = hub_problem(where, certain=True) if folder is None else None
    if folder is not None and not any(folder.glob("*.safetensors")):
        problem = f"folder {shown(model.path)} holds no weights as safetensors; save the model there again"
    if problem is not None:
        raise RewardError(f"reward {name!r}: {problem}")
