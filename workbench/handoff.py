"""What a notebook hands to the page: a group kept in the workspace, and the address at which the page answers.

::

    <workspace>/groups/<name>.json  a group; its name is the hash of what it holds, and all that a link may say of it
    <workspace>/.page.json          the running page's link, its token included, readable by its owner alone

Neither side is known here: ``display`` writes groups and looks for the page, ``ui`` announces itself and reads groups.
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
    """Write a group into the workspace and return its name; the same group has the same name.

    Raises RunError if it cannot be written.
    """
    data = group.to_json()
    name = hashlib.sha256(json.dumps(data, sort_keys=True).encode("ascii")).hexdigest()[:16]
    folder = workspace / GROUPS
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error}; choose another workspace") from error
    replace_file(folder / f"{name}.json", json.dumps(data).encode("ascii"))
    return name


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
        found = json.loads((workspace / PAGE_FILE).read_bytes())
        process = psutil.Process(found["pid"])
        runs = abs(process.create_time() - found["created"]) < _SAME_START
        return str(found["link"]) if runs else None
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        return None  # no page, one that crashed, or a file that is not ours
