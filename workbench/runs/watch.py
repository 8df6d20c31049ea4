"""Final status of runs that ended without writing one: from the exit code, else from the log.

The starter keeps one thread a run that waits for the process, so that nothing is left a zombie and the exit code is not
lost. A run's own last word, a final status written by its process, always stands.
"""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

from workbench.child import Handle
from workbench.rundir import RunDir, RunState, RunStatus
from workbench.runs.processes import kill_all

_watchers: dict[tuple[Path, int | None], threading.Thread] = {}
_LETTER = re.compile(r"\w")


def watch(process: Handle, run: RunDir) -> None:
    """Wait for the process in a thread; when it ends, end what it left behind and see to it that a status says so."""

    def wait() -> None:
        code = process.wait()
        try:
            kill_all(run.path, unless=lambda: run.status().pid != process.pid)
        finally:
            settle(run, code, process.pid)

    thread = threading.Thread(target=wait, name=f"run {run.name}", daemon=True)
    _watchers[run.path, process.pid] = thread
    thread.start()


def join(path: Path, pid: int | None) -> bool:
    """Wait for this process's watcher of the run's process ``pid``; False if there is none, it being another's."""
    watcher = _watchers.get((path, pid))
    if watcher is None:
        return False
    watcher.join()
    return True


def settle(run: RunDir, code: int | None, pid: int | None) -> RunStatus:
    """Write how a run ended whose process ``pid`` is gone, unless the run has; ``code`` is its exit code if known.

    A run that has another process by now, having been resumed, is left alone.

    One word of its own does not stand: ranks say they were stopped when their launcher ends them because one of them
    died, and the launcher's exit code tells.
    """
    status = run.status()
    if status.pid != pid:
        return status
    state, reason = verdict(status, code, run.log_tail())
    if status.state == "stopped" and status.stop_requested is None and code:
        return run.set_status(state, reason)
    return run.settle(state, reason, certain=code is not None)


def verdict(status: RunStatus, code: int | None, log: list[str]) -> tuple[RunState, str]:
    """State and reason of a run that wrote no final status, from its exit code and the last lines of its log."""
    if status.stop_requested is not None:
        if status.state == "queued" and not status.started:
            return "stopped", "stopped on request while it was queued"
        force = ", by force" if code == -signal.SIGKILL else ""
        return "stopped", f"stopped on request at step {status.step} of {status.total_steps}{force}"
    if code is not None and code < 0:
        return "crashed", f"killed by {_signal_name(-code)} at step {status.step} of {status.total_steps}"
    how = "its process is gone" if code is None else f"its process exited with code {code} and no word"
    last = next((line.strip() for line in reversed(log) if _LETTER.search(line)), None)
    return "crashed", f"{how}; the last line of its log: {last}" if last else how


def _signal_name(number: int) -> str:
    name = f"signal {number}"
    if number in set(signal.Signals):
        name += f" ({signal.Signals(number).name})"
    return name + (", as the system does when memory runs out," if number == signal.SIGKILL else "")
