"""Limits of the sandbox's process: memory, sizes of files, open files, and where code may import from.

They are for accidents: a loop that eats memory, a file without an end. Files, the network and other processes are there
as in a notebook, unless the process is isolated (``isolate``).
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbench.sandbox.isolate import isolate

MEMORY = 4 << 30
"""Bytes of memory that may be allocated; libraries that are only mapped do not count."""
FILE = 64 << 20
"""Bytes of one file that may be written."""
DESCRIPTORS = 256
_PACKAGE = Path(__file__).resolve().parents[1]
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom")


def restrict(temporary: Path, importable: Sequence[str], *, isolated: bool) -> list[str]:
    """Limit this process for good; return a sentence for each limit or layer that the system lacks.

    ``temporary`` is its folder for temporary files. Code may import from ``importable`` folders, and from the folder
    that the process was started in unless it is ``isolated``; it then works in ``temporary``.
    """
    folders = [*importable] if isolated else [*importable, os.getcwd()]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    limits = {
        "memory": (resource.RLIMIT_DATA, MEMORY),
        "file size": (resource.RLIMIT_FSIZE, FILE),
        "open files": (resource.RLIMIT_NOFILE, DESCRIPTORS),
        "core files": (resource.RLIMIT_CORE, 0),
    }
    refused = []
    for name, (limit, most) in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(limit, (most, most))
        except (ValueError, OSError):
            refused.append(name)
    missing = [f"no limit of {', '.join(refused)}: this system takes none"] if refused else []
    if isolated:
        os.environ["HOME"] = str(temporary)
        os.chdir(temporary)
        # What the interpreter needs to import: its folders and this package, but not the folder this package is in.
        places = [*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
        readable = [_PACKAGE, *(Path(os.path.realpath(place)) for place in places)]
        missing += isolate((path for path in readable if path != _PACKAGE.parent and path.exists()), temporary)
    return missing


def what_ran_out(error: BaseException | None) -> str | None:
    """Return which limit ``error`` hit, None where it is another error."""
    if isinstance(error, MemoryError):
        return f"the limit is {MEMORY >> 30} GB"
    files = {errno.EFBIG: f"a file may have {FILE >> 20} MB", errno.EMFILE: f"{DESCRIPTORS} files may be open"}
    return files.get(error.errno or 0) if isinstance(error, OSError) else None
