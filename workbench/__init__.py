"""A workbench for process-supervised GRPO: split answers into steps, score each, see and train on the token advantages.

``import workbench as wb`` costs nothing: every name below is loaded when it is first used, so that neither torch nor
gradio nor pandas is imported before something needs it.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.checks.preflight import preflight
    from workbench.checks.probes import probe
    from workbench.checks.reward_check import check_reward
    from workbench.credit import assign_credit, compare_credits, credit_group
    from workbench.data import group_of, load_groups, load_task
    from workbench.policies.belief import beliefs, with_importances
    from workbench.policies.load import load_policy
    from workbench.policies.monte_carlo import step_values
    from workbench.policies.sampler import sample_group, with_reference
    from workbench.rewards import Reward, score_both, score_group
    from workbench.runs import (
        default_workspace,
        label_steps,
        make_demonstrations,
        make_pairs,
        mix_rows,
    )
    from workbench.schema import Credit, Example, Group, Rollout, ScoredGroup, Step, StepScores
    from workbench.steps import StepPattern, align_steps, split_steps, token_texts
    from workbench.training.methods import RunConfig
    from workbench.views import show
    from workbench.views.heatmap import heatmap
    from workbench.views.notebook import (
        Progress,
        RunComparison,
        compare,
        list_runs,
        open_in_page,
        open_run,
        train,
        train_to_end,
        watch,
    )

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
    "beliefs",
    "check_reward",
    "compare",
    "compare_credits",
    "credit_group",
    "default_workspace",
    "group_of",
    "heatmap",
    "label_steps",
    "list_runs",
    "load_groups",
    "load_policy",
    "load_task",
    "make_demonstrations",
    "make_pairs",
    "mix_rows",
    "open_in_page",
    "open_run",
    "preflight",
    "probe",
    "sample_group",
    "score_both",
    "score_group",
    "show",
    "split_steps",
    "step_values",
    "token_texts",
    "train",
    "train_to_end",
    "watch",
    "with_importances",
    "with_reference",
]

# OpenMP reads these when torch is loaded: its threads (GNU's on Linux, LLVM's elsewhere) may wait for each other only
# briefly in a loop. As they do by default, a step takes ten times as long once anything else uses the machine.
# cuDNN's attention plans anew for each length on a Hopper GPU, and a sampled answer has a new length at every token.
for _name, _value in {
    "GOMP_SPINCOUNT": "1000",
    "KMP_BLOCKTIME": "1",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",
}.items():
    os.environ.setdefault(_name, _value)

_MODULES = {
    "workbench.training.methods": ("RunConfig",),
    "workbench.checks.preflight": ("preflight",),
    "workbench.checks.probes": ("probe",),
    "workbench.credit": ("assign_credit", "compare_credits", "credit_group"),
    "workbench.views": ("show",),
    "workbench.views.heatmap": ("heatmap",),
    "workbench.views.notebook": (
        *("Progress", "RunComparison", "compare", "list_runs", "open_in_page", "open_run", "train", "train_to_end"),
        "watch",
    ),
    "workbench.policies.belief": ("beliefs", "with_importances"),
    "workbench.policies.load": ("load_policy",),
    "workbench.policies.monte_carlo": ("step_values",),
    "workbench.policies.sampler": ("sample_group", "with_reference"),
    "workbench.rewards": ("Reward", "score_both", "score_group"),
    "workbench.checks.reward_check": ("check_reward",),
    "workbench.data": ("group_of", "load_groups", "load_task"),
    "workbench.runs": ("default_workspace", "label_steps", "make_demonstrations", "make_pairs", "mix_rows"),
    "workbench.schema": ("Credit", "Example", "Group", "Rollout", "ScoredGroup", "Step", "StepScores"),
    "workbench.steps": ("StepPattern", "align_steps", "split_steps", "token_texts"),
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
    import_module("workbench.views").register(shell)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
