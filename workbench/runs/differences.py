"""In which settings configurations differ, and what each is called beside the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypedDict

from workbench.training.methods import RunConfig

FEW_FIELDS = 4
"""Fields that a configuration's label names, as long as they tell all of them apart."""
APART = ("name", "seed")
"""What two runs of one configuration may differ in."""
MISSING = "–"
_REWARDS = "method.rewards."


class Difference(TypedDict):
    """A field of the configuration, with one value a run."""

    field: str
    values: list[str]


def configuration_key(config: RunConfig) -> str:
    """Equal for runs that are seeds of one configuration."""
    dump = {name: value for name, value in config.model_dump(mode="json").items() if name not in APART}
    return hashlib.sha256(json.dumps(dump, sort_keys=True).encode()).hexdigest()


def configuration_labels(configs: Sequence[RunConfig]) -> list[str]:
    """What each configuration is called beside the others: the fields they differ in, or its credit scheme if alone."""
    if len(configs) == 1:
        return [configs[0].method.label]
    every = dict.fromkeys(name for config in configs for name in _reward_names(config))
    not_in_all = [name for name in every if any(name not in _reward_names(config) for config in configs)]
    methods = [config.method.name.upper() for config in configs]
    said = {"method.name": methods} if len(set(methods)) > 1 else {}  # what differs → how each configuration says it
    for row in differences(dict(zip(map(str, range(len(configs))), configs, strict=True))):
        field, values = row["field"], row["values"]
        reward = next((name for name in not_in_all if field.startswith(f"{_REWARDS}{name}.")), None)
        if reward is not None:
            said[f"{_REWARDS}{reward}"] = [
                f"{'with' if reward in _reward_names(config) else 'without'} {reward}" for config in configs
            ]
        elif field not in ("seed", "method.name") and MISSING not in values:
            said[field] = [f"{value} steps" if field == "run.steps" else f"{_short(field)} {value}" for value in values]
    parts = list(said.values())
    few = 2 if "method.name" in said else FEW_FIELDS  # methods differ in most of their fields
    apart = (n for n in range(few, len(parts)) if len(set(zip(*parts[:n], strict=True))) == len(configs))
    count = next(apart, len(parts))
    return [" · ".join(part[i] for part in parts[:count]) or config.method.label for i, config in enumerate(configs)]


def _reward_names(config: RunConfig) -> list[str]:
    return [reward.name for reward in config.method.reward_functions]


def _short(field: str) -> str:
    """A field's own name; with the function of a reward; of ``task.name`` and ``policy.path`` the section."""
    if field.startswith(_REWARDS):
        return field.removeprefix(_REWARDS).replace(".", " ")
    section, _, name = field.rpartition(".")
    return section if field in ("task.name", "policy.path") else name


def differences(configs: Mapping[str, RunConfig]) -> list[Difference]:
    """The fields in which configurations differ, but their names: each with one value a configuration, as text."""
    flat = [config.flat() for config in configs.values()]
    fields = dict.fromkeys(name for settings in flat for name in settings)
    rows: list[Difference] = [
        {"field": name, "values": [settings.get(name, MISSING) for settings in flat]}
        for name in fields
        if name != "name"
    ]
    return [row for row in rows if len(set(row["values"])) > 1]
