"""Steps with labels: the layouts in which they come, and steps labelled by hand here.

TRL's stepwise supervision, ProcessBench, PRM800K, raw Math-Shepherd, RLHFlow and the answers of GSM8K's models: a row
becomes the completions that it labels, with ``labelled_steps`` and ``labels`` (1 right, 0 wrong, None unknown).

By hand a step is right, neutral or wrong, as in PRM800K. ``<workspace>/labels/<hash>.json`` holds a completion, its
steps as they were cut when it was labelled last, and the labels by span. ``<workspace>/labels/steps.jsonl`` is all of
them as ``prm`` and ``check-reward`` read them (TRL's stepwise supervision), written anew with every label. A label
stays with its span: a pattern that cuts otherwise does not show it, and brings it back when it cuts the same.

Neutral is PRM800K's rating 0, "makes no progress, but is not wrong": it counts as right wherever a label is true or
false, as in TRL's own script. Does not know who labels, or how steps are found.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, StrictBool, TypeAdapter

from workbench.data.rows import (
    REWARD,
    TEXT,
    TEXTS,
    Record,
    Values,
    check_value,
    prompt_text,
    read_row,
    step_labels,
    without,
)
from workbench.errors import TaskError, WorkbenchError, quote
from workbench.files import encode, replace_file
from workbench.schema import Prompt, ScoredGroup
from workbench.schema import prompt_text as joined_text

# --- layouts ----------------------------------------------------------------------------------------------------------

MARK = "ки"
_FIRST_STEP = re.compile(r"(?i)\bstep 1:")
_RATING: Values[int | None] = Values(TypeAdapter(Literal[1, 0, -1] | None), "1, 0, -1 or null")


def read_stepwise(where: str, values: Mapping[str, Any]) -> list[Record]:
    steps = check_value(where, "completions", values["completions"], TEXTS)
    labels = step_labels(where, "completions", steps, values["labels"])
    prompt = prompt_text(where, values.get("prompt"))
    return [_labelled(where, prompt, steps, labels, without(values, "prompt", "completions", "labels"))]


def read_processbench(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is the first wrong step (from 0), or -1 if there is none; of the steps after it nothing is said."""
    prompt = prompt_text(where, values["problem"], "problem")
    steps, label = check_value(where, "steps", values["steps"], TEXTS), values["label"]
    if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
        raise TaskError(f"{where}: 'label' is {label!r}; give the first wrong step, 0 to {len(steps) - 1}, or -1")
    right = len(steps) if label < 0 else label
    labels: list[float | None] = [*[1.0] * right, 0.0, *[None] * len(steps)][: len(steps)]
    rest = without(values, "problem", "steps", "label")
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
    before: list[tuple[str, float | None]] = []
    answers: list[list[tuple[str, float | None]]] = []
    for number, step in enumerate(values["label"]["steps"] or (), start=1):
        rated = [_rated(f"{where}: step {number}", completion) for completion in step.get("completions") or ()]
        chosen, written = step.get("chosen_completion"), step.get("human_completion")
        answers += [[*before, one] for place, one in enumerate(rated) if place != chosen]
        if isinstance(chosen, int) and 0 <= chosen < len(rated):
            before.append(rated[chosen])
        elif isinstance(written, dict) and isinstance(written.get("text"), str):
            before.append((written["text"], 1.0))
        else:
            break
    else:
        answers += [before] if before else []
    return [
        _labelled(where, prompt, tuple(text for text, _ in steps), [label for _, label in steps], rest)
        for steps in answers
    ]


def _rated(where: str, completion: Mapping[str, Any]) -> tuple[str, float | None]:
    rating = check_value(where, "rating", completion.get("rating"), _RATING)
    return check_value(where, "text", completion.get("text"), TEXT), None if rating is None else float(rating >= 0)


def read_math_shepherd(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``label`` is ``input`` with + or - in the place of each ки; "Step 1:", or a question mark, ends the question."""
    parts = values["input"].split(MARK)
    ends = accumulate(len(part) + 1 for part in parts[:-1])
    signs = [values["label"][end - 1 : end] for end in ends]
    if not set(signs) <= {"+", "-"}:
        raise TaskError(f"{where}: 'label' must be 'input' with + or - in the place of each {MARK}")
    prompt, first = _question_and_step(where, parts[0])
    kept = 0 if first else 1  # a mark behind the question labels nothing
    labels: list[float | None] = [float(sign == "+") for sign in signs[kept:]]
    steps = [step.strip() for step in [first, *parts[1:-1]][kept:]]
    return [_labelled(where, prompt, steps, labels, without(values, "input", "label"))]


def read_rlhflow(where: str, values: Mapping[str, Any]) -> list[Record]:
    """``conversations``: a user's turn holds a step (the first the question, too), the assistant's is + or -."""
    turns = [turn["content"] for turn in values["conversations"]]
    prompt, first = _question_and_step(where, turns[0])
    if not first:
        raise TaskError(f"{where}: the first turn has no step behind the question: {quote(turns[0], 80)}")
    labels: list[float | None] = [float(sign.strip() == "+") for sign in turns[1::2]]
    steps = [step.strip() for step in (first, *turns[2::2])]
    return [_labelled(where, prompt, steps, labels, without(values, "conversations"))]


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
    where: str, prompt: Prompt, steps: Sequence[str], labels: Sequence[float | None], rest: Mapping[str, Any]
) -> Record:
    check_value(where, "reward", rest.get("reward"), REWARD)
    columns = {**rest, "labelled_steps": [step.strip() for step in steps], "labels": list(labels)}
    return Record(where, prompt, steps=tuple(steps), columns=columns)


_VERDICT: Values[bool | None] = Values(TypeAdapter(StrictBool | None), "true, false or null")


def is_solution(value: Any) -> bool:
    return isinstance(value, dict) and "solution" in value


def read_gsm8k(where: str, values: Mapping[str, Any]) -> list[Record]:
    """Read every column that is an object with a ``solution``: one model's completion."""
    rest = {name: value for name, value in values.items() if not is_solution(value)}
    records = []
    for model, answer in values.items():
        if is_solution(answer):
            right = check_value(where, f"{model}.is_correct", answer.get("is_correct"), _VERDICT)
            verdict = {} if right is None else {"correct": right, "reward": float(right)}
            text = check_value(where, f"{model}.solution", answer["solution"], TEXT)
            row = {**rest, "completion": text, "model": model, **verdict}
            records.append(read_row(where, row, prompt="question", answer="ground_truth"))
    return records


# --- by hand ----------------------------------------------------------------------------------------------------------

Label = Literal[1, 0, -1]
"""PRM800K's ratings: right, neutral, wrong."""
LabelLayout = Literal["stepwise", "prm800k"]
Span = tuple[int, int]
"""First character and the one after the last."""
FOLDER = "labels"
TABLE = "steps.jsonl"
_lock = threading.Lock()


class HandLabelled(BaseModel):
    """A completion, its steps, and the labels of some of them: (start, end, label). It is the completion's file."""

    prompt: str
    completion: str
    steps: list[Span]
    labels: list[tuple[int, int, Label]]

    @property
    def ratings(self) -> list[Label | None]:
        """One label a step, None for one that has none."""
        labels = {(start, end): label for start, end, label in self.labels}
        return [labels.get(span) for span in self.steps]

    def row(self, layout: LabelLayout) -> dict[str, Any]:
        """Return a row of a data set: TRL's stepwise supervision, or PRM800K with one completion a step."""
        texts = [self.completion[start:end].strip() for start, end in self.steps]
        if layout == "stepwise":
            labels = [None if rating is None else rating >= 0 for rating in self.ratings]
            return {"prompt": self.prompt, "completions": texts, "labels": labels}
        steps = [
            {
                "completions": [{"text": text, "rating": rating, "flagged": None}],
                "human_completion": None,
                "chosen_completion": 0,
            }
            for text, rating in zip(texts, self.ratings, strict=True)
        ]
        return {"question": {"problem": self.prompt}, "label": {"steps": steps, "finish_reason": "solution"}}


def _read(path: Path) -> HandLabelled | None:
    with suppress(OSError, ValueError, WorkbenchError):  # one damaged file hides no other
        return HandLabelled.model_validate_json(path.read_bytes())
    return None


class HandLabels:
    """The labels in a workspace. Safe to use from any thread of one process."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / FOLDER
        self.table = self._folder / TABLE
        """The file that ``prm`` trains on and ``check-reward`` reads."""

    def of(self, prompt: str, completion: str) -> HandLabelled | None:
        """Return a completion's labels; None where it has none, or its file is damaged."""
        return _read(self._path(prompt, completion))

    def of_group(self, scored: ScoredGroup) -> ScoredGroup:
        """Return the group with the labels that its steps have here, neutral ones as right."""
        labels: list[tuple[bool | None, ...]] = []
        for rollout, row in zip(scored.group.rollouts, scored.scored, strict=True):
            labelled = self.of(joined_text(scored.group.prompt), rollout.text) if self.table.exists() else None
            ratings = {(start, end): rating >= 0 for start, end, rating in (labelled.labels if labelled else ())}
            labels.append(tuple(ratings.get((step.start, step.end)) for step in row.steps))
        known = any(label is not None for of_row in labels for label in of_row)
        return replace(scored, labels=tuple(labels)) if known else scored

    def mark(self, prompt: str, completion: str, steps: Sequence[Span], k: int, label: Label | None) -> HandLabelled:
        """Label step ``k`` of a completion cut into ``steps``; None takes its label away. Raises WorkbenchError."""
        if not 0 <= k < len(steps):
            raise TaskError(f"there is no step {k + 1}; the completion has {len(steps)}")
        labelled = HandLabelled(prompt=prompt, completion=completion, steps=list(steps), labels=[])
        with _lock:
            before = self.of(prompt, completion)
            labelled.labels = [row for row in (before.labels if before else ()) if row[:2] != steps[k]]
            if label is not None:
                labelled.labels.append((*steps[k], label))
            self._write(labelled)
        return labelled

    def completions(self) -> Iterator[HandLabelled]:
        """Yield every completion that has a label on a step as it was cut last, in the order of their files' names."""
        for labelled in map(_read, sorted(self._folder.glob("*.json"))):
            if labelled is not None and any(rating is not None for rating in labelled.ratings):
                yield labelled

    def text(self, layout: LabelLayout) -> str:
        """Return all labelled completions as JSON lines."""
        return "".join(json.dumps(labelled.row(layout)) + "\n" for labelled in self.completions())

    def _write(self, labelled: HandLabelled) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._path(labelled.prompt, labelled.completion)
            if labelled.labels:
                replace_file(path, encode(labelled.model_dump()))
            else:
                path.unlink(missing_ok=True)
            replace_file(self.table, self.text("stepwise").encode())
        except OSError as error:
            raise TaskError(f"labels cannot be kept in {self._folder}: {error}") from error

    def _path(self, prompt: str, completion: str) -> Path:
        key = json.dumps([prompt, completion]).encode()
        return self._folder / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
