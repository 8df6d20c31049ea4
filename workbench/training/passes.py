"""What every optimiser step over a generation computed its policy loss from, as a ``LossPass``.

Collected from micro-batches beside TRL's loss and gathered over ranks when the last one is in. Nothing is computed
anew: the log-probabilities are those that the loss was computed with. What they make of the loss, ``credit.loss`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from accelerate.utils import gather_object

from workbench.schema import LossPass, LossSettings, OnPass, RolloutPass

ROW = "generation_row"
"""Of a batch: where in the generation, over all ranks, each of its rows lies."""


def settings_of(trainer: Any) -> LossSettings:
    """Return the loss of a TRL ``GRPOTrainer``."""
    args = trainer.args
    return LossSettings(
        trainer.loss_type,
        epsilon=trainer.epsilon_low,
        epsilon_high=trainer.epsilon_high,
        delta=args.delta,
        beta=trainer.beta,
        kl_times_ratio=args.use_bias_correction_kl,
        sequence_ratio=trainer.importance_sampling_level == "sequence",
        max_completion_length=trainer.max_completion_length,
        sapo_temperatures=(args.sapo_temperature_pos, args.sapo_temperature_neg),
        vespo_k=(args.vespo_k_pos, args.vespo_k_neg),
        vespo_lambda=(args.vespo_lambda_pos, args.vespo_lambda_neg),
    )


@dataclass(frozen=True)
class BesidePolicy:
    """What a micro-batch's loss has beside the policy's: ``coef`` times ``entropies`` (B, T), and the router's loss.

    ``coef`` is None without an entropy bonus, ``router`` None without a router's loss, weighted as the loss has it.
    """

    coef: float | None
    entropies: torch.Tensor | None = None
    router: torch.Tensor | None = None


class Passes:
    """Collects the micro-batches of a trainer's steps; ``on_pass`` gets each step's on every rank.

    Not told of are steps over a part of a generation (``steps_per_generation`` above the accumulated micro-batches),
    and vespo's with the importance weights of vLLM, which it bounds within its own weight.
    """

    def __init__(self, trainer: Any, on_pass: OnPass) -> None:
        self._trainer, self._on_pass = trainer, on_pass
        self._rows: list[tuple[int, int, list[torch.Tensor | None]]] = []  # row, micro-batch of this rank, numbers
        self._losses: list[float] = []
        self._routers: list[float] = []
        self._generation = 0

    def begin_generation(self) -> None:
        """The next step is the first over a new generation."""
        self._generation = self._trainer.state.global_step + 1

    def add(
        self,
        inputs: Mapping[str, Any],
        trained: Mapping[str, Any],
        logps: torch.Tensor,
        loss: torch.Tensor,
        beside: BesidePolicy,
    ) -> None:
        """A micro-batch ``inputs``, of which the rows ``trained`` went through the policy, (B, T) ``logps`` and all."""
        number, trainer = len(self._losses), self._trainer
        factors = list(trainer.loss_masks.values())  # what else the policy term is multiplied with
        if "importance_sampling_ratio" in trained:
            factors.append(trained["importance_sampling_ratio"])  # (B, T) or (B, 1)
        mask = trained["completion_mask"]
        weights = prod(factors, start=torch.ones_like(mask, dtype=torch.float32)) if factors else None  # (B, T)
        bonus = None
        if beside.coef is not None and beside.entropies is not None:  # -coef H / N, N the micro-batch's counted tokens
            counted = mask * trained.get("tool_mask", 1) * trainer.loss_masks.get("get_high_entropy_mask", 1)
            bonus = -beside.coef * beside.entropies.detach() * counted / counted.sum().clamp(min=1.0)
        seen: dict[int, list[torch.Tensor | None]] = {}
        for i, row in enumerate(trained[ROW].tolist()):
            length = int(trained["completion_mask"][i].sum())  # 0 for a masked completion, which adds nothing
            numbers = (logps, trained.get("old_per_token_logps"), weights, bonus)
            seen[row] = [None if values is None else values[i, :length].float().cpu() for values in numbers]
            if not length:
                seen[row] = [None] * 4
        self._rows += [(row, number, seen.get(row, [None] * 4)) for row in inputs[ROW].tolist()]
        self._losses.append(float(loss.detach()))
        self._routers.append(0.0 if beside.router is None else float(beside.router.detach()))
        if trainer.accelerator.sync_gradients:
            self._finish(inputs)

    def _finish(self, inputs: Mapping[str, Any]) -> None:
        trainer = self._trainer
        everyone = gather_object([(self._rows, self._losses, self._routers)])
        self._rows, self._losses, self._routers = [], [], []
        parts, ranks = len(everyone[0][1]), len(everyone)
        rollouts = {
            row: RolloutPass(
                rank * parts + number,
                *(
                    None if v is None else v.numpy()
                    for v in (*numbers, None if bonus is None else bonus / (parts * ranks))
                ),
            )
            for rank, (rows, _, _) in enumerate(everyone)
            for row, number, (*numbers, bonus) in rows
        }
        count = trainer.args.generation_batch_size
        if len(rollouts) != count or (trainer.loss_type == "vespo" and "importance_sampling_ratio" in inputs):
            return
        step = trainer.state.global_step + 1
        self._on_pass(
            LossPass(
                step=step,
                generation=self._generation,
                number=step - self._generation + 1,
                settings=settings_of(trainer),
                rollouts=tuple(rollouts[row] for row in range(count)),
                tokens=float(inputs["num_items_in_batch"]),
                loss=sum(sum(losses) for _, losses, _ in everyone) / ranks,
                router=sum(sum(routers) for _, _, routers in everyone) / (parts * ranks),
            )
        )
