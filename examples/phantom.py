"""Phantom advantages: groups without a right answer that train at full size, and the gate that stops them.

The reward is 1 for a right answer, less 0.3 times the answer's length over 512. In a group in which no answer is right
only the length differs, and normalisation makes that as large as right against wrong. Every arm trains the same policy
on the same prompts, sampled hot, so that many groups have no right answer:

- ``none`` trains on every group,
- ``spread`` replaces groups without spread in the reward that is trained on, as dynamic sampling does,
- ``outcome`` gates by the outcome: a group whose answers are all right or all wrong has advantage 0.

The case on a larger model: https://github.com/verl-project/verl-recipe/pull/125.

    python -m workbench phantom --seeds 3
    python -m workbench phantom --small
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import workbench as wb

from stages import Stages, begin, parser  # isort: skip

REWARDS = [
    {"name": "answer_correctness", "kind": "outcome"},
    {"name": "length_target", "kind": "outcome", "weight": 0.3 / 512, "options": {"target_length": 0}},
]
ARMS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "spread": {"resample_flat": 1},
    "outcome": {"credit": {"scheme": "outcome", "gate": "outcome"}},
}


def train(stages: Stages, arm: str, seed: int) -> None:
    """Train one arm with one seed."""
    stages.train(
        f"{arm}-{seed}",
        seed=seed,
        method={
            "name": "grpo",
            "credit": {"scheme": "outcome"},
            "rewards": REWARDS,
            "prompts_per_step": 12,
            "sampling": {"num_generations": 4, "max_completion_length": 112, "temperature": 1.2},
            **ARMS[arm],
        },
        run={"steps": 30, "save_steps": 30, "eval_steps": 30, "eval_prompts": 100, "watch_prompts": 0},
    )


def summed_up(stages: Stages, arm: str, seeds: int) -> dict[str, Any]:
    """Return what the runs of an arm came to: held-out accuracies by seed, and means over their last ten steps."""
    rows = [row for row in stages.rows if row["stage"].rpartition("-")[0] == arm]
    logged = [wb.open_run(row["run"], stages.workspace).metrics_rows()[0] for row in rows[:seeds]]

    def mean(name: str) -> float:
        return round(fmean(row[name] for run in logged for row in run[-10:] if row.get(name) is not None), 3)

    accuracies = [row["after"] for row in rows]
    return {
        "arm": arm,
        "before": rows[0]["before"],
        "after": accuracies,
        "mean": round(fmean(accuracies), 3),
        "tokens": mean("completions/mean_length"),
        "phantom": mean("phantom_share"),
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__ or "", "phantom")
    options.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each arm (default: %(default)s)")
    options.add_argument("--arms", default=",".join(ARMS), help="some of %(default)s")
    args = options.parse_args(arguments)
    stages, seeds, arms = begin(args), 1 if args.small else args.seeds, args.arms.split(",")
    for seed in range(seeds):
        for arm in arms:
            train(stages, arm, seed)
    rows = [summed_up(stages, arm, seeds) for arm in arms]
    if args.json:
        print(json.dumps({"name": stages.name, "stages": stages.rows, "rows": rows}))
        return 0
    import pandas as pd

    print(pd.DataFrame(rows).to_string(index=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
