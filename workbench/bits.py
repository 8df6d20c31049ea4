"""The weights of linear layers in 4 or 8 bits, by bitsandbytes where it is installed: policies' and reward models'."""

from __future__ import annotations

from collections.abc import Sequence
from logging import ERROR, getLogger
from typing import Any

import torch

HEADS = ("lm_head", "score", "classifier")
"""Modules that a reward model scores with, which stay as they are."""


def quantised(quantisation: str, device: torch.device, compute: Any = None, whole: Sequence[str] | None = None) -> Any:
    """transformers' configuration of ``4bit`` or ``8bit``; ``compute`` is a torch dtype, or None for the device's own.

    NF4 with quantised constants for 4 bits (QLoRA, arXiv 2305.14314), LLM.int8 for 8 (arXiv 2208.07339). ``whole`` are
    the modules that stay as they are; None leaves that to transformers.
    """
    from transformers import BitsAndBytesConfig

    skipped = None if whole is None else list(whole)
    if quantisation == "8bit":
        # It says at every product that it casts to float16.
        getLogger("bitsandbytes.autograd._functions").setLevel(ERROR)
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=skipped)
    half = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute if isinstance(compute, torch.dtype) else half,
        llm_int8_skip_modules=skipped,
    )
