"""Configurations of version 0.3.0 in today's layout: one table of moved keys, for files, links, code and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from workbench.errors import did_you_mean

_RUN = (
    *("steps", "micro_batch_size", "eval_every", "eval_prompts", "watch_prompts", "watch_every", "save_every"),
    *("keep_checkpoints", "ranks", "device", "report_to"),
)
_OPTIMISER = (
    *("learning_rate", "warmup_steps", "lr_scheduler", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay"),
    *("max_grad_norm", "gradient_checkpointing"),
)
_METHOD = (
    *("prompts_per_step", "loss_type", "beta", "epsilon", "epsilon_high", "num_iterations"),
    *("mask_truncated_completions", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    *("rollouts_every", "reward_deadline", "on_reward_error", "max_reward_errors"),
)
MOVED: dict[str, str] = {
    "adapter": "policy.adapter",
    "trust_remote_code": "policy.trust_remote_code",
    "training.lora": "policy.lora",
    **{f"training.{name}": f"run.{name}" for name in _RUN},
    **{f"training.{name}": f"optimiser.{name}" for name in _OPTIMISER},
    **{f"training.{name}": f"method.{name}" for name in _METHOD},
    **{name: f"method.{name}" for name in ("pattern", "rewards", "credit", "sampling")},
}
"""Dotted key of 0.3.0 → where it is today. A key under a moved one (``sampling.top_p``) moves with it."""
SHORTHAND = {"policy": "path", "task": "name", "environment": "name", "method": "name"}
"""Sections that may be given as one string, and the field that the string is."""


def migrate(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration with every key in its place of today, and without shorthands.

    Raises ValueError for a key of 0.3.0 beside its new name with another value, and for an unknown key of ``training``.
    """
    moved = {name: value for name, value in data.items() if name != "training" and name not in MOVED}
    for old, new in MOVED.items():
        section, _, name = old.rpartition(".")
        source = _mapping(data.get(section, {})) if section else data
        if source is not None and name in source:
            put(moved, new.split("."), source[name], old)
    for name, field in SHORTHAND.items():
        if isinstance(moved.get(name), str):
            moved[name] = {field: moved[name]}
    if isinstance(method := moved.get("method"), Mapping) and "name" not in method:
        moved["method"] = {"name": "grpo", **method}  # 0.3.0 had no other
    _refuse_unknown(data)
    return moved


def _refuse_unknown(data: Mapping[str, Any]) -> None:
    if "training" not in data:
        return
    training = _mapping(data["training"])
    if training is None:
        raise ValueError(f"training: settings by name are wanted, and this is a {type(data['training']).__name__}")
    names = {old.removeprefix("training.") for old in MOVED if old.startswith("training.")}
    for name in training:
        if name not in names:
            raise ValueError(f"training.{name}: there is no such field{did_you_mean(name, names)}")


def put(data: dict[str, Any], path: Sequence[str], value: Any, old: str | None = None) -> None:
    """Set a dotted key, making sections on the way; with ``old``, the key's former name, another value is refused."""
    for part in path[:-1]:
        inner = data.get(part)
        if isinstance(inner, str) and part in SHORTHAND:
            inner = {SHORTHAND[part]: inner}
        data[part] = dict(_mapping(inner) or {})
        data = data[part]
    name = path[-1]
    if old is None or name not in data or data[name] == value:
        data[name] = value
        return
    before, after = _mapping(data[name]), _mapping(value)
    if before is None or after is None:
        raise ValueError(f"{old}: {value!r} is given, and {'.'.join(path)} is {data[name]!r}; give one of them")
    for key, inner in after.items():
        put(data, [name, key], inner, f"{old}.{key}")


def _mapping(value: Any) -> Mapping[str, Any] | None:
    """A section as a mapping of what is set in it."""
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return value if isinstance(value, Mapping) else None
