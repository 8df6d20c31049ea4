"""Policies: loading them, sampling groups from them, and how the embedded one was made.

The package itself imports no torch, so that the page may ask where the embedded files lie; names resolve when used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.policies.load import Policy, load_policy
    from workbench.policies.monte_carlo import step_values
    from workbench.policies.reference import with_reference
    from workbench.policies.sampler import sample_group

__all__ = ["Policy", "load_policy", "sample_group", "step_values", "with_reference"]

_HOMES = {
    "Policy": "load",
    "load_policy": "load",
    "sample_group": "sampler",
    "step_values": "monte_carlo",
    "with_reference": "reference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"workbench.policies.{_HOMES[name]}"), name)
