"""Readers of labelled steps: TRL's stepwise supervision, ProcessBench, PRM800K, raw Math-Shepherd and RLHFlow.

Each makes of a row the completions that it labels: ``labelled_steps`` and ``labels`` (1 right, 0 wrong, None unknown).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import TaskError, shown
from workbench.rollouts.records import Record, check_reward, is_conversation, prompt_text, step_labels, texts_of
from workbench.schema import Prompt

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
