"""Answers of the held-out rows at a run's first and newest measure of accuracy: one JSON file a measure.

``answers/step-000020.json`` holds a list of objects with ``prompt``, ``text``, ``right`` and ``answer``. Those between
the first and the newest are removed, so that the folder does not grow with the run. Does not know what an answer is
checked by.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import RunError
from workbench.files import encode, read_json, replace_file
from workbench.schema import HeldOutAnswer

MOST_ANSWERS = 500
"""Rows that are stored, of however many are measured."""
MOST_CHARACTERS = 4000
"""Of a stored text, and of its prompt."""
_FILE = re.compile(r"step-(\d{6,})\.json")


class Answers:
    """The stored answers in ``folder`` of the run called ``run``."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    def write(self, step: int, answers: Sequence[HeldOutAnswer]) -> None:
        """Store a measure beside the first one, in place of those since. Raises RunError."""
        rows = [
            {
                "prompt": row.prompt[:MOST_CHARACTERS],
                "text": row.text[:MOST_CHARACTERS],
                "right": row.right,
                "answer": row.answer and row.answer[:MOST_CHARACTERS],
            }
            for row in answers[:MOST_ANSWERS]
        ]
        try:
            self._folder.mkdir(exist_ok=True)
            replace_file(self._path(step), encode(rows))
            for between in self.steps()[1:]:
                if between != step:
                    self._path(between).unlink(missing_ok=True)
        except OSError as error:
            raise RunError(f"answers of run {self._run!r} cannot be written at step {step}: {error}") from error

    def steps(self) -> list[int]:
        """The training steps whose answers are stored, ascending: none, one or two."""
        names = (_FILE.fullmatch(name) for name in (os.listdir(self._folder) if self._folder.is_dir() else ()))
        return sorted(int(match[1]) for match in names if match)

    def read(self, step: int) -> list[HeldOutAnswer]:
        """The stored answers after a step. Raises RunError where there are none, or the file is damaged."""
        try:
            return _read(self._path(step))
        except (OSError, ValueError) as error:
            raise RunError(f"answers of run {self._run!r} at step {step} cannot be read: {error}") from error

    def drop(self, after: int) -> None:
        """Remove the answers of later steps than ``after``."""
        for step in self.steps():
            if step > after:
                self._path(step).unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.json"


def _read(path: Path) -> list[HeldOutAnswer]:
    rows = read_json(path)
    names = {field.name for field in dataclasses.fields(HeldOutAnswer)}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and row.keys() | {"answer"} == names for row in rows
    ):
        raise ValueError("it holds no answers")
    return [
        HeldOutAnswer(str(row["prompt"]), str(row["text"]), row["right"] is True, row.get("answer")) for row in rows
    ]
