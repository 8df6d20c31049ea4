"""Log-probabilities from one plain forward pass over prompt and completion."""

from collections.abc import Sequence
from typing import Any

import torch


def forward_logprobs(model: Any, prompt: Sequence[int], ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probabilities (T, V) under which the ids of a completion were drawn."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0, len(prompt) - 1 : -1].double()
    return (logits / temperature).log_softmax(-1)


def picked_logprobs(model: Any, prompt: Sequence[int], ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probability of each id of a completion."""
    logprobs = forward_logprobs(model, prompt, ids, temperature)
    return logprobs.gather(-1, torch.tensor(ids)[:, None])[:, 0]
