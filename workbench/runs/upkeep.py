"""Notes and tags of a run, another name for it, and the trash.

A note and tags lie in the run's directory (``about.json``). A run that is over may be renamed: its directory moves, and
what names it as ``run:NAME`` has to follow by hand. A deleted run moves to ``<workspace>/trash`` and, on request, home
again::

    <workspace>/trash/1763730000123456789-9f3a/<run id>/

Nothing is erased here. A run that is not over is neither moved nor, while it moves, resumed.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.config import RUN_NAME, run_name_of
from workbench.errors import RunError
from workbench.files import encode, read_json, replace_file
from workbench.places import default_workspace
from workbench.rundir import RunDir
from workbench.runs.processes import members
from workbench.runs.run import Run, open_run

FILE = "about.json"


@dataclass(frozen=True)
class About:
    """A note and tags."""

    note: str = ""
    tags: tuple[str, ...] = ()


def about(run: Run) -> About:
    """Read what is said of a run; nothing if its file is missing or damaged."""
    try:
        values = read_json(run.path / FILE)
        return About(values["note"], tuple(values["tags"]))
    except (OSError, ValueError, KeyError, TypeError):
        return About()


def describe(name: str, note: str, tags: list[str], workspace: Path | str | None = None) -> About:
    """Say something of a run, whatever its state."""
    run = open_run(name, workspace)
    cleaned = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
    said = About(note.strip(), cleaned)
    replace_file(run.path / FILE, encode(asdict(said)))
    return said


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


_ENTRY = re.compile(r"(\d{19})-[0-9a-f]{8}")


@dataclass(frozen=True)
class Trashed:
    """A deleted run: ``entry`` is what ``restore`` takes, ``deleted`` unix seconds."""

    entry: str
    name: str
    deleted: float


def discard(name: str, workspace: Path | str | None = None) -> Trashed:
    """Move the run's folder to the trash.

    Raises RunError for a run that is not there or not over, and where the folder cannot be moved.
    """
    run = open_run(name, workspace)
    run.status()  # settles one that has crashed
    if run.status().final and members(run.path):
        raise RunError(f"the processes of run {name!r} are still ending; delete it in a moment")
    entry = f"{time.time_ns():019d}-{secrets.token_hex(4)}"
    try:
        with RunDir(run.path).lock_finished():
            home = _trash(workspace) / entry
            home.mkdir(parents=True)
            run.path.rename(home / name)
    except OSError as error:
        raise RunError(f"run {name!r} cannot be moved to the trash: {error}") from error
    return Trashed(entry, name, time.time())


def restore(entry: str, workspace: Path | str | None = None) -> Run:
    """Take a deleted run back. Raises RunError if it is not in the trash, or if its name is another run's by now."""
    deleted = next((candidate for candidate in trashed(workspace) if candidate.entry == entry), None)
    if deleted is None:
        raise RunError(f"{entry[:80]!r} is nothing in the trash; it may have been taken back already")
    home = _trash(workspace) / entry
    runs = _trash(workspace).parent / "runs"
    try:
        runs.mkdir(exist_ok=True)
        (home / deleted.name).rename(runs / deleted.name)  # refused by the system if there is a run of that name
        home.rmdir()
    except OSError as error:
        raise RunError(
            f"run {deleted.name!r} cannot be taken back: {error}; delete the run of that name, if there is one"
        ) from error
    return open_run(deleted.name, workspace)


def trashed(workspace: Path | str | None = None) -> list[Trashed]:
    """List the trash, the last deleted first."""
    homes = sorted(_trash(workspace).glob("*-*/*"), reverse=True)
    return [
        Trashed(home.parent.name, home.name, int(match[1]) / 1e9)
        for home in homes
        if (match := _ENTRY.fullmatch(home.parent.name))
    ]


def _trash(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve() / "trash"
