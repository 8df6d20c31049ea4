"""A critic beside the policy: a value of the text before each completion token.

Its parameters are a submodule of the policy while it is trained, so that optimisers, gradient clipping and ranks treat
both as one, and its values are part of what the policy's forward returns, where DistributedDataParallel looks for them.
They are stored in a file of their own: what is saved of the policy loads as any other. What the values are compared
with is not known here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from trl.trainer.utils import FusedCausalLMOutput

from workbench.errors import RunError

FILE = "critic.safetensors"
CriticKind = Literal["shared", "separate"]
_NAME = "critic"  # of the submodule


@dataclass
class ValuedOutput(FusedCausalLMOutput):
    """What the fused LM head returns, and ``state_values`` (B, S): the value of the text up to each position."""

    state_values: torch.Tensor | None = None


class Critic(nn.Module):
    """A linear head on the policy's last hidden state (``shared``), or on that of a copy of it (``separate``).

    The head starts at zero: the first advantages are sums of rewards, and no random number is drawn.

    Args:
        policy: the causal language model, in its adapter where it has one; the critic becomes a submodule of it.
        kind: whose hidden state it reads.
    """

    def __init__(self, policy: Any, kind: CriticKind) -> None:
        super().__init__()
        model = policy.get_base_model() if hasattr(policy, "peft_config") else policy
        size = model.config.get_text_config().hidden_size
        self.body = copy.deepcopy(model.base_model) if kind == "separate" else None
        self.head = nn.Linear(size, 1, device=policy.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._hidden: torch.Tensor | None = None
        self._seen: list[torch.Tensor] | None = None
        if kind == "shared":
            model.base_model.register_forward_hook(self._keep_hidden)
        model.register_forward_hook(self._add_values, with_kwargs=True)
        policy.add_module(_NAME, self)

    @contextmanager
    def listening(self) -> Iterator[list[torch.Tensor]]:
        """While it lasts, each forward of the policy that returns log-probabilities adds its values (B, S)."""
        seen: list[torch.Tensor] = []
        self._seen = seen
        try:
            yield seen
        finally:
            self._seen = self._hidden = None

    def _keep_hidden(self, _body: nn.Module, _args: Any, output: Any) -> None:
        if self._seen is not None:
            self._hidden = output.last_hidden_state

    def _add_values(self, _model: nn.Module, _args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        if self._seen is None or not isinstance(output, FusedCausalLMOutput):
            return output
        if self.body is not None:
            inputs = {name: kwargs[name] for name in ("input_ids", "attention_mask")}
            self._hidden = self.body(**inputs, use_cache=False).last_hidden_state
        assert self._hidden is not None
        hidden, self._hidden = self._hidden, None
        with torch.autocast(hidden.device.type, enabled=False):
            values = self.head(hidden.float()).squeeze(-1)  # (B, S)
        self._seen.append(values)
        return ValuedOutput(**output, state_values=values)


@contextmanager
def set_aside(policy: Any) -> Iterator[None]:
    """While it lasts, the policy is without its critic: what is saved or loaded is the policy alone."""
    critic = policy._modules.pop(_NAME)
    try:
        yield
    finally:
        policy._modules[_NAME] = critic


def save(critic: Critic, folder: Path) -> None:
    """Write the critic's weights, of a body's those that are trained, beside the policy's."""
    trained = {name for name, parameter in critic.named_parameters() if parameter.requires_grad}
    weights = {name: tensor for name, tensor in critic.state_dict(keep_vars=True).items() if name in trained}
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}, folder / FILE)


def load(critic: Critic, folder: Path) -> None:
    """Raises RunError for a checkpoint without a critic."""
    file = folder / FILE
    if not file.is_file():
        raise RunError(f"{folder} has no {FILE}, so its critic cannot go on; resume from a checkpoint of a ppo run")
    critic.load_state_dict(load_file(file), strict=False)
