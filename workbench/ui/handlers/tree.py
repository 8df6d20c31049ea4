"""The tree of a draft: a ``RunConfig``'s but for the method, of which it holds the settings of every one.

It knows neither the fields of the page nor rewards and credit, which a draft holds beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from workbench.config import SamplingConfig
from workbench.config.run import METHODS, RunConfig
from workbench.steps import StepPattern
from workbench.ui.handlers.fields import FIRST, LORA_RANK, own_defaults, shared_settings, takes

TABLES = ("prompt.template_kwargs", "policy.merge", *(f"{name}.trl" for name in METHODS))
"""Paths of values by name that one field holds."""


def get(tree: Mapping[str, Any], path: str) -> Any:
    """A value of a tree by its dotted path. Raises KeyError."""
    for name in path.split("."):
        if not isinstance(tree, Mapping):
            raise KeyError(path)
        tree = tree[name]
    return tree


def with_path(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a tree with one value set."""
    name, _, inner = path.partition(".")
    return {**tree, name: with_path(tree.get(name) or {}, inner, value) if inner else value}


def configuration(tree: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """A draft's tree as that of a ``RunConfig`` of the method chosen, or of ``name``; without credit and rewards."""
    inspected = tree["method"]
    name = name or inspected["name"]
    method = {**tree[name], **{part: value for part, value in inspected.items() if takes(name, part)}, "name": name}
    task = tree["task"]
    if METHODS[name].section.kind is None:  # which takes no rows
        task = {**task, "data": None, "data_columns": ""}
    policy = tree["policy"] if get(tree, LORA_RANK) is not None else {**tree["policy"], "lora": None}
    shared = {part: value for part, value in tree.items() if part not in METHODS}
    return shared | {"policy": policy, "method": method, "task": task}


@cache
def default_tree() -> Mapping[str, Any]:
    """Every setting as it is by default, of every method."""
    inspected: dict[str, Any] = {
        "name": FIRST,
        "pattern": asdict(StepPattern()),
        "sampling": SamplingConfig().model_dump(),
        "isolate_rewards": False,
    }
    return {**shared_settings(RunConfig()), "method": inspected, **{name: own_defaults(name) for name in METHODS}}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted path; what one field holds is one value."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in TABLES:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None where there is none."""
    try:
        return get(tree, path)
    except KeyError:
        return None
