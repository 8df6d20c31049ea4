"""What somebody says of a run: a note and tags in its directory (``about.json``), and another name.

A run that is over may be renamed: its directory moves. What names it as ``run:NAME`` has to follow by hand.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.config import RUN_NAME, run_name_of
from workbench.errors import RunError
from workbench.files import encode, read_json, replace_file
from workbench.rundir import RunDir
from workbench.runs.processes import members
from workbench.runs.run import Run, open_run

FILE = "about.json"
LONGEST_NOTE = 4000
MOST_TAGS = 20
LONGEST_TAG = 40


@dataclass(frozen=True)
class About:
    """A note and tags."""

    note: str = ""
    tags: tuple[str, ...] = ()


def about(run: Run) -> About:
    """What is said of a run; nothing where its file is missing or damaged."""
    try:
        values = read_json(run.path / FILE)
        return _checked(values["note"], values["tags"])
    except (OSError, ValueError, KeyError, TypeError, RunError):
        return About()


def describe(name: str, note: str, tags: list[str], workspace: Path | str | None = None) -> About:
    """Say something of a run, whatever its state. Raises RunError for what is too long."""
    run = open_run(name, workspace)
    said = _checked(note, tags)
    replace_file(run.path / FILE, encode(asdict(said)))
    return said


def _checked(note: Any, tags: Any) -> About:
    if not isinstance(note, str) or not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RunError("a note is a text and tags are a list of texts")
    cleaned = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
    if len(note) > LONGEST_NOTE:
        raise RunError(f"the note has {len(note):,} characters; {LONGEST_NOTE:,} are the most")
    if len(cleaned) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in cleaned):
        raise RunError(f"at most {MOST_TAGS} tags of {LONGEST_TAG} characters are kept; take fewer or shorter ones")
    return About(note.strip(), cleaned)


def rename(name: str, new: str, workspace: Path | str | None = None) -> Run:
    """Give a run that is over another name. Raises RunError where it cannot have it."""
    run, new = open_run(name, workspace), run_name_of(new)
    if not RUN_NAME.fullmatch(new):
        raise RunError(f"{new[:80]!r} cannot be a run's name: letters, digits, '.', '_' and '-', at most 80")
    path = run.path.with_name(new)
    try:
        with RunDir(run.path).lock_finished():
            if members(run.path):
                raise RunError(f"the processes of run {name!r} are still ending; rename it in a moment")
            if os.path.lexists(path):
                raise RunError(f"there is a run {new!r} already; choose another name")
            run.path.rename(path)
    except OSError as error:
        raise RunError(f"run {name!r} cannot be renamed: {error}") from error
    return Run(path)
