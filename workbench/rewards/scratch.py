"""The folder a reward worker works in: bounded, removed with the worker, and swept up after a process that was killed.

The owner holds a lock on its folder, which ends with it however it ends: a folder that nobody holds is left over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "workbench-reward-"
MAX_BYTES = 64 * 2**20
"""What all files of the folder together may hold."""
MAX_FILES = 1_000
"""Files and folders that may be there."""
_YOUNG = 60.0  # seconds in which a folder may not be locked yet


class Scratch:
    """A new folder, held until ``remove`` or the end of this process. Raises OSError where there can be none."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._owner = os.getpid()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_over_quota(self) -> bool:
        """Whether it holds more than ``MAX_BYTES`` or ``MAX_FILES``; looks no further than that."""
        size, count, folders = 0, 0, [str(self.path)]
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
        return size > MAX_BYTES or count > MAX_FILES

    def remove(self) -> None:
        """Does nothing in a forked copy of the process that made it."""
        if os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


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
