"""The running page's port and link, and the groups that a notebook opens in it, stored in the workspace.

::

    <workspace>/groups/<name>.json  a group; its name is the hash of what it holds, and all that a link may say of it
    <workspace>/.pages/<pid>-….json   a running page's link, its token included, readable by its owner alone

Neither side is known here: ``views`` keeps groups and looks for the page, ``ui`` announces itself and opens groups.
"""

import contextlib
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from workbench.errors import RunError, WorkbenchError
from workbench.files import encode, read_json, replace_file
from workbench.schema import Group

GROUPS = "groups"
PAGES = ".pages"
_SAME_START = 5.0  # seconds by which a process's start time may drift when the system's clock is set


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
    """Return the group of that name; None where there is no file, or it holds no group."""
    try:
        return Group.from_json(read_json(folder / f"{name}.json"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def announced(workspace: Path, link: str) -> Iterator[None]:
    """While the block runs, ``page_link`` finds ``link``, the newest of several pages on one workspace first."""
    folder = workspace / PAGES
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        if _running(path) is None:
            path.unlink(missing_ok=True)
    mine = encode({"link": link, "pid": os.getpid(), "created": psutil.Process().create_time()})
    descriptor, name = tempfile.mkstemp(suffix=".json", prefix=f"{os.getpid()}-", dir=folder)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(mine)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def page_link(workspace: Path) -> str | None:
    """The link to the page that was started last of those that run on this workspace, None where none does."""
    pages = [page for path in (workspace / PAGES).glob("*.json") if (page := _running(path)) is not None]
    return max(pages)[1] if pages else None


def _running(path: Path) -> tuple[int, str] | None:
    """Return when a page was announced, in nanoseconds, and its link; None where its process is gone."""
    try:
        page = read_json(path)
        process = psutil.Process(page["pid"])
        runs = abs(process.create_time() - page["created"]) < _SAME_START
        return (path.stat().st_mtime_ns, str(page["link"])) if runs else None
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        return None  # it crashed, has just ended, or the file is not ours


PORT = 7860


def free_port(host: str, port: int) -> int:
    """The port to listen on: ``port`` itself, or for 0 one that is free. Raises WorkbenchError."""
    if not 0 <= port <= 65_535:
        raise WorkbenchError(f"port {port} is none; choose one from 1 to 65535 with --port, or 0 for any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
        except OSError as error:
            raise WorkbenchError(
                f"port {port} of {host} cannot be used ({error.strerror}); choose another with --port"
            ) from error
