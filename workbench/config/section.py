"""``Section``: the base of every part of a configuration, with secrets removed and errors a person can read.

A section is a pydantic model whose fields carry their help text and their range; a value out of range is refused with
the field's name, the value and what would fit, a misspelt name with the nearest one. YAML, the command line and the
page's forms are read off the same fields.
"""

import dataclasses
import json
import re
from collections.abc import Collection, Iterator, Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator

from workbench.errors import ConfigError, cut, did_you_mean, quote, redact, redact_known

_LINES = 20  # of a message
_OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
_LIMITS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))


class Section(BaseModel):
    """A part of a configuration; field docstrings are the help texts."""

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    shorthand: ClassVar[str] = ""
    """The field that a text in the section's place is."""

    @model_validator(mode="before")
    @classmethod
    def _of_text_and_by_former_names(cls, data: Any) -> Any:
        """Read a text as the one field, and a field under the name that it had in version 0.4, too."""
        if isinstance(data, str) and cls.shorthand:
            return {cls.shorthand: data}
        if not isinstance(data, Mapping) or FORMER_NAMES.keys().isdisjoint(data):
            return data
        former = {name: new for name, new in FORMER_NAMES.items() if new in cls.model_fields}
        return {former.get(name, name): value for name, value in data.items()}

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        """Remove secrets before anything is stored; read a list of texts, an entry a line, and a table, name=value."""
        kind, _ = without_none(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError("give a number, not true or false")
        if isinstance(value, str):
            value = redact_known(value)
            if get_origin(kind) is dict:
                value = of_text(value)
            elif get_origin(kind) is list and get_args(kind) == (str,):
                value = [line.replace("\\n", "\n") for line in value.split("\n") if line]
        if isinstance(value, Mapping):
            return {name: redact_known(item) if isinstance(item, str) else item for name, item in value.items()}
        return value

    @classmethod
    def parse(cls, data: Any, path: str = "") -> Self:
        """``model_validate`` that raises ConfigError, with a readable line for every field that does not fit.

        ``path`` is where the section stands in a configuration.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            errors = error.errors()
            lines = [f"{path}{'.' if path else ''}{readable(cls, line)}" for line in errors[:_LINES]]
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
        """Return what a form calls the field."""
        return self.title or self.name.replace(".", " ").replace("_", " ").capitalize()


def leaves(section: type[Any], prefix: str = "") -> Iterator[Leaf]:
    """Yield the fields of a section and of the sections in it; lists of sections are left out."""
    for name, field in section.__pydantic_fields__.items():
        kind, optional = without_none(field.annotation)
        if is_section(kind):
            yield from leaves(kind, f"{prefix}{name}.")
        elif not any(is_section(part) for part in get_args(kind)):
            default = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
            help, title = field.description or "", field.title or ""
            yield Leaf(f"{prefix}{name}", kind, optional, help, default, title, _range(section, name))


def is_section(kind: Any) -> bool:
    """Return whether values of this type have fields of their own."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_fields__")


def without_none(annotation: Any) -> tuple[Any, bool]:
    """Return a type without ``| None``, and whether it had that; a union of several plain types is text."""
    parts = get_args(annotation)
    if NoneType not in parts:
        return annotation, False
    rest = [part for part in parts if part is not NoneType]
    return (rest[0] if len(rest) == 1 else str), True


def readable(section: type[BaseModel], error: Any) -> str:
    """Return one of a ValidationError's errors as a line: the field, what is wrong, and the value."""
    path, parent = _walk(section, error["loc"])
    message = cut(in_words(error), 1000)
    if error["type"] in _OUT_OF_RANGE and parent is not None:
        message = f"must be {_range(parent, str(error['loc'][-1])) or 'a finite number'}"
    if error["type"] in _UNKNOWN and parent is not None:
        name = str(error["loc"][-1])
        message += nearest(section, parent, name)
    if error["type"] == "union_tag_invalid":
        named, known = error["ctx"]["tag"], error["ctx"]["expected_tags"].replace("'", "")
        return redact(
            f"{path}: unknown {path} {quote(named)}{did_you_mean(named, known.split(', '))}; choose one of {known}"
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
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", said["expected"])
        near = did_you_mean(str(error["input"]).lower(), choices)
        return f"choose one of {', '.join(choices)}{near}"
    if kind in _OUT_OF_RANGE and said:
        return next(f"it must be {word} {_number(said[key])}" for key, word in _LIMITS if key in said)
    words = _WORDS.get(kind) or _WANTED.get(kind.partition("_")[0])
    return words.format(**said) if words else str(error["msg"]).removeprefix("Value error, ")


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_WORDS = {
    **dict.fromkeys(_UNKNOWN, "there is no such field"),
    **dict.fromkeys(("string_too_short", "too_short"), "it is empty"),  # no field asks for more than one
    "string_too_long": "give at most {max_length:,} characters",
    "too_long": "give at most {max_length:,} entries",
    "string_pattern_mismatch": "it does not have the form {pattern}",
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
    """Return a place in dotted words, and the section that the last part of it is a field of, if there is one."""
    names: list[str] = []
    here: Any = section
    parent: Any = None
    for part in location:
        bare = (get_args(one)[0] if get_origin(one) is Annotated else one for one in (here, *get_args(here)))
        choices = [kind for kind in bare if is_section(kind)]
        names_of_kinds = [kind.__pydantic_fields__.get("name") for kind in choices]
        tagged = [kind for kind, name in zip(choices, names_of_kinds, strict=True) if name and name.default == part]
        if tagged and here not in tagged:  # the name of one kind in a union of several
            here = tagged[0]
            continue
        parent = choices[0] if len(choices) == 1 else None
        names.append(cut(str(part), 60))
        if isinstance(part, int):
            here, parent = (get_args(here) or (None,))[0], None
        else:
            field = parent.__pydantic_fields__.get(part) if parent is not None else None
            here = field and field.annotation
    return ".".join(names), parent


def _range(section: type[Any], name: str) -> str:
    """Return a field's whole range in words, whichever end of it a value missed."""
    rules = section.__pydantic_fields__[name].metadata
    said = [f"{word} {_number(getattr(rule, key))}" for rule in rules for key, word in _LIMITS if hasattr(rule, key)]
    return " and ".join(said)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else f"{value:g}"


OTHER_NAMES: Mapping[str, str] = {
    "lr": "optimiser.learning_rate",
    "lr_scheduler_type": "optimiser.lr_scheduler_type",
    "activation_checkpointing": "optimiser.gradient_checkpointing",
    "max_steps": "run.steps",
    "num_train_epochs": "run.epochs",
    "per_device_train_batch_size": "run.micro_batch_size",
    "gradient_accumulation_steps": "run.micro_batch_size",
    "use_cpu": "run.device",
    "save_steps": "run.save_steps",
    "save_total_limit": "run.save_total_limit",
    "eval_steps": "run.eval_steps",
    "run_name": "name",
    "project": "run.project",
    "chat_template_kwargs": "prompt.template_kwargs",
    **dict.fromkeys(("reward_weights", "reward_model", "reward_function"), "method.rewards"),
    **dict.fromkeys(("tokenizer", "model_name"), "policy.path"),
    **dict.fromkeys(("total_steps", "total_episodes"), "run.steps"),
    **dict.fromkeys(("max_new_tokens", "response_length"), "method.sampling.max_completion_length"),
    **dict.fromkeys(("num_return_sequences", "group_size"), "method.sampling.num_generations"),
    **dict.fromkeys(("kl_coef", "kl_beta", "init_kl_coef", "kl_penalty"), "method.beta or method.kl_coef"),
    **dict.fromkeys(("clip_eps", "cliprange"), "method.epsilon"),
    **dict.fromkeys(("mu", "inner_epochs", "ppo_epochs", "num_ppo_epochs"), "method.num_iterations"),
    "batch_size": "method.prompts_per_step",
    "mini_batch_size": "run.micro_batch_size",
    "cliprange_value": "method.epsilon_value",
    "vf_coef": "method.value_coef",
    "early_stopping": "method.target_kl",
    "no_cuda": "run.device",
    "evaluation_strategy": "run.eval_steps",
    **dict.fromkeys(("logging_dir", "log_with"), "run.report_to"),
    "step_delimiter": "method.pattern.regex",
    "train_dataset": "task.name",
}
"""What articles, TRL and transformers call fields that have another name or place here, which may depend on the method.
"""
FORMER_NAMES = {
    "save_every": "save_steps",
    "eval_every": "eval_steps",
    "keep_checkpoints": "save_total_limit",
    "lr_scheduler": "lr_scheduler_type",
}
"""Names that fields had in version 0.4 → their names now, which are TRL's."""
_NEXT = re.compile(r",\s*(?=\w+\s*=)")


def nearest(section: type[BaseModel], parent: type[Any], name: str) -> str:
    """Return ``; here it is PATH`` for what others call a field, or another section has, or the nearest of ``parent``.

    A path of a method is one that ``parent`` has.
    """
    known = [leaf.name for leaf in (*leaves(section), *leaves(parent, "method."))]
    near = did_you_mean(name, parent.__pydantic_fields__)
    places = [] if near else [path for path in known if path.rpartition(".")[2] == name]
    path = path_of(name, [*known, "method.rewards"]) or next(iter(places), "")
    return f"; here it is {path}" if path else near


def path_of(name: str, known: Collection[str]) -> str:
    """Return the one of the ``known`` paths that others call ``name``; "" for none."""
    return next((path for path in OTHER_NAMES.get(name, "").split(" or ") if path in known), "")


def as_text(values: Mapping[str, Any]) -> str:
    """Values as ``name=value, name=value``, which ``of_text`` gives back equal."""
    parts = []
    for name, value in values.items():
        is_plain = isinstance(value, str) and value == value.strip() and not _NEXT.search(value)
        text = value if is_plain and _value_of(value) == value else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name}={text}")
    return ", ".join(parts)


def of_text(text: str) -> dict[str, Any]:
    """Read ``name=value, name=value``: a value is JSON, or else text. Raises ValueError."""
    values: dict[str, Any] = {}
    for part in _NEXT.split(text.strip()) if text.strip() else []:
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"write name=value, with commas between; {quote(part)} is neither")
        values[name.strip()] = _value_of(value.strip())
    return values


def _value_of(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
