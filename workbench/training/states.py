"""States of optimiser, scheduler and random generators, stored as safetensors and JSON, which cannot run code.

A state is nested dicts, lists and tuples of numbers, texts, tensors and numpy arrays. Tensors and arrays go to
``<name>.safetensors``, the rest, with the names of those, to ``<name>.json``. Every number comes back bit for bit. What
a state means is unknown here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file


def save_state(folder: Path, name: str, state: Any) -> None:
    """Raises TypeError for a state that holds anything else."""
    tensors: dict[str, torch.Tensor] = {}
    packed = _pack(state, tensors)
    save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(packed), encoding="utf-8")


def load_state(folder: Path, name: str) -> Any:
    tensors = load_file(folder / f"{name}.safetensors")
    return _unpack(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), tensors)


def has_state(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").is_file()


def _pack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
        name = str(len(tensors))
        tensors[name] = tensor.detach().cpu().contiguous().clone()  # one storage each, as safetensors wants
        return {kind: name}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_pack(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    raise TypeError(f"a {type(value).__name__} cannot be kept in a checkpoint")


def _unpack(packed: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return tensors[content].numpy()
    if kind == "dict":
        return {_unpack(key, tensors): _unpack(item, tensors) for key, item in content}
    items = [_unpack(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
