"""Configurations that a resumed run must continue to the bit, and the difference of two runs."""

import re
from collections.abc import Mapping
from typing import Any

from tests.configs import merged
from workbench.runs import Run
from workbench.training.methods import RunConfig

_TIMES = re.compile(r"time|seconds|memory")  # columns that no two runs share

CLERK = {
    "name": "Clerk",
    "code": """
class Clerk:
    stop = ("\\n",)

    def reset(self, prompt, **columns):
        self.lines = 0

    def reply(self, turn):
        self.lines += 1
        return f"line {self.lines}.\\n" if self.lines % 2 else ""
""",
}
"""An environment that counts the lines of an answer, and says so at every second one."""

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "process, all weights": {},
    "outcome scheme, LoRA, reference, redrawn prompts": {
        "method": {"credit": {"scheme": "outcome"}, "beta": 0.04, "resample_flat": 1},
        "policy": {"lora": {"r": 4, "alpha": 8}},
    },
    "episodes of several turns": {"environment": CLERK, "method": {"beta": 0.04}},
    "two iterations, reference that moves": {
        "method": {
            "rewards": [{"name": "step_correctness"}, {"name": "length_and_mistake", "schedule": [[0, 2.0], [8, 0.0]]}],
            "num_iterations": 2,
            "beta": 0.04,
            "sync_ref_model": True,
            "ref_model_sync_steps": 1,
        }
    },
    "two ranks": {"run": {"ranks": 2}},
    "micro-batches, bnpo": {"run": {"micro_batch_size": 4}, "method": {"loss_type": "bnpo"}},
    "rescaled scheme, Dr. GRPO": {"method": {"credit": {"scheme": "rescaled", "scale": False}, "loss_type": "dr_grpo"}},
    "CISPO, cosine, three iterations": {
        "method": {"loss_type": "cispo", "epsilon_high": 5.0, "num_iterations": 3},
        "optimiser": {"lr_scheduler_type": "cosine"},
    },
    "outcome weight, LoRA, two ranks, two iterations": {
        "method": {"credit": {"outcome_weight": 0.5}, "num_iterations": 2},
        "policy": {"lora": {"r": 4, "alpha": 8}},
        "run": {"ranks": 2},
    },
}


def configuration(changes: Mapping[str, Any]) -> RunConfig:
    """A run of a few seconds that saves between its second and third generation, changed as told."""
    iterations = changes.get("method", {}).get("num_iterations", 1)
    steps = {"steps": 5 * iterations, "save_steps": 2 * iterations}
    base = {
        "seed": 3,
        "optimiser": {"warmup_steps": 0},
        "run": {"eval_steps": 2, "eval_prompts": 8, "device": "cpu", **steps},
        "method": {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 64}},
    }
    return RunConfig.parse(merged(base, changes))


def difference(one: Run, other: Run) -> float:
    """The largest difference of any metric at any step; infinite where rows or rollouts are not the same ones."""
    rows, others = one.metrics_rows()[0], other.metrics_rows()[0]
    if [set(row) for row in rows] != [set(row) for row in others] or not _same_rollouts(one, other):
        return float("inf")
    pairs = [
        (row[name], twin[name])
        for row, twin in zip(rows, others, strict=True)
        for name in row
        if not _TIMES.search(name)
    ]
    if any((a is None) != (b is None) for a, b in pairs):
        return float("inf")
    return max(abs(float(a) - float(b)) for a, b in pairs if isinstance(a, (int, float)))


def _same_rollouts(one: Run, other: Run) -> bool:
    """Whether every stored token and advantage is the same, bit for bit."""
    steps = one.rollout_steps()
    return steps == other.rollout_steps() and all(
        a.advantages.tobytes() == b.advantages.tobytes()
        and [r.token_ids for r in a.scored.group.rollouts] == [r.token_ids for r in b.scored.group.rollouts]
        for step in steps
        for a, b in zip(one.rollouts(step), other.rollouts(step), strict=True)
    )
