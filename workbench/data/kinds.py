"""The kinds of rows a task may have beside prompts: demonstrations, pairs, labelled steps.

====================  ==============================================================================================
kind                  columns of a row
====================  ==============================================================================================
``prompts``           ``prompt`` (or ``question``, or ``problem``) and any others
``demonstrations``    ``prompt`` and ``completion``, or ``messages`` that end with the assistant's
``pairs``             ``chosen`` and ``rejected``, with a ``prompt`` or beginning with the same one, as in TRL
``labelled_steps``    ``prompt``, ``completions`` (a text a step) and ``labels`` (a step's: true, false, a probability
                      from 0 to 1, or null for unknown), as in TRL; also a row of PRM800K, Math-Shepherd or ProcessBench
====================  ==============================================================================================

Texts may be conversations: lists of messages with ``role`` and ``content``. What a row is trained on for is not known.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal

from workbench.config import TaskSection
from workbench.config.task import Condition, parse_filter
from workbench.data.conversations import is_conversation, sharegpt_messages
from workbench.data.read import Row
from workbench.errors import TaskError, cut, did_you_mean
from workbench.schema import Prompt

Kind = Literal["prompts", "pairs", "demonstrations", "labelled_steps"]
PROMPTS = ("prompt", "question", "problem")
"""The columns that may hold the prompt; the first that is there does."""


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the completion to learn."""

    prompt: Prompt
    completion: Prompt


@dataclass(frozen=True)
class Pair:
    """Two completions of one prompt, of which ``chosen`` is the better; it is not empty, and they differ."""

    prompt: Prompt
    chosen: Prompt
    rejected: Prompt

    @property
    def doubt(self) -> str:
        """What may be wrong with a pair that can be trained on."""
        return "" if _words(self.rejected) else "'rejected' is empty, so the end token alone is what is rejected"


@dataclass(frozen=True)
class LabelledSteps:
    """The steps of one completion and whether each is right: 1, 0, a probability between, or None where not known.

    No step is empty, and at least one has a label.
    """

    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]


def is_right(label: float) -> bool:
    """Whether a step with this label counts as right: where it is likelier right than wrong."""
    return label > 0.5


def first_wrong(labels: Sequence[float | None]) -> int | None:
    """The first step that is wrong, -1 for none, None where an unknown label leaves that open."""
    for k, label in enumerate(labels):
        if label is None or not is_right(label):
            return None if label is None else k
    return -1


def kind_of(columns: Mapping[str, Any]) -> Kind:
    """The kind of a row with these columns."""
    if "messages" in columns or "completion" in columns:
        return "demonstrations"
    if "chosen" in columns and "rejected" in columns:
        return "pairs"
    return "labelled_steps" if "completions" in columns and "labels" in columns else "prompts"


def prompt_of(where: str, columns: Mapping[str, Any]) -> tuple[str, Prompt]:
    """The column that holds the prompt, and the prompt; of a pair without one, "" and what its two sides share.

    Raises TaskError naming the row and what it has.
    """
    if _is_dialogue(columns.get("messages")):
        return "messages", columns["messages"][:-1]
    name = next((name for name in PROMPTS if name in columns), None)
    if name is None and kind_of(columns) == "pairs":
        return "", _shared_prompt(where, columns)
    if name is None:
        raise TaskError(
            f"{where}: every row must be an object with a 'prompt' (or a 'question', or a 'problem'); its columns are "
            f"{', '.join(map(repr, columns)) or 'none'}; say which of them is the prompt in task.columns: prompt=NAME"
        )
    return name, _text(where, name, columns[name])


def demonstration(where: str, columns: Mapping[str, Any]) -> Demonstration:
    """Raises TaskError naming the row and the column; also for a completion without text."""
    if "messages" in columns:
        messages = columns["messages"]
        if not _is_dialogue(messages):
            raise TaskError(
                f"{where}: 'messages' must be a list of at least two messages with 'role' and 'content', the last one "
                f"the assistant's, not {_short(messages)}"
            )
        if not _words(messages[-1:]) and not _calls(messages[-1:]):
            raise TaskError(f"{where}: the last of 'messages' is empty; give it a text, or remove the row")
        return Demonstration(messages[:-1], messages[-1:])
    completion = _column(where, columns, "completion")
    if not _words(completion) and not _calls(completion):
        raise TaskError(f"{where}: 'completion' is empty and teaches nothing; give it a text, or remove the row")
    return Demonstration(prompt_of(where, columns)[1], completion)


def pair(where: str, columns: Mapping[str, Any]) -> Pair:
    """Raises TaskError naming the row and the column; also for an empty ``chosen``, and for two that are the same."""
    name, prompt = prompt_of(where, columns)
    chosen, rejected = _column(where, columns, "chosen"), _column(where, columns, "rejected")
    if (name and _words(chosen) and _words(chosen) == _words(rejected)) or chosen == rejected:
        raise TaskError(f"{where}: 'chosen' and 'rejected' are the same text, which prefers neither; remove the row")
    if not name or _begins_with_the_prompt(chosen):
        prompt = _shared_prompt(where, columns)
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not _words(chosen):
        raise TaskError(f"{where}: 'chosen' is empty; give it an answer, or remove the row")
    return Pair(prompt, chosen, rejected)


def labelled_steps(where: str, columns: Mapping[str, Any]) -> LabelledSteps:
    """Raises TaskError naming the row and the column; also for an empty step, and for labels outside 0 to 1."""
    prompt = prompt_of(where, columns)[1]
    steps, labels = columns.get("completions"), columns.get("labels")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise TaskError(f"{where}: 'completions' must be a list with the text of each step, not {_short(steps)}")
    if not isinstance(labels, list) or not all(label is None or isinstance(label, int | float) for label in labels):
        raise TaskError(
            f"{where}: 'labels' must be a list with true, false, a number from 0 to 1 or null for each step, not "
            f"{_short(labels)}"
        )
    if len(steps) != len(labels):
        raise TaskError(f"{where}: 'labels' has {len(labels)} entries for the {len(steps)} steps in 'completions'")
    for number, (step, label) in enumerate(zip(steps, labels, strict=True), start=1):
        if not step.strip():
            raise TaskError(f"{where}: step {number} in 'completions' is empty; give it a text, or remove the row")
        if label is not None and not 0 <= label <= 1:
            raise TaskError(f"{where}: the label of step {number} is {label!r}; labels are from 0 (wrong) to 1 (right)")
    if all(label is None for label in labels):
        raise TaskError(f"{where}: none of the {len(steps)} steps has a label; label one, or remove the row")
    return LabelledSteps(prompt, tuple(steps), tuple(None if label is None else float(label) for label in labels))


READERS: Mapping[Kind, Callable[[str, Mapping[str, Any]], Any]] = {
    "demonstrations": demonstration,
    "pairs": pair,
    "labelled_steps": labelled_steps,
}
"""How a row of each kind is read; prompts are read by ``data.tasks``."""


def _shared_prompt(where: str, columns: Mapping[str, Any]) -> Prompt:
    """What both sides begin with: whole messages, or text up to where they part, as TRL's ``extract_prompt`` has it."""
    chosen, rejected = _column(where, columns, "chosen"), _column(where, columns, "rejected")
    same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(chosen, rejected, strict=False)))
    if isinstance(chosen, str) and chosen[same - 1 : same] == " ":
        same -= 1  # tokenizers keep a space with the word after it
    if not same or isinstance(chosen, str) != isinstance(rejected, str):
        raise TaskError(
            f"{where}: a pair without a 'prompt' must have it at the beginning of both 'chosen' and 'rejected', and "
            "these begin differently; add the column 'prompt'"
        )
    return chosen[:same]


def _begins_with_the_prompt(side: Prompt) -> bool:
    """Whether a side is the whole conversation, also beside a column ``prompt``, as in several data sets of the Hub."""
    return not isinstance(side, str) and bool(side) and side[0]["role"] != "assistant"


def _words(side: Prompt) -> str:
    """A completion's text, to tell whether there is any."""
    return (side if isinstance(side, str) else "".join(message["content"] for message in side)).strip()


def _calls(side: Prompt) -> bool:
    """Whether a completion of messages calls tools, which needs no text."""
    return not isinstance(side, str) and any(message.get("tool_calls") for message in side)


def _column(where: str, columns: Mapping[str, Any], name: str) -> Prompt:
    if name not in columns:
        has = ", ".join(map(repr, columns)) or "none"
        raise TaskError(f"{where}: the column {name!r} is missing; the row's columns are {has}")
    return _text(where, name, columns[name])


def _text(where: str, name: str, value: Any) -> Prompt:
    if isinstance(value, str) or is_conversation(value):
        return value
    raise TaskError(
        f"{where}: {name!r} must be text or a list of messages with 'role' and 'content', not {type(value).__name__}"
    )


def _is_dialogue(messages: Any) -> bool:
    return is_conversation(messages) and len(messages) > 1 and messages[-1]["role"] == "assistant"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


_MISSING = object()
_TEXTS = {"prompt", "completion", "chosen", "rejected"}
_DEPTH = 4
"""Levels whose names a message lists."""


def has(values: Mapping[str, Any], name: str) -> bool:
    return _at(values, name) is not _MISSING


def value_at(values: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value that a dotted name leads to, ``default`` where it leads nowhere."""
    found = _at(values, name)
    return default if found is _MISSING else found


def columns_of(where: str, values: Mapping[str, Any], columns: Mapping[str, str], field: str) -> dict[str, Any]:
    """Each column of ``columns`` with what its source holds in a row.

    Raises TaskError naming ``field``, the row and the nearest name, where a source leads nowhere.
    """
    made = {}
    for name, source in columns.items():
        value = _at(values, source)
        if value is _MISSING:
            names = names_of(values)
            raise TaskError(
                f"{field}: {where} has no {source!r}{did_you_mean(source, names)}; it has {cut(', '.join(names), 300)}"
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)  # of a CSV file, say
        made[name] = str(value) if name in _TEXTS and is_number else value
    return made


def names_of(values: Mapping[str, Any], prefix: str = "", depth: int = 1) -> list[str]:
    """The dotted names of a row's values, those in objects too."""
    names = []
    for name, value in values.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict) and depth < _DEPTH:
            names += names_of(value, f"{prefix}{name}.", depth + 1)
    return names


def _at(values: Any, name: str) -> Any:
    if isinstance(values, Mapping):
        if name in values:
            return values[name]
        first, dot, rest = name.partition(".")
        return _at(values[first], rest) if dot and first in values else _MISSING
    if isinstance(values, list):
        first, dot, rest = name.partition(".")
        if not first.removeprefix("-").isdecimal() or not -len(values) <= int(first) < len(values):
            return _MISSING
        return _at(values[int(first)], rest) if dot else values[int(first)]
    return _MISSING


def recognised(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The layout's name ("" for the columns of a task), and the row with that layout's columns."""
    for name, read in _LAYOUTS.items():
        if (made := read(values)) is not None:
            return name, {**values, **made}
    return "", dict(values)


def _verl(values: Mapping[str, Any]) -> dict[str, Any] | None:
    truth = value_at(values, "reward_model.ground_truth")
    if truth is None or "prompt" not in values or "answer" in values:
        return None
    return {"answer": truth}


def _alpaca(values: Mapping[str, Any]) -> dict[str, Any] | None:
    instruction, added = values.get("instruction"), values.get("input")
    if not isinstance(instruction, str) or any(name in values for name in PROMPTS):
        return None
    prompt = f"{instruction}\n\n{added}" if isinstance(added, str) and added.strip() else instruction
    return {"prompt": prompt} | _completion(values)


def _sharegpt(values: Mapping[str, Any]) -> dict[str, Any] | None:
    messages = sharegpt_messages(values)
    if messages is None:
        return None
    return {"messages": messages} if messages[-1]["role"] == "assistant" else {"prompt": messages}


def _messages(values: Mapping[str, Any]) -> dict[str, Any] | None:
    messages = values.get("messages")
    if "prompt" in values or not is_conversation(messages) or values["messages"][-1]["role"] == "assistant":
        return None
    return {"prompt": messages}  # the column ``messages`` is not that of a demonstration then


def _input(values: Mapping[str, Any]) -> dict[str, Any] | None:
    text = values.get("input")
    if not (isinstance(text, str) or is_conversation(text)) or any(name in values for name in PROMPTS):
        return None
    truth = next((values[name] for name in ("label", "gts") if values.get(name) is not None), None)
    answer = {} if truth is None or "answer" in values else {"answer": truth}
    return {"prompt": text} | answer | _completion(values)


def _completion(values: Mapping[str, Any]) -> dict[str, Any]:
    output = values.get("output")
    return {"completion": output} if isinstance(output, str) and "completion" not in values else {}


_LAYOUTS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
    "verl": _verl,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "messages": _messages,
    "input": _input,
}
"""Name → reader, which gives the columns to add or None for a row of another layout, in the order they are tried."""


_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_INSTEAD = {"prompt", "completion", "chosen", "rejected"}
FILTERED, TOO_LONG = "filter", "max_prompt_characters"
"""The fields for which rows are left out."""


@dataclass(frozen=True)
class RowMapping:
    """What becomes of a row, by a task's section."""

    section: TaskSection

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        return parse_filter(self.section.filter) if self.section.filter else ()

    @property
    def leaves_out(self) -> bool:
        """Whether rows may be left out, so that all have to be looked at."""
        return bool(self.conditions) or self.section.max_prompt_characters is not None

    def layout(self, row: Row) -> str:
        return recognised(row.values)[0]

    def row(self, row: Row) -> Row:
        """Raises TaskError, naming the row and what it has, for a column that is not there."""
        columns, template = self.section.columns, self.section.prompt_template
        layout, values = recognised(row.values)
        values |= columns_of(row.where, row.values, columns, "task.columns")
        if layout == "messages" or (columns.keys() & _INSTEAD and "messages" not in columns):
            values.pop("messages", None)  # which would go before the others
        if template is not None:
            values["prompt"] = filled(template, row.where, values)
            values.pop("messages", None)
        return replace(row, values=values)

    def reason(self, row: Row) -> str | None:
        """Why a row that was mapped is left out; None for one that is taken. Raises TaskError as ``prompt_of``."""
        if not all(condition.holds(value_at(row.values, condition.column)) for condition in self.conditions):
            return FILTERED
        most = self.section.max_prompt_characters
        if most is not None and characters(prompt_of(row.where, row.values)[1]) > most:
            return TOO_LONG
        return None


def taken(rows: Sequence[Row], mapping: RowMapping) -> tuple[Sequence[int], Counter[str]]:
    """Which of the mapped rows are taken, and how many are left out for which reason.

    Raises TaskError for a filter on a column that no row has.
    """
    if not mapping.leaves_out:
        return range(len(rows)), Counter()
    indices, skipped = [], Counter[str]()
    missing = {condition.column for condition in mapping.conditions}
    for i, row in enumerate(rows):
        missing = {column for column in missing if not has(row.values, column)}
        reason = mapping.reason(row)
        if reason is None:
            indices.append(i)
        else:
            skipped[reason] += 1
    if rows and missing:
        column, names = sorted(missing)[0], names_of(rows[0].values)
        raise TaskError(
            f"task.filter: no row has the column {column!r}{did_you_mean(column, names)}; the first has "
            f"{cut(', '.join(names), 300)}"
        )
    return indices, skipped


def drawn(indices: Sequence[int], count: int | None, seed: int | None, what: str) -> Sequence[int]:
    """``count`` of the indices in a drawn order, the first ones without a seed; all in order without a count."""
    if count is None:
        return indices
    if seed is None:
        return indices[:count]
    return random.Random(f"{what}/{seed}").sample(indices, min(count, len(indices)))


def filled(template: str, where: str, values: dict[str, Any]) -> str:
    """The template with columns in the place of their names in braces; ``{{`` is a brace, ``\\n`` a line's end.

    Raises TaskError for a name that is no column.
    """

    def column(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name = match[1].strip()
        if not has(values, name):
            names = names_of(values)
            raise TaskError(
                f"task.prompt_template: {where} has no {name!r}{did_you_mean(name, names)}; it has "
                f"{cut(', '.join(names), 300)}. Write {{{{ for a brace"
            )
        return _as_text(value_at(values, name))

    return _FIELD.sub(column, template.replace("\\n", "\n"))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def characters(prompt: Prompt) -> int:
    """Characters of a prompt's text, or of all its messages' texts."""
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"]) for message in prompt)
