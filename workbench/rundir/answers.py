"""Answers of the held-out rows at a run's first and newest measure of accuracy: one JSON file a measure.

``answers/step-000020.json`` holds a list of objects with ``prompt``, ``text`` and ``right``. Those between the first
and the newest are removed, so that the folder does not grow with the run. Does not know what an answer is checked by.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from workbench.rundir.files import encode, replace_file
from workbench.schema import HeldOutAnswer

MOST_ANSWERS = 500
"""Rows that are stored, of however many are measured."""
MOST_CHARACTERS = 4000
"""Of a stored text, and of its prompt."""
_FILE = re.compile(r"step-(\d{6,})\.json")


def write(folder: Path, step: int, answers: Sequence[HeldOutAnswer]) -> None:
    """Store a measure beside the first one, in place of those since. Raises OSError or RunError."""
    folder.mkdir(exist_ok=True)
    rows = [
        {"prompt": row.prompt[:MOST_CHARACTERS], "text": row.text[:MOST_CHARACTERS], "right": row.right}
        for row in answers[:MOST_ANSWERS]
    ]
    replace_file(_path(folder, step), encode(rows))
    for between in steps(folder)[1:]:
        if between != step:
            _path(folder, between).unlink(missing_ok=True)


def steps(folder: Path) -> list[int]:
    """The training steps whose answers are stored, ascending."""
    names = (_FILE.fullmatch(name) for name in (os.listdir(folder) if folder.is_dir() else ()))
    return sorted(int(match[1]) for match in names if match)


def read(folder: Path, step: int) -> list[HeldOutAnswer]:
    """Raises OSError, or ValueError for a file that ``write`` did not make."""
    rows = json.loads(_path(folder, step).read_bytes())
    names = {field.name: field.type for field in dataclasses.fields(HeldOutAnswer)}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() == names.keys() for row in rows):
        raise ValueError("it holds no answers")
    return [HeldOutAnswer(str(row["prompt"]), str(row["text"]), row["right"] is True) for row in rows]


def drop(folder: Path, after: int) -> None:
    """Remove the answers of later steps than ``after``."""
    for step in steps(folder):
        if step > after:
            _path(folder, step).unlink(missing_ok=True)


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}.json"
