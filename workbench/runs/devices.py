"""One run a device: a lock for each GPU (by its UUID) and one for the CPU, and a queue in front of them.

A lock is an ``flock`` on a file, held by the run's first process through its ``exec`` into training, so that the system
gives it back however that process ends. Who waits has a ticket: tickets are served in the order in which their runs
were started, and one whose process has died is thrown away by whoever meets it. Locks are per user and machine,
whatever the workspace, because that is what two runs would share; ``WORKBENCH_LOCKS`` names another folder for them.

Knows nothing of torch: GPUs are listed by their driver.
"""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from workbench.errors import RunError

LOCKS = "WORKBENCH_LOCKS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NAMED = ("GPU-", "MIG-")
"""How a device begins that CUDA knows by its name; the lock of another ("cpu", or "cuda" for GPUs unlisted) is one."""
_POLL = 0.1
_DRIVER = Path("/proc/driver/nvidia/gpus")
_NODES = Path("/dev")
_DRIVERS = (_DRIVER, *map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))  # NVIDIA's, under WSL, AMD's

OnWait = Callable[[Path | None, str], None]
"""Called with the run that is waited for (None if it cannot be told) and the device, each time that changes."""


def pool(device: str) -> list[str]:
    """Return the devices one of which a run whose ``run.device`` is ``wanted`` trains on, a lock's name each."""
    if device == "cpu":
        return ["cpu"]
    return gpus() or (["cpu"] if device == "auto" else ["cuda"])


def check_count(names: list[str], ranks: int) -> None:
    """Raise RunError for fewer GPUs than ranks, or for a GPU that is asked for without its driver."""
    if names[0].startswith(NAMED) and len(names) < ranks:
        raise RunError(f"run.ranks: {ranks} ranks need a GPU each and this process may use {len(names)}; lower it")
    if names == ["cuda"] and not any(driver.exists() for driver in _DRIVERS):
        raise RunError("run.device: 'cuda' is asked for and this machine has no driver of a GPU; use auto or cpu")


def gpus() -> list[str]:
    """Return the UUIDs of the GPUs this process may use, in the order of their buses; none without NVIDIA's driver.

    Those that a container shows without their device node are left out. Under WSL, where the driver shows no files,
    nvidia-smi is asked.
    """
    folders = sorted(_DRIVER.iterdir()) if _DRIVER.is_dir() else []
    listed = [_read(folder / "information") for folder in folders]
    with_node = [gpu for gpu in listed if (_NODES / f"nvidia{gpu.get('Device Minor')}").exists()]
    # A node is made when CUDA first starts.
    there = [gpu["GPU UUID"] for gpu in with_node or listed if "GPU UUID" in gpu] or _ask_smi()
    named = os.environ.get(VISIBLE)
    if named is None:
        return there
    chosen = list[str]()
    for part in map(str.strip, named.split(",")):
        if not (part.isdigit() or part.startswith(NAMED)) or (part.isdigit() and int(part) >= len(there)):
            break  # -1, nothing, or a number too high: none from here on, as CUDA reads it
        found = there[int(part)] if part.isdigit() else next((uuid for uuid in there if uuid.startswith(part)), part)
        chosen.append(found)
    return chosen


def take(
    names: list[str], count: int, run: Path, on_wait: OnWait, *, since: int, hurried: Callable[[], bool]
) -> tuple[str, ...]:
    """Wait for ``count`` of the devices ``names``, and hold them until this process ends, what it becomes included.

    Where devices have no names there is one lock. Once ``hurried`` it waits no longer: it takes free ones, or else the
    first, beside whoever holds them. ``since`` is when the run began to wait (unix nanoseconds): its place in the
    queue. Raises RunError where there are fewer GPUs.
    """
    check_count(names, count)
    folder = locks_folder()
    reported: tuple[Path | None, str] | None = None
    with _ticket(folder / f"queue-{'cpu' if names == ['cpu'] else 'gpu'}", run, since) as earlier:
        while True:
            ahead, is_hurried = earlier(), hurried()
            held, busy = ((), names[0]) if ahead and not is_hurried else _try(folder, names, count, run)
            if held:
                return held
            if is_hurried:
                return tuple(names[:count])
            holder = ahead[-1] if ahead else None
            with contextlib.suppress(OSError):
                if not ahead and (text := _lock(folder, busy).read_bytes()):
                    holder = Path(os.fsdecode(text))
            if reported != (holder, busy):
                reported = holder, busy
                on_wait(holder, busy)
            time.sleep(_POLL)


def locks_folder() -> Path:
    """The folder of the locks, made if there is none. Raises RunError if another user could have a hand in it."""
    named = os.environ.get(LOCKS)
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"workbench-locks-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise RunError(f"the folder of device locks cannot be used: {error}; name another with {LOCKS}") from error
    if owner != os.getuid():
        raise RunError(f"the folder of device locks {folder} is another user's; name one of your own with {LOCKS}")
    return folder


def _ask_smi() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    return []


def _try(folder: Path, names: list[str], count: int, run: Path) -> tuple[tuple[str, ...], str]:
    """Return ``count`` devices, or the one without a name, or none; and the name of a busy one."""
    held: dict[str, int] = {}
    busy = names[0]
    for name in names:
        descriptor = os.open(_lock(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            busy = name
            continue
        held[name] = descriptor
        if len(held) == min(count, len(names)):
            for taken in held.values():  # says who holds it, and passes through exec
                os.ftruncate(taken, 0)
                os.pwrite(taken, os.fsencode(run), 0)
                os.set_inheritable(taken, True)
            return tuple(held), busy
    for descriptor in held.values():
        os.close(descriptor)
    return (), busy


def _lock(folder: Path, name: str) -> Path:
    """Return a device's lock; a MIG instance by its old name, ``MIG-GPU-…/1/0``, has slashes."""
    return folder / f"{name.replace('/', '_')}.lock"


@contextmanager
def _ticket(queue: Path, run: Path, since: int) -> Iterator[Callable[[], list[Path]]]:
    """Draw a ticket; gives a function that lists the runs with earlier ones, the first drawn first."""
    queue.mkdir(mode=0o700, exist_ok=True)
    mine = queue / f"{since:020d}-{os.getpid()}"
    mine.write_bytes(os.fsencode(run))
    try:
        yield lambda: [path for ticket in sorted(queue.iterdir()) if ticket < mine and (path := _waiting(ticket))]
    finally:
        mine.unlink(missing_ok=True)


def _waiting(ticket: Path) -> Path | None:
    """Return the run that holds a ticket; None, and the ticket thrown away, if its process is gone."""
    with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
        process, drawn = psutil.Process(int(ticket.name.partition("-")[2])), ticket.stat().st_mtime
        if process.status() != psutil.STATUS_ZOMBIE and process.create_time() < drawn + 1:  # else its id is used again
            return Path(os.fsdecode(ticket.read_bytes()))
    ticket.unlink(missing_ok=True)
    return None


def _read(information: Path) -> dict[str, str]:
    """Return what the driver says of a GPU; nothing if that cannot be read."""
    try:
        lines = information.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
