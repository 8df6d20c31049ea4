"""``Section``: the base of every part of a configuration, with secrets removed and errors a person can read.

A section is a pydantic model whose fields carry their help text and their range; a value out of range is refused with
the field's name, the value and what would fit, a misspelt name with the nearest one. YAML, the command line and the
page's forms are read off the same fields.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator

from workbench.errors import ConfigError, cut, did_you_mean, redact, redact_known, shown

_LINES = 20  # of a message
_OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
_LIMITS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))


class Section(BaseModel):
    """A part of a configuration; field docstrings are the help texts."""

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _without_secrets(cls, value: Any) -> Any:
        """Removed before anything is stored, so that what is shown, stored and run is the same."""
        return redact_known(value) if isinstance(value, str) else value

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind, _ = without_none(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError("give a number, not true or false")
        return value

    @classmethod
    def parse(cls, data: Any) -> Self:
        """``model_validate`` that raises ConfigError, with a readable line for every field that does not fit."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            errors = error.errors()
            lines = [readable(cls, line) for line in errors[:_LINES]]
            if more := len(errors[_LINES:]):
                lines.append(f"and {more:,} more")
            raise ConfigError("\n".join(lines)) from error


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One field of a section that a single value sets; ``name`` is dotted, ``kind`` its type without ``| None``.

    ``title`` is what a form calls it, where that is not its name; ``limits`` is its range in words.
    """

    name: str
    kind: Any
    optional: bool
    help: str
    default: Any
    title: str = ""
    limits: str = ""

    @property
    def label(self) -> str:
        """What a form calls the field."""
        return self.title or self.name.replace(".", " ").replace("_", " ").capitalize()


def leaves(section: type[Any], prefix: str = "") -> Iterator[Leaf]:
    """The fields of a section and of the sections in it; lists of sections are left out."""
    for name, (annotation, help, default) in _fields(section).items():
        kind, optional = without_none(annotation)
        if is_section(kind):
            yield from leaves(kind, f"{prefix}{name}.")
        elif not any(is_section(part) for part in get_args(kind)):
            title = (section.model_fields[name].title or "") if issubclass(section, BaseModel) else ""
            yield Leaf(f"{prefix}{name}", kind, optional, help, default, title, _range(section, name))


def is_section(kind: Any) -> bool:
    """Whether values of this type have fields of their own."""
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))


def without_none(annotation: Any) -> tuple[Any, bool]:
    """A type without ``| None``, and whether it had that; a union of several plain types is text."""
    parts = get_args(annotation)
    if NoneType not in parts:
        return annotation, False
    rest = [part for part in parts if part is not NoneType]
    return (rest[0] if len(rest) == 1 else str), True


def readable(section: type[BaseModel], error: Any) -> str:
    """One of a ValidationError's errors as a line: the field, what is wrong, and the value."""
    path, parent = _walk(section, error["loc"])
    message = cut(in_words(error), 1000)
    if error["type"] in _OUT_OF_RANGE and parent is not None:
        message = f"out of range, which is {_limits(parent, str(error['loc'][-1]))}"
    if error["type"] in _UNKNOWN and parent is not None:
        name = str(error["loc"][-1])
        message += elsewhere(parent, name) or did_you_mean(name, _annotations(parent))
    if error["type"] == "union_tag_invalid":
        named, known = error["ctx"]["tag"], error["ctx"]["expected_tags"].replace("'", "")
        return redact(
            f"{path}: unknown {path} {shown(named)}{did_you_mean(named, known.split(', '))}; choose one of {known}"
        )
    if not path:
        return redact(message)
    if isinstance(error["input"], Mapping) or "\n" in message:
        return redact(f"{path}: {message}")
    _, _, value = redact(f"{path}={error['input']!r}").partition("=")  # a field's name may say that it is a secret
    return f"{path}: {message} (got {cut(value)})"


def in_words(error: Any) -> str:
    """Return what is wrong with a value, of one of a ValidationError's errors, in the words of a person."""
    kind, said = error["type"], error.get("ctx", {})
    if kind in _UNKNOWN:
        return "there is no such field"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", said["expected"])
        near = did_you_mean(str(error["input"]).lower(), choices)
        return f"choose one of {', '.join(choices)}{near}"
    if kind in ("string_too_short", "too_short"):
        return "it is empty" if said["min_length"] == 1 else f"give at least {said['min_length']:,}"
    if kind in ("string_too_long", "too_long"):
        return f"give at most {said['max_length']:,} {'characters' if kind == 'string_too_long' else 'entries'}"
    if kind == "string_pattern_mismatch":
        return f"it does not have the form {said['pattern']}"
    if kind in _OUT_OF_RANGE and said:
        return next(f"it must be {word} {_number(said[key])}" for key, word in _LIMITS if key in said)
    return _WORDS.get(kind) or _WANTED.get(kind.partition("_")[0]) or error["msg"].removeprefix("Value error, ")


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_WORDS = {
    "missing": "it is missing; give one",
    "finite_number": "a finite number is wanted",
    "union_tag_not_found": "its name is missing; give one",
}
"""Of pydantic's kinds of errors, those that are said in other words than pydantic's."""
_WANTED = {
    "int": "a whole number is wanted",
    "float": "a number is wanted",
    "bool": "true or false is wanted",
    "string": "text is wanted",
    **dict.fromkeys(("list", "tuple", "set"), "a list is wanted"),
    **dict.fromkeys(("dict", "mapping", "model", "dataclass"), "fields by name are wanted"),
}
"""The same by the beginnings of their names, which are types."""


def _walk(section: type[BaseModel], location: tuple[str | int, ...]) -> tuple[str, type[Any] | None]:
    """A place in dotted words, and the section that the last part of it is a field of, if there is one."""
    names: list[str] = []
    here: Any = section
    parent: Any = None
    for part in location:
        choices = [kind for kind in map(_bare, (here, *get_args(here))) if is_section(kind)]
        tagged = [kind for kind in choices if _tag(kind) == part]
        if tagged and here not in tagged:  # the name of one kind in a union of several
            here = tagged[0]
            continue
        parent = choices[0] if len(choices) == 1 else None
        names.append(cut(str(part), 60))
        if isinstance(part, int):
            here, parent = (get_args(here) or (None,))[0], None
        else:
            here = _annotations(parent).get(str(part)) if parent is not None else None
    return ".".join(names), parent


def _bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _tag(kind: type[Any]) -> Any:
    return getattr(kind, "model_fields", {}).get("name") and kind.model_fields["name"].default


def _annotations(section: type[Any]) -> dict[str, Any]:
    """Type of each field."""
    if issubclass(section, BaseModel):
        return {name: field.annotation for name, field in section.model_fields.items()}
    hints = get_type_hints(section)
    return {field.name: hints[field.name] for field in dataclasses.fields(section)}


def _fields(section: type[Any]) -> dict[str, tuple[Any, str, Any]]:
    """Type, help text and default of each field."""
    annotations = _annotations(section)
    if issubclass(section, BaseModel):
        return {
            name: (
                annotations[name],
                field.description or "",
                None if field.is_required() else field.get_default(call_default_factory=True, validated_data={}),
            )
            for name, field in section.model_fields.items()
        }
    return {
        field.name: (annotations[field.name], field.metadata.get("help", ""), field.default)
        for field in dataclasses.fields(section)
    }


def _limits(section: type[Any], name: str) -> str:
    """A field's whole range in words, whichever end of it a value missed."""
    return _range(section, name) or "any finite number"


def _range(section: type[Any], name: str) -> str:
    rules = section.model_fields[name].metadata if issubclass(section, BaseModel) else []
    said = [f"{word} {_number(getattr(rule, key))}" for rule in rules for key, word in _LIMITS if hasattr(rule, key)]
    return " and ".join(said)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else f"{value:g}"


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
    "run_name": "name",
    "project": "run.project",
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


_ELSEWHERE = {"transformers.TrainingArguments": "transformers.training_args.TrainingArguments"}
"""Names that a package's root offers → where they are defined."""
_KINDS: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "dict": dict,
    "list": list,
    "None": NoneType,
}


@dataclass(frozen=True)
class SourceField:
    """``kind`` is its type, ``Any`` for a class of the package; ``default`` is None where it is no plain value."""

    name: str
    kind: Any
    default: Any


@cache
def fields_of(place: str) -> Mapping[str, SourceField]:
    """The fields of the dataclass at a dotted place, its bases' first, by name. Raises LookupError."""
    module, _, name = place.rpartition(".")
    tree = _parsed(module)
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        raise LookupError(f"{module} has no class {name}; another version of the package is installed")
    fields: dict[str, SourceField] = {}
    for base in found.bases:
        if isinstance(base, ast.Name) and (where := _imported(tree, module, base.id)) is not None:
            fields |= fields_of(where)
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields[node.target.id] = SourceField(node.target.id, _kind(node.annotation), _default(node.value))
    return fields


@cache
def _parsed(module: str) -> ast.Module:
    package, *parts = module.split(".")
    spec = find_spec(package)  # the package's root alone is looked for, and not run
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"the package {package} is not installed")
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*parts).with_suffix(".py")
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        raise LookupError(f"{module} cannot be read: {error}") from error


def _imported(tree: ast.Module, module: str, name: str) -> str | None:
    """Where a name that a module uses is defined; None where that is outside of what is understood."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            root = ".".join([*module.split(".")[: -node.level], node.module or ""]) if node.level else node.module
            return _ELSEWHERE.get(f"{root}.{name}", f"{root}.{name}")
    defined = any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)
    return f"{module}.{name}" if defined else None


def _default(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Call):
        node = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _kind(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.Constant) and node.value is None:
        return NoneType
    if isinstance(node, ast.Name):
        return _KINDS.get(node.id, Any)
    if isinstance(node, ast.BinOp):
        return Union[_kind(node.left), _kind(node.right)]  # noqa: UP007  # of types that are computed
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return Literal[tuple(ast.literal_eval(part) for part in parts)]
        if node.value.id in ("list", "dict"):
            return _KINDS[node.value.id][tuple(map(_kind, parts))]
    return Any
