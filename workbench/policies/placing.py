"""How a policy's weights are held: number format, attention, bits, and the devices they are spread over.

What ``load`` tells transformers, and what quantised weights need before an adapter is trained on them. Which
combinations can work at all is checked without torch (``find``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.bits import quantised
from workbench.errors import PolicyError


def precision(dtype: str, device: torch.device) -> torch.dtype | str:
    """The number format that a name stands for, as ``from_pretrained`` takes it. Raises PolicyError."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if dtype not in ("float32", "bfloat16", "float16"):
        raise PolicyError(f"unknown dtype {dtype!r}; use auto, float32, bfloat16 or float16")
    chosen: torch.dtype = getattr(torch, dtype)
    return chosen


@dataclass(frozen=True)
class Placing:
    """Where and how the weights of a model are held; see ``load_policy``."""

    device: torch.device
    dtype: torch.dtype | str
    attention: str = "auto"
    quantisation: str = "none"
    device_map: str = "none"

    @property
    def is_placed(self) -> bool:
        """Whether ``from_pretrained`` puts the weights where they stay."""
        return self.quantisation != "none" or self.device_map != "none"

    def arguments(self) -> dict[str, Any]:
        """What ``from_pretrained`` is told."""
        told: dict[str, Any] = {"dtype": self.dtype}
        if self.attention != "auto":
            told["attn_implementation"] = self.attention
        if self.device_map != "none":
            told["device_map"] = self.device_map
        elif self.is_placed:
            told["device_map"] = {"": self.device}
        if self.quantisation != "none":
            told["quantization_config"] = quantised(self.quantisation, self.device, self.dtype)
        return told


def prepared(model: Any) -> Any:
    """A quantised model made ready for an adapter to be trained on it (peft's, of QLoRA); any other as it is."""
    if not getattr(model, "is_quantized", False):
        return model
    from peft import prepare_model_for_kbit_training

    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)  # the trainer's to switch on
