"""The folder of a reward worker, with one in it for each of its processes: measured, removed with the worker, and swept
up after a client that was killed.

The owner holds a lock on its folder, which ends with it however it ends: a folder that nobody holds is left over.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "workbench-reward-"
MAX_BYTES = 64 * 2**20
"""What all files together may hold."""
MAX_FILES = 1_000
"""Files and folders that may be there, those of the processes apart."""
_YOUNG = 60.0  # seconds in which a folder may not be locked yet


class Scratch:
    """A new folder, held until ``remove`` or the end of this process. Raises OSError where there can be none."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._numbers = itertools.count(1)
        self._owner = os.getpid()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def new_folder(self) -> Path:
        """A new folder in it. Raises OSError where it was removed."""
        folder = self.path / str(next(self._numbers))
        folder.mkdir()
        return folder

    def remove(self) -> None:
        """Does nothing in a forked copy of the process that made it."""
        if os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


def usage(folder: Path) -> tuple[int, int]:
    """Bytes and number of files and folders in ``folder``; looks no further than ``MAX_BYTES`` and ``MAX_FILES``."""
    size, count, folders = 0, 0, [str(folder)]
    while folders and size <= MAX_BYTES and count <= MAX_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # it may be removed meanwhile
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    size += 512 * entry.stat(follow_symlinks=False).st_blocks
                if count > MAX_FILES:
                    break
    return size, count


def sweep() -> None:
    """Remove this user's folders whose owners were killed."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # another sweep was faster, or it is somebody else's
                    _sweep_up(entry)


def _sweep_up(folder: os.DirEntry[str]) -> None:
    about = folder.stat(follow_symlinks=False)
    if about.st_uid != os.getuid() or time.time() - about.st_mtime < _YOUNG:
        return
    lock = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError where it is held
        shutil.rmtree(folder.path, ignore_errors=True)
    finally:
        os.close(lock)
