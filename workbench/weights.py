"""Validation of weights before they are loaded: files, names, shapes, values, memory; adapters that fit their base.

Policies and reward models are loaded through these checks; which of the two it is they do not know. Each raises
``WeightsError`` with a sentence that names the tensor or number and what to do, to follow the model's own name.
"""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from logging import LogRecord, getLogger
from pathlib import Path
from typing import Any

import psutil
import torch

from workbench.places import ADAPTER

INDEX = "model.safetensors.index.json"
DAMAGED = "copy or download it again"
_NO_MEMORY = (
    *("out of memory", "can't allocate memory", "cannot allocate memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
_MASKS = re.compile(r"(^|\.)(masked_bias|(attn|attention)\.bias|inv_freq)$")  # constants that old files hold


class WeightsError(ValueError):
    """Weights that must not be computed with."""


def tensor_names(folder: Path) -> set[str]:
    """The tensors that a folder's safetensors files hold, every file complete; the adapter's not among them."""
    _check_index(folder)
    files = sorted(file for file in folder.glob("*.safetensors") if file.name != ADAPTER)
    return {name for file in files for name in read_header(file)}


def read_header(file: Path) -> dict[str, Any]:
    """A safetensors file's tensors by name: ``dtype``, ``shape`` and ``data_offsets``. Reads none of their data."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if 8 <= length + 8 <= size else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise WeightsError(f"{file.name} ({size:,} bytes) has no readable safetensors header; {DAMAGED}")
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    try:
        end = 8 + length + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
    except (TypeError, KeyError, IndexError):
        raise WeightsError(f"{file.name} has a safetensors header of another form; {DAMAGED}") from None
    if size != end:
        raise WeightsError(f"{file.name} has {size:,} bytes where its header describes {end:,}; {DAMAGED}")
    return tensors


def _check_index(folder: Path) -> None:
    index = folder / INDEX
    if not index.is_file():
        return
    try:
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise WeightsError(f"{INDEX} cannot be read; {DAMAGED}") from None
    if missing := sorted(part for part in parts if not (folder / part).is_file()):
        raise WeightsError(f"{listed(missing)} of {INDEX} is not in the folder; {DAMAGED}")


def check_layers(config: Any, names: Iterable[str]) -> None:
    """Refuses a configuration with more layers than there are tensors, which takes minutes to build for nothing."""
    layers, tensors = getattr(config.get_text_config(), "num_hidden_layers", 0), len(set(names))
    if isinstance(layers, int) and tensors and layers > tensors:
        raise WeightsError(
            f"config.json has {layers:,} layers and the weights hold {tensors:,} tensors; the two files are not of the "
            "same model"
        )


def check_memory(model: torch.nn.Module, dtype: torch.dtype | None, device: torch.device) -> None:
    """Refuses ``model``, which may lie on the meta device, if its parameters as ``dtype`` exceed the free memory."""
    count = sum(parameter.numel() for parameter in model.parameters())
    bytes_each = dtype.itemsize if dtype is not None else next(model.parameters()).element_size()
    need, free = count * bytes_each, free_memory(device)
    if need > free:
        half = f", dtype bfloat16 ({_size(2 * count)})" if bytes_each > 2 else ""
        raise WeightsError(
            f"its {count:,} parameters take {_size(need)} and {_size(free)} of memory are free on "
            f"{device}; take a smaller model{half}, or a machine with more memory"
        )


def free_memory(device: torch.device) -> int:
    """Bytes that a model may take on ``device`` now, within this process's control group."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # of a model before, say
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        return free if limit == "max" else min(free, max(0, int(limit) - int(used) + int(cached)))
    except (OSError, ValueError, KeyError):  # no control groups here, or of another version
        return free


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that there is no memory left, on a GPU or beside it."""
    while error is not None:
        refused = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)
        if refused or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        error = error.__cause__
    return False


def give_memory_back(error: BaseException) -> None:
    """Free what the frames of a failed call still hold, and give the GPU's unused memory to other processes."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def check_loaded(model: torch.nn.Module, info: Mapping[str, Any]) -> None:
    """Refuses a model whose ``output_loading_info`` says that it is not the one that was saved.

    Tensors beside the model's own modules (a value head, a vision tower) are left unread and harm nobody. One inside
    them, a layer more or a bias, changes what the model computes.
    """
    if mismatched := sorted(info["mismatched_keys"]):
        name, stored, expected = mismatched[0]
        raise WeightsError(
            f"tensor {name} is {_shape(stored)} in the file and {_shape(expected)} by config.json"
            f"{_more(len(mismatched) - 1)}; the two are not of the same model"
        )
    if missing := sorted(info["missing_keys"]):
        raise WeightsError(
            f"the weights hold no {listed(missing)}, so it would compute with random numbers there; the file is "
            "incomplete or of another architecture than config.json says"
        )
    known = {parent for name, _ in model.named_parameters() for parent in _parents(name)}
    unexpected = sorted(name for name in info["unexpected_keys"] if _container(name) in known)
    if unexpected := [name for name in unexpected if not _MASKS.search(name)]:
        raise WeightsError(
            f"the weights hold {listed(unexpected)}, which a model by its config.json has no place for; the two are "
            "not of the same model"
        )


def with_adapter(model: Any, where: str, *, trainable: bool = False) -> Any:
    """The language model with the adapter in ``where``, a folder or Hub id, on it.

    Raises WeightsError for a folder's adapter that was trained on another base.
    """
    adapted, unexpected = _adapted(model, where, is_trainable=trainable)
    if unexpected:
        raise WeightsError(f"{ADAPTER} holds {listed(unexpected)}, for which this base has no place")
    return adapted


def with_merged_adapter(model: Any, where: str, weight: float = 1.0) -> Any:
    """A model with a language model's body and perhaps another head, an adapter added to its weights.

    ``weight`` is how much of it, 1 unless it is a LoRA adapter. What the adapter has for a head that is not here is
    left out. Raises WeightsError as ``with_adapter`` does.
    """
    from peft import PeftConfig

    config = PeftConfig.from_pretrained(where)
    config.task_type = None  # what PEFT would look for the methods of a language model by
    adapted, unexpected = _adapted(model, where, config=config)
    body = f"base_model.model.{model.base_model_prefix}."
    if inside := [name for name in unexpected if name.startswith(body)]:
        raise WeightsError(f"{ADAPTER} holds {listed(inside)}, for which this base has no place")
    for module in adapted.modules():
        if hasattr(module, "scale_layer"):
            module.scale_layer(weight)
    merged = adapted.merge_and_unload().requires_grad_(True)  # PEFT had frozen them
    merged.name_or_path = None  # an adapter trained on these weights must not name the base without this one
    return merged


def _adapted(model: Any, where: str, **options: Any) -> tuple[Any, list[str]]:
    """The model with an adapter, and what a folder's adapter holds that has no place there."""
    from peft import PeftModel, get_peft_model_state_dict

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
        adapted = PeftModel.from_pretrained(model, where, **options)
    if not Path(where).is_dir():
        return adapted, []
    stored, expected = set(read_header(Path(where) / ADAPTER)), set(get_peft_model_state_dict(adapted))
    if missing := sorted(expected - stored):
        raise WeightsError(f"{ADAPTER} holds no {listed(missing)}; it was trained on another base than this one")
    return adapted, sorted(stored - expected)


def check_finite(model: torch.nn.Module) -> None:
    """Refuses a model with a parameter that is NaN or infinite. One pass over the weights, without copies."""
    names, flags = [], []
    for name, parameter in model.named_parameters():
        if parameter.numel() and parameter.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            names.append(name)
            low, high = torch.aminmax(parameter.detach())
            flags.append((torch.isfinite(low) & torch.isfinite(high)).cpu())
    broken = [
        name for name, finite in zip(names, torch.stack(flags).tolist() if flags else [], strict=True) if not finite
    ]
    if broken:
        tensor = model.get_parameter(broken[0])
        count = int((~torch.isfinite(tensor)).sum())
        raise WeightsError(
            f"tensor {broken[0]} holds {count:,} of {tensor.numel():,} values that are NaN or infinite"
            f"{_more(len(broken) - 1)}; its training diverged or the file is damaged: take an earlier checkpoint"
        )


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + _more(len(names) - most)


def _more(count: int) -> str:
    return f", and {count:,} more" if count > 0 else ""


def _shape(sizes: Iterable[int]) -> str:
    return "(" + ", ".join(map(str, sizes)) + ")"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def _container(name: str) -> str:
    """The module a tensor lies in; of a numbered layer's tensor, the list of layers."""
    parts = name.split(".")[:-1]
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    return ".".join(parts[:numbered])


RENAMED = "`(is_)?gradient_checkpointing"
"""How the warning begins that transformers 5 gives TRL 1.16 and PEFT, for names that it is renaming."""


@contextmanager
def quiet_loading(where: str | Path) -> Iterator[None]:
    """No progress bar while a folder's weights are read, no warning that is meant for TRL and PEFT, and no table of
    tensors that are missing or left over: whoever loads compares them with what it needs.

    A download, which is what anything but a folder is, still says how far it is.
    """
    from transformers.utils import logging

    shown = Path(where).is_dir() and logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()
    logger = getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_load_report)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", RENAMED, FutureWarning)
            yield
    finally:
        logger.removeFilter(_is_no_load_report)
        if shown:
            logging.enable_progress_bar()


def _is_no_load_report(record: LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()
