"""One row of data: its columns by name, checks of what they hold, and what it becomes.

In a log it becomes a ``Record``, one completion as a file has it; a task's row is one without completions, or of
another kind:

====================  ==============================================================================================
kind                  columns of a row
====================  ==============================================================================================
``prompts``           ``prompt`` (or ``question``, or ``problem``) and any others
``demonstrations``    ``prompt`` and ``completion``, or ``messages`` that end with the assistant's; those with the
                      ``label`` false are left out
``pairs``             ``chosen`` and ``rejected``, with a ``prompt`` or beginning with the same one, as in TRL
``labelled_steps``    ``prompt``, ``completions`` (a text a step) and ``labels`` (a step's: true, false, a probability
                      from 0 to 1, or null for unknown), as in TRL
====================  ==============================================================================================

Texts may be conversations: lists of messages with ``role`` and ``content``. Other layouts become these columns in
``data.formats``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Annotated, Any, Generic, Literal, TypeVar

from annotated_types import Ge, Le, Len, Lt
from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError

from workbench.data.conversations import (
    Conversation,
    conversation_of,
    is_conversation,
    is_messages,
    notes_of,
    read_messages,
    text_of,
    texts_only,
    uses_tools,
)
from workbench.errors import TaskError, cut, did_you_mean, quote
from workbench.rewards.others import Role, columns_for
from workbench.schema import ASSISTANT, Prompt, Rollout, Turn

T = TypeVar("T")

# --- columns by name -------------------------------------------------------------------------------------------------

PROMPTS = ("prompt", "question", "problem")
"""The columns that may hold the prompt; the first that is there does."""
MISSING = object()
_TEXTS = {"prompt", "completion", "chosen", "rejected"}
_DEPTH = 4
"""Levels whose names a message lists."""
_LONGEST_ANSWER = 200
"""Characters of a text that is taken for an answer and not for a solution in words, unless it marks its result."""


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
    made = {name: value_at(values, source) if source else None for name, source in columns.items()}  # "answer=": none
    if missing := next((name for name, value in made.items() if value is MISSING), None):
        raise no_column(f"{field}: {where} has no", columns[missing], values)
    return {name: str(value) if name in _TEXTS and is_number(value) else value for name, value in made.items()}


def names_of(values: Mapping[str, Any], prefix: str = "", depth: int = 1) -> list[str]:
    """Return the dotted names of a row's values, those in objects too."""
    names = []
    for name, value in values.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict) and depth < _DEPTH:
            names += names_of(value, f"{prefix}{name}.", depth + 1)
    return names


def without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a row without the columns of these names."""
    return {name: value for name, value in values.items() if name not in names}


def guess(role: Role, rows: Sequence[Mapping[str, Any]], taken: Collection[str] = ()) -> list[str]:
    """Return the columns that may be of a role, by their names and the values in some rows; several if in doubt.

    Those of ``taken`` are others already. The names are the ones that graders know the right answer by, too.
    """
    names = dict.fromkeys(name for values in rows for name in names_of(values) if name not in taken)
    return columns_for(role, [name for name in names if any(_may_be(role, value_at(row, name)) for row in rows)])


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


def is_number(value: Any) -> bool:
    """Return whether a float can hold this number."""
    return isinstance(value, float) or (type(value) is int and value.bit_length() < 1024)


# --- checks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values(Generic[T]):
    """A check of a column's values, with the words in which a message names them."""

    adapter: TypeAdapter[T]
    words: str


def _each(item: Any, words: str) -> Values[Any]:
    return Values(TypeAdapter(tuple[item, ...]), words)


TEXT: Values[str] = Values(TypeAdapter(StrictStr), "text")
LIST: Values[list[Any]] = Values(TypeAdapter(list[Any], config={"strict": True}), "a list, with a value a completion")
TEXTS: Values[tuple[str, ...]] = Values(TypeAdapter(Annotated[tuple[StrictStr, ...], Len(1)]), "a list of texts")
NUMBERS: Values[tuple[float, ...]] = _each(StrictFloat, "numbers")
MAYBE_NUMBERS: Values[tuple[float | None, ...]] = _each(StrictFloat | None, "numbers or null")
IDS: Values[tuple[int, ...]] = _each(Annotated[StrictInt, Ge(0), Lt(2**24)], "token ids: whole numbers from 0 on")
MASK: Values[tuple[int, ...]] = _each(Annotated[int, Ge(0), Le(1)], "1 for each token that the policy sampled, 0 else")
LABELS: Values[tuple[float | None, ...]] = _each(
    Annotated[StrictFloat, Ge(0), Le(1)] | StrictBool | None, "true, false, null or a number from 0 to 1 each"
)
REWARD: Values[float | None] = Values(TypeAdapter(StrictFloat | StrictBool | None), "a number or null")


def check_value(where: str, name: str, value: Any, kind: Values[T]) -> T:
    """Return a value of a row. Raises TaskError, naming it and what is wrong in it, if it is not of the kind."""
    try:
        return kind.adapter.validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        item = next((f" (item {at + 1})" for at in fault["loc"] if isinstance(at, int)), "")
        raise TaskError(f"{where}: {name!r} must be {kind.words}, not {quote(fault['input'], 80)}{item}") from error


def each_token(where: str, name: str, value: Any, kind: Values[tuple[T, ...]], count: int) -> tuple[T, ...] | None:
    """Return the values of ``count`` tokens, None where the row has none. Raises TaskError for another number."""
    read = None if value is None else check_value(where, name, value, kind)
    if read is not None and len(read) != count:
        raise TaskError(f"{where}: {name!r} has {len(read)} values for {count} tokens; give one a token")
    return read


def step_labels(where: str, name: str, steps: Sequence[str], labels: Any) -> list[float | None]:
    """Return the labels of the steps in column ``name``: from 0, wrong, to 1, right, or None for unknown."""
    read = check_value(where, "labels", labels, LABELS)
    if len(read) != len(steps):
        raise TaskError(f"{where}: {name!r} has {len(steps)} steps and 'labels' {len(read)}; give one label a step")
    return [None if label is None else float(label) for label in read]


def prompt_text(where: str, prompt: Any, name: str = "prompt") -> Prompt:
    if isinstance(prompt, str):
        return prompt
    if is_messages(prompt):
        return texts_only(read_messages(where, name, prompt))
    what = "missing" if prompt is None else f"of type {type(prompt).__name__}"
    raise TaskError(f"{where}: {name!r} is {what}; it must be text or a list of messages with 'role' and 'content'")


# --- a row with a completion -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One completion as a file has it. ``series`` keeps apart what happens to have the same prompt.

    ``completion`` is None where the file has only ``token_ids``; where it has ``steps`` instead, they are joined later.
    ``rollout`` is there where the file has the tokens' own texts; ``policy`` and ``sampling`` are the group's.
    ``notes`` are said once of all completions that have them ("whose …"). A prompt that the file has as ids alone is
    ``prompt_ids``. Of an episode, ``conversation`` has the messages, ``pieces`` are (role, text) of its turns and
    observations, and ``turns`` are those in tokens.
    """

    where: str
    prompt: Prompt
    completion: str | None = None
    steps: tuple[str, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    mask: tuple[int, ...] | None = None
    turns: tuple[Turn, ...] = ()
    rollout: Rollout | None = None
    finished: bool | None = None
    series: str = ""
    columns: dict[str, Any] = field(default_factory=dict)
    policy: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None
    conversation: Conversation | None = None
    pieces: tuple[tuple[str, str], ...] | None = None
    notes: tuple[str, ...] = ()


def read_row(where: str, values: Mapping[str, Any], *, series: Any = "", **names: str) -> Record:
    """Read a row's ``prompt`` and its ``completion`` (text, a message, or those of an episode) or ``token_ids``.

    ``names`` are the file's for these and for ``mask``, ``logprobs``, ``tools``, ``reward`` and any other column:
    ``completion="output"``. What is left of the row is the record's columns.
    """
    rest = dict(values)
    rest |= {name: rest.pop(called) for name, called in names.items() if called in rest}
    if "is_correct" in rest:
        rest.setdefault("correct", rest.pop("is_correct"))
    if rest.get("answer", "") is None:
        del rest["answer"]
    prompt, completion, ids, mask, logprobs, tools = (
        rest.pop(name, None) for name in ("prompt", "completion", "token_ids", "mask", "logprobs", "tools")
    )
    called = {name: names.get(name, name) for name in ("prompt", "completion", "token_ids", "mask", "logprobs")}
    if completion is None and ids is None:
        raise TaskError(f"{where}: {called['completion']!r} is missing; give text, or 'token_ids'")
    finished = is_finished(rest)
    check_value(where, names.get("reward", "reward"), rest.get("reward"), REWARD)
    if rest.get("labels") is not None and rest.get("labelled_steps") is not None:
        steps = check_value(where, "labelled_steps", rest["labelled_steps"], TEXTS)
        rest["labels"] = step_labels(where, "labelled_steps", steps, rest["labels"])
    if completion is None or isinstance(completion, str):
        record = Record(where, prompt_text(where, prompt, called["prompt"]), completion)
    else:
        record = _of_messages(where, prompt, completion, called["completion"], tools)
    token_ids = None if ids is None else check_value(where, called["token_ids"], ids, IDS)
    count = len(token_ids or ())
    sampled = each_token(where, called["mask"], mask, MASK, count)
    return replace(
        record,
        finished=finished,
        series=str(series),
        columns=rest,
        token_ids=token_ids,
        mask=None if all(sampled or ()) else sampled,
        logprobs=each_token(where, called["logprobs"], logprobs, NUMBERS, count),
    )


def _of_messages(where: str, prompt: Any, completion: Any, name: str, tools: Any) -> Record:
    """Read a completion of one message, or an episode of several messages or of a call. Raises TaskError."""
    if not is_messages(completion):
        raise TaskError(
            f"{where}: {name!r} must be text or a list of messages, not {type(completion).__name__}; every row of a "
            "file alike"
        )
    said, is_text = read_messages(where, name, completion), isinstance(prompt, str)
    asked = [{"role": "user", "content": prompt}] if is_text else read_messages(where, "prompt", prompt)
    if len(said) == 1 and not uses_tools(said) and said[0]["role"] == ASSISTANT:
        notes = notes_of([*asked, *said], in_text=True)
        return Record(where, prompt if is_text else texts_only(asked), text_of(said[0]), notes=notes)
    conversation = conversation_of(where, name, asked, said, tools)
    opening = prompt if is_text and conversation.opening == 1 else conversation.prompt
    return Record(where, opening, conversation=conversation, notes=notes_of(conversation.messages))


def logged_advantage(values: Sequence[float | None], mask: Sequence[Any]) -> dict[str, Any]:
    """Return the column ``logged_advantage`` of advantages of each token: a number where the sampled ones all have the
    same, else one a token, None where it is unknown or not sampled. No column where none is known."""
    of_tokens = [value if sampled else None for value, sampled in zip(values, mask, strict=True)]
    known = {value for value, sampled in zip(values, mask, strict=True) if sampled}
    if known <= {None}:
        return {}
    return {"logged_advantage": known.pop() if len(known) == 1 else of_tokens}


def is_finished(rest: dict[str, Any]) -> bool | None:
    """Return whether the row says that the completion came to its end."""
    for name in ("finished", "truncated", "is_truncated"):
        if isinstance(rest.get(name), bool):
            return bool(rest.pop(name)) == (name == "finished")
    reason = rest.get("finish_reason")
    return reason != "length" if isinstance(reason, str) else None


# --- a task's row ----------------------------------------------------------------------------------------------------

Kind = Literal["prompts", "pairs", "demonstrations", "labelled_steps"]


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
        said = words_of(self.rejected).strip()
        return "" if said else "'rejected' is empty, so the end token alone is what is rejected"


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


def _demonstration(where: str, columns: Mapping[str, Any]) -> Demonstration:
    """Read a demonstration. Raises TaskError naming row and column; also for a completion without text."""
    name, completion = "'completion'", columns.get("completion")
    if "messages" in columns:
        messages = columns["messages"]
        if not _is_dialogue(messages):
            raise TaskError(
                f"{where}: 'messages' must be a list of at least two messages with 'role' and 'content', the last one "
                f"the assistant's, not {quote(messages, 80)}"
            )
        name, completion = "the last of 'messages'", messages[-1:]
    else:
        completion = _column(where, columns, "completion")
    calls_tools = not isinstance(completion, str) and any(message.get("tool_calls") for message in completion)
    if not calls_tools and not words_of(completion).strip():
        raise TaskError(f"{where}: {name} is empty and teaches nothing; give it a text, or remove the row")
    return Demonstration(prompt_of(where, columns)[1], completion)


def _pair(where: str, columns: Mapping[str, Any]) -> Pair:
    """Read a pair. Raises TaskError naming row and column; also for an empty ``chosen``, and two equal sides."""
    name, prompt = prompt_of(where, columns)
    chosen, rejected = _column(where, columns, "chosen"), _column(where, columns, "rejected")
    words = [words_of(side).strip() for side in (chosen, rejected)]
    if (name and words[0] and words[0] == words[1]) or chosen == rejected:
        raise TaskError(f"{where}: 'chosen' and 'rejected' are the same text, which prefers neither; remove the row")
    # A side may be the whole conversation, also beside a column ``prompt``, as in several data sets of the Hub.
    if not name or (not isinstance(chosen, str) and chosen and chosen[0]["role"] != "assistant"):
        prompt = _shared_prompt(where, columns)
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not words_of(chosen).strip():
        raise TaskError(f"{where}: 'chosen' is empty; give it an answer, or remove the row")
    return Pair(prompt, chosen, rejected)


def _labelled_steps(where: str, columns: Mapping[str, Any]) -> LabelledSteps:
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
    "demonstrations": _demonstration,
    "pairs": _pair,
    "labelled_steps": _labelled_steps,
}
"""How a row of each kind is read; prompts are read by ``data.tasks``."""


def words_of(side: Prompt) -> str:
    """Return the text of a prompt or completion, that of all its messages."""
    return side if isinstance(side, str) else "".join(message["content"] for message in side)


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
