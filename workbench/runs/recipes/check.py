"""What a recipe needs and this machine does not have, said before any of its stages is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.config import RunConfig
from workbench.errors import ConfigError, WorkbenchError
from workbench.places import hub_problem, is_hub_id, is_of_run, local_path
from workbench.policies.embedded import EMBEDDED
from workbench.runs import devices
from workbench.runs.check import checked
from workbench.runs.pipelines.check import check_plan
from workbench.runs.pipelines.plan import Plan
from workbench.tasks import HUB
from workbench.tasks.hub import parts_of


def check_recipe(name: str, what: Plan | RunConfig, workspace: Path, *, reduced: bool = False) -> None:
    """Raises ConfigError with a line for everything that keeps a recipe's run, or runs, from working here.

    Beyond the check of any run, GPUs and what is on the Hub are looked for: a recipe is written for them.
    """
    configs = (
        [("", what)]
        if isinstance(what, RunConfig)
        else [(f"stage {stage.name}: ", stage.config) for stage in what.stages if stage.config is not None]
    )
    problems = [f"{prefix}{problem}" for prefix, config in configs for problem in _lacking(config)]
    try:
        if isinstance(what, RunConfig):
            checked(what)
        else:
            check_plan(what, workspace)
    except WorkbenchError as error:
        problems += str(error).splitlines()
    if problems:
        here = () if reduced else (f"to try its code here, on tiny models: train recipe:{name} --reduced",)
        raise ConfigError("\n".join(dict.fromkeys([*problems, *here])))


def _lacking(config: RunConfig) -> Iterator[str]:
    dtype = config.policy.dtype
    if dtype in ("bfloat16", "float16") and devices.pool(config.run.device) == ["cpu"]:
        yield (
            f"policy.dtype: {dtype!r} is meant for a GPU, and this run would train on the CPU; run it where there is a "
            "GPU, or set policy.dtype to float32"
        )
    policy = config.policy.path
    if _is_of_the_hub(policy) and (problem := hub_problem(policy, certain=True)):
        yield problem
    if config.task.name.startswith(HUB):
        repository, _, _ = parts_of(config.task.name)
        if local_path(repository) is None and (problem := hub_problem(repository, kind="dataset", certain=True)):
            yield f"task.name: {problem}"
    for reward in config.method.reward_functions:
        path = None if reward.model is None else reward.model.path
        if path is not None and _is_of_the_hub(path) and (problem := hub_problem(path, certain=True)):
            yield f"reward {reward.name!r}: {problem}"


def _is_of_the_hub(name: str) -> bool:
    return name not in EMBEDDED and not is_of_run(name) and local_path(name) is None and is_hub_id(name)
