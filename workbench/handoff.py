"""Groups that a notebook opens in the page: stored in the workspace, with the address of the running page.

::

    <workspace>/groups/<name>.json  a group; its name is the hash of what it holds, and all that a link may say of it
    <workspace>/.page.json          the running page's link, its token included, readable by its owner alone

Neither side is known here: ``display`` keeps groups and looks for the page, ``ui`` announces itself and opens groups.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from workbench.errors import RunError
from workbench.rundir.files import encode, replace_file
from workbench.schema import Group

GROUPS = "groups"
PAGE_FILE = ".page.json"
_SAME_START = 5.0  # seconds by which a process's start time may drift when the system's clock is set


def keep(workspace: Path, group: Group) -> str:
    """Store a group in the workspace and return its name. Raises RunError if it cannot be written."""
    name = group_name(group)
    write_group(workspace / GROUPS, name, group)
    return name


def group_name(group: Group) -> str:
    """The hash of what a group holds: the same group has the same name."""
    data = json.dumps(group.to_json(), sort_keys=True).encode("ascii")
    return hashlib.sha256(data).hexdigest()[:16]


def write_group(folder: Path, name: str, group: Group) -> Path:
    """Write a group under its name, unless it is there already. Raises RunError if it cannot be written."""
    path = folder / f"{name}.json"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"groups cannot be kept in {folder}: {error}; choose another --workspace") from error
    replace_file(path, json.dumps(group.to_json()).encode("ascii"))
    return path


def read_group(folder: Path, name: str) -> Group | None:
    """The group of that name; None where the file holds no group. Raises FileNotFoundError where there is no file."""
    try:
        return Group.from_json(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


@contextmanager
def announced(workspace: Path, link: str) -> Iterator[None]:
    """While the block runs, ``page_link`` finds ``link``; a workspace's second page takes the first one's place."""
    path = workspace / PAGE_FILE
    mine = encode({"link": link, "pid": os.getpid(), "created": psutil.Process().create_time()})
    workspace.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(mine)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_bytes() == mine:
                path.unlink()


def page_link(workspace: Path) -> str | None:
    """The link to the page that runs on this workspace, None where none does."""
    try:
        page = json.loads((workspace / PAGE_FILE).read_bytes())
        process = psutil.Process(page["pid"])
        runs = abs(process.create_time() - page["created"]) < _SAME_START
        return str(page["link"]) if runs else None
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        return None  # no page, one that crashed, or a file that is not ours
