"""What a task brings to a configuration that leaves it open: pattern, rewards, length, environment, policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from typing import Any

from workbench.config import RewardConfig, TaskSection
from workbench.errors import ConfigError
from workbench.training.methods import METHODS


def method_of(data: Mapping[str, Any]) -> str:
    """The training method of a configuration that is not parsed yet."""
    method = data.get("method")
    return str(method.get("name", "grpo")) if isinstance(method, Mapping) else "grpo"


def fill_from_task(data: dict[str, Any]) -> None:
    """A task other than the default one brings what is not given: pattern, rewards, length, environment, policy."""
    section = data.get("task")
    name = section.get("name") if isinstance(section, Mapping) else None
    method = METHODS.get(method_of(data))
    if not isinstance(name, str) or name == TaskSection().name or method is None:
        return
    from workbench.data import TASKS, load_task

    fields = method.section.model_fields
    asks = name in TASKS and not {"environment", "policy"} <= data.keys()  # no other task has them
    if not asks and not _leaves_open(data.get("method"), fields):
        return  # rows of the Hub, say, are not read for nothing
    try:
        read = TaskSection.parse(section)
    except ConfigError:
        return  # said by whoever parses the whole
    task = load_task(read)
    if task.environment is not None:
        environment = data.setdefault("environment", {})
        if isinstance(environment, dict):
            environment.setdefault("name", task.environment)
    if task.policy is not None:
        policy = data.setdefault("policy", {})
        if isinstance(policy, dict):
            policy.setdefault("path", task.policy)
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
        if isinstance(credit, dict):
            credit.setdefault("scheme", task.scheme if task.rewards else "outcome")
    if "sampling" in fields:
        sampling = settings.setdefault("sampling", {})
        if isinstance(sampling, dict):
            sampling.setdefault("max_completion_length", task.max_completion_length)


def _leaves_open(settings: Any, fields: Container[str]) -> bool:
    """Whether a method's settings lack anything of what a task may bring."""
    settings = settings if isinstance(settings, Mapping) else {}

    def has(section: str, name: str) -> bool:
        return isinstance(inner := settings.get(section), Mapping) and name in inner

    brought = {
        "pattern": has("pattern", "regex") and has("pattern", "kind"),
        "rewards": "rewards" in settings,
        "sampling": has("sampling", "max_completion_length"),
    }
    return any(section in fields and not is_set for section, is_set in brought.items())
