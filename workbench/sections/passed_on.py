"""``method.trl``: fields of the configuration of TRL's trainer that have no field here, by their names there.

They are checked against the source of that configuration: its names, its types. What the workbench sets itself is
refused with the field that does; what would break a run's checkpoints or measures is refused with the reason. Neither
TRL nor transformers is imported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.errors import ConfigError, did_you_mean, shown
from workbench.packages import OPTIONAL, lacking
from workbench.sections.source import fields_of

OURS: Mapping[str, str] = {
    **{name: f"optimiser.{name}" for name in ("learning_rate", "warmup_steps", "warmup_ratio", "optim")},
    **{name: f"optimiser.{name}" for name in ("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay")},
    **{name: f"optimiser.{name}" for name in ("max_grad_norm", "gradient_checkpointing")},
    "activation_checkpointing": "optimiser.gradient_checkpointing",
    "lr_scheduler_type": "optimiser.lr_scheduler",
    "seed": "seed",
    "chat_template_kwargs": "prompt.template_kwargs",
    "stop": "method.sampling.stop",
    "max_steps": "run.steps",
    "num_train_epochs": "run.epochs",
    "per_device_train_batch_size": "run.micro_batch_size",
    "gradient_accumulation_steps": "run.micro_batch_size",
    "per_device_eval_batch_size": "run.micro_batch_size",
    "auto_find_batch_size": "run.micro_batch_size",
    "use_cpu": "run.device",
    "save_steps": "run.save_every",
    "save_strategy": "run.save_every",
    "save_total_limit": "run.keep_checkpoints",
    "report_to": "run.report_to",
    "eval_strategy": "run.eval_every",
    "eval_steps": "run.eval_every",
    "do_eval": "run.eval_every",
    "bf16": "policy.dtype",
    "fp16": "policy.dtype",
    "model_init_kwargs": "policy.dtype, policy.attention or policy.device_map",
    "trust_remote_code": "policy.trust_remote_code",
    **{name: f"method.{name}" for name in ("num_iterations", "mask_truncated_completions", "loss_type", "beta")},
    **{name: f"method.{name}" for name in ("epsilon", "epsilon_high", "max_length", "label_smoothing")},
    **{name: f"method.{name}" for name in ("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps")},
    **{name: f"method.{name}" for name in ("max_prompt_length", "center_rewards_coefficient")},
    **{name: f"method.sampling.{name}" for name in ("num_generations", "max_completion_length", "temperature")},
    **{name: f"method.sampling.{name}" for name in ("top_p", "top_k", "min_p", "repetition_penalty")},
    "reward_weights": "method.rewards, each reward's weight",
    "lr": "optimiser.learning_rate",
    "max_new_tokens": "method.sampling.max_completion_length",
}
"""Names in TRL and transformers, and usual ones → the field of a configuration that sets them."""
_LOGGED, _STORED = "every step is logged", "the run's directory is the workbench's to write"
_ONE_BATCH = "a generation is one batch: method.prompts_per_step groups"
_RESUMED = "a run could not be resumed to the same curve; leave it out"
_PUBLISHED = "a model is published with: python -m workbench export RUN --push OWNER/NAME"
FIXED: Mapping[str, str] = {
    **dict.fromkeys(("logging_steps", "logging_strategy", "logging_first_step", "logging_nan_inf_filter"), _LOGGED),
    **dict.fromkeys(("output_dir", "disable_tqdm", "remove_unused_columns", "log_completions_hub_repo"), _STORED),
    **dict.fromkeys(("steps_per_generation", "generation_batch_size", "num_generations_eval"), _ONE_BATCH),
    **dict.fromkeys(("save_only_model", "ignore_data_skip", "load_best_model_at_end"), _RESUMED),
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo"), _PUBLISHED),
    **dict.fromkeys(("hub_always_push", "hub_revision"), _PUBLISHED),
    "resume_from_checkpoint": "a run is resumed with: python -m workbench resume RUN",
    "completion_only_loss": "sft learns from completions alone",
}
"""Names that are settled by how the workbench runs, and why."""
_NEXT = re.compile(r",\s*(?=\w+\s*=)")


def checked_values(section: Any, place: str) -> dict[str, Any]:
    """The values of a method's ``trl``, of the types that the configuration at ``place`` has.

    Raises ConfigError for what it does not have, or what is set in another place.
    """
    try:
        fields = fields_of(place)
    except LookupError as error:
        raise ConfigError(f"method.trl: {error}") from error
    return {name: _checked(section, place, name, value, fields) for name, value in section.trl.items()}


def _is_ours(section: Any, path: str) -> bool:
    """Whether a method has the field at a path; every method has what is not its own."""
    return not path.startswith("method.") or re.split(r"[.,]", path)[1] in section.model_fields


def elsewhere(section: Any, name: str) -> str:
    """``; …``, which says where to set what TRL calls so and this section does not have; nothing for another name."""
    path = getattr(section, "set_elsewhere", {}).get(name) or OURS.get(name, "")
    if path and (not hasattr(section, "trl_config") or _is_ours(section, path)):
        return f"; here it is {path}"
    try:
        passed_on = name in fields_of(section.trl_config) and name not in FIXED
    except (AttributeError, LookupError):
        return ""
    return f"; it is a field of TRL's: set it in method.trl, {{{name}: …}}" if passed_on else ""


def _checked(section: Any, place: str, name: str, value: Any, fields: Mapping[str, Any]) -> Any:
    where = f"method.trl.{name}"
    ours = section.set_elsewhere.get(name) or OURS.get(name, "")
    if ours and _is_ours(type(section), ours):
        raise ConfigError(f"{where}: this is {ours} here; set that")
    if name not in fields:
        known = [known for known in fields if known not in FIXED]
        title = place.rpartition(".")[2]
        raise ConfigError(
            f"method.trl: {title}, which {section.name} trains with, has no field {shown(name)}"
            f"{did_you_mean(name, [*known, *(other for other, path in OURS.items() if _is_ours(type(section), path))])}"
        )
    if name in FIXED or name.startswith("_"):
        raise ConfigError(f"{where}: {FIXED.get(name, 'it is not for users')}")
    kind = fields[name].kind
    try:
        if isinstance(value, bool) and not isinstance(TypeAdapter(kind).validate_python(value), bool):
            raise ConfigError(f"{where}: {_in_words(kind)} is wanted, not {str(value).lower()}")
        read = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_in_words(kind)} is wanted (got {shown(value)})") from error
    if isinstance(read, float) and not math.isfinite(read):
        raise ConfigError(f"{where}: a finite number is wanted (got {read})")
    if where in OPTIONAL and (problem := lacking(where, read)):
        raise ConfigError(problem)
    return read


def _in_words(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "none"}
    kinds = getattr(kind, "__args__", None) if kind not in words and not isinstance(kind, type) else None
    return " or ".join(words.get(part, "a list or settings by name") for part in (kinds or [kind]))


def as_text(values: Mapping[str, Any]) -> str:
    """Values as ``name=value, name=value``, which ``of_text`` gives back equal."""
    return ", ".join(f"{name}={_value_text(value)}" for name, value in values.items())


def of_text(text: str) -> dict[str, Any]:
    """What ``name=value, name=value`` says: a value is JSON, or else text. Raises ValueError."""
    values: dict[str, Any] = {}
    for part in _NEXT.split(text.strip()) if text.strip() else []:
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"write name=value, with commas between; {shown(part)} is neither")
        values[name.strip()] = _value_of(value.strip())
    return values


def _value_of(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def _value_text(value: Any) -> str:
    if isinstance(value, str) and value == value.strip() and _value_of(value) == value and not _NEXT.search(value):
        return value
    return json.dumps(value, ensure_ascii=False)
