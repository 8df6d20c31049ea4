"""Whether a run can train its policy's weights as they are to be held: number format, bits, devices, adapter.

What sampling alone needs of them is ``policies.find``'s to check. Knows no torch: which modules there are is read off
the names of the tensors in the policy's files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from workbench.architecture import saved_setting
from workbench.config.run import RunConfig
from workbench.errors import ConfigError, did_you_mean
from workbench.packages import lacking
from workbench.policies.find import is_adapter, policy_path
from workbench.runs import devices

_MERGED = ("reward", "prm")
"""Methods whose adapter is put into the weights: before they are trained, and at the end."""
_UNSAVED = ("lm_head", "score")
"""Modules that may be there without a tensor of their own in the files: tied to the embeddings, or new."""
_NO_DROPOUT = ("grpo", "ppo", "dpo", "reward")
"""Methods that train without dropout unless TRL's ``disable_dropout`` is off."""


def check_weights(config: RunConfig, folder: Path | None) -> None:
    """``folder`` holds the policy's files, None where they are on the Hub. Raises ConfigError."""
    _check_bits(config, folder)
    _check_placing(config)
    _check_lora(config, folder)
    _check_optimiser(config)


def _trains_adapter(config: RunConfig) -> bool:
    policy = config.policy
    if policy.lora is not None or config.method.name in _MERGED:  # one that is there is put into the weights
        return policy.lora is not None
    return policy.adapter is not None or is_adapter(Path(policy_path(policy.path)))


def _check_bits(config: RunConfig, folder: Path | None) -> None:
    policy, method = config.policy, config.method.name
    stored = None if folder is None else saved_setting(str(folder), "quantization_config")
    if policy.quantisation != "none" and stored is not None:
        raise ConfigError(
            f"policy.quantisation: {policy.quantisation!r} is asked for and the weights of {policy.path!r} are "
            "quantised as they are saved; set it to none, which loads them as they are"
        )
    bits = "quantised" if stored is not None else policy.quantisation
    if bits == "none":
        return
    if method in _MERGED and stored is not None:
        raise ConfigError(
            f"policy.path: {method} puts its adapter into the weights at the end, which those of {policy.path!r}, "
            "quantised as they are saved, do not take exactly; take weights that are saved in full"
        )
    if method in _MERGED and (policy.adapter is not None or is_adapter(Path(policy_path(policy.path)))):
        raise ConfigError(
            f"policy.quantisation: {method} puts the policy's adapter into the weights first, which {bits} weights do "
            "not take exactly; set it to none, or take the model that export --merged writes"
        )
    if not _trains_adapter(config):
        raise ConfigError(
            f"policy.quantisation: {bits} weights are frozen, and this run would train all of them; set policy.lora, "
            "which trains an adapter on them (--policy.lora.r 16), or policy.quantisation to none"
        )


def _check_placing(config: RunConfig) -> None:
    policy, run = config.policy, config.run
    on_cpu = devices.pool(run.device) == ["cpu"]
    if policy.dtype == "float16" and on_cpu:
        raise ConfigError("policy.dtype: 'float16' trains on a GPU only, and this run trains on the CPU; set bfloat16")
    if policy.dtype == "float16" and not _trains_adapter(config):
        raise ConfigError(
            "policy.dtype: gradients of float16 weights cannot be scaled; set bfloat16 or float32, or policy.lora, "
            "whose adapter has float32 weights"
        )
    if policy.attention.startswith("flash") and on_cpu:
        raise ConfigError(
            f"policy.attention: {policy.attention!r} computes on a GPU only, and this run trains on the CPU; set sdpa"
        )
    if policy.device_map == "none":
        return
    if run.ranks > 1:
        raise ConfigError(
            f"policy.device_map: {policy.device_map!r} spreads one process over all GPUs and run.ranks is {run.ranks}; "
            "set run.ranks to 1, or policy.device_map to none"
        )
    if config.method.name in _MERGED:
        raise ConfigError(
            f"policy.device_map: {config.method.name} loads its model onto one device; set policy.device_map to none"
        )


def _check_lora(config: RunConfig, folder: Path | None) -> None:
    lora, method = config.policy.lora, config.method.name
    if lora is None:
        return
    if lora.dropout and method in _NO_DROPOUT and config.method.trl.get("disable_dropout") is not False:
        raise ConfigError(
            f"policy.lora.dropout: {method} trains without dropout, so that {lora.dropout:g} would change nothing; "
            "set it to 0, or method.trl to {disable_dropout: false}"
        )
    modules = _modules(folder) if folder is not None else frozenset()
    for field, names in (("targets", lora.names or []), ("modules_to_save", lora.modules_to_save)):
        for name in names:
            if modules and name not in _UNSAVED and not any(f".{module}".endswith(f".{name}") for module in modules):
                ends = sorted({module.rpartition(".")[2] for module in modules})
                raise ConfigError(
                    f"policy.lora.{field}: no module of {config.policy.path!r} is called {name!r}"
                    f"{did_you_mean(name, ends)}; its modules are {', '.join(ends[:40])}"
                )


_GALORE = ("galore_adamw", "apollo_adamw")


def _check_optimiser(config: RunConfig) -> None:
    optim = config.optimiser.optim
    if problem := lacking("optimiser.optim", optim):
        raise ConfigError(problem)
    if optim in _GALORE and not config.method.trl.get("optim_target_modules"):
        raise ConfigError(
            f"optimiser.optim: {optim!r} has to be told whose gradients it projects; set method.trl to "
            "{optim_target_modules: all-linear}, say"
        )


def _modules(folder: Path) -> frozenset[str]:
    """The modules whose weights a folder's safetensors files hold; none where one cannot be read."""
    try:
        names = [name for file in folder.glob("*.safetensors") for name in _tensors(file)]
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(name.rpartition(".")[0] for name in names)


def _tensors(file: Path) -> Iterable[str]:
    """The names in a safetensors file's header."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(min(length, 100_000_000)))
    return [name for name in header if name != "__metadata__"] if isinstance(header, dict) else []
