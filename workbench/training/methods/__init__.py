"""The training methods, and the configuration of a run, which has one of them. Light: it loads neither torch nor trl.

A method is a module here that names its ``METHOD``. ``RunConfig`` is YAML, command line and form at once: what every
run shares and the section of one method. A task may bring what a configuration leaves open (``fill_from_task``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, Tag, model_validator

from workbench.config import MethodSection, SharedConfig, TaskSection
from workbench.config.reading import read_text, read_yaml
from workbench.data import TASKS, load_task
from workbench.errors import ConfigError, TaskError
from workbench.rewards.source import RewardConfig
from workbench.training.methods import base, grpo
from workbench.training.methods.base import Method, SampledSection
from workbench.training.methods.grpo import GRPOSection

__all__ = ["METHODS", "Method", "RunConfig"]

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name != "base"]
METHODS: dict[str, Method] = {
    method.name: method for method in sorted((module.METHOD for module in _MODULES), key=lambda method: method.order)
}
"""Every method by name, in their order; the first is the default."""

if TYPE_CHECKING:
    AnyMethod = MethodSection
else:
    _SECTIONS = tuple(Annotated[method.section, Tag(name)] for name, method in METHODS.items())
    AnyMethod = Annotated[
        Union[_SECTIONS],  # noqa: UP007
        Discriminator(lambda method: method.get("name") if isinstance(method, dict) else getattr(method, "name", None)),
    ]


class RunConfig(SharedConfig):
    """Everything a run is made of; a run's ``run.yaml`` is this, whole."""

    method: AnyMethod = Field(default_factory=GRPOSection)
    """The training method, by ``name``, with its settings."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_method(cls, data: Any) -> Any:
        """Take a method given as text for its name; settings without a name are GRPO's."""
        if not isinstance(data, Mapping):
            return data
        method = data.get("method", {})
        if isinstance(method, str):
            return {**data, "method": {"name": method}}
        return {**data, "method": {"name": "grpo", **method}} if isinstance(method, Mapping) else data

    @property
    def grpo(self) -> GRPOSection:
        """The method's section where it is GRPO. Raises ConfigError for another method."""
        return grpo.section_of(self)

    @property
    def sampling_section(self) -> SampledSection:
        """The method's section where it samples completions. Raises ConfigError for a method on stored rows."""
        return base.section_of(self)

    @classmethod
    def from_yaml(cls, text: str) -> RunConfig:
        """Parse a configuration. Raises ConfigError, with a line for every field that does not fit."""
        data = read_yaml(text, "the configuration")
        return cls.parse(data if data is not None else {})

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a file. Raises ConfigError as ``from_yaml`` does, and for a file that cannot be read."""
        return cls.from_yaml(read_text(path, str(path)))


def filled_from_task(config: RunConfig) -> RunConfig:
    """Return a configuration with what its task brings and it leaves open; as it is if the task cannot be read."""
    data = config.model_dump(exclude_unset=True)
    try:
        fill_from_task(data)
    except TaskError:
        return config  # said by the checks of a start, and where the task is shown
    return RunConfig.parse(data)


def fill_from_task(data: dict[str, Any]) -> None:
    """A task other than the default one brings what is not given: pattern, rewards, length, environment, policy."""
    section = data.get("task")
    name = section.get("name") if isinstance(section, Mapping) else None
    asked = data.get("method")
    method = METHODS.get(str(asked.get("name", "grpo")) if isinstance(asked, Mapping) else "grpo")
    if not isinstance(name, str) or name == TaskSection().name or method is None:
        return

    fields = method.section.model_fields
    asks = name in TASKS and not {"environment", "policy"} <= data.keys()  # no other task has them
    if not asks and not _leaves_open(asked, fields):
        return  # rows of the Hub, say, are not read for nothing
    try:
        read = TaskSection.parse(section)
    except ConfigError:
        return  # said by whoever parses the whole
    task = load_task(read)
    if task.environment is not None:
        _offer(data, "environment", "name", task.environment)
    if task.policy is not None:
        _offer(data, "policy", "path", task.policy)
    settings = data.setdefault("method", {"name": method.name})
    if "pattern" in fields:
        pattern = settings.setdefault("pattern", {})
        if isinstance(pattern, dict) and "regex" not in pattern:  # a regex of one's own comes with its own kind
            settings["pattern"] = dataclasses.asdict(task.pattern) | pattern
    if "rewards" in fields and "rewards" not in settings:
        # Without answers this one is refused when a run starts, by the row that lacks one.
        rewards = task.rewards or (RewardConfig(name="answer_correctness", kind="outcome"),)
        settings["rewards"] = [reward.model_dump() for reward in rewards]
        credit = settings.setdefault("credit", {})
        if isinstance(credit, dict) and "scheme" not in credit:
            scheme = task.scheme if task.rewards else "outcome"
            settings["credit"] = {"scheme": scheme, "outcome_weight": task.outcome_weight} | credit
    if "sampling" in fields:
        _offer(settings, "sampling", "max_completion_length", task.max_completion_length)


def _offer(data: dict[str, Any], section: str, name: str, value: Any) -> None:
    """Set a section's field unless it is set, or the section is no mapping."""
    inner = data.setdefault(section, {})
    if isinstance(inner, dict):
        inner.setdefault(name, value)


def _leaves_open(settings: Any, fields: Container[str]) -> bool:
    """Return whether a method's settings lack anything that a task may bring."""
    settings = settings if isinstance(settings, Mapping) else {}

    def has(section: str, name: str) -> bool:
        return isinstance(inner := settings.get(section), Mapping) and name in inner

    brought = {
        "pattern": has("pattern", "regex") and has("pattern", "kind"),
        "rewards": "rewards" in settings,
        "sampling": has("sampling", "max_completion_length"),
    }
    return any(section in fields and not is_set for section, is_set in brought.items())


SHORTHAND = {"policy": "path", "task": "name", "environment": "name", "engine": "kind", "method": "name"}
"""Sections that may be given as one string, and the field that the string is."""
