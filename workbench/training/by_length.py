"""A micro-batch's forward pass in parts of similar length, so that short completions are not padded to the longest.

What stands behind a completion's last token changes nothing before it, so the log-probabilities are those of the whole
batch but for rounding. Prompts stay as wide as they are: positions count from the left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import pad

MOST_PARTS = 4
PASS = {"cpu": 256, "cuda": 4096}
"""What one more forward and backward pass costs, in positions; that of CUDA is a guess, and unmeasured."""
_PLAIN = frozenset({"batch_size", "compute_entropy", "compute_aux_loss"})
"""Options of TRL's forward pass that go by no row of the batch."""


class ForwardByLength:
    """Of a GRPO trainer: its forward pass in parts, where no other row and no random number has a say in a row's."""

    in_parts = True
    """Whether rows may go through the model in another order than the batch's."""
    args: Any
    accelerator: Any
    aux_loss_enabled: bool

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        forward = super()._get_per_token_logps_and_entropies  # type: ignore[misc]
        rows_alone = not self.aux_loss_enabled and self.args.disable_dropout
        plain = not any(value is not None for name, value in kwargs.items() if name not in _PLAIN)
        # A wrapper of several processes expects one forward pass to a backward one.
        if self.in_parts and rows_alone and plain and self.accelerator.num_processes == 1:
            return forward_by_length(forward, *args, **kwargs)
        return forward(*args, **kwargs)


def parts_by_length(lengths: Sequence[int], prompt: int, extra: int) -> list[list[int]]:
    """The rows of a batch in at most ``MOST_PARTS`` parts, from short to long, of (nearly) as many rows each.

    ``lengths`` are those of the completions, in tokens, ``prompt`` is the prompts' common width, and ``extra`` is what
    each part after the first costs, in positions. The cheapest number of parts is taken, the least of equally cheap.
    """
    rows = sorted(range(len(lengths)), key=lambda row: lengths[row])
    choices = []
    for count in range(1, min(MOST_PARTS, len(rows)) + 1):
        bounds = [len(rows) * part // count for part in range(count + 1)]
        parts = [rows[start:end] for start, end in pairwise(bounds)]
        positions = sum(len(part) * (prompt + lengths[part[-1]]) for part in parts)
        choices.append((positions + (count - 1) * extra, parts))
    return min(choices, key=lambda choice: choice[0])[1]


def forward_by_length(
    forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None, Any]],
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, Any]:
    """``forward`` of TRL's log-probabilities and entropies, part by part: both (B, ``logits_to_keep``).

    ``input_ids`` and ``attention_mask`` are (B, prompt + ``logits_to_keep``). Behind a part's longest row they are 0.
    What ``forward`` returns third, a loss over the rows of a batch, is left out.
    """
    prompt = input_ids.shape[1] - logits_to_keep
    positions = torch.arange(1, logits_to_keep + 1, device=input_ids.device)
    lengths: list[int] = (attention_mask[:, prompt:] * positions).amax(dim=1).clamp(min=1).tolist()
    parts = parts_by_length(lengths, prompt, PASS.get(input_ids.device.type, PASS["cuda"]))
    if len(parts) == 1 and max(lengths) == logits_to_keep:
        return forward(model, input_ids, attention_mask, logits_to_keep, **options)
    found: list[tuple[torch.Tensor, ...]] = []
    for part in parts:
        longest = lengths[part[-1]]
        width = prompt + longest
        logps, entropies, _ = forward(model, input_ids[part, :width], attention_mask[part, :width], longest, **options)
        values = (logps,) if entropies is None else (logps, entropies)
        found.append(tuple(pad(value, (0, logits_to_keep - longest)) for value in values))
    places = torch.tensor([row for part in parts for row in part], device=input_ids.device).argsort()
    logps, *rest = (torch.cat(values)[places] for values in zip(*found, strict=True))
    return logps, rest[0] if rest else None, None
