"""Started once a rank: a step of each scheme on each rank, the loss's advantages left in ``<folder>/<rank>.json``.

And steps of DPO, with what the rank is told of the watched rows, and of PRM, with what it logs.
"""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from tests.resumes import CLERK
from workbench.schema import WatchedRow
from workbench.training.methods import METHODS, RunConfig, dpo, prm
from workbench.training.methods.base import Listeners

SCHEMES = ("process", "outcome, distinct", "outcome, redrawn", "process, played")
FLAT = """
def flat_in_most_groups(prompts, completions, **columns):
    return [len(text) * float(sum(map(ord, prompt)) % 4 == 0) for prompt, text in zip(prompts, completions)]
"""
REDRAWN = {"name": "flat_in_most_groups", "kind": "outcome", "code": FLAT}
"""Three of four prompts give groups without spread."""


def main(folder: Path, ranks: int) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    used = {scheme: train(folder / "out", scheme, ranks) for scheme in SCHEMES}
    used["ppo"] = train_by_ppo(folder / "out", ranks)
    used["scheduled"] = train_on_a_schedule(folder / "out", ranks)
    used |= {"watched": watch(folder / "dpo", ranks), "prm": train_by_prm(folder / "prm", ranks)}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(used))


def watch(folder: Path, ranks: int) -> dict[int, list[list[float]]]:
    """Each token's implicit reward in each text of the watched rows, by step, as this rank is told."""
    config = RunConfig.parse(
        {
            "method": {"name": "dpo", "batch_size": 2},
            "optimiser": {"warmup_steps": 0},
            "run": {"steps": 2, "watch_every": 1, "eval_steps": 0, "save_steps": 0, "ranks": ranks, "device": "cpu"},
        }
    )
    told: dict[int, list[list[float]]] = {}

    def keep(step: int, rows: list[WatchedRow]) -> None:
        told[step] = [list(text.values["implicit_reward"]) for row in rows for text in row.texts]

    dpo.build(config, folder, Listeners(on_rows=keep)).train()
    return told


def train(folder: Path, scheme: str, ranks: int) -> dict[str, list]:
    """``rows``: ids, advantages in hexadecimal and counted tokens of the batch, of each row this rank's loss saw;
    ``groups``: all groups' advantages."""
    config = RunConfig.parse(
        {
            "method": {
                "credit": {"scheme": scheme.partition(",")[0], "drop_duplicates": "distinct" in scheme},
                "sampling": {"num_generations": 8, "max_completion_length": 112},
                "prompts_per_step": 1,
                **({"rewards": [REDRAWN], "resample_flat": 8} if "redrawn" in scheme else {}),
            },
            "run": {"steps": 1, "eval_steps": 0, "ranks": ranks, "device": "cpu"},
            **({"environment": CLERK} if "played" in scheme else {}),
        }
    )
    return watched(config, folder)


def train_by_ppo(folder: Path, ranks: int) -> dict[str, list]:
    """The same for PPO, and ``gradients``: of the policy's last norm and of the critic's head, over all ranks."""
    config = RunConfig.parse(
        {
            "method": {
                "name": "ppo",
                "prompts_per_step": 1,
                "sampling": {"num_generations": 4, "max_completion_length": 48},
            },
            "run": {"steps": 1, "eval_steps": 0, "ranks": ranks, "device": "cpu"},
        }
    )
    return watched(config, folder)


def train_on_a_schedule(folder: Path, ranks: int) -> list[list[float]]:
    """The weights that this rank's completions were scored with in each of two steps."""
    rewards = [{"name": "step_correctness"}, {"name": "length_and_mistake", "schedule": [[0, 2.0], [4, 0.0]]}]
    sampling = {"num_generations": 2, "max_completion_length": 16}
    config = RunConfig.parse(
        {
            "method": {"rewards": rewards, "prompts_per_step": 1, "sampling": sampling},
            "run": {"steps": 2, "eval_steps": 0, "save_steps": 0, "ranks": ranks, "device": "cpu"},
        }
    )
    trainer: Any = METHODS["grpo"].build(config, folder)
    used: list[list[float]] = []
    score = trainer.scored

    def scored(*args: Any) -> Any:
        share = score(*args)
        used.append([reward.weight for reward in share.rewards])
        return share

    trainer.scored = scored
    trainer.train()
    return used


def train_by_prm(folder: Path, ranks: int) -> dict[str, list[float]]:
    """Metrics of each step and of each measure of a process reward model; rows of a batch have few and many steps."""
    config = RunConfig.parse(
        {
            "method": {"name": "prm", "batch_size": 4},
            "optimiser": {"warmup_steps": 0},
            "run": {"steps": 2, "eval_steps": 1, "eval_prompts": 5, "save_steps": 0, "ranks": ranks, "device": "cpu"},
        }
    )
    trainer: Any = prm.build(config, folder)
    trainer.train()
    names = ("loss", "grad_norm", "step_accuracy/train", "step_accuracy", "auc")
    history = trainer.state.log_history
    return {name: [row[name] for row in history if name in row] for name in names}


class Gradients(TrainerCallback):
    """Those of the critic's head and of the norm before it, as the optimiser gets them, before they are clipped."""

    def __init__(self) -> None:
        self.found: list[list[float]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = dict(model.named_parameters())
        names = ("critic.head.weight", "critic.head.bias", "model.norm.weight")
        self.found = [named[name].grad.flatten().tolist() for name in names if name in named]


def watched(config: RunConfig, folder: Path) -> dict[str, list]:
    groups: list[list[float]] = []
    gradients = Gradients()

    def keep(step: int, credits: list) -> None:
        groups.extend(row.tolist() for credit in credits for row in credit.advantages)

    build = METHODS[config.method.name].build
    trainer: Any = build(config, folder, Listeners(on_rollouts=keep, callbacks=[gradients]))
    rows: list[list] = []
    original = trainer._compute_loss

    def kept(model, inputs):
        rows.extend(seen_by_loss(inputs))
        return original(model, inputs)

    trainer._compute_loss = kept
    trainer.train()
    redrawn = trainer.state.log_history[0].get("resample/prompts")
    return {"rows": rows, "groups": groups, "gradients": gradients.found, "redrawn": redrawn}


def seen_by_loss(inputs: dict[str, Any]) -> list[list]:
    """Ids, advantages in hexadecimal and counted tokens of the batch, of each row."""
    rows: list[list] = []
    for i, (ids, mask) in enumerate(zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)):
        length = int(mask.sum())
        advantages = inputs["advantages"][i, :length].numpy().tobytes().hex()
        rows.append([ids[:length].tolist(), advantages, int(inputs["num_items_in_batch"])])
    return rows


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]))
