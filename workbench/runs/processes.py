"""The operating system's side of a run: which processes belong to it, and ending them all.

Every process of a run inherits ``WORKBENCH_RUN=<run directory>`` in its environment. That tag finds a launcher's ranks
where process groups do not (each rank leads a session of its own), and it tells a run's process from a stranger that
was given the same process id later. A standby process that took a run shows the tag that it was started with instead,
which the run's status names. Knows nothing of what the processes do.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import psutil

from workbench.errors import RunError
from workbench.rundir import RunDir, RunStatus

TAG = "WORKBENCH_RUN"
_SAME_START = 5.0  # seconds by which a process's start time may drift when the system's clock is set
_POLL = 0.02
_EXEC_SECONDS = 2.0  # age by which a process is through its exec; the system's start times are off by up to a second
_KILL_SECONDS = 5.0


def lives(status: RunStatus, path: Path) -> bool:
    """Return whether the process that ``status`` names for the run at ``path`` is still that process, and no zombie.

    A run's own process (``launched``) is known by its tag, wherever the system shows it; its starter by its start time.
    """
    if status.pid is None:
        return False
    try:
        process = psutil.Process(status.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if status.launched and (environ := _environ(process)):
            return environ.get(TAG, "") in (str(path), status.tag)
        created = status.pid_created
        return created is not None and abs(float(process.create_time()) - created) < _SAME_START
    except psutil.NoSuchProcess:
        return False


def members(path: Path, known: Iterable[psutil.Process] = ()) -> set[psutil.Process]:
    """The living processes of the run at ``path``: the tagged ones, those ``known`` before, and all they started.

    A child that scrubbed its environment is found through its parent, so ask while the parent lives.
    """
    everyone = [process for process in psutil.process_iter() if process.pid != os.getpid() and not _gone(process)]
    tags = {str(path)}
    with contextlib.suppress(RunError):  # a damaged status hides no process that shows the path itself
        tags |= {RunDir(path).status().tag or str(path)}
    belonging = {process for process in everyone if (_environ(process) or {}).get(TAG) in tags}
    belonging |= {process for process in known if not _gone(process)}
    parents = {process: parent_of(process) for process in everyone}
    while more := {process for process in everyone if process not in belonging and parents[process] in belonging}:
        belonging |= more
    return belonging


def kill_all(path: Path, known: Iterable[psutil.Process] = (), *, unless: Callable[[], bool] = lambda: False) -> None:
    """SIGKILL every process of the run until none is left.

    ``unless`` is asked after the processes are known and before they are killed, and ends it: somebody has resumed the
    run, say, and the next look would find the processes of its new life.

    Raises RunError if some outlive it, as a process stuck in the kernel does.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        unclear = _any_in_exec()  # asked before the members, so that none slips through between the two
        left = members(path, known)
        if (not left and not unclear) or unless():
            return
        if left and time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda process: process.pid))
            raise RunError(f"run {path.name!r}: process {pids} did not end {_KILL_SECONDS:g} s after SIGKILL")
        known = left
        kill(left)
        time.sleep(_POLL)


def kill(processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended on its own, which is what was wanted
            process.kill()


def wait_gone(processes: Iterable[psutil.Process], seconds: float) -> bool:
    """Wait until all have ended (which one may also be a zombie); False when ``seconds`` ran out first.

    It never reaps: a process's exit code is left for whoever started it.
    """
    deadline = time.monotonic() + seconds
    left = list(processes)
    while left := [process for process in left if not _gone(process)]:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def _any_in_exec() -> bool:
    """Return whether a process may be in its exec, when the system shows none of its environment."""
    now = time.time()
    return any(
        _environ(process) == {}
        for process in psutil.process_iter()
        if (_asked(process.create_time) or 0.0) > now - _EXEC_SECONDS and not _gone(process)
    )


def _asked(question: Callable[[], Any]) -> Any:
    """Ask the system about a process; None for another user's, or one that has just ended."""
    try:
        return question()
    except psutil.Error:
        return None


def _environ(process: psutil.Process) -> dict[str, str] | None:
    return cast(dict[str, str] | None, _asked(process.environ))


def parent_of(process: psutil.Process) -> psutil.Process | None:
    """Return the process that started it; None if that cannot be told."""
    return cast(psutil.Process | None, _asked(process.parent))


def _gone(process: psutil.Process) -> bool:
    return not _asked(process.is_running) or _asked(process.status) in (None, psutil.STATUS_ZOMBIE)
