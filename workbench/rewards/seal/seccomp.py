"""seccomp: which system calls a process may still make.

A deny-list, as a small BPF program: after https://docs.kernel.org/userspace-api/seccomp_filter.html, seccomp(2) and
include/uapi/linux/seccomp.h. Numbers are those of the kernel's tables for x86-64 (arch/x86/entry/syscalls/
syscall_64.tbl) and aarch64 (include/uapi/asm-generic/unistd.h). Each kind of call fails with an error of its own, so
that its message can say what is off. Threads stay, and so do calls about this very process: a signal, which is how a
crash ends, and its own priority and processors.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

NETWORK_ERROR = errno.ENETDOWN
PROCESS_ERROR = errno.EPERM
_FILE_ERROR = errno.EACCES
_KERNEL_ERROR = errno.ENOSYS  # as from a kernel without the call, which C libraries know how to do without

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "arm64": 0xC00000B7}
_X32 = 0x40000000  # calls of x86-64's other ABI have this bit

# name: (number on x86-64, number on aarch64)
_Numbers = dict[str, tuple[int | None, int | None]]
_NETWORK: _Numbers = {"socket": (41, 198)}
_PROCESSES: _Numbers = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "setsid": (112, 157), "setpgid": (109, 154), "ptrace": (101, 117), "setrlimit": (160, 164),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
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
_OWN: _Numbers = {
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}  # fmt: skip
"""Calls whose first argument is a process, 0 for this one."""
_OWN_OF_KIND: dict[str, tuple[int, int, int]] = {"setpriority": (141, 140, 0), "ioprio_set": (251, 30, 1)}
"""Calls whose first argument says what the second one is: the number here, for a process."""
_CLONE, _KILL, _TGKILL, _PRLIMIT = (56, 220), (62, 129), (234, 131), (302, 261)
_CLONE_THREAD = 0x10000

# BPF: load a word at a place of struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_SECCOMP = (317, 277)
_NO_NEW_PRIVS = 38

_Instruction = tuple[int, int, int, int]  # code, skip if true, skip if false, operand


def restrict() -> str | None:
    """Install the filter on every thread of this process, for good; returns why that could not be done."""
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
    program += _only_where(_CLONE[column], [(_LOAD, 0, 0, _low(0)), (_ANY_BIT, 0, 1, _CLONE_THREAD)])
    program += _only_where(_KILL[column], [(_LOAD, 0, 0, _low(0)), (_EQUAL, 0, 1, pid)])
    program += _only_where(_TGKILL[column], [(_LOAD, 0, 0, _low(0)), (_EQUAL, 0, 1, pid)])
    # Reading limits passes no new ones: a null pointer.
    null = [(_LOAD, 0, 0, _low(2)), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _low(2) + 4), (_EQUAL, 0, 1, 0)]
    program += _only_where(_PRLIMIT[column], null)
    for numbers in _OWN.values():
        program += _only_where(numbers[column] or 0, [(_LOAD, 0, 0, _low(0)), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, pid)])
    for *own_of_kind, kind in _OWN_OF_KIND.values():
        which = [(_LOAD, 0, 0, _low(0)), (_EQUAL, 0, 4, kind)]
        who = [(_LOAD, 0, 0, _low(1)), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, pid)]
        program += _only_where(own_of_kind[column], which + who)
    denied = ((_NETWORK, NETWORK_ERROR), (_PROCESSES, PROCESS_ERROR), (_FILES, _FILE_ERROR), (_KERNEL, _KERNEL_ERROR))
    for calls, error in denied:
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _only_where(number: int, condition: list[_Instruction]) -> list[_Instruction]:
    """Allow a call where ``condition`` falls through, deny it where it skips one past its end; leave others be."""
    verdict = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | PROCESS_ERROR)]
    return [(_EQUAL, 0, len(condition) + len(verdict), number), *condition, *verdict]


def _low(argument: int) -> int:
    """Where the low half of an argument lies; both machines are little-endian."""
    return 16 + 8 * argument
