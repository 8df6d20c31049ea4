"""Landlock: a process restricts which files it may open.

After https://docs.kernel.org/userspace-api/landlock.html and include/uapi/linux/landlock.h. The system calls have the
same numbers on every architecture. Not governed by Landlock, and denied by ``seccomp`` instead: changing a file's mode,
owner, times and attributes. A file's existence and size can be seen by whoever guesses its path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # flag of create_ruleset: only tell the ABI
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38  # prctl(2)
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_DEVICE = 1 << 6 | 1 << 11
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def restrict(readable: Iterable[Path], writable: Iterable[Path], devices: Iterable[Path] = ()) -> str | None:
    """Leave this thread and those it starts only these paths; returns why that could not be done.

    ``readable`` is for reading, ``writable`` for everything but execution and making
    devices, ``devices`` for reading and writing.
    """
    if sys.platform != "linux":
        return "no Landlock (Linux only): the code can read and write your files"
    call = _system_call()
    abi = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    if abi < 1:
        return "no Landlock (Linux 5.13 or later, and not switched off): the code can read and write your files"
    rights = _all_rights(abi)
    # struct landlock_ruleset_attr; a kernel that knows less of it takes the rest as long as it is zero.
    attributes = struct.pack(
        "=QQQ", rights, _BIND_AND_CONNECT_TCP if abi >= 4 else 0, _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    )
    ruleset = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if ruleset < 0:
        return f"no Landlock ({_reason()}): the code can read and write your files"
    try:
        for paths, allowed in (
            (readable, _READ_FILE | _READ_DIR),
            (writable, rights & ~_EXECUTE & ~_MAKE_DEVICE),
            (devices, _READ_FILE | _WRITE_FILE),
        ):
            for path in paths:
                _allow(ruleset, path, allowed & rights)
        if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or call(_RESTRICT_SELF, ruleset, 0):
            return f"no Landlock ({_reason()}): the code can read and write your files"
    finally:
        os.close(ruleset)
    return None


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Raises OSError for a path that cannot be opened or a rule that the kernel refuses."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _OF_A_FILE, place)
        if _system_call()(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    finally:
        os.close(place)


def _all_rights(abi: int) -> int:
    """Every right over files that this kernel can withhold, one bit each."""
    rights = (1 << 13) - 1
    for since, right in ((2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if abi >= since else 0
    return rights


def _system_call() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def _reason() -> str:
    return errno.errorcode.get(ctypes.get_errno(), "refused")
