"""The kinds of rows a task may have, and what a section of a task makes of a row's columns.

====================  ==============================================================================================
kind                  columns of a row
====================  ==============================================================================================
``prompts``           ``prompt`` (or ``question``, or ``problem``) and any others
``demonstrations``    ``prompt`` and ``completion``, or ``messages`` that end with the assistant's; those with the
                      ``label`` false are left out
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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from workbench.config import TaskSection
from workbench.config.task import parse_filter
from workbench.data.conversations import is_conversation, is_messages
from workbench.data.read import Row
from workbench.data.records import TEXTS, check_value, is_number, step_labels
from workbench.errors import TaskError, cut, did_you_mean, quote
from workbench.rewards.others import Role, columns_for
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
        """Return what may be wrong with a pair that can be trained on."""
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
    """Return whether a step with this label counts as right: it is likelier right than wrong."""
    return label > 0.5


def first_wrong(labels: Sequence[float | None]) -> int | None:
    """Return the first step that is wrong, -1 for none, None where an unknown label leaves that open."""
    for k, label in enumerate(labels):
        if label is None or not is_right(label):
            return None if label is None else k
    return -1


def kind_of(columns: Mapping[str, Any]) -> Kind:
    """Return the kind of a row with these columns."""
    if "messages" in columns or "completion" in columns:
        return "demonstrations"
    if "chosen" in columns and "rejected" in columns:
        return "pairs"
    return "labelled_steps" if "completions" in columns and "labels" in columns else "prompts"


def prompt_of(where: str, columns: Mapping[str, Any]) -> tuple[str, Prompt]:
    """Return the column that holds the prompt, and the prompt; of a pair without one, "" and what its two sides share.

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
    return name, _column(where, columns, name)


def demonstration(where: str, columns: Mapping[str, Any]) -> Demonstration:
    """Read a demonstration. Raises TaskError naming row and column; also for a completion without text."""
    if "messages" in columns:
        messages = columns["messages"]
        if not _is_dialogue(messages):
            raise TaskError(
                f"{where}: 'messages' must be a list of at least two messages with 'role' and 'content', the last one "
                f"the assistant's, not {quote(messages, 80)}"
            )
        name, completion = "the last of 'messages'", messages[-1:]
    else:
        name, completion = "'completion'", _column(where, columns, "completion")
    calls_tools = not isinstance(completion, str) and any(message.get("tool_calls") for message in completion)
    if not calls_tools and not _words(completion):
        raise TaskError(f"{where}: {name} is empty and teaches nothing; give it a text, or remove the row")
    return Demonstration(prompt_of(where, columns)[1], completion)


def pair(where: str, columns: Mapping[str, Any]) -> Pair:
    """Read a pair. Raises TaskError naming row and column; also for an empty ``chosen``, and two equal sides."""
    name, prompt = prompt_of(where, columns)
    chosen, rejected = _column(where, columns, "chosen"), _column(where, columns, "rejected")
    if (name and _words(chosen) and _words(chosen) == _words(rejected)) or chosen == rejected:
        raise TaskError(f"{where}: 'chosen' and 'rejected' are the same text, which prefers neither; remove the row")
    # A side may be the whole conversation, also beside a column ``prompt``, as in several data sets of the Hub.
    if not name or (not isinstance(chosen, str) and chosen and chosen[0]["role"] != "assistant"):
        prompt = _shared_prompt(where, columns)
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not _words(chosen):
        raise TaskError(f"{where}: 'chosen' is empty; give it an answer, or remove the row")
    return Pair(prompt, chosen, rejected)


def labelled_steps(where: str, columns: Mapping[str, Any]) -> LabelledSteps:
    """Read labelled steps. Raises TaskError naming row and column; also for an empty step or a bad label."""
    prompt = prompt_of(where, columns)[1]
    steps = check_value(where, "completions", columns.get("completions"), TEXTS)
    labels = step_labels(where, "completions", steps, columns.get("labels"))
    if empty := next((number for number, step in enumerate(steps, start=1) if not step.strip()), None):
        raise TaskError(f"{where}: step {empty} in 'completions' is empty; give it a text, or remove the row")
    if all(label is None for label in labels):
        raise TaskError(f"{where}: none of the {len(steps)} 'labels' is known; label a step, or remove the row")
    return LabelledSteps(prompt, steps, tuple(labels))


READERS: Mapping[Kind, Callable[[str, Mapping[str, Any]], Any]] = {
    "demonstrations": demonstration,
    "pairs": pair,
    "labelled_steps": labelled_steps,
}
"""How a row of each kind is read; prompts are read by ``data.tasks``."""


def _shared_prompt(where: str, columns: Mapping[str, Any]) -> Prompt:
    """Return what both sides begin with: whole messages, or text, as TRL's ``extract_prompt`` has it."""
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


def _words(side: Prompt) -> str:
    """Return a completion's text, to tell whether there is any."""
    return (side if isinstance(side, str) else "".join(message["content"] for message in side)).strip()


def _column(where: str, columns: Mapping[str, Any], name: str) -> Prompt:
    value = columns.get(name)
    if isinstance(value, str) or is_conversation(value):
        return value
    if name not in columns:
        raise no_column(f"{where}: there is no column", name, columns)
    raise TaskError(
        f"{where}: {name!r} must be text or a list of messages with 'role' and 'content', not {type(value).__name__}"
    )


def _is_dialogue(messages: Any) -> bool:
    return is_conversation(messages) and len(messages) > 1 and messages[-1]["role"] == "assistant"


# --- columns by name -------------------------------------------------------------------------------------------------

MISSING = object()
_TEXTS = {"prompt", "completion", "chosen", "rejected"}
_DEPTH = 4
"""Levels whose names a message lists."""


def value_at(values: Any, name: str) -> Any:
    """Return the value that a dotted name leads to, ``MISSING`` where it leads nowhere.

    A dot leads into an object, or by a number into a list (``messages.0.content``, -1 for the last); a column that is
    called so as it stands goes first. Nothing is evaluated.
    """
    first, dot, rest = name.partition(".")
    if isinstance(values, Mapping):
        if name in values:
            return values[name]
        return value_at(values[first], rest) if dot and first in values else MISSING
    is_index = isinstance(values, list) and first.removeprefix("-").isdecimal()
    if not is_index or not -len(values) <= int(first) < len(values):
        return MISSING
    return value_at(values[int(first)], rest) if dot else values[int(first)]


def no_column(what: str, name: str, values: Mapping[str, Any]) -> TaskError:
    """Return the error for a column that is not there: the nearest name, and what there is."""
    names = names_of(values)
    return TaskError(f"{what} {name!r}{did_you_mean(name, names)}; there is {cut(', '.join(names), 300)}")


def columns_of(where: str, values: Mapping[str, Any], columns: Mapping[str, str], field: str) -> dict[str, Any]:
    """Return each column of ``columns`` with what its source holds in a row, for tasks and rollouts alike.

    Raises TaskError naming ``field``, the row and the nearest name, where a source leads nowhere.
    """
    made = {}
    for name, source in columns.items():
        value = value_at(values, source) if source else None  # "answer=" says that there is none
        if value is MISSING:
            raise no_column(f"{field}: {where} has no", source, values)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)  # of a CSV file, say
        made[name] = str(value) if name in _TEXTS and is_number else value
    return made


def names_of(values: Mapping[str, Any], prefix: str = "", depth: int = 1) -> list[str]:
    """Return the dotted names of a row's values, those in objects too."""
    names = []
    for name, value in values.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict) and depth < _DEPTH:
            names += names_of(value, f"{prefix}{name}.", depth + 1)
    return names


def guess(role: Role, rows: Sequence[Mapping[str, Any]], taken: Collection[str] = ()) -> list[str]:
    """Return the columns that may be of a role, by their names and the values in some rows; several if in doubt.

    Those of ``select_rows`` are others already.
    """
    names = dict.fromkeys(name for values in rows for name in names_of(values) if name not in taken)
    return columns_for(role, [name for name in names if any(_may_be(role, value_at(row, name)) for row in rows)])


_LONGEST_ANSWER = 200
"""Characters of a text that is taken for an answer and not for a solution in words, unless it marks its result."""


def _may_be(role: Role, value: Any) -> bool:
    if role == "reward":
        return is_number(value) or isinstance(value, bool)
    if role != "answer":
        return (isinstance(value, str) and bool(value.strip())) or is_messages(value)
    texts = value if isinstance(value, list) and value else [value]
    return all(
        is_number(text)
        or (isinstance(text, str) and (len(text) <= _LONGEST_ANSWER or "####" in text or "\\boxed" in text))
        for text in texts
    )


# --- rows as a task's section has them -------------------------------------------------------------------------------

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


def select_rows(rows: Sequence[Row], section: TaskSection) -> tuple[Sequence[int], Counter[str]]:
    """Return which of the mapped rows are taken, and how many are left out by which field.

    A completion with the ``label`` false, as KTO's unpaired preferences have it, is no demonstration. All rows are
    looked at where some may be left out. Raises TaskError for a filter on a column that no row has.
    """
    most = section.max_prompt_characters
    is_judged = len(rows) > 0 and "completion" in rows[0].values and isinstance(rows[0].values.get("label"), bool)
    if section.filter is None and most is None and not is_judged:
        return range(len(rows)), Counter()
    kept = range(len(rows)) if section.filter is None else _filtered(rows, section.filter)
    good = [i for i in kept if not is_judged or rows[i].values.get("label") is not False]
    indices = [i for i in good if most is None or characters(prompt_of(rows[i].where, rows[i].values)[1]) <= most]
    left = {"filter": (rows, kept), "label": (kept, good), "max_prompt_characters": (good, indices)}
    return indices, Counter({field: len(a) - len(b) for field, (a, b) in left.items() if len(a) > len(b)})


def _filtered(rows: Sequence[Row], text: str) -> Sequence[int]:
    """Return which rows a filter takes; columns whose texts are all numbers are compared as numbers.

    Raises TaskError for a filter that pandas does not read, or whose values it cannot compare.
    """
    import pandas as pd

    try:
        by = parse_filter(text)
    except ValueError as error:
        raise TaskError(f"task.filter: {error}") from error
    values = {column: [value_at(row.values, column) for row in rows] for column in by.columns}
    for column, found in values.items():
        if rows and all(value is MISSING for value in found):
            raise no_column("task.filter: no row has the column", column, rows[0].values)
    frame = pd.DataFrame(
        {f"c{n}": [None if value is MISSING else value for value in found] for n, found in enumerate(values.values())}
    )
    for name in frame.columns:
        with suppress(ValueError, TypeError):
            frame[name] = pd.to_numeric(frame[name])
    try:
        kept = frame.query(by.expression, engine="python", local_dict={}, global_dict={})
        return [int(i) for i in kept.index]
    except Exception as error:  # whatever pandas raises for values that an operator does not take
        raise TaskError(f"task.filter does not fit the rows' values: {cut(str(error), 300)}") from error


def draw_rows(indices: Sequence[int], count: int | None, seed: int | None, what: str) -> Sequence[int]:
    """``count`` of the indices in a drawn order, the first ones without a seed; all in order without a count."""
    if count is None:
        return indices
    if seed is None:
        return indices[:count]
    return random.Random(f"{what}/{seed}").sample(indices, min(count, len(indices)))


def fill_template(template: str, where: str, values: dict[str, Any]) -> str:
    """Return the template with columns in the place of their names in braces; ``{{`` is a brace, ``\\n`` a line's end.

    ``{text:.40}`` is the column's first 40 characters. Raises TaskError for a name that is no column.
    """

    def column(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name, _, longest = match[1].strip().partition(":.")
        value = value_at(values, name)
        if value is MISSING:
            raise no_column(f"task.prompt_template: {where} has no", name, values)
        text = value or "" if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text[: int(longest)] if longest.isdecimal() else text

    return _FIELD.sub(column, template.replace("\\n", "\n"))


def characters(prompt: Prompt) -> int:
    """Characters of a prompt's text, or of all its messages' texts."""
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"]) for message in prompt)
