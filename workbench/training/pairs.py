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

from workbench.checks.difficulty import calibration_error
from workbench.training.accuracy import Measure
from workbench.training.stored import held_out_measure

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


def held_out_pairs(trainer: Any, margins: Margins) -> list[Measure]:
    """The measure of ``pair_metrics``, where the trainer has held-out pairs.

    ``margins(batch)`` gives the margins, (B,), of a batch of B pairs as the trainer's collator makes it.
    """
    return held_out_measure(trainer, lambda batch: margins(batch).float().tolist(), pair_metrics)


def pair_numbers(margin: float) -> dict[str, float]:
    """What is shown above a watched pair."""
    return {"margin": margin, "σ(margin)": 1 / (1 + math.exp(-max(-700.0, min(700.0, margin))))}


def rename_metrics(trainer: Any, names: Mapping[str, str]) -> None:
    """Call what TRL has just logged of a batch by this project's names; its ``margin`` is not the held-out pairs'."""
    logged = trainer._metrics["train"]
    for name, ours in names.items():
        logged[ours] += logged.pop(name, [])
