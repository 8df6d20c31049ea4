"""One completion as a file has it, checks of what a row holds, and the readers of labelled steps.

These are TRL's stepwise supervision, ProcessBench, PRM800K, raw Math-Shepherd and RLHFlow. Each makes of a row the
completions that it labels: ``labelled_steps`` and ``labels`` (1 right, 0 wrong, None unknown).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any, Generic, Literal, TypeVar

from annotated_types import Ge, Le, Len, Lt
from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError

from workbench.data.conversations import (
    Conversation,
    conversation_of,
    is_messages,
    notes_of,
    read_messages,
    text_of,
    texts_only,
    uses_tools,
)
from workbench.errors import TaskError, quote
from workbench.schema import ASSISTANT, Prompt, Rollout, Turn

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of values in a row, and what a message calls it."""

    adapter: TypeAdapter[T]
    words: str


def _each(item: Any, words: str) -> Kind[Any]:
    return Kind(TypeAdapter(tuple[item, ...]), words)


TEXT: Kind[str] = Kind(TypeAdapter(StrictStr), "text")
TEXTS: Kind[tuple[str, ...]] = Kind(TypeAdapter(Annotated[tuple[StrictStr, ...], Len(1)]), "a list of texts")
NUMBERS: Kind[tuple[float, ...]] = _each(StrictFloat, "numbers")
MAYBE_NUMBERS: Kind[tuple[float | None, ...]] = _each(StrictFloat | None, "numbers or null")
IDS: Kind[tuple[int, ...]] = _each(Annotated[StrictInt, Ge(0), Lt(2**24)], "token ids: whole numbers from 0 on")
MASK: Kind[tuple[int, ...]] = _each(Annotated[int, Ge(0), Le(1)], "1 for each token that the policy sampled, 0 else")
LABELS: Kind[tuple[float | None, ...]] = _each(
    Annotated[StrictFloat, Ge(0), Le(1)] | StrictBool | None, "true, false, null or a number from 0 to 1 each"
)
REWARD: Kind[float | None] = Kind(TypeAdapter(StrictFloat | StrictBool | None), "a number or null")


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


def check_value(where: str, name: str, value: Any, kind: Kind[T]) -> T:
    """Return a value of a row. Raises TaskError, naming it and what is wrong in it, if it is not of the kind."""
    try:
        return kind.adapter.validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        item = next((f" (item {at + 1})" for at in fault["loc"] if isinstance(at, int)), "")
        raise TaskError(f"{where}: {name!r} must be {kind.words}, not {quote(fault['input'], 80)}{item}") from error


def each_token(where: str, name: str, value: Any, kind: Kind[tuple[T, ...]], count: int) -> tuple[T, ...] | None:
    """Return the values of ``count`` tokens, None where the row has none. Raises TaskError for another number."""
    if value is None:
        return None
    read = check_value(where, name, value, kind)
    if len(read) != count:
        raise TaskError(f"{where}: {name!r} has {len(read)} values for {count} tokens; give one a token")
    return read


def prompt_text(where: str, prompt: Any, name: str = "prompt") -> Prompt:
    if isinstance(prompt, str):
        return prompt
    if is_messages(prompt):
        return texts_only(read_messages(where, name, prompt))
    what = "missing" if prompt is None else f"of type {type(prompt).__name__}"
    raise TaskError(f"{where}: {name!r} is {what}; it must be text or a list of messages with 'role' and 'content'")


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
    record = replace(record, finished=finished, series=str(series), columns=rest)
    if ids is mask is logprobs is None:
        return record
    token_ids = () if ids is None else check_value(where, called["token_ids"], ids, IDS)
    sampled = each_token(where, called["mask"], mask, MASK, len(token_ids))
    return replace(
        record,
        token_ids=None if ids is None else token_ids,
        mask=None if sampled is None or all(sampled) else sampled,
        logprobs=each_token(where, called["logprobs"], logprobs, NUMBERS, len(token_ids)),
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


def step_labels(where: str, name: str, steps: Sequence[str], labels: Any) -> list[float | None]:
    """Return the labels of the steps in column ``name``: from 0, wrong, to 1, right, or None for unknown."""
    read = check_value(where, "labels", labels, LABELS)
    if len(read) != len(steps):
        raise TaskError(f"{where}: {name!r} has {len(steps)} steps and 'labels' {len(read)}; give one label a step")
    return [None if label is None else float(label) for label in read]


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


def is_number(value: Any) -> bool:
    """Return whether a float can hold this number."""
    return isinstance(value, float) or (type(value) is int and value.bit_length() < 1024)


# --- labelled steps ---------------------------------------------------------------------------------------------------

_MARK = "ки"
_FIRST_STEP = re.compile(r"(?i)\bstep 1:")
_RATING: Kind[int | None] = Kind(TypeAdapter(Literal[1, 0, -1] | None), "1, 0, -1 or null")


def read_stepwise(where: str, values: Mapping[str, Any]) -> list[Record]:
    rest = dict(values)
    prompt = prompt_text(where, rest.pop("prompt", None))
    steps = check_value(where, "completions", rest.pop("completions"), TEXTS)
    labels = step_labels(where, "completions", steps, rest.pop("labels"))
    return [_labelled(where, prompt, steps, labels, rest)]


def read_processbench(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is the first wrong step (from 0), or -1 if there is none; of the steps after it nothing is said."""
    rest = dict(values)
    prompt = prompt_text(where, rest.pop("problem"), "problem")
    steps = check_value(where, "steps", rest.pop("steps"), TEXTS)
    label = rest.pop("label")
    if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
        raise TaskError(f"{where}: 'label' is {label!r}; give the first wrong step, 0 to {len(steps) - 1}, or -1")
    right = len(steps) if label < 0 else label
    labels: list[float | None] = [*[1.0] * right, 0.0, *[None] * len(steps)][: len(steps)]
    if isinstance(rest.get("final_answer_correct"), bool):
        rest["correct"] = rest.pop("final_answer_correct")
    return [_labelled(where, prompt, steps, labels, rest)]


def read_prm800k(where: str, values: Mapping[str, Any]) -> list[Record]:
    """A completion for each alternative step that was not gone on from, and the one that was, as TRL's script has it.

    A step rated 0 is not incorrect, and makes no progress: it counts as right, as a person's own step does. A problem
    that was given up has no steps and no completion.
    """
    question = values["question"]
    prompt = prompt_text(where, question.get("problem"), "question.problem")
    rest = {"answer": question["ground_truth_answer"]} if question.get("ground_truth_answer") is not None else {}
    steps: list[str] = []
    labels: list[float | None] = []
    records: list[Record] = []
    for number, step in enumerate(values["label"]["steps"] or (), start=1):
        rated = [_rated(f"{where}: step {number}", completion) for completion in step.get("completions") or ()]
        chosen, written = step.get("chosen_completion"), step.get("human_completion")
        others = [one for place, one in enumerate(rated) if place != chosen]
        records += [_labelled(where, prompt, (*steps, text), [*labels, label], dict(rest)) for text, label in others]
        if isinstance(chosen, int) and 0 <= chosen < len(rated):
            text, label = rated[chosen]
        elif isinstance(written, dict) and isinstance(written.get("text"), str):
            text, label = written["text"], 1.0
        else:
            break
        steps.append(text)
        labels.append(label)
    else:
        if steps:
            records.append(_labelled(where, prompt, tuple(steps), labels, dict(rest)))
    return records


def _rated(where: str, completion: Mapping[str, Any]) -> tuple[str, float | None]:
    rating = check_value(where, "rating", completion.get("rating"), _RATING)
    return check_value(where, "text", completion.get("text"), TEXT), None if rating is None else float(rating >= 0)


def read_math_shepherd(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is ``input`` with + or - in the place of each ки; "Step 1:", or a question mark, ends the question."""
    parts = values["input"].split(_MARK)
    ends = accumulate(len(part) + 1 for part in parts[:-1])
    signs = [values["label"][end - 1 : end] for end in ends]
    if not set(signs) <= {"+", "-"}:
        raise TaskError(f"{where}: 'label' must be 'input' with + or - in the place of each {_MARK}")
    prompt, first = _question_and_step(where, parts[0])
    if not first:  # a mark behind the question labels nothing
        signs = signs[1:]
    steps = tuple(step.strip() for step in ([first] if first else []) + parts[1:-1])
    rest = {name: value for name, value in values.items() if name not in ("input", "label")}
    return [_labelled(where, prompt, steps, [float(sign == "+") for sign in signs], rest)]


def read_rlhflow(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``conversations``: a user's turn holds a step (the first the question, too), the assistant's is + or -."""
    turns = [turn["content"] for turn in values["conversations"]]
    prompt, first = _question_and_step(where, turns[0])
    if not first:
        raise TaskError(f"{where}: the first turn has no step behind the question: {quote(turns[0], 80)}")
    rest = {name: value for name, value in values.items() if name != "conversations"}
    labels: list[float | None] = [float(sign.strip() == "+") for sign in turns[1::2]]
    return [_labelled(where, prompt, (first.strip(), *(step.strip() for step in turns[2::2])), labels, rest)]


def _question_and_step(where: str, text: str) -> tuple[str, str]:
    """Return the question, and the first step behind it, which may be missing."""
    begin = _FIRST_STEP.search(text)
    if begin is not None:
        return text[: begin.start()].strip(), text[begin.start() :]
    question, mark, step = text.rpartition("?")
    if not mark:
        raise TaskError(
            f"{where}: neither 'Step 1:' nor '?' tells where the question in 'input' ends: {quote(text, 80)}"
        )
    return (question + mark).strip(), step.strip()


def _labelled(
    where: str, prompt: Prompt, steps: tuple[str, ...], labels: list[float | None], rest: dict[str, Any]
) -> Record:
    check_value(where, "reward", rest.get("reward"), REWARD)
    columns = rest | {"labelled_steps": [step.strip() for step in steps], "labels": labels}
    return Record(where, prompt, steps=steps, columns=columns)
