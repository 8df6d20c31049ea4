"""A workbench for process-supervised GRPO: split answers into steps, score each, see and train on the token advantages.

``import workbench as wb`` costs nothing: every name below is loaded when it is first used, so that neither torch nor
gradio nor pandas is imported before something needs it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.checks.preflight import preflight
    from workbench.checks.probes import probe
    from workbench.config import RunConfig
    from workbench.credit import assign_credit, compare_credits, credit_group
    from workbench.display import Progress, RunComparison, compare, open_in_page, show
    from workbench.figures import heatmap
    from workbench.policies import load_policy, sample_group
    from workbench.policies.monte_carlo import step_values
    from workbench.policies.reference import with_reference
    from workbench.rewards import Reward, score_group
    from workbench.rewards.check import check_reward
    from workbench.rollouts import group_of, load_groups
    from workbench.runs import list_runs, open_run, train
    from workbench.schema import Credit, Example, Group, Rollout, ScoredGroup, Step, StepScores
    from workbench.steps import StepPattern, align_steps, split_steps, token_texts
    from workbench.tasks import load_task

__all__ = [
    "Credit",
    "Example",
    "Group",
    "Progress",
    "Reward",
    "Rollout",
    "RunComparison",
    "RunConfig",
    "ScoredGroup",
    "Step",
    "StepPattern",
    "StepScores",
    "align_steps",
    "assign_credit",
    "check_reward",
    "compare",
    "compare_credits",
    "credit_group",
    "group_of",
    "heatmap",
    "list_runs",
    "load_groups",
    "load_policy",
    "load_task",
    "open_in_page",
    "open_run",
    "preflight",
    "probe",
    "sample_group",
    "score_group",
    "show",
    "split_steps",
    "step_values",
    "token_texts",
    "train",
    "with_reference",
]

_MODULES = {
    "workbench.config": ("RunConfig",),
    "workbench.checks.preflight": ("preflight",),
    "workbench.checks.probes": ("probe",),
    "workbench.credit": ("assign_credit", "compare_credits", "credit_group"),
    "workbench.display": ("Progress", "RunComparison", "compare", "open_in_page", "show"),
    "workbench.figures": ("heatmap",),
    "workbench.policies": ("load_policy", "sample_group"),
    "workbench.policies.monte_carlo": ("step_values",),
    "workbench.policies.reference": ("with_reference",),
    "workbench.rewards": ("Reward", "score_group"),
    "workbench.rewards.check": ("check_reward",),
    "workbench.rollouts": ("group_of", "load_groups"),
    "workbench.runs": ("list_runs", "open_run", "train"),
    "workbench.schema": ("Credit", "Example", "Group", "Rollout", "ScoredGroup", "Step", "StepScores"),
    "workbench.steps": ("StepPattern", "align_steps", "split_steps", "token_texts"),
    "workbench.tasks": ("load_task",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext workbench``; where IPython runs already, importing the package does the same."""
    import_module("workbench.display").register(shell)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
