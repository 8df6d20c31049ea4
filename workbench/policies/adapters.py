"""What the files of a LoRA adapter say of it: whether its sum with others is one LoRA, and whether it fits a base.

Loads no torch, so that a run is refused before it is queued. Adapters of the Hub are looked at when they are loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.architecture import saved_setting
from workbench.errors import PolicyError
from workbench.places import ADAPTER

A, B = ".lora_A.weight", ".lora_B.weight"
_PREFIX = "base_model.model."
_PATTERNS = ("rank_pattern", "alpha_pattern", "layer_replication")


def adapter_settings(folder: Path) -> dict[str, Any]:
    """What an adapter's folder says of it. Raises PolicyError where that cannot be read."""
    try:
        settings: Any = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(f"adapter {str(folder)!r}: its adapter_config.json cannot be read; save it again") from error
    if not isinstance(settings, dict):
        raise PolicyError(f"adapter {str(folder)!r}: its adapter_config.json holds no settings by name; save it again")
    return settings


def check_plain(name: str, folder: Path) -> None:
    """Raises PolicyError for an adapter that is more than A and B of some modules (DoRA, biases, whole modules)."""
    settings = adapter_settings(folder)
    more = [setting for setting in _PATTERNS if settings.get(setting)]
    more += [tensor for tensor in _shapes(folder / ADAPTER) if not tensor.endswith((A, B))]
    if settings.get("peft_type") != "LORA" or more:
        what = f"has {more[0]}" if more else f"is of type {settings.get('peft_type')!r}"
        raise PolicyError(
            f"adapter {name!r} {what} and is no plain LoRA, of which alone a sum is one again; merge it into its base "
            "by itself (workbench export RUN --merged, or PEFT's merge_and_unload), and name that as the policy"
        )


def check_fits(name: str, folder: Path, policy: str, base: Path) -> None:
    """Raises PolicyError for a local adapter that has a module or a size that the policy's files do not."""
    if saved_setting(str(base), "quantization_config") is not None:  # packed: of another shape
        return
    stored = {tensor: shape for file in base.glob("*.safetensors") for tensor, shape in _shapes(file).items()}
    modules = {tensor.removesuffix(".weight"): shape for tensor, shape in stored.items() if len(shape) == 2}
    trained = f"; its base is {adapter_settings(folder).get('base_model_name_or_path')!r}: name that as policy.path"
    for module, (inputs, outputs) in _sizes(_shapes(folder / ADAPTER)):
        found = _module(module, modules)
        if found is None:
            if "experts" in module or module.endswith("lm_head"):  # which files hold in another way, or not at all
                continue
            raise PolicyError(f"adapter {name!r} is of the module {module}, which {policy!r} does not have{trained}")
        if sorted(modules[found]) != sorted((inputs, outputs)):
            rows, columns = modules[found]
            raise PolicyError(
                f"adapter {name!r} is of a module {module} of {outputs} by {inputs}, and that of {policy!r} is of "
                f"{rows} by {columns}{trained}"
            )


def _module(name: str, known: Mapping[str, Any]) -> str | None:
    """The module as a file has it, with or without the model's own prefix."""
    if name in known:
        return name
    ends = (other for other in known if f".{name}".endswith(f".{other}") or f".{other}".endswith(f".{name}"))
    return next(ends, None)


def _sizes(shapes: Mapping[str, list[int]]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(module, (inputs, outputs)) of each linear module that has an A and a B."""
    for tensor, shape in shapes.items():
        module = tensor.removesuffix(A)
        if tensor.endswith(A) and module + B in shapes:
            yield module.removeprefix(_PREFIX), (shape[1], shapes[module + B][0])


def _shapes(file: Path) -> dict[str, list[int]]:
    """The shape of each tensor of a safetensors file; none where it cannot be read, which loading says better."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return {}
