"""Process supervision without human labels: Math-Shepherd (arXiv 2312.08935).

1. Sample answers, and from the end of each step continuations: a step's label is the share of them that end right.
2. Train an implicit process reward model (arXiv 2412.01981) on these labels.
3. Train the policy by GRPO with that model's score of each step.

    python -m workbench prm
    python -m workbench prm --small
"""

from __future__ import annotations

import workbench as wb

from stages import Stages, begin, parser, show  # isort: skip


def supervise(stages: Stages) -> None:
    """Label steps, train a process reward model, and train the policy on it."""
    config = wb.RunConfig(**stages.base)
    labels = wb.label_steps(
        config,
        stages.file("labels"),
        prompts=2 if stages.small else 48,
        first=10_000,
        continuations=2 if stages.small else 8,
        estimation="soft",
        workspace=stages.workspace,
        again=True,
    )
    rows = stages.made("labels", labels)
    judge = stages.train(
        "judge",
        method={"name": "prm", "format": "implicit", "batch_size": 16},
        task={**stages.base["task"], "data": str(rows)},
        optimiser={"learning_rate": 5e-4},
        run={"steps": 60, "save_steps": 20, "eval_steps": 20},
    )
    stages.train(
        "reinforced",
        method={
            "name": "grpo",
            "credit": {"scheme": "process"},
            "rewards": [{"name": "judge", "kind": "step", "model": {"path": judge, "format": "implicit"}}],
        },
        optimiser={"learning_rate": 5e-5},
        run={"steps": 20, "save_steps": 10, "eval_steps": 10},
    )


def main(arguments: list[str] | None = None) -> int:
    args = parser(__doc__ or "", "prm").parse_args(arguments)
    stages = begin(args)
    supervise(stages)
    show(stages, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
