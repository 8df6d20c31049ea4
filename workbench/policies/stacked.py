"""LoRA adapters put into a policy's weights, and one trained on top of them saved as one adapter of the base.

A sum of LoRA updates is one LoRA: s1 B1 A1 + s2 B2 A2 = s1 [B1 B2] [A1; (s2/s1) A2]. So the checkpoint of an adapter
that was trained over merged ones holds them all, and is read by whatever reads adapters. The trained rows of A and
columns of B stand first, bit for bit: a run resumes from those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file

from workbench.errors import PolicyError
from workbench.places import ADAPTER
from workbench.policies.find import policy_path

SETTINGS = "adapter_config.json"
A, B = ".lora_A.weight", ".lora_B.weight"
Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Lora:
    """A (r, in) and B (out, r) of each module, by the name that its file has; ``scale`` times B A is added to it."""

    factors: Factors
    scale: float

    @property
    def rank(self) -> int:
        """The highest of its modules'."""
        return max(a.shape[0] for a, _ in self.factors.values())


def local_adapter(name: str) -> Path:
    """Return the folder of an adapter's files, brought from the Hub where they are not here. Raises PolicyError."""
    where = policy_path(name)
    if Path(where).is_dir():
        return Path(where)
    from huggingface_hub import hf_hub_download

    hf_hub_download(where, SETTINGS)
    return Path(hf_hub_download(where, ADAPTER)).parent


def read_lora(name: str, folder: Path, weight: float = 1.0) -> Lora:
    """A plain LoRA adapter, ``weight`` times. Raises PolicyError for one that is more than A and B of some modules."""
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    tensors = load_file(folder / ADAPTER)
    more = [setting for setting in ("rank_pattern", "alpha_pattern", "layer_replication") if settings.get(setting)]
    more += [tensor for tensor in tensors if not tensor.endswith((A, B))]  # DoRA, biases, whole modules
    if settings.get("peft_type") != "LORA" or more:
        raise PolicyError(
            f"adapter {name!r} is no plain LoRA ({more[0] if more else settings.get('peft_type')}), of which alone a "
            "sum is one again; merge it into its base by itself (workbench export RUN --merged, or PEFT's "
            "merge_and_unload), and name that as the policy"
        )
    root = 0.5 if settings.get("use_rslora") else 1.0
    modules = [tensor.removesuffix(A) for tensor in tensors if tensor.endswith(A)]
    factors = {module: (tensors[module + A], tensors[module + B]) for module in modules}
    return Lora(factors, weight * settings["lora_alpha"] / settings["r"] ** root)


def stacked(trained: Lora, under: Sequence[Lora]) -> Lora:
    """The sum of all as one LoRA with the first one's scale; its own rows and columns come first, as they are."""
    every = (trained, *under)
    names = dict.fromkeys(name for lora in every for name in lora.factors)
    return Lora({name: _side_by_side(name, every) for name in names}, trained.scale)


def _side_by_side(module: str, every: Sequence[Lora]) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = next(lora.factors[module] for lora in every if module in lora.factors)
    absent = a.new_zeros(1, a.shape[1]), b.new_zeros(b.shape[0], 1)
    rows, columns = [], []
    for lora in every:
        a, b = lora.factors.get(module, absent)
        a = a if lora is every[0] else a * (lora.scale / every[0].scale)
        missing = lora.rank - a.shape[0] if module in lora.factors else lora.rank - 1
        rows.append(torch.nn.functional.pad(a, (0, 0, 0, missing)))
        columns.append(torch.nn.functional.pad(b, (0, missing)))
    dtype = every[0].factors[next(iter(every[0].factors))][0].dtype
    return torch.cat(rows).to(dtype), torch.cat(columns, dim=1).to(dtype)  # (R, in), (out, R)


def save_stacked(folder: Path, under: Sequence[Lora]) -> None:
    """Make the adapter in ``folder`` the sum of itself and those that it was trained over."""
    together = stacked(read_lora(str(folder), folder), under)
    tensors = {
        name + end: part for name, both in together.factors.items() for end, part in zip((A, B), both, strict=True)
    }
    save_file({name: part.contiguous() for name, part in tensors.items()}, folder / ADAPTER, metadata={"format": "pt"})
    modules = sorted(name.removeprefix("base_model.model.") for name in together.factors)
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    settings |= {"r": together.rank, "lora_alpha": together.scale * together.rank}
    settings |= {"use_rslora": False, "target_modules": modules, "exclude_modules": None}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")


@contextmanager
def trained_alone(folder: Path, ranks: Mapping[str, int]) -> Iterator[Path]:
    """A folder like ``folder`` whose adapter has of each module in ``ranks`` the first rows and columns alone."""
    tensors = load_file(folder / ADAPTER)
    own = {name + A: tensors[name + A][:rank] for name, rank in ranks.items()}
    own |= {name + B: tensors[name + B][:, :rank] for name, rank in ranks.items()}
    with TemporaryDirectory() as aside:
        for path in folder.iterdir():
            if path.name != ADAPTER:
                (Path(aside) / path.name).symlink_to(path.resolve())
        save_file({name: part.contiguous() for name, part in own.items()}, Path(aside) / ADAPTER)
        yield Path(aside)
