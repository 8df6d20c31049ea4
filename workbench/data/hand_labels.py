"""Steps labelled by hand: right, neutral or wrong, as in PRM800K; kept in the workspace, written as training data.

``<workspace>/labels/<hash>.json`` holds a completion, its steps as they were cut when it was labelled last, and the
labels by span. ``<workspace>/labels/steps.jsonl`` is all of them as ``prm`` and ``check-reward`` read them (TRL's
stepwise supervision), written anew with every label. A label stays with its span: a pattern that cuts otherwise does
not show it, and brings it back when it cuts the same.

Neutral is PRM800K's rating 0, "makes no progress, but is not wrong": it counts as right wherever a label is true or
false, as in ``data.records`` and in TRL's own script. Does not know who labels, or how steps are found.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel

from workbench.errors import ConfigError, TaskError, WorkbenchError
from workbench.files import encode, replace_file
from workbench.schema import ScoredGroup, prompt_text

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
            labelled = self.of(prompt_text(scored.group.prompt), rollout.text) if self.table.exists() else None
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

    def text(self, layout: str) -> str:
        """Return all labelled completions as JSON lines. Raises ConfigError for a layout that there is none of."""
        if layout not in get_args(LabelLayout):
            raise ConfigError(f"layout {layout!r} is unknown; choose one of {', '.join(get_args(LabelLayout))}")
        rows = [labelled.row(layout) for labelled in self.completions()]  # type: ignore[arg-type]
        return "".join(json.dumps(row) + "\n" for row in rows)

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
