"""Reward functions that somebody saved: ``<workspace>/rewards/<name>/<version>.py``, with what is known of it beside.

A version is never written again; saving code equal to the newest version gives that one. Deleting moves all versions of
a name aside, so that it can be undone. Nothing here runs the code. Files may be edited or put there by hand: what a
file holds counts, its hash is taken when it is read, and a missing ``<version>.json`` is made up for from the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import RewardCodeError, RunError
from workbench.files import decode, encode, read_file, replace_file
from workbench.rewards.source import kind_in
from workbench.schema import RewardKind

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
LARGEST = 256 * 1024
"""Bytes of code that are saved or loaded at most."""
_VERSION = re.compile(r"([1-9][0-9]{0,5})\.py")
_DELETED = ".deleted"


@dataclass(frozen=True)
class SavedReward:
    """One version of a saved function; ``saved`` is in unix seconds, ``sha256`` that of the code as it is now."""

    name: str
    version: int
    kind: RewardKind
    code: str
    saved: float
    sha256: str


@dataclass(frozen=True)
class UnreadableReward:
    """A version of a saved function that cannot be read, or a name (``version`` None), and why, in a sentence."""

    name: str
    version: int | None
    reason: str


def save_reward(workspace: Path, name: str, kind: RewardKind, code: str) -> SavedReward:
    """Save code as the next version of ``name``; code equal to the newest version is not saved again.

    Raises RewardCodeError for a name or a size that will not do, and RunError where the disk refuses.
    """
    data = code.encode("utf-8", "replace")
    if len(data) > LARGEST:
        raise RewardCodeError(f"reward {name!r} has {len(data):,} bytes of code; {LARGEST:,} can be saved", reward=name)
    if not data.strip():
        raise RewardCodeError(f"reward {name!r} has no code; write some to save", reward=name)
    folder = _folder(workspace, name)
    versions = _versions(folder)
    with contextlib.suppress(RewardCodeError):  # a newest version that cannot be read is none to be equal to
        if versions and (newest := _read(folder, name, versions[-1])).code == code:
            return newest
    version = (versions[-1] if versions else 0) + 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while not _written_new(folder / f"{version}.py", data):
            version += 1  # another page has just saved that one
    except OSError as error:
        raise RunError(f"reward {name!r} cannot be saved in {folder}: {error}") from error
    about = {"kind": kind, "saved": time.time(), "sha256": hashlib.sha256(data).hexdigest()}
    replace_file(folder / f"{version}.json", encode(about))
    return _read(folder, name, version)


def load_saved(workspace: Path, name: str, version: int | None = None) -> SavedReward:
    """A saved function, by default its newest version. Raises RewardCodeError for one that is not there."""
    folder = _folder(workspace, name)
    versions = _versions(folder)
    if not versions:
        raise RewardCodeError(f"no saved reward is named {name!r}; there are {_known(workspace)}", reward=name)
    if version is not None and version not in versions:
        raise RewardCodeError(
            f"saved reward {name!r} has no version {version}; it has {', '.join(map(str, versions))}", reward=name
        )
    return _read(folder, name, versions[-1] if version is None else version)


def list_saved(workspace: Path) -> list[SavedReward | UnreadableReward]:
    """Every version of every saved function, names in order, the newest version first."""
    root = workspace / "rewards"
    names = sorted(path.name for path in root.iterdir() if NAME.fullmatch(path.name)) if root.is_dir() else []
    found: list[SavedReward | UnreadableReward] = []
    for name in names:
        try:
            folder = _folder(workspace, name)
            versions = _versions(folder)
        except RewardCodeError as error:
            found.append(UnreadableReward(name, None, str(error)))
            continue
        for version in reversed(versions):
            try:
                found.append(_read(folder, name, version))
            except RewardCodeError as error:
                found.append(UnreadableReward(name, version, str(error)))
    return found


def delete_saved(workspace: Path, name: str) -> str:
    """Move all versions of a function aside; what comes back undoes it. Raises as ``load_saved`` does."""
    folder = _folder(workspace, name)
    if not _versions(folder):
        raise RewardCodeError(f"no saved reward is named {name!r}; there are {_known(workspace)}", reward=name)
    token = f"{name}-{secrets.token_hex(4)}"
    aside = workspace / "rewards" / _DELETED
    try:
        aside.mkdir(exist_ok=True)
        folder.rename(aside / token)
    except OSError as error:
        raise RunError(f"saved reward {name!r} cannot be deleted: {error}") from error
    return token


def undo_delete(workspace: Path, token: str) -> str:
    """Bring back what ``delete_saved`` moved aside, and return its name.

    Raises RewardCodeError where it is gone, or its name has been saved anew meanwhile.
    """
    name, dash, number = token.rpartition("-")
    source = workspace / "rewards" / _DELETED / token
    if not dash or not re.fullmatch(r"[0-9a-f]{8}", number) or not NAME.fullmatch(name) or not source.is_dir():
        raise RewardCodeError(f"nothing deleted is known as {token[:100]!r}; it may have been brought back already")
    folder = _folder(workspace, name)
    if folder.exists():
        raise RewardCodeError(f"{name!r} has been saved anew; delete that first to bring the old one back", reward=name)
    try:
        source.rename(folder)
    except OSError as error:
        raise RunError(f"saved reward {name!r} cannot be brought back: {error}") from error
    return name


def _folder(workspace: Path, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise RewardCodeError(
            f"{name[:100]!r} cannot be a saved reward's name; use 1 to 80 letters, digits and underscores, "
            "and no digit first",
            reward=name,
        )
    folder = workspace / "rewards" / name
    if folder.is_symlink() or folder.parent.is_symlink():
        raise RewardCodeError(f"{folder} is a link that may lead out of the workspace; remove it", reward=name)
    return folder


def _versions(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder) if folder.is_dir() else []
    except OSError as error:
        raise RewardCodeError(f"saved reward {folder.name!r} cannot be read: {error}", reward=folder.name) from error
    return sorted(int(match[1]) for match in map(_VERSION.fullmatch, names) if match)


def _read(folder: Path, name: str, version: int) -> SavedReward:
    path = folder / f"{version}.py"
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            raise RewardCodeError(f"{path} is a link, no file, or over {LARGEST:,} bytes; it is not read", reward=name)
        data = path.read_bytes()
        code = data.decode("utf-8")
        written = path.stat().st_mtime
    except (OSError, UnicodeDecodeError) as error:
        raise RewardCodeError(f"saved reward {name!r} cannot be read ({path}): {error}", reward=name) from error
    about = _about(folder / f"{version}.json")
    kind, saved = about.get("kind"), about.get("saved")
    return SavedReward(
        name,
        version,
        "outcome" if (kind if kind in ("step", "outcome") else kind_in(code, name)) == "outcome" else "step",
        code,
        float(saved) if isinstance(saved, int | float) else written,
        hashlib.sha256(data).hexdigest(),
    )


def _about(path: Path) -> dict[str, object]:
    """What was noted of a version; nothing where that is missing or broken, because the code says enough."""
    try:
        return dict(decode(read_file(path)))
    except (OSError, ValueError):
        return {}


def _written_new(path: Path, data: bytes) -> bool:
    """Write a file that must not be there yet, whole or not at all; whether it was not."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-") as draft:
        draft.write(data)
        draft.flush()
        os.fsync(draft.fileno())
        try:
            os.link(draft.name, path)
        except FileExistsError:
            return False
    path.chmod(0o644)
    return True


def _known(workspace: Path) -> str:
    return ", ".join(dict.fromkeys(reward.name for reward in list_saved(workspace))) or "none"
