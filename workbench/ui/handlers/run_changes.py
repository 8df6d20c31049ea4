"""What the Runs tab does to runs: described, renamed, deleted and taken back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from workbench.errors import WorkbenchError
from workbench.runs import discard, restore
from workbench.runs.upkeep import describe, rename
from workbench.ui.handlers.run_follow import Answer


class Removed(TypedDict):
    """Runs that are in the trash now, and why others are not."""

    moved: list[dict[str, Any]]
    problems: list[str]


class Restored(TypedDict):
    """Names of runs that are back, and why others are not."""

    restored: list[str]
    problems: list[str]


def say_of(workspace: Path, name: str, new: str, note: str, tags: Sequence[str]) -> Answer:
    """Keep a note and tags of a run, and give it another name; says why not."""
    try:
        describe(name, note, list(tags), workspace)
        renamed = rename(name, new, workspace).name if new != name else name
    except WorkbenchError as error:
        return {"message": str(error), "level": "error"}
    return {"message": f"{name} is {renamed} now" if renamed != name else f"{name}: kept", "level": "info"}


def delete(workspace: Path, names: Sequence[str]) -> Removed:
    """Move runs to the trash; those that cannot be moved stay, each with the reason."""
    moved, problems = [], []
    for name in dict.fromkeys(names):
        try:
            moved.append(dataclasses.asdict(discard(name, workspace)))
        except WorkbenchError as error:
            problems.append(str(error))
    return {"moved": moved, "problems": problems}


def undelete(workspace: Path, entries: Sequence[str]) -> Restored:
    """Take runs back from the trash, by what ``delete`` called them."""
    restored, problems = [], []
    for entry in dict.fromkeys(entries):
        try:
            restored.append(restore(entry, workspace).name)
        except WorkbenchError as error:
            problems.append(str(error))
    return {"restored": restored, "problems": problems}
