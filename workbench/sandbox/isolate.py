"""Limit this process for good, and isolate it by Landlock and seccomp for rewards that execute what a policy wrote.

Covered, on Linux on x86-64 and aarch64: no network; no other processes started, signalled, limited or slowed down; no
file read but what Python needs to import, none written outside one folder; no change of a file's mode, owner, times or
attributes; no shared memory that outlives the process; none of the kernel's wider interfaces (io_uring, bpf, ptrace,
mounts, modules). Threads stay, and so do signals to the process itself.

Not covered: a kernel's or an interpreter's own faults, what can be read of installed packages, whether a path exists,
processor time (that is the call's deadline). A layer that the system lacks is returned in words, never left out
silently.

Limits of memory, sizes of files and open files hold without isolation, too (``restrict``). They are for accidents: a
loop that eats memory, a file without an end. Files, the network and other processes are there then as in a notebook.

Landlock is after https://docs.kernel.org/userspace-api/landlock.html and include/uapi/linux/landlock.h, whose system
calls have the same numbers everywhere. The seccomp filter is a deny-list in BPF, after
https://docs.kernel.org/userspace-api/seccomp_filter.html and include/uapi/linux/seccomp.h; its numbers are those of the
kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h). Each kind of call fails
with an error of its own, so that a message can say what is off (``what_is_off``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
import struct
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_NETWORK_ERROR, _PROCESS_ERROR, _FILE_ERROR = errno.ENETDOWN, errno.EPERM, errno.EACCES
_KERNEL_ERROR = errno.ENOSYS  # as from a kernel without the call, which C libraries know how to do without
_OFF = {_NETWORK_ERROR: "network is off", _PROCESS_ERROR: "processes are off", _FILE_ERROR: "file access is off"}
_NO_NEW_PRIVS = 38  # prctl(2)


def what_is_off(error: BaseException | None) -> str | None:
    """Return what of an isolated process was refused, where ``error`` or one that it was raised in place of says so."""
    for _ in range(20):
        if isinstance(error, socket.gaierror):
            return "network is off"
        if isinstance(error, OSError) and error.errno in _OFF:
            return _OFF[error.errno]
        error = error and (error.__cause__ or error.__context__)
    return None


# --- limits of any process --------------------------------------------------------------------------------------------

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
        readable = [path for path in readable if path != _PACKAGE.parent and path.exists()]
        missing += filter(None, (_restrict_files(readable, temporary), _restrict_calls()))
    return missing


def what_ran_out(error: BaseException | None) -> str | None:
    """Return which limit ``error`` hit, None where it is another error."""
    if isinstance(error, MemoryError):
        return f"the limit is {MEMORY >> 30} GB"
    files = {errno.EFBIG: f"a file may have {FILE >> 20} MB", errno.EMFILE: f"{DESCRIPTORS} files may be open"}
    return files.get(error.errno or 0) if isinstance(error, OSError) else None


# --- Landlock: which files may be opened ------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # flag of create_ruleset: only tell the ABI
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_DEVICE = 1 << 6 | 1 << 11
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def _restrict_files(readable: Iterable[Path], writable: Path) -> str | None:
    missing = "no Landlock ({}): the code can read and write your files"
    if sys.platform != "linux":
        return missing.format("Linux only")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    abi = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    if abi < 1:
        return missing.format("Linux 5.13 or later, and not switched off")
    rights = (1 << 13) - 1  # every right over files that this kernel can withhold, one bit each
    for since, right in ((2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if abi >= since else 0
    # struct landlock_ruleset_attr; a kernel that knows less of it takes the rest as long as it is zero.
    attributes = struct.pack(
        "=QQQ", rights, _BIND_AND_CONNECT_TCP if abi >= 4 else 0, _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    )
    ruleset = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if ruleset < 0:
        return missing.format(_reason())
    try:
        for path in readable:
            _allow(call, ruleset, path, (_READ_FILE | _READ_DIR) & rights)
        _allow(call, ruleset, writable, rights & ~_EXECUTE & ~_MAKE_DEVICE)
        _allow(call, ruleset, Path(os.devnull), (_READ_FILE | _WRITE_FILE) & rights)
        if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or call(_RESTRICT_SELF, ruleset, 0):
            return missing.format(_reason())
    finally:
        os.close(ruleset)
    return None


def _allow(call: ctypes._NamedFuncPointer, ruleset: int, path: Path, rights: int) -> None:
    """Raises OSError for a path that cannot be opened or a rule that the kernel refuses."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _OF_A_FILE, place)
        if call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    finally:
        os.close(place)


def _reason() -> str:
    return errno.errorcode.get(ctypes.get_errno(), "refused")


# --- seccomp: which system calls may be made --------------------------------------------------------------------------

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "arm64": 0xC00000B7}
_X32 = 0x40000000  # calls of x86-64's other ABI have this bit

# name: (number on x86-64, number on aarch64)
_Numbers = dict[str, tuple[int | None, int | None]]
_NETWORK: _Numbers = {"socket": (41, 198)}
_PROCESSES: _Numbers = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "setsid": (112, 157), "setpgid": (109, 154), "ptrace": (101, 117),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "process_mrelease": (448, 448),
    # Limits and priorities, which may be another process's.
    "setrlimit": (160, 164), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
}  # fmt: skip
_FILES: _Numbers = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "open_by_handle_at": (304, 265), "chroot": (161, 51), "mknod": (133, None), "mknodat": (259, 33),
}  # fmt: skip
_KERNEL: _Numbers = {
    "clone3": (435, 435),  # its flags lie in memory, where a filter cannot look; C libraries then use clone
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "bpf": (321, 280), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    # What is shared between processes counts for no limit and outlives this one.
    "shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196), "shmdt": (67, 197), "memfd_create": (319, 279),
    "semget": (64, 190), "semctl": (66, 191), "semtimedop": (220, 192), "semop": (65, 193),
    "msgget": (68, 186), "msgctl": (71, 187), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "syslog": (103, 116),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "kcmp": (312, 272),
}  # fmt: skip

# BPF: load a word at a place of struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32  # low halves: both machines are little-endian
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_SECCOMP = (317, 277)

_Instruction = tuple[int, int, int, int]  # code, skip if true, skip if false, operand
_Condition = tuple[int, int, int, bool]  # comparison, place of an argument, operand, whether it must hold


def _restrict_calls() -> str | None:
    consequence = "the code can use the network and start processes"
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        return (
            f"no seccomp filter (made for Linux on x86-64 and aarch64, this is {sys.platform} {machine}): {consequence}"
        )
    column = 0 if machine == "x86_64" else 1
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(machine, column, os.getpid()))
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter}
    pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    failed = libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(
        _SECCOMP[column], _SET_MODE_FILTER, _ALL_THREADS, pointer
    )
    if failed:
        return f"no seccomp filter ({errno.errorcode.get(ctypes.get_errno(), 'refused')}): {consequence}"
    return None


def _program(machine: str, column: int, pid: int) -> list[_Instruction]:
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL_PROCESS)]
    for call, conditions in _conditions(pid).items():
        program += _only_where(call[column], conditions)
    denied = ((_NETWORK, _NETWORK_ERROR), (_PROCESSES, _PROCESS_ERROR), (_FILES, _FILE_ERROR), (_KERNEL, _KERNEL_ERROR))
    for calls, error in denied:
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _conditions(pid: int) -> dict[tuple[int, int], list[_Condition]]:
    """Return the calls that depend on their arguments, by number, with what all must hold for one to be allowed."""
    return {
        (56, 220): [(_ANY_BIT, _FIRST, 0x10000, True)],  # clone: CLONE_THREAD
        (62, 129): [(_EQUAL, _FIRST, pid, True)],  # kill
        (234, 131): [(_EQUAL, _FIRST, pid, True)],  # tgkill
        # prlimit64, by which C libraries read this process's limits: process 0, no new limit in the pointer's halves.
        (302, 261): [(_EQUAL, place, 0, True) for place in (_FIRST, _THIRD, _THIRD + 4)],
        # Another process as the one that is sent a file's signals.
        (72, 25): [(_EQUAL, _SECOND, command, False) for command in (8, 15)],  # fcntl: F_SETOWN, F_SETOWN_EX
        (16, 29): [(_EQUAL, _SECOND, command, False) for command in (0x8901, 0x8902)],  # ioctl: FIOSETOWN, SIOCSPGRP
    }


def _only_where(number: int, conditions: list[_Condition]) -> list[_Instruction]:
    """Allow a call if each of ``conditions`` is as wanted, else deny it; leave other calls be."""
    program: list[_Instruction] = [(_EQUAL, 0, 2 * len(conditions) + 2, number)]
    for left, (comparison, place, operand, wanted) in zip(reversed(range(len(conditions))), conditions, strict=True):
        skips = (0, 2 * left + 1) if wanted else (2 * left + 1, 0)  # to the denial where it is not as wanted
        program += [(_LOAD, 0, 0, place), (comparison, *skips, operand)]
    return [*program, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | _PROCESS_ERROR)]
