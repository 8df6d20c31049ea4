"""Checks of a whole configuration before its run is queued: names, columns, code and devices.

A section checked itself when it was parsed (``config``). Checked here is what the page says at a field: a policy, task,
tracker or reward model that is not there, a column that no row has, code that does not load, a GPU that is not here.
The rows are looked at in the run's first second (``runs.entrypoint``); what transformers, PEFT and TRL refuse, they say
when it loads. The run shows either as its reason.
``launch.start`` is the one caller, so that page, command line and notebook refuse the same things. No torch is loaded;
code and patterns run in a sandbox, which ends here too.
"""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from workbench.assets import EMBEDDED
from workbench.config import Section
from workbench.data import HUB, TASKS, Task, load_task, tasks_kept
from workbench.data.read import parts_of
from workbench.errors import ConfigError, RewardError, TaskError, WorkbenchError, did_you_mean
from workbench.models.find import check_section, model_path
from workbench.places import absolute, hub_problem, local_path
from workbench.rewards import RewardConfig, Sandbox, find_builtin, load_reward
from workbench.rewards.environments import load_environment
from workbench.rewards.judges import key_of, rubric_columns, shared_judges
from workbench.rewards.others import answer_column
from workbench.rewards.protocol import columns_of
from workbench.runs import devices
from workbench.sandbox.client import DEADLINE
from workbench.steps import PRESETS, StepPattern
from workbench.training.methods import RunConfig

_ROWS = 1000  # of an embedded task, looked at for their columns


@tasks_kept()
def check_config(config: RunConfig) -> RunConfig:
    """Return the configuration with absolute paths, so that it means the same from any folder.

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

    attempt(lambda: devices.check_count(devices.pool(config.run.device), config.run.ranks))
    attempt(check_section, config.policy)
    problems += [
        ConfigError(f"run.report_to: {tracker} is not installed; pip install {tracker}")
        for tracker in config.run.report_to
        if find_spec(tracker) is None
    ]
    if config.engine.is_remote and find_spec("tinker") is None:
        problems.append(ConfigError("engine.kind: tinker is not installed; pip install 'workbench[tinker]'"))
    task = attempt(_task_of, config)
    if config.run.epochs is not None:
        attempt(_count_steps, config, task)
    if task is not None and config.run.eval_steps and task.can_check:
        attempt(config.run.measured, len(task.held_out))
    deadline = getattr(config.method, "reward_deadline", None)
    isolate = config.method.isolate_rewards
    with Sandbox(deadline or DEADLINE, isolate=isolate) as worker:  # started by its first call
        pattern: StepPattern | None = getattr(config.method, "pattern", None)
        if pattern not in (None, StepPattern(), *(preset.pattern for preset in PRESETS.values())):
            attempt(_check_pattern, pattern, worker)
        attempt(load_environment, config.environment, lambda: worker)
        columns: frozenset[str] | None = None
        if task is not None:  # an embedded task's rows are all alike
            rows = min(len(task), _ROWS) if task.name in TASKS else len(task)
            columns = frozenset(name for i in range(rows) for name in task[i].columns)
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


def with_model_paths(config: RunConfig, change: Callable[[Section, str], str]) -> RunConfig:
    """A copy in which every model's path is what ``change`` makes of it and its section: a policy's or a reward's.

    Raises ConfigError if an adapter is named twice then.
    """
    config = config.model_copy(deep=True)
    policy = config.policy
    policy.path = change(policy, policy.path)
    if policy.adapter is not None:
        policy.adapter = change(policy, policy.adapter)
    names = {name: change(policy, name) for name in policy.merge}
    for name, path in names.items():
        if [*names.values(), policy.adapter].count(path) > 1:
            raise ConfigError(f"policy.merge: {name!r} is {path!r}, which is named already; name it once")
    policy.merge = {names[name]: weight for name, weight in policy.merge.items()}
    for reward in config.method.reward_functions:
        if reward.model is not None:
            reward.model.path = change(reward.model, reward.model.path)
    return config


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return a copy in which what lies on this machine is named by its absolute path."""
    config = with_model_paths(config, lambda section, path: path if path in EMBEDDED else absolute(path))
    if config.task.name not in TASKS and not config.task.name.startswith(HUB):
        config.task.name = absolute(config.task.name)
    if config.task.data is not None:
        config.task.data = absolute(config.task.data)
    return config


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


def _task_of(config: RunConfig) -> Task | None:
    """Return the task, but of a data set of the Hub, which may be large, only that it is there."""
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


# -- code, in a worker ------------------------------------------------------------------------------------------------


def _check_pattern(pattern: StepPattern, worker: Sandbox) -> None:
    try:
        _ = pattern.numbers if pattern.by_tokens else worker.split([], pattern)
    except WorkbenchError as error:
        raise ConfigError(f"method.pattern: {error}") from error


def _check_reward(reward: RewardConfig, config: RunConfig, columns: frozenset[str] | None, worker: Sandbox) -> None:
    """Load it as the run would, and see that the task has the columns it reads; a model or judge is looked for."""
    needed: Iterable[str] = ()
    try:
        if reward.model is not None:
            where = model_path(reward.model.path)
            if local_path(where) is None and (problem := hub_problem(where, certain=True)):
                raise RewardError(problem)
        elif reward.judge is not None:
            key_of(reward.judge)
            shared_judges().reach(reward.judge)
            needed = rubric_columns(reward.judge.rubric)
    except RewardError as error:
        raise RewardError(f"reward {reward.name!r}: {error}", reward=reward.name) from error
    if reward.monte_carlo is not None:
        outcome = find_builtin(reward.monte_carlo.outcome)
        if outcome.kind != "outcome":
            raise ConfigError(f"reward {reward.name!r}: {outcome.name!r} scores steps; name an outcome reward")
        needed = outcome.columns
    elif reward.belief is not None:
        needed = () if reward.belief.of == "reference" else ("answer",)
    elif reward.model is None and reward.judge is None:
        loaded = load_reward(reward, worker)
        needed = columns_of(loaded.signature) if reward.code is not None else find_builtin(reward.name).columns
    missing = [] if columns is None else [name for name in needed if answer_column(name, columns) is None]
    if columns is not None and missing:
        raise ConfigError(
            f"reward {reward.name!r} needs the column {missing[0]!r}, which no row of task {config.task.name!r} has"
            f"{did_you_mean(missing[0], columns)}; its columns are {', '.join(sorted(columns)) or 'none'}: add it, or "
            "take another reward"
        )
