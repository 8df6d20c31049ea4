"""Packages that only some settings need: which, and what is said where one is not installed.

Each is looked for before a run is queued, without importing it. Knows nothing of configurations, and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any


@dataclass(frozen=True)
class Needed:
    """A package, whose ``modules`` show that it is installed, any of them; ``how`` it is installed, if not by name."""

    name: str
    modules: tuple[str, ...]
    how: str = ""

    @property
    def is_installed(self) -> bool:
        return any(_is_there(module) for module in self.modules)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it lies in
        return False


@dataclass(frozen=True)
class OptionalField:
    """A setting whose ``values`` need packages; any value that is not False or empty needs that of ``""``."""

    values: Mapping[str, tuple[Needed, ...]]
    instead: str

    def needs(self, value: Any) -> tuple[Needed, ...]:
        return self.values.get(str(value), self.values.get("", ()) if value else ())


BITSANDBYTES = Needed("bitsandbytes", ("bitsandbytes",))
GPTQMODEL = Needed("gptqmodel", ("gptqmodel",))
_BY_BITSANDBYTES = (
    *("adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit", "lion_32bit", "lion_8bit", "paged_lion_8bit"),
    *("ademamix", "ademamix_8bit", "paged_ademamix_8bit"),
)
_HOPPER = "install it from the folder hopper of flash-attention's repository"
_BITS = dict.fromkeys(("4bit", "8bit"), (BITSANDBYTES,))
OPTIONAL: Mapping[str, OptionalField] = {
    "policy.quantisation": OptionalField(_BITS, "set policy.quantisation to none"),
    "policy.attention": OptionalField(
        {
            "flash_attention_2": (Needed("flash-attn", ("flash_attn",)),),
            "flash_attention_3": (Needed("flash-attn-3", ("flash_attn_interface",), _HOPPER),),
        },
        "set policy.attention to sdpa",
    ),
    "quant_method": OptionalField(
        {
            "bitsandbytes": (BITSANDBYTES,),
            "awq": (GPTQMODEL,),
            "gptq": (Needed("optimum", ("optimum",)), GPTQMODEL),
            "compressed-tensors": (Needed("compressed-tensors", ("compressed_tensors",)),),
            "torchao": (Needed("torchao", ("torchao",)),),
            "hqq": (Needed("hqq", ("hqq",)),),
        },
        "take weights that are saved in full",
    ),
    "tokenizer": OptionalField(
        {
            "SentencePiece": (Needed("sentencepiece", ("sentencepiece",)), Needed("protobuf", ("google.protobuf",))),
            "tiktoken": (Needed("tiktoken", ("tiktoken",)),),
        },
        "save it where it can be read as tokenizer.json: AutoTokenizer.from_pretrained(…).save_pretrained(…)",
    ),
    "model.quantisation": OptionalField(_BITS, "set model.quantisation to none"),
    "optimiser.optim": OptionalField(
        {
            **dict.fromkeys(_BY_BITSANDBYTES, (BITSANDBYTES,)),
            "galore_adamw": (Needed("galore-torch", ("galore_torch",)),),
            "apollo_adamw": (Needed("apollo-torch", ("apollo_torch",)),),
            "stable_adamw": (Needed("torch-optimi", ("optimi",)),),
        },
        "set optimiser.optim to adamw_torch_fused",
    ),
    "method.trl.use_vllm": OptionalField({"": (Needed("vllm", ("vllm",), "pip install 'trl[vllm]'"),)}, "leave it out"),
    "method.trl.use_liger_kernel": OptionalField({"": (Needed("liger-kernel", ("liger_kernel",)),)}, "leave it out"),
    "method.trl.deepspeed": OptionalField({"": (Needed("deepspeed", ("deepspeed",)),)}, "leave it out"),
    "--sharding": OptionalField(dict.fromkeys(("zero2", "zero3"), (Needed("deepspeed", ("deepspeed",)),)), "take fsdp"),
    "run.report_to": OptionalField(
        {
            "trackio": (Needed("trackio", ("trackio",)),),
            "wandb": (Needed("wandb", ("wandb",)),),
            "tensorboard": (Needed("tensorboard", ("tensorboard", "tensorboardX")),),
        },
        "take it out of run.report_to",
    ),
    "--mcp": OptionalField({"": (Needed("mcp", ("mcp",), "pip install 'mcp<2'"),)}, "leave it out"),
}
"""Setting → what its values need; ``quant_method`` and ``tokenizer`` are what a saved model's files say."""


def lacking(field: str, value: Any, where: str = "") -> str | None:
    """What to say where ``value`` needs a package that is not installed, else None; ``where`` names the setting
    where that is not ``field`` itself."""
    missing = [needed for needed in OPTIONAL[field].needs(value) if not needed.is_installed]
    return sentence(field, value, missing, where) if missing else None


def sentence(field: str, value: Any, missing: Sequence[Needed], where: str = "") -> str:
    """Which value needs which package, how it is installed, and what to do without."""
    asked = repr(value) if value in OPTIONAL[field].values else "it"
    several = len(missing) > 1
    names = [needed.name for needed in missing]
    how = missing[0].how or f"pip install {' '.join(names)}"
    return (
        f"{where or field}: {asked} needs the package{'s' * several} {' and '.join(names)}, which "
        f"{'are' if several else 'is'} not installed; {how}, or {OPTIONAL[field].instead}"
    )
