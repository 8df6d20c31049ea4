"""Which files of a folder hold rows, and of which split, by their names, or as ``datasets`` saved them.

As to ``datasets``, ``train-00000-of-00002.parquet`` says its split; else a folder on the way or the file's own name
does where it holds one of ``KEYWORDS``. What says nothing is of the split ``train``, where no other file is. Nothing
is opened but the two small files that ``save_to_disk`` writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import TaskError, did_you_mean
from workbench.files import read_json

KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Words in a file's or folder's name that say its split, as in ``datasets.data_files``."""
EVERY = "*"
"""In place of a split: all data files of a folder."""
HELD_OUT = "held-out"
"""In place of a split: the first of ``_HELD_OUT`` that a folder has."""
ANNOTATIONS = "annotations"
"""Folder of a prime-rl run with what its trainer measured on the traces beside it."""
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
"""Names of data files end in these, or in these and ``.gz``."""
MAX_NAMES = 50_000
"""Most files and folders that are looked through for those with rows."""
_HELD_OUT = ("test", "validation")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\b.*")
_WORDS = re.compile(r"[-._ 0-9]+")
_DATASET, _SPLITS = "state.json", "dataset_dict.json"  # of save_to_disk
_IGNORED = {"dataset_info.json", "dataset_infos.json", "metadata.json", "config.json", _DATASET, _SPLITS}
_BESIDE = ".provenance.json"  # of rows that this workbench made


def files_of(folder: Path, split: str | None) -> list[Path]:
    """The files of a split, ``train`` (or the first there is) without one; of all for ``EVERY``.

    Raises TaskError for a folder without rows, and for a split that is not there.
    """
    splits = splits_of(folder, part=split != EVERY)
    if split == EVERY:
        return [file for files in splits.values() for file in files]
    split = split or _trained_on(splits)
    if split not in splits:
        raise TaskError(
            f"{folder.name} has no split {split!r}{did_you_mean(split, splits)}; its splits are {', '.join(splits)}"
        )
    return splits[split]


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder; one that leads nowhere, as no name could be so long, does not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def held_out_of(path: Path, split: str | None) -> str | None:
    """The split that is held out where ``split`` is trained on; None where there is none. Raises TaskError."""
    if not is_folder(path):
        return None
    splits = splits_of(path)
    return next((name for name in _HELD_OUT if name in splits and name != (split or _trained_on(splits))), None)


def _trained_on(splits: Mapping[str, Any]) -> str:
    return "train" if "train" in splits else next(iter(splits))


def splits_of(folder: Path, *, part: bool = True) -> Mapping[str, list[Path]]:
    """Split → its files in order; all in one, whatever their names say, if they are not to be parted.

    Raises TaskError.
    """
    try:
        if (folder / _SPLITS).is_file():
            names = _names(folder / _SPLITS, "splits")
            return {name: _saved(folder / name) for name in names}
        if (folder / _DATASET).is_file():
            return {"train": _saved(folder)}
        files = _data_files(folder)
    except OSError as error:
        raise TaskError(f"{folder.name}: {error.strerror}; give a folder whose files can be read") from error
    if not files:
        raise TaskError(f"{folder.name} is a folder without rows; it needs a file that ends in {', '.join(SUFFIXES)}")
    if not part:
        samples = [file for file in files if file.name.startswith("samples_")]  # beside lm-eval's table of results
        return {"": samples or files}
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(split_of(file.relative_to(folder)) or "", []).append(file)
    unnamed = splits.pop("", [])
    if unnamed and "train" not in splits:
        splits = {"train": unnamed, **splits}
    for split, members in splits.items():
        _check_one_data_set(folder, split, members)
    return splits


def split_of(path: Path) -> str | None:
    """The split that a path within a folder names; None where it names none."""
    if shard := _SHARD.fullmatch(path.name):
        return shard[1]
    for name in (*reversed(path.parts[:-1]), path.name):
        words = _WORDS.split(name.lower())
        split = next((split for split, known in KEYWORDS.items() if any(word in words for word in known)), None)
        if split is not None:
            return split
    return None


def _data_files(folder: Path) -> list[Path]:
    files: list[Path] = []
    seen = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        seen += len(folders) + len(names)
        if seen > MAX_NAMES:
            raise TaskError(f"{folder} holds more than {MAX_NAMES:,} files and folders; give one of its folders")
        files += (Path(place, name) for name in names if _holds_rows(name) and Path(place, name).is_file())
    return sorted(files, key=_in_order)


def _holds_rows(name: str) -> bool:
    is_data = name.lower().removesuffix(".gz").endswith(SUFFIXES)
    return is_data and not name.startswith((".", "_")) and name not in _IGNORED and not name.endswith(_BESIDE)


def _in_order(path: Path) -> list[tuple[bool, int, str]]:
    """As a person counts: ``2.jsonl`` before ``10.jsonl``."""
    parts = re.split(r"(\d+)", str(path))
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _check_one_data_set(folder: Path, split: str, files: Sequence[Path]) -> None:
    """Raises TaskError where folders hold files of the same name each, as the configurations of a data set do."""
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        holders = [str(file.parent.relative_to(folder)) for file in files if file.name == twice]
        raise TaskError(
            f"{folder.name} holds several data sets: {twice} of the split {split!r} is in {', '.join(holders[:5])}; "
            "give one of these folders"
        )


def _saved(folder: Path) -> list[Path]:
    """The Arrow files of a data set that ``save_to_disk`` wrote."""
    files = [folder / name for name in _names(folder / _DATASET, "_data_files")]
    if missing := [file.name for file in files if not file.is_file()]:
        raise TaskError(f"{folder.name}: {missing[0]} is missing, which {_DATASET} names; save the data set again")
    return files


def _names(file: Path, key: str) -> list[str]:
    """The file names in one of ``save_to_disk``'s files, none of which leads elsewhere."""
    try:
        listed = read_json(file)[key]
        names = [entry["filename"] if isinstance(entry, dict) else entry for entry in listed]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TaskError(f"{file.parent.name}/{file.name} is damaged ({error}); save the data set again") from error
    if strange := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
        raise TaskError(f"{file.parent.name}/{file.name} names {strange[0]!r}, which is no file of its folder")
    return names
