"""Started once a rank: a step of each configuration; what the rank saw and was told: ``<folder>/<rank>.json``."""

import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from tests.in_this_process import keep_inputs, written
from tests.resumes import CLERK, stored_rows
from workbench.schema import HeldOutAnswer, WatchedRow
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners

FLAT = """
def flat_in_most_groups(prompts, completions, **columns):
    return [len(text) * float(sum(map(ord, prompt)) % 4 == 0) for prompt, text in zip(prompts, completions)]
"""
REDRAWN = {"name": "flat_in_most_groups", "kind": "outcome", "code": FLAT}
"""Three of four prompts give groups without spread."""
SAMPLED: dict[str, dict[str, Any]] = {
    "outcome, distinct": {"method": {"credit": {"scheme": "outcome", "drop_duplicates": True}}},
    "outcome, redrawn": {"method": {"credit": {"scheme": "outcome"}, "rewards": [REDRAWN], "resample_flat": 8}},
    "process, played": {"method": {}, "environment": CLERK},
    "ppo": {"method": {"name": "ppo"}, "run": {"eval_steps": 1, "eval_prompts": 5, "eval_skip": 3}},
}
STORED: dict[str, dict[str, Any]] = {
    "dpo": {"method": {"name": "dpo", "batch_size": 2}, "run": {"watch_every": 1}},
    "prm": {"method": {"name": "prm", "batch_size": 4}, "run": {"eval_steps": 1, "eval_prompts": 3}},
}


def main(folder: Path, ranks: int) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    used = {name: train(folder / "out", name, ranks) for name in (*SAMPLED, *STORED)}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(used))


class Gradients(TrainerCallback):
    """Those of the critic's head and of the norm before it, as the optimiser gets them, before they are clipped."""

    def __init__(self) -> None:
        self.found: list[list[float]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = dict(model.named_parameters())
        names = ("critic.head.weight", "critic.head.bias", "model.norm.weight")
        self.found = [named[name].grad.flatten().tolist() for name in names if name in named]


def train(folder: Path, name: str, ranks: int) -> dict[str, Any]:
    """Of a run that samples: ``rows`` as ``seen_by_loss`` has them, ``groups``: all groups' advantages, ``gradients``,
    ``redrawn`` prompts and ``answers`` to held-out ones. Of one on stored rows: the ``logged`` numbers, and
    ``watched``: the texts' values by step.
    """
    parts = SAMPLED.get(name) or STORED[name]
    sampling = {"num_generations": 8, "max_completion_length": 32 if "redrawn" in name else 64}
    method = {"prompts_per_step": 1, "sampling": sampling} if name in SAMPLED else {}
    run = {"steps": 1 if name in SAMPLED else 2, "eval_steps": 0, "save_steps": 0, "ranks": ranks, "device": "cpu"}
    run |= {"watch_prompts": 1 if name in STORED else 0}
    data = {"method": {**method, **parts["method"]}, "run": {**run, **parts.get("run", {})}}
    if name in STORED:
        folder.mkdir(parents=True, exist_ok=True)
        data["task"] = written(folder, *stored_rows(name, 30), name=f"{name}-{os.environ.get('RANK')}.jsonl")
    config = RunConfig.parse(
        {**data, "optimiser": {"warmup_steps": 0}, "environment": parts.get("environment", {"name": None})}
    )
    groups = list[list[float]]()
    watched: dict[int, list[list[float]]] = {}
    answers: dict[int, list[list[str]]] = {}
    gradients = Gradients()

    def keep(step: int, credits: list[Any]) -> None:
        groups.extend(row.tolist() for credit in credits for row in credit.advantages)

    def keep_rows(step: int, looked: list[WatchedRow]) -> None:
        watched[step] = [[*values] for row in looked for text in row.texts for values in text.values.values()]

    def keep_answers(step: int, looked: Sequence[HeldOutAnswer]) -> None:
        answers[step] = [[row.prompt, row.text] for row in looked]

    listeners = Listeners(on_rollouts=keep, on_rows=keep_rows, on_answers=keep_answers, callbacks=[gradients])
    trainer: Any = METHODS[config.method.name].build(config, folder, listeners)
    seen = keep_inputs(trainer) if name in SAMPLED else []
    trainer.train()
    history = trainer.state.log_history
    if name in STORED:
        names = ("loss", "grad_norm", "step_accuracy/train", "step_accuracy", "auc")
        return {"logged": {n: [row[n] for row in history if n in row] for n in names}, "watched": watched}
    redrawn = history[0].get("resample/prompts")
    rows = [row for inputs in seen for row in seen_by_loss(inputs)]
    return {"rows": rows, "groups": groups, "gradients": gradients.found, "redrawn": redrawn, "answers": answers}


def seen_by_loss(inputs: dict[str, Any]) -> list[list[Any]]:
    """Ids, advantages in hexadecimal and counted tokens of the batch, of each row."""
    rows: list[list[Any]] = []
    for i, (ids, mask) in enumerate(zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)):
        length = int(mask.sum())
        advantages = inputs["advantages"][i, :length].numpy().tobytes().hex()
        rows.append([ids[:length].tolist(), advantages, int(inputs["num_items_in_batch"])])
    return rows


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]))
