"""Iterative reinforcement learning with a reward model: DeepSeekMath (arXiv 2402.03300), algorithm 1.

After a first policy and a first reward model, each round

1. trains the policy by GRPO on what the reward model says; its reference is the policy that the round begins with,
2. samples the policy afresh, on prompts of the round's own, and makes pairs: a right answer over a wrong one,
3. trains the reward model further, on these pairs and on 10 % of those it was trained on before.

    python -m workbench iterative --rounds 2
    python -m workbench iterative --small
"""

from __future__ import annotations

import workbench as wb

from stages import Stages, begin, parser, show  # isort: skip

JUDGE = {"name": "reward", "batch_size": 16}
REPLAYED = 0.1


def iterate(stages: Stages, rounds: int) -> None:
    """Train policy and reward model in turns."""
    policy = stages.train(
        "policy-0",
        method={"name": "sft", "batch_size": 32},
        optimiser={"learning_rate": 1e-4},
        run={"steps": 10, "save_steps": 10, "eval_steps": 10},
    )
    learnt = stages.pairs("learnt-0", policy, prompts=128, first=10_000)
    judge = stages.train(
        "judge-0",
        policy={"path": policy},
        method=JUDGE,
        task={**stages.base["task"], "data": str(learnt)},
        optimiser={"learning_rate": 5e-4},
        run={"steps": 40, "save_steps": 20, "eval_steps": 20},
    )
    for number in range(1, rounds + 1):
        policy = stages.train(
            f"policy-{number}",
            policy={"path": policy},
            seed=number,
            method={
                "name": "grpo",
                "beta": 0.04,
                "credit": {"scheme": "outcome"},
                "rewards": [{"name": "judge", "kind": "outcome", "model": {"path": judge, "format": "classifier"}}],
            },
            optimiser={"learning_rate": 5e-5},
            run={"steps": 20, "save_steps": 10, "eval_steps": 10},
        )
        fresh = stages.pairs(f"fresh-{number}", policy, prompts=128, first=10_000 + 1_000 * number)
        mixed = wb.mix_rows(fresh, [learnt], stages.file(f"learnt-{number}"), share=REPLAYED, seed=number, again=True)
        learnt = stages.made(f"learnt-{number}", mixed)
        judge = stages.train(
            f"judge-{number}",
            policy={"path": judge},
            method=JUDGE,
            task={**stages.base["task"], "data": str(learnt)},
            optimiser={"learning_rate": 5e-4},
            run={"steps": 20, "save_steps": 10, "eval_steps": 10},
        )


def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__ or "", "iterative")
    options.add_argument("--rounds", type=int, default=2, metavar="N", help="rounds (default: %(default)s)")
    args = options.parse_args(arguments)
    stages = begin(args)
    iterate(stages, 1 if args.small else args.rounds)
    show(stages, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
