"""Rows without signal: completions whose advantages are all 0 are left out of forward and backward.

Where the loss is a weighted sum of A_t times something, such a row adds 0 to it and to its gradient; what is left is
the rows' number or tokens in the divisor, put right by a factor. Where a row adds something else (a KL, an entropy
bonus, a router's loss), or others depend on it, all rows stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.training.passes import ROW

_BY_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Losses that divide by the number of rows of a micro-batch."""
_BY_TOKENS = frozenset({"bnpo"})
"""Those that divide by its tokens."""
_BY_GENERATION = frozenset({"dapo", "cispo"})
"""Those that divide by the tokens of the whole generation, whichever rows are there."""
_INPUTS = frozenset(
    {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages", "num_items_in_batch"}
    | {"old_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio", ROW}
)
"""What has one row a completion, and the one number; with anything else, a picture's parts say, all rows stay."""
_CLIPPED = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")


def is_exact(trainer: Any) -> bool:
    """Whether a trainer's loss and gradient are the same without the rows whose advantages are all 0."""
    args = trainer.args
    return (
        trainer.loss_type in _BY_ROWS | _BY_TOKENS | _BY_GENERATION
        and trainer.beta == 0
        and trainer.importance_sampling_level == "token"
        and trainer.top_entropy_quantile == 1.0  # a quantile over all rows of the micro-batch
        and not (trainer._entropy_bonus_enabled or trainer.aux_loss_enabled)
        and args.disable_dropout  # its random numbers depend on the rows
    )


@dataclass(frozen=True)
class TrainedRows:
    """The rows of a micro-batch that are trained on; the loss of ``inputs`` counts ``factor`` times.

    ``has_signal`` tells which of them have an advantage other than 0, (rows,); ``tokens`` of ``all_tokens`` are theirs.
    """

    inputs: dict[str, Any]
    factor: float
    has_signal: torch.Tensor
    tokens: float
    all_tokens: float


def trained_rows(trainer: Any, inputs: dict[str, Any]) -> TrainedRows | None:
    """The rows with signal, as many on every rank and at least one, so that no gradient is missing; None for all."""
    if not is_exact(trainer) or inputs.keys() - _INPUTS:
        return None
    mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # (B, T)
    has_signal = (inputs["advantages"] != 0).reshape(len(mask), -1).any(dim=1)  # (B,)
    # Ranks gather one number a row for the metrics, so they need as many rows.
    count = max(1, int(trainer.accelerator.gather(has_signal.sum()).max()))
    if count >= len(mask):
        return None
    rows = has_signal.int().argsort(descending=True, stable=True)[:count].sort().values
    tokens, all_tokens = float(mask[rows].sum()), float(mask.sum())
    factor = 1.0
    if trainer.loss_type in _BY_ROWS:
        factor = count / len(mask)
    elif trainer.loss_type in _BY_TOKENS:
        factor = max(tokens, 1.0) / max(all_tokens, 1.0)
    trained = {name: value[rows] if torch.is_tensor(value) and value.dim() else value for name, value in inputs.items()}
    return TrainedRows(trained, factor, has_signal[rows], tokens, all_tokens)


def restore_metrics(
    trainer: Any, trained: TrainedRows, entropies: torch.Tensor, metrics: dict[str, list[float]]
) -> None:
    """Make what TRL has logged of the trained rows independent of which others were left out, on any number of ranks.

    Clip ratios are of all rows again, as a row without signal has none clipped. The entropy is that of the rows with
    signal; NaN, which is not counted, where there are none.
    """
    inputs = trained.inputs
    mask = inputs["completion_mask"] * inputs.get("tool_mask", 1) * trained.has_signal[:, None]
    numbers = torch.stack([(entropies * mask).sum().float(), mask.sum().float()])
    rows = torch.tensor([trained.tokens, trained.all_tokens], device=numbers.device)
    numbers = trainer.accelerator.reduce(torch.cat([numbers, rows]), reduction="sum")
    entropy, count, tokens, all_tokens = numbers.tolist()
    metrics["entropy"][-1] = entropy / count if count else float("nan")
    for name in _CLIPPED:
        if name in metrics:
            metrics[name][-1] *= tokens / max(all_tokens, 1.0)
    if "clip_ratio/low_min" in metrics:
        metrics["clip_ratio/low_min"][-1] = 0.0
