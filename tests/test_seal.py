"""The seal around the reward worker: what it reports as in force is enforced, and what the system lacks is told."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.config import RewardConfig
from workbench.errors import RewardError
from workbench.rewards import RewardWorker, load_reward
from workbench.rewards.protocol import Batch
from workbench.rewards.seal import landlock, limits, sealed_environment, seccomp, what_is_off
from workbench.ui.handlers.scoring import isolation_note

BATCH = Batch(["p"], ["a"], steps=[["a"]])


@pytest.fixture(scope="module")
def worker() -> Iterator[RewardWorker]:
    with RewardWorker(deadline=60) as worker:
        yield worker


def run(worker: RewardWorker, body: str) -> float | None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    reward = load_reward(RewardConfig(name="mine", code=f"def mine(prompt, step, **columns):\n{lines}"), worker)
    return reward.score_steps(BATCH)[0][0][0]


def refused(worker: RewardWorker, layer: str, body: str, says: str) -> None:
    """``body`` fails as ``says``, or the layer that would refuse it is reported missing and it goes through."""
    if any(f"no {layer}" in missing for missing in worker.reduced_isolation()):
        run(worker, f"{body}\nreturn 1")
        return
    with pytest.raises(RewardError, match=says):
        run(worker, f"{body}\nreturn 1")


def test_the_worker_says_what_is_missing_and_the_page_repeats_it(worker: RewardWorker) -> None:
    missing = worker.reduced_isolation()
    note = isolation_note(worker)
    assert (note is None) == (missing == ())
    assert all(note is not None and layer in note.text for layer in missing)


def test_a_layer_that_the_system_lacks_is_told_on_the_page(worker: RewardWorker, monkeypatch) -> None:
    monkeypatch.setattr(worker, "_missing", ("no Landlock (Linux only): the code can read and write your files",))
    note = isolation_note(worker)
    assert note is not None
    assert note.text == "reduced isolation: no Landlock (Linux only): the code can read and write your files"
    assert note.level == "warning"


def test_other_systems_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert landlock.restrict([], []) == "no Landlock (Linux only): the code can read and write your files"
    assert "no seccomp filter (made for Linux on x86-64 and aarch64, this is darwin" in str(seccomp.restrict())
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "this is linux riscv64): the code can use the network and start processes" in str(seccomp.restrict())


def test_a_limit_that_the_system_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(limit: int, value: tuple[int, int]) -> None:
        if limit == limits.resource.RLIMIT_AS:
            raise ValueError("not here")

    monkeypatch.setattr(limits.resource, "setrlimit", refuse)
    assert limits.restrict() == "no limit of memory: this system takes none"


def test_no_secret_of_this_process_reaches_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("https_proxy", "http://user:password@proxy")
    with RewardWorker(deadline=60) as fresh:
        body = "import os\nassert 'PATH' in os.environ\nreturn sum('secret' in v or 'password' in v for v in {})"
        assert run(fresh, body.format("os.environ.values()")) == 0.0
        assert run(fresh, "import os\nreturn len([n for n in os.environ if n.startswith('WORKBENCH')])") == 0.0
    assert sealed_environment({"HF_TOKEN": "hf_secret", "LANG": "C"}).keys() & {"HF_TOKEN", "LANG"} == {"LANG"}


def test_the_limits_are_set(worker: RewardWorker) -> None:
    assert worker.reduced_isolation() == () or "no limit" not in " ".join(worker.reduced_isolation())
    got = "import resource\nreturn float(resource.getrlimit(resource.RLIMIT_{})[{}] / {})"
    assert run(worker, got.format("AS", 1, limits.MEMORY)) == 1.0
    assert run(worker, got.format("FSIZE", 1, limits.FILE)) == 1.0
    assert run(worker, got.format("NOFILE", 1, limits.DESCRIPTORS)) == 1.0
    assert run(worker, got.format("CORE", 1, 1)) == 0.0


def test_it_has_a_session_and_a_folder_of_its_own(worker: RewardWorker) -> None:
    assert run(worker, "import os\nreturn float(os.getsid(0) == os.getpid())") == 1.0
    body = "import os, tempfile\nopen('note', 'a').write('x')\nreturn float(os.getcwd() == tempfile.gettempdir())"
    assert run(worker, body) == 1.0
    assert run(worker, "import os\nreturn float(os.path.exists('note'))") == 0.0  # another function's is another one
    count = "open('note', 'a').write('x')\nreturn float(len(open('note').read()))"
    assert [run(worker, count), run(worker, count)] == [1.0, 2.0]


def test_its_folder_goes_with_it() -> None:
    worker = RewardWorker(deadline=60)
    with pytest.raises(RewardError) as caught:
        run(worker, "import os\nopen('left', 'w').close()\nraise ValueError(os.getcwd())")
    folder = Path(str(caught.value).rpartition(": ")[2])
    assert (folder / "left").exists()
    worker.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("layer", "body", "says"),
    [
        ("Landlock", "open('/etc/passwd')", r"\[Errno 13\].*'/etc/passwd' \(file access is off in the reward worker\)"),
        ("Landlock", "import os\nos.listdir('/etc')", "file access is off"),
        ("Landlock", "open('/proc/self/environ')", "file access is off"),
        ("Landlock", "open('/var/tmp/workbench-test', 'w')", "file access is off"),
        ("seccomp", "import os\nos.chmod('.', 0o755)", "file access is off"),
        ("seccomp", "import os\nos.mknod('pipe', 0o10644)", "file access is off"),
        ("seccomp", "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)", "processes are off"),
        ("seccomp", "import os\nos.setpriority(os.PRIO_USER, 0, 19)", "processes are off"),
        ("seccomp", "import os\nos.sched_setaffinity(os.getppid(), [0])", "processes are off"),
        (
            "seccomp",
            "import os\nos.sched_setscheduler(os.getppid(), os.SCHED_OTHER, os.sched_param(0))",
            "processes are off",
        ),
        ("seccomp", "import os\nos.memfd_create('x')", "Function not implemented"),
        ("seccomp", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "network is off"),
        ("seccomp", "import socket\nsocket.socket(socket.AF_UNIX)", "network is off"),
        ("seccomp", "import socket\nsocket.getaddrinfo('example.org', 80)", "network is off"),
        ("seccomp", "import os\nos.posix_spawn('/bin/true', ['true'], {})", "processes are off"),
        ("seccomp", "import os\nos.execv('/bin/true', ['true'])", "processes are off"),
        ("seccomp", "import os\nos.setsid()", "processes are off"),
        ("seccomp", "import multiprocessing as m\nm.get_context('fork').Process(target=int).start()", "processes are"),
    ],
)
def test_what_is_off_is_refused_and_named(worker: RewardWorker, layer: str, body: str, says: str) -> None:
    refused(worker, layer, body, says)


def test_no_limit_can_be_raised_again(worker: RewardWorker) -> None:
    with pytest.raises(RewardError, match="not allowed to raise maximum limit"):
        run(worker, "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))")


@pytest.mark.parametrize(
    "body",
    [
        "import threading\nseen = []\nt = threading.Thread(target=seen.append, args=(1,))\nt.start(); t.join()\n"
        "return len(seen)",
        "import asyncio\nasync def one(): return 1\nreturn asyncio.run(one())",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool: return sum(pool.map(int, '10'))",
        "import sympy\nreturn float(sympy.sympify('2 / 2'))",
        "import datetime, uuid\nreturn float(datetime.datetime.now().year > 2000 and bool(uuid.uuid4()))",
        "import os, signal\nos.kill(os.getpid(), 0)\nreturn 1",
        "import os\nos.sched_setaffinity(0, os.sched_getaffinity(0))\nos.setpriority(os.PRIO_PROCESS, 0, 19)\nreturn 1",
    ],
    ids=["thread", "asyncio", "pool", "sympy", "clock", "own signal", "own processors"],
)
def test_what_rewards_need_stays(worker: RewardWorker, body: str) -> None:
    assert run(worker, body) == 1.0


@pytest.mark.parametrize("call", ["shmget(0, 4096, 0o1600)", "semget(0, 1, 0o1600)", "msgget(0, 0o1600)"])
def test_nothing_is_left_behind_in_shared_memory(worker: RewardWorker, call: str) -> None:
    """Segments, semaphores and queues count for no limit and outlive the process that made them."""
    body = f"import ctypes\nreturn float(ctypes.CDLL(None, use_errno=True).{call})"
    if not any("no seccomp" in missing for missing in worker.reduced_isolation()):
        assert run(worker, body) == -1.0


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(8):\n    open(f'f{i}', 'wb').write(b'x' * (10 << 20))",
        "import os\nfor i in range(1001):\n    os.mkdir(f'd{i}')",
        "for i in range(8):\n    open(f'g{i}', 'wb').write(b'x' * (10 << 20))\nwhile True:\n    pass",
    ],
    ids=["bytes", "folders", "and never ends"],
)
def test_the_folder_has_a_quota(body: str) -> None:
    with RewardWorker(deadline=60) as worker:
        body = f"import os\nif os.listdir('.'): raise ValueError('not empty')\n{body}\nreturn 1"
        for _ in range(2):  # it begins anew in an empty folder
            with pytest.raises(RewardError, match=r"held over 64 MB or 1,000 files, this one's most of them, and its"):
                run(worker, body)


# --- the filter, on both machines -----------------------------------------------------------------------------------

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, EACCES, ENOSYS, ENETDOWN = (0x50000 | number for number in (1, 13, 38, 100))


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter of a process 42 says of a call: a BPF interpreter of the six instructions that it is made of."""
    column = 0 if machine == "x86_64" else 1
    program = seccomp._program(machine, column, 42)
    padded = (*arguments, *[0] * 6)[:6]
    arch = seccomp._ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("<iIQ6Q", number, arch, 0, *padded)
    at = word = 0
    for _ in range(len(program)):
        code, yes, no, operand = program[at]
        at += 1
        match code:
            case 0x20:  # load
                (word,) = struct.unpack_from("<I", data, operand)
            case 0x06:  # return
                return operand
            case 0x15:  # equal
                at += yes if word == operand else no
            case 0x35:  # at least
                at += yes if word >= operand else no
            case 0x45:  # any bit
                at += yes if word & operand else no
    raise AssertionError("the program runs off its end")


@pytest.mark.parametrize(
    ("call", "x86_64", "aarch64", "arguments", "expected"),
    [
        ("read", 0, 63, (), ALLOW),
        ("openat", 257, 56, (), ALLOW),
        ("futex", 202, 98, (), ALLOW),
        ("socket", 41, 198, (2, 1), ENETDOWN),
        ("socketpair", 53, 199, (1, 1), ALLOW),
        ("execve", 59, 221, (), EPERM),
        ("execveat", 322, 281, (), EPERM),
        ("clone a process", 56, 220, (17,), EPERM),
        ("clone a thread", 56, 220, (0x3D0F00,), ALLOW),
        ("clone3", 435, 435, (), ENOSYS),
        ("kill itself", 62, 129, (42, 9), ALLOW),
        ("kill another", 62, 129, (43, 9), EPERM),
        ("kill its group", 62, 129, (0, 9), EPERM),
        ("kill everybody", 62, 129, (2**64 - 1, 9), EPERM),
        ("tgkill itself", 234, 131, (42, 43, 6), ALLOW),
        ("tgkill another", 234, 131, (7, 7, 6), EPERM),
        ("read limits", 302, 261, (0, 9, 0, 0x7FFE00001234), ALLOW),
        ("set limits", 302, 261, (0, 9, 0x7FFE00001234, 0), EPERM),
        ("set limits from an even address", 302, 261, (0, 9, 0x700000000, 0), EPERM),
        ("setsid", 112, 157, (), EPERM),
        ("ptrace", 101, 117, (), EPERM),
        ("io_uring_setup", 425, 425, (), ENOSYS),
        ("chmod of a file", 268, 53, (), EACCES),
        ("open_by_handle_at", 304, 265, (), EACCES),
        ("bpf", 321, 280, (), ENOSYS),
        ("shmget", 29, 194, (), ENOSYS),
        ("semget", 64, 190, (), ENOSYS),
        ("msgget", 68, 186, (), ENOSYS),
        ("mq_open", 240, 180, (), ENOSYS),
        ("memfd_create", 319, 279, (), ENOSYS),
        ("mknodat", 259, 33, (), EACCES),
        ("inotify_init1", 294, 26, (), ENOSYS),
        ("syslog", 103, 116, (3,), ENOSYS),
        ("read processors of another", 204, 123, (43,), ALLOW),
        ("set its processors", 203, 122, (0,), ALLOW),
        ("set its processors by its number", 203, 122, (42,), ALLOW),
        ("set processors of another", 203, 122, (43,), EPERM),
        ("set scheduler of another", 144, 119, (43,), EPERM),
        ("set its priority", 141, 140, (0, 0), ALLOW),
        ("set its priority by its number", 141, 140, (0, 42), ALLOW),
        ("set priority of another", 141, 140, (0, 43), EPERM),
        ("set priority of its user", 141, 140, (2, 0), EPERM),
        ("set its disk priority", 251, 30, (1, 0), ALLOW),
        ("set disk priority of another", 251, 30, (1, 43), EPERM),
        ("set disk priority of its user", 251, 30, (3, 0), EPERM),
    ],
)
def test_the_filter_says_the_same_on_both_machines(
    call: str, x86_64: int, aarch64: int, arguments: tuple[int, ...], expected: int
) -> None:
    assert verdict("x86_64", x86_64, *arguments) == expected
    assert verdict("aarch64", aarch64, *arguments) == expected


def test_other_abis_end_the_process() -> None:
    assert verdict("x86_64", 41, architecture=0x40000003) == KILL  # i386
    assert verdict("x86_64", 0x40000000 | 59) == KILL  # x32's execve
    assert verdict("aarch64", 198, architecture=0x40000028) == KILL  # 32-bit ARM
    assert verdict("x86_64", 57) == verdict("x86_64", 58) == EPERM  # fork and vfork, which aarch64 has not


def test_what_was_refused_is_found_behind_other_errors() -> None:
    outer = RuntimeError("could not fetch")
    outer.__context__ = ConnectionError("no luck")
    outer.__context__.__cause__ = OSError(100, os.strerror(100))
    assert what_is_off(outer) == "network is off"
    assert what_is_off(MemoryError()) == "the limit is 2 GB"
    assert what_is_off(KeyError("x")) is None
    outer.__context__.__cause__.__context__ = outer
    assert what_is_off(outer) == "network is off"
