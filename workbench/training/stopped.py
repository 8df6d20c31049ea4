"""Completions that a stop string or an environment ended, in the places where TRL takes all that lack an
end-of-sequence token for truncated: its metrics of lengths, and ``mask_truncated_completions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from workbench.policies.sampler import Sampled


def count_stopped_as_ended(trainer: Any, rows: Sequence[Sampled]) -> list[bool]:
    """Write TRL's metrics of truncated and of terminated completions anew; which of this rank's are truncated.

    Lengths are of sampled tokens, as TRL counts them where tools write.
    """
    cut = [not row.finished and row.stop is None for row in rows]
    here = torch.tensor([(row.sampled_length, flag) for row, flag in zip(rows, cut, strict=True)])
    lengths, truncated = trainer.accelerator.gather(here.to(trainer.accelerator.device)).unbind(1)  # (B_all,) each
    terminated = lengths[truncated == 0].float()
    terminated = terminated if len(terminated) else lengths.new_zeros(1).float()
    values = {
        "clipped_ratio": truncated.float().mean(),
        "mean_terminated_length": terminated.mean(),
        "min_terminated_length": terminated.min(),
        "max_terminated_length": terminated.max(),
    }
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, value in values.items():
        metrics[f"completions/{name}"][-1] = value.item()
    return cut


@contextmanager
def truncated_by_length(trainer: Any) -> Iterator[None]:
    """Have TRL mask no completion by its last token; ``mask_truncated`` does what it would."""
    masks = trainer.mask_truncated_completions
    trainer.mask_truncated_completions = False
    try:
        yield
    finally:
        trainer.mask_truncated_completions = masks


def mask_truncated(trainer: Any, output: dict[str, Any], truncated: Sequence[bool]) -> None:
    """Leave this rank's truncated completions out of the loss and its token count, as TRL does."""
    mask = output["completion_mask"]  # (B, T)
    counted = ~torch.tensor(list(truncated), device=mask.device)  # (B,)
    output["completion_mask"] = mask * counted[:, None].int()
    loss_mask = output["completion_mask"] * output.get("tool_mask", 1)
    output["num_items_in_batch"] = trainer.accelerator.gather(loss_mask.sum()).sum()
