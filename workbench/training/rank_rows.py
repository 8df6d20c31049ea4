"""This rank's rows of numbers that were made of all ranks' completions, as the loss takes them.

Every rank has the credit of all groups, in the order of the ranks; here each takes what is of its own completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.schema import Credit


def padded_rows(trainer: Any, rows: Sequence[npt.NDArray[np.float32]], completion_ids: torch.Tensor) -> torch.Tensor:
    """This rank's of all ranks' rows, a number a token, padded to (B, T) float32 like ``completion_ids``."""
    batch, length = completion_ids.shape
    first = trainer.accelerator.process_index * batch
    padded = torch.zeros(batch, length)
    for i, row in enumerate(rows[first : first + batch]):
        padded[i, : len(row)] = torch.from_numpy(row)
    return padded.to(completion_ids.device)


def advantages_of_rank(trainer: Any, credits: Sequence[Credit], completion_ids: torch.Tensor) -> torch.Tensor:
    """This rank's rows of all groups' advantages, padded to (B, T) float32 like ``completion_ids``.

    (B,) where the loss works with whole sequences, which only schemes with one advantage a completion allow.
    """
    rows = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
    if not trainer.args.is_sequence_level:
        return padded_rows(trainer, rows, completion_ids)
    # Every sampled token of a row has the same one; others have 0.
    first = trainer.accelerator.process_index * len(completion_ids)
    of_rank = rows[first : first + len(completion_ids)]
    whole = [float(row[np.abs(row).argmax()]) if len(row) else 0.0 for row in of_rank]
    return torch.tensor(whole, device=completion_ids.device)


def leave_copies_out(trainer: Any, credits: Sequence[Credit], output: dict[str, Any]) -> None:
    """Mask this rank's exact copies in the loss, KL and token count included, as TRL masks what tools wrote."""
    mask = output["completion_mask"]  # (B, T)
    first = trainer.accelerator.process_index * len(mask)
    left_out = [dropped for credit in credits for dropped in credit.left_out][first : first + len(mask)]
    counted = ~torch.tensor(left_out, device=mask.device)  # (B,)
    output["tool_mask"] = output.get("tool_mask", torch.ones_like(mask)) * counted[:, None]
    output["num_items_in_batch"] = trainer.accelerator.gather((mask * output["tool_mask"]).sum()).sum()
