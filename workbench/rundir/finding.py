"""Runs and their checkpoints by name: ``<workspace>/runs/NAME``, ``run:NAME`` and ``run:NAME@STEP``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.config import RUN_NAME
from workbench.errors import RunError, did_you_mean
from workbench.places import default_workspace, is_of_run
from workbench.rundir import RunDir, checkpoints

REFERENCE = re.compile(r"run:([^@]+)(?:@(\d+))?")
"""A run's name and, if there is one, the step of a checkpoint."""
_OF_A_RUN = ("status.json", "run.yaml", "metrics.jsonl", "checkpoints")
"""A folder that has one of these is a run's, if a damaged one: it is listed, and says what it has lost."""


def list_dirs(workspace: Path | str | None = None) -> list[RunDir]:
    """Return the runs' directories of a workspace (the default one unless told), the newest first."""
    folder = _runs_folder(workspace)
    paths = [path for path in folder.iterdir() if _is_run(path)] if folder.is_dir() else []
    return [RunDir(path) for path in sorted(paths, key=_made, reverse=True)]


def find_dir(name: str, workspace: Path | str | None = None) -> RunDir:
    """Return the directory of the run called ``name``. Raises RunError if there is none, and for no name of a run."""
    folder = _runs_folder(workspace)
    if not RUN_NAME.fullmatch(name):
        raise RunError(f"{name[:80]!r} cannot be a run's name: {RUN_NAME.pattern} is the pattern of one")
    if not _is_run(folder / name):
        names = [run.name for run in list_dirs(workspace)]
        there = f"the newest there are {', '.join(names[:5])}" if names else "it has no runs yet"
        close = did_you_mean(name, names)
        raise RunError(f"there is no run {name!r} in the workspace {folder.parent}; {there}{close}")
    return RunDir(folder / name)


def find_checkpoint(reference: str, workspace: Path | str | None = None) -> Path:
    """Return the folder of the checkpoint that ``reference`` names: a step's, or the run's last. Raises RunError."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise RunError(f"{reference[:80]!r} is no checkpoint of a run; write run:NAME, or run:NAME@STEP")
    run = find_dir(match[1], workspace)
    folder = run.checkpoints / ("final" if match[2] is None else f"checkpoint-{int(match[2])}")
    if not folder.is_dir():
        steps = sorted(checkpoint.step for checkpoint in checkpoints.saved(run.checkpoints))
        raise RunError(
            f"{reference}: run {run.name!r} ({run.status().state}) has no {folder.name}; it has those of steps "
            f"{', '.join(map(str, steps)) or 'none'}: name one as run:{run.name}@STEP, or let it train to its end"
        )
    if (problem := checkpoints.problem(folder)) is not None:
        raise RunError(f"{reference}: {folder.name} cannot be used: {problem}; name another checkpoint of the run")
    return folder


def checkpoint_or(name: str) -> str:
    """The folder of a run's checkpoint where ``name`` stands for one of the default workspace; any other name as it is.

    Raises RunError for a run or checkpoint that is not there.
    """
    return str(find_checkpoint(name)) if is_of_run(name) else name


def _runs_folder(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve() / "runs"


def _made(path: Path) -> int:
    try:
        return (path / "run.yaml").stat().st_mtime_ns  # written once
    except OSError:
        return 0  # deleted since it was listed


def _is_run(path: Path) -> bool:
    return RUN_NAME.fullmatch(path.name) is not None and any(os.path.lexists(path / file) for file in _OF_A_RUN)
