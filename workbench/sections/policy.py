"""The policy that is trained: where it is loaded from, how its weights are held, and the adapter to train on it."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.sections.section import Section

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
    def _listed(cls, targets: Any) -> Any:
        return ", ".join(map(str, targets)) if isinstance(targets, list | tuple) else targets

    @field_validator("targets")
    @classmethod
    def _compiles(cls, targets: str) -> str:
        if not _NAMES.fullmatch(targets):
            try:
                re.compile(targets)
            except re.error as error:
                raise ValueError(f"neither names with commas between nor a regular expression ({error})") from error
        return targets

    @property
    def names(self) -> list[str] | None:
        """The names of the modules that get an adapter; None where they are said in another way."""
        if self.targets == ALL_LINEAR or not _NAMES.fullmatch(self.targets):
            return None
        return [name.strip() for name in self.targets.split(",")]


class PolicySection(Section):
    """A plain string is taken for ``path``."""

    path: str = "tiny"
    """The embedded policy's name, a Hub id, a local folder, or a run's checkpoint: run:NAME, run:NAME@STEP."""
    adapter: str | None = None
    """A PEFT adapter to put on the policy: a Hub id, a local folder, or a run's checkpoint."""
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

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data

    @property
    def loading(self) -> dict[str, Any]:
        """How the weights are held, as `load_policy` takes it; without what is as by default."""
        names = ("dtype", "attention", "quantisation", "device_map")
        return {
            name: value for name in names if (value := getattr(self, name)) != PolicySection.model_fields[name].default
        }
