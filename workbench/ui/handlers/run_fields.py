"""The fields of Train's form, by path: those of every run, and those of each method's section.

All is read off the sections (label, help, range, choices, default), so that a method that is added has its form without
a line of the page being touched. A method's settings go by its name (``grpo.beta``), as on the command line. The parts
of its section that Inspect edits (``INSPECTED``) are the same for all methods, and no fields here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

from workbench.config import Leaf, MethodSection, PolicySection, SharedConfig, TaskSection, leaves
from workbench.config.run import METHODS
from workbench.config.section import as_text
from workbench.config.task import READING
from workbench.credit import SCHEMES

NUMBER, TEXT, SWITCH = "number", "text", "switch"
LINES, PAIRS = "lines", "pairs"
"""Text that stands for a list, an entry a line with ``\\n`` for a line's end; and for values by name, ``a=1, b=2``."""
FieldKind = str | tuple[str, ...]
"""NUMBER, TEXT, SWITCH, or the names to choose from."""
INSPECTED = ("pattern", "rewards", "credit", "sampling", "isolate_rewards")
"""The parts of a method's section that Inspect edits."""
COLUMNS = ("columns", "data_columns")
"""Fields of a task that are a table, and one text on the page."""
AS_INSPECT = "as on Inspect"
"""The choice of a run's credit scheme that takes Inspect's."""
FIRST = next(iter(METHODS))
"""The method that the page opens with."""
TRL = "trl"
"""The setting of every method that is passed on to TRL: a text on the page."""
MERGE = "policy.merge"
LORA_RANK = "policy.lora.r"
"""On the page, the rank says whether an adapter is trained at all: without one, all weights are."""
_RUN = (
    *("run.epochs", "run.micro_batch_size", "optimiser.optim", "optimiser.lr_scheduler_type", "optimiser.warmup_steps"),
    *("optimiser.warmup_ratio", "optimiser.weight_decay", "optimiser.max_grad_norm"),
)
_POLICY = ("policy.dtype", "policy.attention", "policy.quantisation", "policy.device_map")
_LORA = tuple(f"policy.lora.{name}" for name in ("alpha", "targets", "dropout", "rslora", "dora", "bias"))
METHOD, DATA, SCHEME = "method.name", "task.data", "page.run_scheme"
_ELEM_IDS = {
    METHOD: "method",
    DATA: "data",
    SCHEME: "train-scheme",
    "run.steps": "steps",
    "optimiser.learning_rate": "learning-rate",
    "seed": "train-seed",
    "name": "run-name",
}


@dataclass(frozen=True)
class Field:
    """A field of the page. ``methods`` are those whose form it is in, None for all; ``folded``: a further setting."""

    path: str
    kind: FieldKind
    label: str = ""
    help: str = ""
    optional: bool = False
    whole: bool = False
    methods: tuple[str, ...] | None = None
    folded: bool = False
    placeholder: str = ""

    def fits(self, value: Any) -> bool:
        """Whether a value from a browser is one that the field can hold, in range or not."""
        if value is None:
            return self.optional or self.kind in (NUMBER, TEXT, LINES, PAIRS)
        if self.kind == NUMBER:  # of a browser, whose numbers are of 64 bits; an emptied field may be an empty text
            return value == "" or (isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value))
        if self.kind == SWITCH:
            return isinstance(value, bool)
        free = self.kind in (TEXT, LINES, PAIRS) or (self.optional and not value)
        return isinstance(value, str) and (free or value in self.kind)

    @property
    def elem_id(self) -> str:
        return _ELEM_IDS.get(self.path) or re.sub(r"[._]", "-", self.path)

    @property
    def wanted(self) -> str:
        """What fits, in words."""
        words = {NUMBER: "a number", SWITCH: "true or false", **dict.fromkeys((TEXT, LINES, PAIRS), "text")}
        return words[self.kind] if isinstance(self.kind, str) else f"one of {', '.join(self.kind)}"

    def read(self, value: Any) -> Any:
        """What the configuration gets: a number that is whole is meant as an integer; an empty field is None."""
        if self.kind == NUMBER:
            whole = isinstance(value, float) and value.is_integer()
            return int(value) if whole else None if value == "" else value
        if self.kind == SWITCH:
            return bool(value)
        text = value if isinstance(value, str) else ""
        if self.kind == LINES:
            return [line.replace("\\n", "\n") for line in text.split("\n") if line]
        if self.kind == PAIRS:
            pairs = (part.partition("=") for part in text.split(",") if part.strip())
            read = _weight if self.path == MERGE else str
            return {name.strip(): read(text.strip()) for name, _, text in pairs}
        return (text.strip() or None) if self.optional else text

    def shown(self, value: Any) -> Any:
        """What the field shows of a configuration's value."""
        if self.kind == LINES:
            return "\n".join(line.replace("\n", "\\n") for line in value)
        if self.kind == PAIRS:
            return ", ".join(f"{name}={_in_pair(v)}" for name, v in value.items())
        return "" if value is None and self.kind != NUMBER else value


def _weight(text: str) -> float | str:
    """A number; any other text as it is, for the configuration to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def _in_pair(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _is_finite(number: int | float) -> bool:
    return -sys.float_info.max <= number <= sys.float_info.max


@cache
def run_fields() -> Mapping[str, Field]:
    """Every field by path, in the order of the form."""
    shared = {leaf.name: leaf for leaf in leaves(SharedConfig)}

    def field(path: str, **how: Any) -> Field:
        leaf = shared[path]
        return replace(_field(replace(leaf, name=path.rpartition(".")[2]), path), **how)

    with_data = _methods(lambda section: section.kind is not None)
    with_credit = _methods(lambda section: "credit" in section.model_fields)
    scheme_help = "How step rewards become token advantages in this run."
    listed = [
        field(METHOD, kind=tuple(METHODS), label="Method", help=""),
        field(DATA, label="Data file", methods=with_data, placeholder="the task’s own rows"),
        replace(_columns_of_data(), methods=with_data, folded=True),
        *(field(path) for path in ("run.steps", "optimiser.learning_rate", "seed")),
        Field(SCHEME, (AS_INSPECT, *SCHEMES), "Credit scheme", scheme_help, methods=with_credit),
        *(field for name in METHODS for field in method_fields(name)),
        *(field(path, folded=True) for path in (*_RUN, "policy.adapter")),
        replace(_merged_adapters(), folded=True),
        *(field(path, folded=True) for path in _POLICY),
        field(LORA_RANK, folded=True, optional=True, help="Rank of the adapter to train; empty trains all weights."),
        *(field(path, folded=True) for path in _LORA),
        field("name", placeholder="from the date"),
    ]
    return {field.path: field for field in listed}


def _columns_of_data() -> Field:
    leaf = next(leaf for leaf in leaves(TaskSection) if leaf.name == "data_columns")
    return replace(_field(replace(leaf, kind=str), "task.data_columns"), placeholder="prompt=question,completion=text")


def _merged_adapters() -> Field:
    leaf = next(leaf for leaf in leaves(PolicySection) if leaf.name == "merge")
    return replace(_field(replace(leaf, kind=str), MERGE), kind=PAIRS, placeholder="run:taught=1, owner/style=0.5")


@cache
def task_fields() -> Mapping[str, Field]:
    """What says how the task's rows are read, by path: fields of Inspect's."""
    leaf_of = {leaf.name: leaf for leaf in leaves(TaskSection)}
    named = {name: replace(leaf_of[name], kind=str if name in COLUMNS else leaf_of[name].kind) for name in READING}
    placeholders = {"columns": "prompt=question,answer=meta.truth", "prompt_template": "{question}\\nAnswer:"}
    placeholders |= {"filter": "level >= 3", "split": "train", "held_out_split": "test", "rows": "all"}
    placeholders |= {"held_out_rows": "all"}
    return {
        f"task.{name}": replace(_field(leaf, f"task.{name}"), placeholder=placeholders.get(name, ""))
        for name, leaf in named.items()
    }


@cache
def method_fields(name: str) -> tuple[Field, ...]:
    """The fields of a method's own settings: those its form shows first, then those that are folded away."""
    first = METHODS[name].settings
    listed = [
        replace(_field(leaf, f"{name}.{leaf.name}"), methods=(name,), folded=_is_folded(leaf.name, first))
        for leaf in own_leaves(name)
        if _kind(leaf) is not None
    ]
    order = {f"{name}.{setting}": place for place, setting in enumerate(first)} | {f"{name}.{TRL}": len(listed)}
    return tuple(sorted(listed, key=lambda field: order.get(field.path, len(first))))


def _is_folded(name: str, first: Sequence[str]) -> bool:
    return name == TRL or (bool(first) and name not in first)


def own_leaves(name: str) -> Iterator[Leaf]:
    """What a method's section has beside its name and the parts that Inspect edits."""
    return (leaf for leaf in leaves(METHODS[name].section) if leaf.name.partition(".")[0] not in ("name", *INSPECTED))


@cache
def own_defaults(name: str) -> Mapping[str, Any]:
    """A method's own settings as they are by default."""
    return own_settings(METHODS[name].section())  # type: ignore[call-arg]  # every section has a name of its own


def own_settings(section: MethodSection) -> dict[str, Any]:
    """A section's settings but for its name and the parts that Inspect edits; what is passed on to TRL as text."""
    return section.model_dump(exclude={"name", *INSPECTED}) | {TRL: as_text(section.trl)}


def takes(name: str, part: str) -> bool:
    """Whether a method's section has a part that Inspect edits."""
    return part in METHODS[name].section.model_fields


def _methods(has: Callable[[type[MethodSection]], bool]) -> tuple[str, ...]:
    return tuple(name for name, method in METHODS.items() if has(method.section))


def _field(leaf: Leaf, path: str) -> Field:
    kind = _kind(leaf)
    assert kind is not None
    said = (leaf.limits, "" if leaf.default in (None, {}) and kind == TEXT else f"default {_in_words(leaf.default)}")
    more = "; ".join(filter(None, said))
    help = f"{leaf.help} {more[:1].upper()}{more[1:]}." if more else leaf.help
    return Field(path, kind, leaf.label, help.replace("`", ""), leaf.optional, leaf.kind is int)


def _kind(leaf: Leaf) -> FieldKind | None:
    """How a leaf is typed on the page; None for what a form does not hold (a list, say)."""
    if get_origin(leaf.kind) is Literal:
        choices = get_args(leaf.kind)
        return choices if all(isinstance(choice, str) for choice in choices) else None
    if leaf.name == TRL:
        return TEXT
    kinds: dict[Any, str] = {int: NUMBER, float: NUMBER, bool: SWITCH, str: TEXT}
    return None if leaf.kind is bool and leaf.optional else kinds.get(leaf.kind)


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
