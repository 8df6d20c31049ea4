"""Models of Llama's shape: which those are, and their layers as functions that read the model's own weights.

RMSNorm, rotary positions, grouped-query attention and a gated MLP, as transformers' Llama, Qwen 2, Qwen 3 and Mistral
have them. The list is closed and compared with a model's actual modules: every class by its full name, with no forward
replaced and no hook on what is left out of the way. Linear layers may be LoRA's or have hooks; those are called as
modules. Weights are never copied, so that what an optimiser makes of them is what is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FAMILIES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}
"""transformers' folder of modelling code → how its classes' names begin."""
ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the length of the sequence."""
ATTENTION = ("sdpa", "eager")
LORA_MODEL, LORA_LINEAR = "peft.tuners.lora.model.LoraModel", "peft.tuners.lora.layer.Linear"
SILU = "transformers.activations.SiLUActivation"
TRL_FORWARD = ("trl.trainer.utils", "_fused_forward")
PEFT_MODELS = ("peft.peft_model.PeftModelForCausalLM", "peft.peft_model.PeftModel")

Apply = Callable[[torch.Tensor], torch.Tensor]
Add = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(residual, input) → residual + linear(input)."""


class NotOfThisShape(Exception):
    """Why a model's tokens are not decoded by these layers, in words that follow a colon."""


@dataclass(frozen=True)
class Layer:
    """One layer: what is computed from a token's hidden state (R, d), attention apart.

    ``window`` is how many positions a token attends to, itself included; None for all.
    """

    norm: Apply
    query: Apply
    key: Apply
    value: Apply
    query_norm: Apply | None
    key_norm: Apply | None
    output: Add
    mlp_norm: Apply
    gate: Apply
    up: Apply
    activation: Apply
    down: Add
    scaling: float
    window: int | None


@dataclass(frozen=True)
class Shape:
    """A model's layers, heads and ends. ``rotary(x, positions)`` gives cosines and sines."""

    embedding: Apply
    layers: tuple[Layer, ...]
    norm: Apply
    head: Apply
    rotary: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    heads: int
    key_heads: int
    head_size: int
    dtype: torch.dtype


def shape_of(model: Any) -> Shape:
    """A causal language model's layers as they are now. Raises NotOfThisShape with the reason."""
    model = _without_adapter(model)
    family = next((name for name, prefix in FAMILIES.items() if _named(model, name, f"{prefix}ForCausalLM")), None)
    if family is None:
        raise NotOfThisShape(f"no plain step is known for {type(model).__name__}")
    if torch.is_autocast_enabled(model.device.type):
        raise NotOfThisShape("autocast is on")
    config, parts = model.config, _Parts(family, model.dtype)
    base = parts.check(model, "ForCausalLM").model
    rotary = parts.check(parts.check(base, "Model").rotary_emb, "RotaryEmbedding")
    if rotary.rope_type not in ROTARY:
        raise NotOfThisShape(f"rotary positions of type {rotary.rope_type!r}")
    if config._attn_implementation not in ATTENTION:
        raise NotOfThisShape(f"attention by {config._attn_implementation!r}")
    if type(base.embed_tokens) is not nn.Embedding:
        raise NotOfThisShape(f"its embeddings are a {type(base.embed_tokens).__name__}")
    layers = base.layers[: config.num_hidden_layers]
    attention = layers[0].self_attn
    return Shape(
        embedding=base.embed_tokens,
        layers=tuple(parts.layer(layer, i, _window(config, family, i)) for i, layer in enumerate(layers)),
        norm=parts.norm(base.norm),
        head=parts.linear(model.lm_head),
        rotary=rotary,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=attention.head_dim,
        dtype=model.dtype,
    )


def _without_adapter(model: Any) -> Any:
    """The model that LoRA was put on, whose linear layers then are LoRA's; any other model as it is."""
    if _class_of(model) not in PEFT_MODELS:
        return model
    _check_untouched(model)
    if _class_of(model.base_model) != LORA_MODEL:
        raise NotOfThisShape(f"its adapter is a {type(model.base_model).__name__}")
    _check_untouched(model.base_model)
    if any(getattr(config, "alora_invocation_tokens", None) for config in model.peft_config.values()):
        raise NotOfThisShape("its adapter is an activated LoRA")
    return model.base_model.model


def _window(config: Any, family: str, layer: int) -> int | None:
    """The sliding window of a layer. Mistral has one for all; Qwen says which layers have it."""
    if family == "mistral":
        return None if config.sliding_window is None else int(config.sliding_window)
    if family == "llama" or config.layer_types[layer] == "full_attention":
        return None
    if config.layer_types[layer] != "sliding_attention":
        raise NotOfThisShape(f"a layer of type {config.layer_types[layer]!r}")
    return int(config.sliding_window)


def _class_of(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _named(module: Any, family: str, name: str) -> bool:
    return _class_of(module) == f"transformers.models.{family}.modeling_{family}.{name}"


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _replaced(module: nn.Module) -> bool:
    """Whether a module's forward is not its class's.

    What accelerate leaves on a model that it unwrapped is, its decorators taken off. So is what TRL puts around it for
    its loss, which computes something else only where an argument asks for that.
    """
    forward: Any = vars(module).get("forward")
    known: Any = type(module).forward
    if _made_by(forward) == TRL_FORWARD:
        forward = inspect.getclosurevars(forward.__func__).nonlocals["original_forward"]
    function = getattr(forward, "__func__", None)
    while known is not None and known is not function:
        known = getattr(known, "__wrapped__", None)
    return forward is not None and known is None


def _made_by(method: Any) -> tuple[str, str] | None:
    """The module and name of a method's function as it was written, whatever it passes for."""
    function = getattr(method, "__func__", None)
    return None if function is None else (function.__globals__["__name__"], function.__code__.co_name)


def _check_untouched(module: nn.Module) -> None:
    """Refuses a module with a hook, or whose forward was replaced, as autocast in accelerate and kernels do."""
    if _replaced(module) or _hooked(module):
        raise NotOfThisShape(f"the forward of its {type(module).__name__} has a hook or was replaced")


@dataclass(frozen=True)
class _Parts:
    """Checks modules of one family and makes functions of them."""

    family: str
    dtype: torch.dtype

    def check(self, module: Any, part: str) -> Any:
        if not _named(module, self.family, f"{FAMILIES[self.family]}{part}"):
            raise NotOfThisShape(f"a {type(module).__name__} in place of {FAMILIES[self.family]}{part}")
        _check_untouched(module)
        return module

    def layer(self, layer: Any, index: int, window: int | None) -> Layer:
        self.check(layer, "DecoderLayer")
        attention, mlp = self.check(layer.self_attn, "Attention"), self.check(layer.mlp, "MLP")
        if attention.layer_idx != index:
            raise NotOfThisShape(f"layer {index} is numbered {attention.layer_idx}")
        norms = (attention.q_norm, attention.k_norm) if self.family == "qwen3" else None
        return Layer(
            norm=self.norm(layer.input_layernorm),
            query=self.linear(attention.q_proj),
            key=self.linear(attention.k_proj),
            value=self.linear(attention.v_proj),
            query_norm=norms and self.norm(norms[0]),
            key_norm=norms and self.norm(norms[1]),
            output=self.added(attention.o_proj),
            mlp_norm=self.norm(layer.post_attention_layernorm),
            gate=self.linear(mlp.gate_proj),
            up=self.linear(mlp.up_proj),
            activation=functional.silu if _class_of(mlp.act_fn) == SILU else mlp.act_fn,
            down=self.added(mlp.down_proj),
            scaling=attention.scaling,
            window=window,
        )

    def norm(self, module: Any) -> Apply:
        self.check(module, "RMSNorm")
        weight, epsilon = module.weight, module.variance_epsilon
        if weight.dtype != torch.float32 or self.dtype != torch.float32:
            return module
        epsilon, size = torch.tensor(epsilon, device=weight.device), weight.shape[0]

        def normed(hidden: torch.Tensor) -> torch.Tensor:  # fewer operations than functional.rms_norm has on a CPU
            squares = torch.linalg.vecdot(hidden, hidden)
            return (hidden * torch.add(epsilon, squares, alpha=1 / size).rsqrt_()[:, None]).mul_(weight)

        return normed

    def linear(self, module: Any) -> Apply:
        if self._is_bare(module):
            weight, bias = module.weight, module.bias
            return lambda hidden: functional.linear(hidden, weight, bias)
        return module

    def added(self, module: Any) -> Add:
        if self._is_bare(module) and module.bias is None and self.dtype == torch.float32:
            transposed = module.weight.t()
            return lambda residual, hidden: torch.addmm(residual, hidden, transposed)
        return lambda residual, hidden: residual + module(hidden)

    def _is_bare(self, module: Any) -> bool:
        """Whether a linear layer is nothing but its weights. Raises NotOfThisShape for one that is not known."""
        if type(module) is not nn.Linear and _class_of(module) != LORA_LINEAR:
            raise NotOfThisShape(f"a linear layer is a {_class_of(module)}")
        if type(module) is not nn.Linear or _hooked(module) or _replaced(module):
            return False
        if type(module.weight) is not nn.Parameter or module.weight.dtype != self.dtype:
            raise NotOfThisShape(
                f"a linear layer's weights are {type(module.weight).__name__} of {module.weight.dtype}"
            )
        return True
