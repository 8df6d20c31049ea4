"""Rewards named by flags: built in, in files, models, judges, with their options and schedules.

They go through as text and plain data; the configuration's sections parse and refuse them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.config import ModelFormat, Reduction
from workbench.config.reading import read_text, read_yaml
from workbench.config.rewards import read_schedule
from workbench.errors import ConfigError, RewardCodeError, cut
from workbench.places import is_of_run
from workbench.rewards import find_builtin
from workbench.rewards.models.formats import guess_format
from workbench.rewards.source import reward_functions, reward_in_file
from workbench.sandbox.client import shared_sandbox
from workbench.training.methods import RunConfig


def read_rewards(options: Mapping[str, Any], workspace: Path | None) -> list[dict[str, Any]]:
    """Return the settings of every reward that a flag names. Raises ConfigError."""
    read_model = partial(_from_model, form=options.get("format"), reduce=options.get("reduce"), workspace=workspace)
    readers: dict[str, Callable[[str], dict[str, Any]]] = {
        "reward": _built_in,
        "reward_file": _from_file,
        "judge": _judge,
        "reward_model": read_model,
    }
    return [read(text) for flag, read in readers.items() for text in options.get(flag, [])]


def rewards_of_word(text: str) -> list[dict[str, Any]]:
    """Return the reward that a word names: a built-in, or a file's function, or all that a file of several defines."""
    path = Path(text)
    if path.suffix == ".py" and len(names := reward_functions(read_text(path, text))) > 1:
        return [_from_file(f"{text}::{name}") for name in names]
    return [_built_in(text)]


def set_sandbox(deadline: float, *, isolate: bool = False) -> None:
    """Give code of rewards so many seconds for a call, and isolate it or not."""

    shared_sandbox().deadline = deadline
    shared_sandbox().set_isolated(isolate)


def set_reward_options(data: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rewards of ``data`` with the options and schedules that flags set, as far as flags set any.

    Raises ConfigError for a reward that is not there.
    """
    assignments, schedules = options.get("reward_option", []), options.get("reward_schedule", [])
    if not assignments and not schedules:
        return {}
    rewards = [reward.model_dump() for reward in RunConfig.parse(data).method.reward_functions]
    for text in assignments:
        place, _, value = text.partition("=")
        name, _, option = place.rpartition(".")
        named = _find_reward(rewards, name, f"--reward-option {text}")
        try:
            named["options"] |= {option: find_builtin(name).option_of_text(option, value)}
        except RewardCodeError as error:
            raise ConfigError(f"--reward-option {text}: {error}") from error
    for text in schedules:
        name, _, points = text.partition("=")
        named = _find_reward(rewards, name, f"--reward-schedule {text}")
        try:
            named["schedule"] = read_schedule(points)
        except ValueError as error:
            raise ConfigError(f"--reward-schedule {cut(text, 300)}: {error}") from error
    return {"method": {"rewards": rewards}}


def _find_reward(rewards: Sequence[dict[str, Any]], name: str, flag: str) -> dict[str, Any]:
    named = {reward["name"]: reward for reward in rewards}
    if name not in named:
        there = ", ".join(named) or "none"
        raise ConfigError(f"{flag}: no reward {name!r} in this run; its rewards are {there}")
    return named[name]


def _built_in(text: str) -> dict[str, Any]:
    if ".py" in text:
        return _from_file(text)
    name, _, kind, weight = _parts(text)
    try:
        builtin = find_builtin(name)
    except RewardCodeError as error:
        raise ConfigError(f"--reward {text}: {error}") from error
    return {"name": builtin.name, "kind": kind or builtin.kind, "weight": weight}


def _from_file(text: str) -> dict[str, Any]:
    path, function, kind, weight = _parts(text)
    reward = reward_in_file(f"{path}::{function}" if function else path)
    return reward | {"weight": weight} | ({"kind": kind} if kind else {})


def _judge(text: str) -> dict[str, Any]:
    name, _, kind, weight = _parts(text)
    what = f"--judge {cut(name, 300)}"
    settings = read_yaml(read_text(Path(name), what), what)
    return {"name": Path(name).stem, "kind": kind or "step", "weight": weight, "judge": settings}


def _from_model(
    text: str, form: ModelFormat | None, reduce: Reduction | None, workspace: Path | None
) -> dict[str, Any]:
    path, _, weight = text.partition(",")
    form = form or guess_format(str(runs.find_checkpoint(path, workspace)) if is_of_run(path) else path)
    model: dict[str, Any] = {"path": path, "format": form} | ({"reduce": reduce} if reduce else {})
    kind = "outcome" if form == "classifier" or reduce else "step"
    return {"name": Path(path).name.removeprefix("run:"), "kind": kind, "weight": weight or "1.0", "model": model}


_REWARD = re.compile(r"((?:trl:)?[^:]*)(?:::([^\W\d]\w*))?(?::([^:]*))?(?::(.*))?", re.DOTALL)
"""``NAME[::FUNCTION][:KIND[:WEIGHT]]``; the colon in the name of a reward of TRL is part of it."""


def _parts(text: str) -> tuple[str, str, str, str]:
    """Return name, function, kind and weight."""
    match = _REWARD.fullmatch(text)
    assert match is not None  # whatever the text
    name, function, kind, weight = match.groups(default="")
    return name, function, kind, weight or "1.0"
