"""The policy that is trained: where it is loaded from, how its weights are held, and the adapter to train on it."""

import math
import re
from typing import Any, Literal

from pydantic import Field, field_validator

from workbench.config.section import Section

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
Quantisation = Literal["none", "8bit", "4bit"]
DeviceMap = Literal["none", "auto", "balanced", "balanced_low_0", "sequential"]
ALL_LINEAR = "all-linear"
_NAMES = re.compile(r"[\w.-]+(?:\s*,\s*[\w.-]+)*")


class LoraConfig(Section):
    r: int = Field(default=16, ge=1, le=1024, title="LoRA rank r")
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1, le=4096, title="LoRA α")
    """Scale of the adapter."""
    targets: str = Field(default=ALL_LINEAR, min_length=1, max_length=10_000, title="LoRA targets")
    """Modules that get an adapter: all-linear, names (q_proj, v_proj), or a regular expression for a whole path."""
    dropout: float = Field(default=0.0, ge=0, lt=1, title="LoRA dropout")
    """Dropout of the adapter's inputs; of methods that train with dropout."""
    rslora: bool = Field(default=False, title="rsLoRA")
    """Scale by alpha over the square root of r, not over r (rsLoRA, arXiv 2312.03732)."""
    dora: bool = Field(default=False, title="DoRA")
    """Learn the weights' magnitudes apart from their directions (DoRA, arXiv 2402.09353)."""
    bias: Literal["none", "all", "lora_only"] = Field(default="none", title="LoRA biases")
    """Biases that are trained beside the adapter: none, all, or those of its modules."""
    modules_to_save: list[str] = Field(default_factory=list, max_length=100)
    """Modules that are trained whole and saved with the adapter, by name (lm_head, say)."""

    @field_validator("targets", mode="before")
    @classmethod
    def _join_targets(cls, targets: Any) -> Any:
        return ", ".join(map(str, targets)) if isinstance(targets, list | tuple) else targets

    @property
    def names(self) -> list[str] | None:
        """The names of the modules that get an adapter; None where they are said in another way."""
        if self.targets == ALL_LINEAR or not _NAMES.fullmatch(self.targets):
            return None
        return [name.strip() for name in self.targets.split(",")]


class PolicySection(Section):
    """A plain string is taken for ``path``."""

    shorthand = "path"
    path: str = "tiny"
    """The embedded policy's name, a Hub id, a local folder or .gguf file, or a run's: run:NAME, run:NAME@STEP; for
    sampling alone, a model on a server: http://HOST:PORT/v1#MODEL, tinker:MODEL."""
    adapter: str | None = None
    """A PEFT adapter to put on the policy: a Hub id, a local folder, or a run's checkpoint."""
    merge: dict[str, float] = Field(default_factory=dict, max_length=16, title="Merged adapters")
    """LoRA adapters that are put into the weights first, and how much of each: run:taught=1, owner/style=0.5."""
    trust_remote_code: bool = False
    """Run modelling code that the policy's own repository brings, with your rights; read it first."""
    dtype: Dtype = Field(default="auto", title="Weights as")
    """Number format of the weights; auto samples as saved on a GPU, else in float32, and trains float32 weights."""
    attention: Attention = "auto"
    """How attention is computed (attn_implementation); auto for transformers' own choice."""
    quantisation: Quantisation = "none"
    """Hold the frozen weights in 4 or 8 bits, by bitsandbytes; what is trained is an adapter (QLoRA)."""
    device_map: DeviceMap = "none"
    """How weights are spread over the GPUs of one process (accelerate's names); none puts them on one device."""
    lora: LoraConfig | None = None
    """Train an adapter instead of all weights."""

    @property
    def loading(self) -> dict[str, Any]:
        """Return how the weights are held, as `load_policy` takes it; without what is as by default."""
        names = ("merge", "dtype", "attention", "quantisation", "device_map")
        fields = PolicySection.model_fields
        default = {name: fields[name].get_default(call_default_factory=True) for name in names}
        return {name: value for name in names if (value := getattr(self, name)) != default[name]}


Optimiser = Literal[
    "adamw_torch_fused",
    "adamw_torch",
    "adafactor",
    "sgd",
    "adagrad",
    "rmsprop",
    "stable_adamw",
    "adamw_bnb_8bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion_32bit",
    "lion_8bit",
    "paged_lion_8bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_8bit",
    "galore_adamw",
    "apollo_adamw",
]
"""transformers' names of optimisers that a run can be resumed with."""


class OptimiserSection(Section):
    learning_rate: float = Field(default=3.5e-4, gt=0, le=1)
    """Peak learning rate."""
    optim: Optimiser = Field(default="adamw_torch_fused", title="Optimiser")
    """The optimiser (transformers' names); 8-bit and paged ones, Lion and AdEMAMix are bitsandbytes'."""
    warmup_steps: int = Field(default=5, ge=0, le=1_000_000)
    """Steps over which the rate rises from 0."""
    warmup_ratio: float | None = Field(default=None, ge=0, lt=1)
    """Share of all steps over which the rate rises, in place of warmup_steps."""
    lr_scheduler_type: Literal[
        "linear", "cosine", "constant_with_warmup", "constant", "cosine_with_restarts", "polynomial", "inverse_sqrt"
    ] = Field(default="linear", title="Learning-rate schedule")
    """How the rate falls after warm-up; constant has none."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam β₁."""
    adam_beta2: float = Field(default=0.99, ge=0, lt=1)
    """Adam β₂."""
    adam_epsilon: float = Field(default=1e-6, ge=1e-30, le=1)
    """Added to Adam's denominator."""
    weight_decay: float = Field(default=0.0, ge=0, le=1000)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(title="Clip gradients at norm", default=0.5, ge=0, le=1e9)
    """Gradient clipping threshold."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the backward pass."""

    def warmup(self, steps: int) -> int:
        """Return the number of warm-up steps of a run of ``steps`` steps."""
        return self.warmup_steps if self.warmup_ratio is None else math.ceil(self.warmup_ratio * steps)


class SamplingConfig(Section):
    num_generations: int = Field(default=8, ge=2, le=64, title="Group size (G)")
    """G, the rollouts of one prompt."""
    max_completion_length: int = Field(default=128, ge=1, le=32_768, title="Max tokens")
    """Tokens after which a completion is truncated."""
    temperature: float = Field(default=1.0, ge=0.001, le=10)
    """Divides the logits before sampling."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this much probability."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Sample from the k likeliest tokens; 0 for all."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=10)
    """Above 1 makes tokens already used less likely."""
    stop: list[str] = Field(default_factory=list, max_length=16, title="Stop strings, one a line")
    """Texts that end a completion, which is not truncated then; their tokens belong to it."""

    @field_validator("stop")
    @classmethod
    def _stop_is_text(cls, stop: list[str]) -> list[str]:
        if any(not text for text in stop):
            raise ValueError("an empty text would end every completion at its first token; leave it out")
        return stop

    @property
    def recorded(self) -> dict[str, Any]:
        """Return what a group's record says of how it was sampled."""
        return self.model_dump(exclude=set() if self.stop else {"stop"})
