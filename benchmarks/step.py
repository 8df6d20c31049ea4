"""A training step of the default run, against a step of TRL's own ``GRPOTrainer`` on the same prompts and settings.

Both are built anew in every round and train a few steps, of which the first is not counted; the ratio is the median of
the rounds' own ratios. TRL's gets whether the answer is right as its reward, and samples by ``model.generate``.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks import Measure
from benchmarks.sampler import random_policy
from workbench.data import load_task
from workbench.training.building import load_trained_policy, lora_config, trainer_arguments
from workbench.training.config import ProcessGRPOConfig
from workbench.training.methods import METHODS, RunConfig

STEPS = 4
RUN = {"steps": STEPS, "eval_steps": 0, "save_steps": 0, "watch_prompts": 0, "device": "cpu"}
TINY = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}
LONG = {
    "prompts_per_step": 8,
    "sampling": {"num_generations": 8, "max_completion_length": 256},
    # The default run finds neither steps nor right answers in a random policy's text; by these it has both, and learns.
    "pattern": {"regex": "[=*+-]"},
    "rewards": [
        {"name": "step_correctness"},
        {"name": "answer_correctness", "kind": "outcome"},
        {"name": "length_and_mistake", "weight": 0.1},
    ],
}


class Clock(TrainerCallback):  # type: ignore[misc]
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def measure(repeat: int) -> list[Measure]:
    """Seconds a step of both, the share of sampling, and that of steps, scores and credit in a batch of 64 × 256."""
    with tempfile.TemporaryDirectory() as folder:
        default = RunConfig.parse({"run": RUN})
        rounds = [(ours(default, Path(folder)), stock(default, Path(folder))) for _ in range(repeat + 1)][1:]
        policy = random_policy(Path(folder) / "policy", TINY)
        long = RunConfig.parse({"run": RUN, "policy": {"path": str(policy)}, "method": LONG})
        of_long = [ours(long, Path(folder)) for _ in range(repeat + 1)][1:]
    step, sampling = (statistics.median(mine[name] for mine, _ in rounds) for name in ("step", "sampling"))
    stock_step = statistics.median(other["step"] for _, other in rounds)
    ratio = statistics.median(mine["step"] / other["step"] for mine, other in rounds)
    long_step, credit = (statistics.median(seconds[name] for seconds in of_long) for name in ("step", "credit"))
    share = statistics.median(seconds["credit"] / seconds["step"] for seconds in of_long)
    return [
        Measure("step of TRL", round(stock_step, 3), "s", 1.0, "step of TRL"),
        Measure("step of the default run", round(step, 3), "s", round(ratio, 2), "step of TRL"),
        Measure("of that sampling", round(sampling, 3), "s", round(sampling / step, 2), "the step"),
        Measure("step of 64 × 256 tokens", round(long_step, 3), "s"),
        Measure("of that steps, scores, credit", round(credit, 4), "s", round(share, 4), "the step"),
    ]


def ours(config: RunConfig, folder: Path) -> dict[str, float]:
    """Median seconds of a step, of its sampling, and of its steps, scores and credit."""
    trainer: Any = METHODS[config.method.name].build(config, folder)
    clock = Clock()
    parts: dict[str, list[float]] = {"sampling": [], "credit": []}
    trainer.add_callback(clock)
    trainer.sample = timed(trainer.sample, parts["sampling"])
    trainer.score_own_share = timed(trainer.score_own_share, parts["credit"])
    trainer.credited = timed(trainer.credited, parts["credit"])
    trainer.train()
    credit = [a + b for a, b in zip(parts["credit"][::2], parts["credit"][1::2], strict=True)]
    seconds = {"step": clock.seconds, "sampling": parts["sampling"], "credit": credit}
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def stock(config: RunConfig, folder: Path) -> dict[str, float]:
    """Median seconds of a step of TRL's trainer, given the fields that both have."""
    task, policy = load_task(config.task), load_trained_policy(config)
    given = ProcessGRPOConfig(**trainer_arguments(config, folder))
    names = {field.name for field in fields(GRPOConfig) if field.init} & set(given.to_dict())
    clock = Clock()

    def is_right(completions: list[str], **columns: Any) -> list[float]:
        told = {name: values for name, values in columns.items() if name in task[0].columns}
        rows = [{name: values[i] for name, values in told.items()} for i in range(len(completions))]
        return [float(bool(task.answer_is_right(text, row))) for text, row in zip(completions, rows, strict=True)]

    examples = [{"prompt": task[i].prompt, **task[i].columns} for i in range(6 * STEPS)]
    arguments = {name: getattr(given, name) for name in names - {"generation_batch_size"}}
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=is_right,
        args=GRPOConfig(**arguments),
        train_dataset=Dataset.from_list(examples),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.policy),
        callbacks=[clock],
    )
    trainer.train()
    return {"step": statistics.median(clock.seconds[1:])}


def timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """``call`` with its time appended to ``seconds``; what else it has is reached through it."""

    class Timed:
        def __getattr__(self, name: str) -> Any:
            return getattr(call, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                seconds.append(time.perf_counter() - began)

    return Timed()
