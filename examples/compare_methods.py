"""Training methods on one budget: each trains the same base policy on the same number of sampled completions.

What is sampled for data counts as what is sampled to train on; answers to held-out prompts are measures, and do not.
A function below is one method: it takes the budget and says what it samples and trains. The base configuration is laid
over its settings: seed, policy, task and sampling for all stages, fields of ``optimiser``, ``run`` and the method that
are set for those that train a policy.

    python -m workbench compare --methods sft,dpo,ppo,grpo --completions 2880 --seeds 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import workbench as wb
from workbench.errors import ConfigError, TaskError, WorkbenchError, did_you_mean
from workbench.runs import ComparedMethod, MethodStages, Run
from workbench.runs.compare import free_name

ANSWERS = [{"name": "answer_correctness", "kind": "outcome"}]
STEPS = [{"name": "step_correctness", "kind": "step"}]
FULL = 2880
"""The budget that numbers of steps on stored rows are written for: 60 steps of 6 prompts with 8 completions each."""
MODEL_STEP = {"learning_rate": 5e-4}
"""The rate of reward models."""


class Budget:
    """``completions`` to sample for one method and seed, and the stages carried out so far."""

    def __init__(self, base: wb.RunConfig, name: str, completions: int, workspace: Path, report: Any) -> None:
        self.base, self.name, self.completions = base, name, completions
        self.workspace, self.report = workspace, report
        self.group = base.sampling_section.sampling.num_generations
        self.batch = self.group * base.sampling_section.prompts_per_step
        self.stages: list[Run | Path] = []

    def steps(self, full: int) -> int:
        """Steps on stored rows, in proportion to the budget."""
        return max(1, round(full * self.completions / FULL))

    def left(self) -> int:
        return self.completions - MethodStages("", 0, tuple(self.stages)).course().completions

    def config(self, stage: str, *, judge: bool = False, **recipe: Any) -> wb.RunConfig:
        base = self.base.model_dump(exclude_unset=True)
        shared = {name: base[name] for name in ("policy", "task", "prompt", "environment") if name in base}
        method = {**recipe.get("method", {})}
        if method.get("name") == base.get("method", {}).get("name", "grpo"):
            method = {**{k: v for k, v in base.get("method", {}).items() if k not in ("rewards", "credit")}, **method}
        if method.get("name") in ("grpo", "ppo"):
            method["sampling"] = self.base.sampling_section.sampling.model_dump()
            method["prompts_per_step"] = self.base.sampling_section.prompts_per_step
        own = {} if judge else {name: base.get(name, {}) for name in ("optimiser", "run")}
        data = {**shared, **recipe, "method": method, "name": f"{self.name}.{stage}"}
        data["optimiser"] = {**recipe.get("optimiser", {}), **own.get("optimiser", {})}
        run = {"device": self.base.run.device, **recipe.get("run", {}), **own.get("run", {})}
        data["run"] = {**run, "steps": recipe["run"]["steps"]}
        data["seed"] = self.base.seed + 1000 * recipe.get("seed", 0)
        if "data" in recipe:
            data["task"] = {**shared.get("task", {}), "data": str(data.pop("data"))}
        return wb.RunConfig(**data)

    def train(self, stage: str, **recipe: Any) -> str:
        """Train a stage to its end; return its policy or reward model as ``run:NAME``."""
        if recipe["run"]["steps"] < 1:
            raise TaskError(f"{self.completions} completions are too few: {stage} would train no step; give more")
        run = wb.train_to_end(self.config(stage, **recipe), self.workspace, report=self.report)
        self.stages.append(run)
        return f"run:{run.name}"

    def sample(self, stage: str, make: Callable[..., Any], count: int, policy: str = "", **options: Any) -> Path:
        """Sample a file of rows for ``count`` completions; ``options`` are those of ``make``."""
        data = self.base.model_dump(exclude_unset=True, exclude={"optimiser", "run", "name", "method"})
        if policy:
            data["policy"] = {"path": policy}
        data["seed"] = self.base.seed + 1000 * options.pop("seed", 0)
        method = {"name": "grpo", "credit": {"scheme": "outcome"}, "rewards": ANSWERS}
        method["sampling"] = {**self.base.sampling_section.sampling.model_dump(), **options.pop("sampling", {})}
        config = wb.RunConfig(**data, method=method)
        file = self.workspace / "made" / f"{self.name}.{stage}.jsonl"
        options = {"prompts": count // self.group, **options}
        made = make(config, file, **options, workspace=self.workspace, again=True)
        self.stages.append(file)
        return Path(made.file)


# -- the methods -------------------------------------------------------------------------------------------------------


def sft(budget: Budget) -> None:
    """Fine-tuning on the policy's own right answers (rejection sampling)."""
    own = budget.sample("own", wb.make_demonstrations, budget.completions, per_group=8)
    method = {"name": "sft", "batch_size": 32}
    run = {"steps": budget.steps(60), "save_steps": 20, "eval_steps": 10}
    budget.train("trained", method=method, data=own, optimiser={"learning_rate": 5e-4}, run=run)


def dpo(budget: Budget) -> None:
    """Direct preference optimisation on pairs of the policy's own answers, a right one over a wrong one."""
    own = budget.sample("own", wb.make_pairs, budget.completions, per_group=4)
    method = {"name": "dpo", "beta": 0.1, "batch_size": 16}
    run = {"steps": budget.steps(60), "save_steps": 20, "eval_steps": 10}
    budget.train("trained", method=method, data=own, optimiser={"learning_rate": 1e-4}, run=run)


def ppo(budget: Budget, rewards: Any = ANSWERS) -> None:
    """PPO with a shared critic on outcome rewards alone."""
    method = {"name": "ppo", "rewards": rewards}
    run = {"steps": budget.completions // budget.batch, "save_steps": 20, "eval_steps": 4}
    budget.train("trained", method=method, optimiser={"learning_rate": 5e-4}, run=run)


def ppo_steps(budget: Budget) -> None:
    """PPO with a shared critic on outcome rewards and a rule's reward for each step."""
    ppo(budget, [*STEPS, *ANSWERS])


def grpo(budget: Budget) -> None:
    """GRPO on outcome rewards alone."""
    method = {"name": "grpo", "rewards": ANSWERS, "credit": {"scheme": "outcome"}}
    run = {"steps": budget.completions // budget.batch, "save_steps": 20, "eval_steps": 4}
    budget.train("trained", method=method, optimiser={"learning_rate": 2e-4}, run=run)


def grpo_process(budget: Budget) -> None:
    """GRPO with process supervision, each step scored by a rule."""
    method = {"name": "grpo", "rewards": STEPS, "credit": {"scheme": "process"}}
    run = {"steps": budget.completions // budget.batch, "save_steps": 20, "eval_steps": 4}
    budget.train("trained", method=method, optimiser={"learning_rate": 5e-4}, run=run)


def grpo_prm(budget: Budget) -> None:
    """GRPO on a process reward model of Monte-Carlo labels (Math-Shepherd, arXiv 2312.08935): half of it for labels."""
    half = budget.completions // 2
    sampling = {"num_generations": 2}
    options = {"prompts": 1000, "completions": half, "continuations": 4, "estimation": "soft", "sampling": sampling}
    labels = budget.sample("labels", wb.label_steps, half, **options)
    method = {"name": "prm", "batch_size": 8}
    run = {"steps": budget.steps(60), "save_steps": 20, "eval_steps": 20}
    judge = budget.train("judge", judge=True, method=method, data=labels, optimiser=MODEL_STEP, run=run)
    rewards = [{"name": "judge", "kind": "step", "model": {"path": judge, "format": "stepwise"}}]
    method = {"name": "grpo", "rewards": rewards, "credit": {"scheme": "process"}}
    run = {"steps": budget.left() // budget.batch, "save_steps": 20, "eval_steps": 4}
    budget.train("trained", method=method, optimiser={"learning_rate": 5e-5}, run=run)


def iterative(budget: Budget) -> None:
    """Iterative RL with a reward model (DeepSeekMath, arXiv 2402.03300, algorithm 1): two rounds."""
    sixth = budget.completions // 6
    steps = budget.completions // 3 // budget.batch
    pairs = budget.sample("learnt-0", wb.make_pairs, sixth, per_group=4)
    judge, policy = "", ""
    for number in (1, 2):
        method = {"name": "reward", "batch_size": 8}
        before = {"policy": {"path": judge}} if judge else {}
        run = {"steps": budget.steps(40 if number == 1 else 20), "save_steps": 20, "eval_steps": 20}
        judge = budget.train(
            f"judge-{number}", judge=True, method=method, data=pairs, optimiser=MODEL_STEP, run=run, **before
        )
        rewards = [{"name": "judge", "kind": "outcome", "model": {"path": judge, "format": "classifier"}}]
        method = {"name": "grpo", "beta": 0.04, "credit": {"scheme": "outcome"}, "rewards": rewards}
        before = {"policy": {"path": policy}} if policy else {}
        run = {"steps": steps, "save_steps": 20, "eval_steps": 4}
        rate = {"learning_rate": 2e-5}
        policy = budget.train(f"policy-{number}", seed=number - 1, method=method, optimiser=rate, run=run, **before)
        if number == 1:
            fresh = budget.sample("fresh", wb.make_pairs, sixth, policy, first=sixth, per_group=4, seed=1)
            mixed = wb.mix_rows(fresh, [pairs], fresh.with_suffix(".mixed.jsonl"), share=0.1, again=True)
            pairs = Path(mixed.file)


METHODS: dict[str, Callable[[Budget], None]] = {
    "sft": sft,
    "dpo": dpo,
    "ppo": ppo,
    "ppo-steps": ppo_steps,
    "grpo": grpo,
    "grpo-process": grpo_process,
    "grpo-prm": grpo_prm,
    "iterative": iterative,
}


# -- the comparison ----------------------------------------------------------------------------------------------------


def compare(
    config: wb.RunConfig,
    methods: Sequence[str],
    seeds: int,
    workspace: Path | None = None,
    completions: int = FULL,
    report: Any = None,
    tell: Callable[[str], None] = print,
) -> Iterator[tuple[MethodStages, ComparedMethod]]:
    """Train by each method with the seeds ``config.seed``, ``+ 1``, …; yield what each came to as it ends.

    A method that fails is yielded like the others, with its ``problem``. Raises ConfigError for an unknown method and
    for ``run.steps``, which is no budget.
    """
    for name in methods:
        if name not in METHODS:
            raise ConfigError(f"--methods {name}: there is no such method{did_you_mean(name, METHODS)}; there are "
                              f"{', '.join(METHODS)}")  # fmt: skip
    if "steps" in config.run.model_fields_set:
        raise ConfigError("run.steps: steps are no budget for methods that sample and train in stages; leave it out")
    folder = (workspace or wb.default_workspace()).resolve()
    name = config.name or free_name([f".{method}.{config.seed}" for method in methods], folder, tell)
    for method in methods:
        for seed in range(config.seed, config.seed + seeds):
            called = f"{name}.{method}.{seed}"
            budget = Budget(config.model_copy(update={"seed": seed}), called, completions, folder, report)
            problem = ""
            try:
                METHODS[method](budget)
            except WorkbenchError as error:
                problem = f"{called}: {error}"
            except Exception as error:  # of a method that somebody wrote: the others' rows are there, and go on
                problem = f"{called}: {type(error).__name__}: {error}"
            stages = MethodStages(method, seed, tuple(budget.stages), problem)
            yield stages, stages.summary()
