"""One completion as a file has it, and checks of what a file's row holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from workbench.errors import TaskError, shown
from workbench.schema import ASSISTANT, Prompt

_MOST_IDS = 2**24  # more than any vocabulary has


@dataclass(frozen=True)
class Record:
    """One completion as a file has it. ``series`` keeps apart what happens to have the same prompt.

    ``completion`` is None where the file has only ``token_ids``; where it has ``steps`` instead, they are joined later.
    ``texts`` are the tokens' own, where the file has them; ``policy`` and ``sampling`` are the group's. ``notes`` are
    said once of all completions that have them ("whose …"). A prompt that
    the file has as ids alone is ``prompt_ids``. Of an episode, ``conversation`` has the messages, ``pieces`` are (role,
    text) of its turns and observations, and ``episode`` are those in tokens. ``stop`` is the stop string that ended it.
    """

    where: str
    prompt: Prompt
    completion: str | None = None
    steps: tuple[str, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    texts: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    ref_logprobs: tuple[float, ...] | None = None
    raw_logprobs: tuple[float, ...] | None = None
    mask: tuple[int, ...] | None = None
    finished: bool | None = None
    series: str = ""
    columns: dict[str, Any] = field(default_factory=dict)
    policy: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None
    stop: str | None = None
    episode: tuple[dict[str, Any], ...] | None = None
    conversation: Conversation | None = None
    pieces: tuple[tuple[str, str], ...] | None = None
    notes: tuple[str, ...] = ()


def is_conversation(prompt: Any) -> bool:
    """Whether this is a list of chat messages with ``role`` and ``content``."""
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in prompt
        )
    )


_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bard", "bing", "model"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    "system": "system",
}
_CALL = "function_call"


def sharegpt_messages(values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """ShareGPT's ``conversations`` of ``from`` and ``value`` (and ``system``) as messages; None where there are none.

    Raises nothing: a speaker that is not known makes it no such conversation.
    """
    turns = values.get("conversations")
    if is_conversation(turns):  # some files have messages under this name
        messages = [{"role": turn["role"], "content": turn["content"]} for turn in values["conversations"]]
    elif isinstance(turns, list) and turns and all(map(_is_turn, turns)):
        messages = [_spoken(turn["from"], turn["value"]) for turn in turns]
    else:
        return None
    return with_system(messages, values)


def with_system(messages: list[dict[str, Any]], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Put what a row says under ``system``, if anything, before messages that have none."""
    system = values.get("system")
    if isinstance(system, str) and system and messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    return messages


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and turn.get("from") in (*_ROLES, _CALL) and isinstance(turn.get("value"), str)


def _spoken(speaker: str, value: str) -> dict[str, Any]:
    if speaker != _CALL:
        return {"role": _ROLES[speaker], "content": value}
    return {"role": ASSISTANT, "content": "", "tool_calls": [value]}


def prompt_text(where: str, prompt: Any, name: str = "prompt") -> Prompt:
    if isinstance(prompt, str):
        return prompt
    if is_messages(prompt):
        return texts_only(read_messages(where, name, prompt))
    what = "missing" if prompt is None else f"of type {type(prompt).__name__}"
    raise TaskError(f"{where}: {name!r} is {what}; it must be text or a list of messages with 'role' and 'content'")


def answered(
    where: str, prompt: Any, completion: Any, tools: Any = None, *, finished: bool | None, columns: dict[str, Any]
) -> Record:
    """A completion that is text, one message, or an episode of several messages or of a call. Raises TaskError."""
    if isinstance(completion, str):
        return Record(where, prompt_text(where, prompt), completion, finished=finished, columns=columns)
    if not is_messages(completion):
        raise TaskError(
            f"{where}: 'completion' must be text or a list of messages, not {type(completion).__name__}; every row of "
            "a file alike"
        )
    said = read_messages(where, "completion", completion)
    is_text = isinstance(prompt, str)
    asked = [{"role": "user", "content": prompt}] if is_text else read_messages(where, "prompt", prompt)
    if len(said) == 1 and not uses_tools(said) and said[0]["role"] == ASSISTANT:
        return Record(
            where,
            prompt if is_text else texts_only(asked),
            text_of(said[0]),
            finished=finished,
            columns=columns,
            notes=notes_of([*asked, *said], in_text=True),
        )
    conversation = conversation_of(where, "completion", asked, said, tools)
    return Record(
        where,
        prompt if is_text and conversation.opening == 1 else conversation.prompt,
        conversation=conversation,
        finished=finished,
        columns=columns,
        notes=notes_of(conversation.messages),
    )


def texts_of(where: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise TaskError(f"{where}: {name!r} must be a list of texts, at least one")
    return tuple(value)


def step_labels(where: str, name: str, steps: Sequence[str], labels: Any) -> list[float | None]:
    """The labels of the steps in column ``name``: from 0, wrong, to 1, right, or None for unknown."""
    if not isinstance(labels, list) or len(labels) != len(steps):
        count = len(labels) if isinstance(labels, list) else type(labels).__name__
        raise TaskError(f"{where}: {name!r} has {len(steps)} steps and 'labels' {count}; give one label a step")
    if not all(label is None or is_number(label) or isinstance(label, bool) for label in labels):
        raise TaskError(f"{where}: 'labels' must be true, false, a number or null, one a step")
    if outside := [label for label in labels if label is not None and not 0 <= label <= 1]:
        raise TaskError(f"{where}: {shown(outside[0], 40)} in 'labels' is none; they are from 0 (wrong) to 1 (right)")
    return [None if label is None else float(label) for label in labels]


def token_ids(where: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        isinstance(number, int) and not isinstance(number, bool) for number in value
    ):
        raise TaskError(f"{where}: 'token_ids' must be a list of whole numbers")
    if (strange := next((number for number in value if not 0 <= number < _MOST_IDS), None)) is not None:
        raise TaskError(f"{where}: {shown(strange, 40)} in 'token_ids' is no token id; they are 0 to {_MOST_IDS - 1:,}")
    return tuple(value)


def mask_of(where: str, value: Any, ids: Sequence[int] | None) -> tuple[int, ...] | None:
    """Which of a completion's ids the policy sampled; None where the row says nothing."""
    if value is None:
        return None
    if ids is None:
        raise TaskError(f"{where}: 'mask' says which of 'token_ids' the policy sampled, and there are none; give both")
    if not isinstance(value, list) or len(value) != len(ids):
        count = f"{len(value)} values" if isinstance(value, list) else type(value).__name__
        raise TaskError(f"{where}: 'mask' has {count} and 'token_ids' {len(ids)}; give one a token")
    if not all(sampled in (0, 1) for sampled in value):
        raise TaskError(f"{where}: 'mask' must be 1 for each token that the policy sampled, 0 for others")
    return tuple(map(int, value))


def logged_advantage(values: Sequence[float | None], mask: Sequence[Any]) -> dict[str, Any]:
    """Return the column ``logged_advantage`` of advantages of each token: a number where the sampled ones all have the
    same, else one a token, None where it is unknown or not sampled. No column where none is known."""
    of_tokens = [value if sampled else None for value, sampled in zip(values, mask, strict=True)]
    known = {value for value, sampled in zip(values, mask, strict=True) if sampled}
    if known <= {None}:
        return {}
    return {"logged_advantage": known.pop() if len(known) == 1 else of_tokens}


def is_finished(rest: dict[str, Any]) -> bool | None:
    """Whether the row says that the completion came to its end."""
    if isinstance(rest.get("finished"), bool):
        return bool(rest.pop("finished"))
    if isinstance(rest.get("truncated"), bool):
        return not rest.pop("truncated")
    if isinstance(rest.get("finish_reason"), str):
        return bool(rest["finish_reason"] != "length")
    return None


def check_reward(where: str, rest: Mapping[str, Any], column: str = "reward") -> None:
    """Raise TaskError where ``reward``, which the file calls ``column``, is no number."""
    reward = rest.get("reward")
    if not (reward is None or isinstance(reward, bool) or is_number(reward)):
        raise TaskError(f"{where}: {column!r} must be a number or null, not {shown(reward, 40)}")


def is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    return isinstance(value, float) or (type(value) is int and value.bit_length() < 1024)


def are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(is_number, values))


_MARK = "ки"
_FIRST_STEP = re.compile(r"(?i)\bstep 1:")
_RATINGS = {1: 1.0, 0: 1.0, -1: 0.0, None: None}


def stepwise_rows(where: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of ProcessBench, PRM800K, Math-Shepherd or RLHFlow as TRL's stepwise supervision; any other as it is.

    Raises TaskError for a row that does not fit its format.
    """
    read = next((read for fits, read in _OTHERS if fits(values)), None)
    if read is None:
        return [values]
    return [
        {"prompt": record.prompt, "completions": record.columns.pop("labelled_steps"), **record.columns}
        for record in read(where, values)
    ]


def read_stepwise(where: str, values: Mapping[str, Any]) -> list[Record]:
    rest = dict(values)
    prompt = prompt_text(where, rest.pop("prompt", None))
    steps = texts_of(where, "completions", rest.pop("completions"))
    labels = step_labels(where, "completions", steps, rest.pop("labels"))
    return [_labelled(where, prompt, steps, labels, rest)]


def read_processbench(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is the first wrong step (from 0), or -1 if there is none; of the steps after it nothing is said."""
    rest = dict(values)
    prompt = prompt_text(where, rest.pop("problem"), "problem")
    steps = texts_of(where, "steps", rest.pop("steps"))
    label = rest.pop("label")
    if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
        raise TaskError(f"{where}: 'label' is {label!r}; give the first wrong step, 0 to {len(steps) - 1}, or -1")
    if label < 0:
        labels: list[float | None] = [1.0] * len(steps)
    else:
        labels = [*[1.0] * label, 0.0, *[None] * (len(steps) - label - 1)]
    if isinstance(rest.get("final_answer_correct"), bool):
        rest["correct"] = rest.pop("final_answer_correct")
    return [_labelled(where, prompt, steps, labels, rest)]


def is_processbench(values: Mapping[str, Any]) -> bool:
    return {"problem", "steps", "label"} <= values.keys()


def is_prm800k(values: Mapping[str, Any]) -> bool:
    question, label = values.get("question"), values.get("label")
    return isinstance(question, dict) and isinstance(label, dict) and "steps" in label


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
    rows = values["label"]["steps"] or ()
    if not isinstance(rows, list | tuple) or not all(isinstance(step, dict) for step in rows):
        raise TaskError(f"{where}: 'label.steps' must be a list of objects with rated 'completions', or null")
    for number, step in enumerate(rows, start=1):
        rated = [_rated(f"{where}: step {number}", completion) for completion in step.get("completions") or ()]
        chosen, written = step.get("chosen_completion"), step.get("human_completion")
        for place, (text, label) in enumerate(rated):
            if place != chosen:
                records.append(_labelled(where, prompt, (*steps, text), [*labels, label], dict(rest)))
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


def _rated(where: str, completion: Any) -> tuple[str, float | None]:
    text = completion.get("text") if isinstance(completion, dict) else None
    rating = completion.get("rating") if isinstance(completion, dict) else None
    if not isinstance(text, str) or not isinstance(rating, int | None) or rating not in _RATINGS:
        raise TaskError(
            f"{where}: a completion needs a 'text' and a 'rating' of -1, 0 or 1, not {shown(completion, 80)}"
        )
    return text, _RATINGS[rating]


def is_math_shepherd(values: Mapping[str, Any]) -> bool:
    text, label = values.get("input"), values.get("label")
    return isinstance(text, str) and isinstance(label, str) and _MARK in text


def read_math_shepherd(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is ``input`` with + or - in the place of each ки; "Step 1:", or a question mark, ends the question."""
    parts = values["input"].split(_MARK)
    signs, at = [], 0
    for part in parts[:-1]:
        at += len(part)
        signs.append(values["label"][at : at + 1])
        at += 1
    if not set(signs) <= {"+", "-"}:
        raise TaskError(f"{where}: 'label' must be 'input' with + or - in the place of each {_MARK}")
    prompt, first = _question_and_step(where, parts[0])
    if not first:  # a mark behind the question labels nothing
        signs = signs[1:]
    steps = tuple(step.strip() for step in ([first] if first else []) + parts[1:-1])
    rest = {name: value for name, value in values.items() if name not in ("input", "label")}
    return [_labelled(where, prompt, steps, [float(sign == "+") for sign in signs], rest)]


def is_rlhflow(values: Mapping[str, Any]) -> bool:
    turns = values.get("conversations")
    if not is_conversation(turns) or len(values["conversations"]) % 2:
        return False
    signs = {turn["content"].strip() for turn in values["conversations"][1::2]}
    return signs <= {"+", "-"}


def read_rlhflow(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``conversations``: a user's turn holds a step (the first the question, too), the assistant's is + or -."""
    turns = [turn["content"] for turn in values["conversations"]]
    prompt, first = _question_and_step(where, turns[0])
    if not first:
        raise TaskError(f"{where}: the first turn has no step behind the question: {shown(turns[0], 80)}")
    rest = {name: value for name, value in values.items() if name != "conversations"}
    labels: list[float | None] = [float(sign.strip() == "+") for sign in turns[1::2]]
    return [_labelled(where, prompt, (first.strip(), *(step.strip() for step in turns[2::2])), labels, rest)]


def _question_and_step(where: str, text: str) -> tuple[str, str]:
    """The question, and the first step behind it, which may be missing."""
    begin = _FIRST_STEP.search(text)
    if begin is not None:
        return text[: begin.start()].strip(), text[begin.start() :]
    question, mark, step = text.rpartition("?")
    if not mark:
        raise TaskError(
            f"{where}: neither 'Step 1:' nor '?' tells where the question in 'input' ends: {shown(text, 80)}"
        )
    return (question + mark).strip(), step.strip()


def _labelled(
    where: str, prompt: Prompt, steps: tuple[str, ...], labels: list[float | None], rest: dict[str, Any]
) -> Record:
    check_reward(where, rest)
    columns = rest | {"labelled_steps": [step.strip() for step in steps], "labels": labels}
    return Record(where, prompt, steps=steps, columns=columns)


_OTHERS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[str, Mapping[str, Any]], list[Record]]], ...] = (
    (is_processbench, read_processbench),
    (is_prm800k, read_prm800k),
    (is_math_shepherd, read_math_shepherd),
    (is_rlhflow, read_rlhflow),
)
