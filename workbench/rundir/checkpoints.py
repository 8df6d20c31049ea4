"""Checkpoints as folders on a disk: written aside, sealed with the hash of every file, and only then given their name.

::

    checkpoints/
    ├── checkpoint-20/       manifest.json names every file with its size and SHA-256, and the versions that wrote it
    ├── checkpoint-40/
    ├── final/               the weights at the end, sealed in the same way
    └── .saving/             one being written, or half-written by a process that died

A folder is valid when its manifest is there and every file in it is as the manifest says; nothing else is ever resumed
from. Knows nothing of what the files hold (``training.saving`` does), and imports no torch: a launcher, a page and a
command line can all tell which checkpoint is good.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import RunError
from workbench.files import opened, read_json, sync

MANIFEST = "manifest.json"
SAVING = ".saving"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Endings of formats that can run code when they are read."""

_NAME = re.compile(r"checkpoint-(\d+)")
_REMOVED = ".removed-"


@dataclass(frozen=True)
class Checkpoint:
    """A folder to resume from, and the training step after which it was saved."""

    path: Path
    step: int

    @property
    def name(self) -> str:
        return self.path.name


def seal(draft: Path, target: Path, about: Mapping[str, Any]) -> None:
    """Make ``draft`` valid and call it ``target``; a folder of that name is replaced.

    Every file is on the disk before the manifest is, and the manifest before the name. Raises OSError.
    """
    files = {}
    for path in _files(draft):
        sync(path)
        files[str(path.relative_to(draft))] = {"size": path.stat().st_size, "sha256": _sha256(path)}
    manifest = draft / MANIFEST
    manifest.write_text(json.dumps({**about, "files": files}, indent=1) + "\n", encoding="utf-8")
    sync(manifest)
    for folder in {path.parent for path in _files(draft)}:
        sync(folder)
    if target.exists():
        remove(target)
    draft.rename(target)
    sync(target.parent)


def problem(path: Path) -> str | None:
    """What is wrong with the checkpoint at ``path``, or None when it is valid. Reads every byte of it."""
    try:
        files = read_json(path / MANIFEST)["files"]
        listed = {name: (entry["size"], entry["sha256"]) for name, entry in files.items()}
    except FileNotFoundError:
        return f"has no {MANIFEST}: it was not written to its end"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"has no readable {MANIFEST}: {type(error).__name__}: {error}"
    for name, (size, sha256) in listed.items():
        file = path / name
        try:
            actual = file.stat().st_size
            if actual != size:
                return f"{name} has {actual} bytes where {size} were saved"
            if _sha256(file) != sha256:
                return f"{name} is not what was saved: its SHA-256 differs"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error}"
    there = {str(file.relative_to(path)) for file in _files(path)} - {MANIFEST}
    if strange := sorted(there - listed.keys()):
        if pickles := [name for name in strange if name.endswith(PICKLES)]:
            return f"{pickles[0]} is a pickle, which can run code when read, and was not saved here; use safetensors"
        return f"{strange[0]} was not saved here"
    return None


def saved(folder: Path) -> list[Checkpoint]:
    """The folders named as checkpoints, the newest first, valid or not."""
    names = os.listdir(folder) if folder.is_dir() else []
    matches = [(match, folder / name) for name in names if (match := _NAME.fullmatch(name))]
    return sorted((Checkpoint(path, int(match[1])) for match, path in matches), key=lambda checkpoint: -checkpoint.step)


def newest_valid(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to resume from, if there is one, and what is wrong with each newer one."""
    skipped: list[str] = []
    for checkpoint in saved(folder):
        wrong = problem(checkpoint.path)
        if wrong is None:
            return checkpoint, skipped
        skipped.append(f"{checkpoint.name}: {wrong}")
    return None, skipped


def prune(folder: Path, keep: int) -> None:
    """Remove all but the ``keep`` newest, and what removals before left."""
    for checkpoint in saved(folder)[keep:]:
        remove(checkpoint.path)
    for left in folder.glob(f"{_REMOVED}*"):
        shutil.rmtree(left)


def remove(path: Path) -> None:
    """Remove a folder; if this is cut short, what is left no longer has a checkpoint's name."""
    aside = path.with_name(f"{_REMOVED}{path.name}")
    if aside.exists():
        shutil.rmtree(aside)
    path.rename(aside)
    shutil.rmtree(aside)


def nothing_usable(run: str, skipped: Sequence[str], *, save_every: int, step: int) -> RunError:
    """Says what is wrong with each checkpoint of ``run``, which ended after ``step``, and what to do instead."""
    if skipped:
        why = "; ".join(skipped)
    elif not save_every:
        why = "none was asked for: run.save_every is 0"
    elif step < save_every:
        why = f"it ended after step {step}, and the first is saved after step {save_every}: run.save_every"
    else:
        why = f"none is there, though one is saved every {save_every} steps: not written, or deleted since"
    return RunError(f"run {run!r} has no checkpoint to resume from ({why}); start it again with: train --from {run}")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
