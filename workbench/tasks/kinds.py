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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from workbench.errors import TaskError
from workbench.rollouts.records import is_conversation
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
"""How a row of each kind is read; prompts are read by ``tasks.task``."""


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
        return value  # type: ignore[no-any-return]
    raise TaskError(
        f"{where}: {name!r} must be text or a list of messages with 'role' and 'content', not {type(value).__name__}"
    )


def _is_dialogue(messages: Any) -> bool:
    return is_conversation(messages) and len(messages) > 1 and messages[-1]["role"] == "assistant"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
