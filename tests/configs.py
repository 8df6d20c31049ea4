"""Configurations of short runs, changed as a test needs."""

from collections.abc import Mapping
from typing import Any

from workbench.cli import runs
from workbench.cli.arguments import read_arguments
from workbench.training.methods import RunConfig


def config_of(*flags: str) -> RunConfig:
    """Return the configuration that ``train`` makes of flags."""
    config: RunConfig = read_arguments("train", runs.train, flags)["settings"].read()
    return config


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``changes``, section by section."""
    both = {
        name: merged(base[name], changes[name])
        for name in base.keys() & changes
        if isinstance(base[name], Mapping) and isinstance(changes[name], Mapping)
    }
    return {**base, **changes, **both}


def short_run(**changes: Any) -> RunConfig:
    """Return a run of a few seconds: 2 prompts, G = 4, two steps."""
    base = {
        "run": {"steps": 2, "eval_steps": 0, "device": "cpu"},
        "optimiser": {"warmup_steps": 0},
        "method": {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 112}},
    }
    return RunConfig.parse(merged(base, changes))
