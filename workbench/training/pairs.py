"""Training on pairs: their tokens, what is logged of them, and measures on held-out ones.

Shared by the methods ``dpo`` and ``reward``. A pair's margin is the score of its chosen side less that of the rejected
one. Under Bradley and Terry's model sigma(margin) is the probability that the chosen side is the better one. How a
score is computed is the methods' own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from workbench.checks.calibration import calibration_error
from workbench.training.accuracy import Measure
from workbench.training.common import evaluating
from workbench.training.stored import MEASURED

Margins = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


def pair_metrics(margins: Sequence[float]) -> dict[str, float]:
    """``pair_accuracy`` (a margin of 0 counts half), ``margin`` and ``calibration_error`` of pairs.

    The probability that calibration is about is sigma(margin), and the chosen side is always the better one.
    """
    values = np.asarray(margins, dtype=np.float64)
    probabilities = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
    return {
        "pair_accuracy": float(np.mean((values > 0) + 0.5 * (values == 0))),
        "margin": float(np.mean(values)),
        "calibration_error": calibration_error(probabilities.tolist(), [1] * len(values)),
    }


class HeldOutPairs:
    """Measures ``pair_metrics`` on the trainer's held-out pairs; ranks share them, a batch of training's at a time.

    ``margins(batch)`` gives the margins, (B,), of a batch of B pairs as the trainer's collator makes it.
    """

    def __init__(self, trainer: Any, margins: Margins) -> None:
        self._trainer, self._margins = trainer, margins

    def __call__(self) -> dict[str, float]:
        trainer, pairs = self._trainer, self._trainer.eval_dataset[MEASURED]
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        share = -(-len(pairs) // ranks)
        mine = [rank + i * ranks for i in range(share)]  # past the end on some ranks: all do as many forward passes
        size, measured = trainer.args.per_device_train_batch_size, list[tuple[int, float]]()
        for start in range(0, share, size):
            places = mine[start : start + size]
            batch = trainer.data_collator([pairs[place % len(pairs)] for place in places])
            batch = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
            with evaluating(trainer):
                margins = self._margins(batch)
            measured += zip(places, margins.float().tolist(), strict=True)
        everyone = dict(gather_object(measured))
        return pair_metrics([everyone[place] for place in range(len(pairs))])


def held_out_pairs(trainer: Any, margins: Margins) -> list[Measure]:
    """The measure of ``pair_metrics``, where the trainer has held-out pairs."""
    return [HeldOutPairs(trainer, margins)] if MEASURED in (trainer.eval_dataset or {}) else []


def pair_numbers(margin: float) -> dict[str, float]:
    """What is shown above a watched pair."""
    return {"margin": margin, "σ(margin)": 1 / (1 + math.exp(-max(-700.0, min(700.0, margin))))}


def rename_metrics(trainer: Any, names: Mapping[str, str]) -> None:
    """Call what TRL has just logged of a batch by this project's names; its ``margin`` is not the held-out pairs'."""
    logged = trainer._metrics["train"]
    for name, ours in names.items():
        logged[ours] += logged.pop(name, [])
