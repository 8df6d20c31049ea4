"""RLHF as in InstructGPT (arXiv 2203.02155), the pairs labelled by the task's checker in the place of people.

1. Teach the policy by demonstrations (SFT).
2. Sample pairs of its answers and train a reward model on them.
3. Train the policy by PPO on what the reward model says.

    python -m workbench rlhf
    python -m workbench rlhf --small
"""

from __future__ import annotations

from stages import Stages, begin, parser, show  # isort: skip


def teach_judge_reinforce(stages: Stages) -> None:
    """SFT, a reward model, PPO."""
    taught = stages.train(
        "taught",
        method={"name": "sft", "batch_size": 32},
        optimiser={"learning_rate": 1e-4},
        run={"steps": 10, "save_steps": 10, "eval_steps": 10},
    )
    compared = stages.pairs("compared", taught, prompts=128, first=10_000)
    judge = stages.train(
        "judge",
        policy={"path": taught},
        method={"name": "reward", "batch_size": 16},
        task={**stages.base["task"], "data": str(compared)},
        optimiser={"learning_rate": 5e-4},
        run={"steps": 40, "save_steps": 20, "eval_steps": 20},
    )
    stages.train(
        "reinforced",
        policy={"path": taught},
        method={
            "name": "ppo",
            "rewards": [{"name": "judge", "kind": "outcome", "model": {"path": judge, "format": "classifier"}}],
        },
        optimiser={"learning_rate": 5e-5},
        run={"steps": 20, "save_steps": 10, "eval_steps": 10},
    )


def main(arguments: list[str] | None = None) -> int:
    args = parser(__doc__ or "", "rlhf").parse_args(arguments)
    stages = begin(args)
    teach_judge_reinforce(stages)
    show(stages, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
