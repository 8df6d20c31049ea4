"""The processes of a run: started in a session of their own, found again, and ended.

A run outlives its starter. The imports of training are most of the time between Start and the first step: whoever is
about to start a run calls ``prepare``, and one standby process then imports them and waits for a run. It takes the next
run that is started, even if it still imports; without one a run starts as a new program. With more than one rank,
``torchrun`` starts one process a rank.

Every process of a run inherits ``WORKBENCH_RUN=<run directory>`` in its environment. That tag finds a launcher's ranks
where process groups do not (each rank leads a session of its own), and it tells a run's process from a stranger that
was given the same process id later. A standby process that took a run shows the tag that it was started with instead,
which the run's status names.
"""

import atexit
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil

from workbench.errors import RunError
from workbench.rewards import find_builtin
from workbench.rundir import RunDir, RunState, RunStatus
from workbench.sandbox.child import child_environment
from workbench.training.methods import RunConfig

TRAINING = "workbench.process"
STANDBY = "WORKBENCH_STANDBY"
"""The environment's name for the tag that a standby process was started with, in a run that it took."""
FREE_BYTES = 4 * 2**30
"""Memory that must be free for a standby process to be started; it takes half a gigabyte."""
_LETTER = re.compile(r"\w")


def spawn(run: RunDir, module: str = TRAINING, *, resume: bool = False, now: bool = False) -> None:
    """Start the process of a queued run and reap it when it ends; with ``now`` it waits for no device.

    Raises RunError, the run failed, when the system refuses.
    """
    command = ["workbench.runs.entrypoint", str(run.path), module, "--queued", str(time.time_ns())]
    command += [*["--resume"] * resume, *["--now"] * now]
    environment = {**child_environment(), TAG: str(run.path), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    tag = None
    process = _standby.take(run, command, environment) if module == _standby.module else None
    if process is not None:
        tag = _standby.tag
    else:
        try:
            with run.log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            run.set_status("failed", f"its process could not be started: {error}")
            raise RunError(f"run {run.name!r}: its process could not be started: {error}") from error
    created = None
    with suppress(psutil.NoSuchProcess):
        created = psutil.Process(process.pid).create_time()
    run.note(pid=process.pid, pid_created=created, launched=True, tag=tag)
    reap(process, run, prepares=tag is not None)


def refuse_under_a_launcher() -> None:
    """Raise RunError in one of several ranks: each would start a run of its own."""
    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        raise RunError(
            f"this process is rank {os.environ.get('RANK', '?')} of {os.environ['WORLD_SIZE']} of torchrun or "
            "accelerate, and a run starts its ranks by itself; start it without the launcher, with --run.ranks"
        )


def training_command(path: Path, ranks: int, module: str = TRAINING, *arguments: str) -> list[str]:
    """Return what trains the run at ``path`` once it has its device."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", module, str(path), *arguments]


def sources(config: RunConfig) -> dict[str, str]:
    """Return the source of the built-in rewards the run uses, to be kept beside the code of the user's own."""
    return {
        reward.name: find_builtin(reward.name).source_with(reward.options)
        for reward in config.method.reward_functions
        if reward.is_builtin
    }


# --- the standby process ----------------------------------------------------------------------------------------------


class Standby:
    """A process that imports what ``module`` needs and then waits for one run. Safe between threads.

    It ends with the process that started it, unless it has a run by then.
    """

    def __init__(self, module: str = TRAINING) -> None:
        self.module = module
        self.tag = ""
        """The tag that processes of the run are known by, which the last one was started with."""
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}

    def prepare(self) -> None:
        """Start the process if there is none that fits, and return at once."""
        environment = child_environment()
        with self._lock:
            if self._fits(environment):
                return
            self.end()
            if psutil.virtual_memory().available < FREE_BYTES:
                return
            self.tag, self._environment = f"standby-{secrets.token_hex(8)}", _seen_by_libraries(environment)
            with suppress(OSError):  # runs start cold then
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-P", "-m", self.module, "--standby"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**environment, TAG: self.tag},
                    cwd="/",
                    start_new_session=True,
                )

    def take(
        self, run: RunDir, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | None:
        """Have the process go on as ``python -m command`` for ``run``; None if the run has to be started cold."""
        request = {
            "command": list(command),
            "environment": {**environment, STANDBY: self.tag},
            "folder": os.getcwd(),
            "log": str(run.log),
        }
        with self._lock:
            if not self._fits(child_environment()):
                return None
            process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        try:
            with process.stdin as stdin:
                stdin.write(json.dumps(request).encode("ascii") + b"\n")
        except BrokenPipeError:
            return None
        return process

    def _fits(self, environment: Mapping[str, str]) -> bool:
        """Return whether it lives, and would import now what it has imported."""
        alive = self._process is not None and self._process.poll() is None
        return alive and self._environment == _seen_by_libraries(environment)

    def end(self) -> None:
        with self._lock:
            if self._process is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.kill()
                self._process.wait()
                self._process = None


def _seen_by_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that what a run imports may read: not this package's own, nor those that name a running test."""
    return {name: value for name, value in environment.items() if not name.startswith(("WORKBENCH_", "PYTEST_"))}


_standby = Standby()
atexit.register(_standby.end)


def prepare() -> None:
    """Have a standby process import what training imports, if there is none yet, and return at once."""
    _standby.prepare()


# --- how a run ended --------------------------------------------------------------------------------------------------

_reapers: dict[tuple[Path, int | None], threading.Thread] = {}


def reap(process: subprocess.Popen[bytes], run: RunDir, *, prepares: bool = False) -> None:
    """Wait for the process in a thread; when it ends, end what it left behind and see to it that a status says so.

    So nothing is left a zombie, and the exit code is not lost. With ``prepares`` the next run finds a standby again.
    """

    def wait() -> None:
        code = process.wait()
        try:
            kill_all(run.path, unless=lambda: run.status().pid != process.pid)
        finally:
            settle(run, code, process.pid)
        if prepares:
            prepare()

    thread = threading.Thread(target=wait, name=f"run {run.name}", daemon=True)
    _reapers[run.path, process.pid] = thread
    thread.start()


def join(path: Path, pid: int | None) -> bool:
    """Wait for this process's reaper of the run's process ``pid``; False if there is none, it being another's."""
    reaper = _reapers.get((path, pid))
    if reaper is None:
        return False
    reaper.join()
    return True


def settle(run: RunDir, code: int | None, pid: int | None) -> RunStatus:
    """Write how a run ended whose process ``pid`` is gone, unless the run has; ``code`` is its exit code if known.

    A run that has another process by now, having been resumed, is left alone. A final status that the run wrote stands,
    with one exception: ranks say they were stopped when their launcher ends them because one of them died, and the
    launcher's exit code tells.
    """
    status = run.status()
    if status.pid != pid:
        return status
    state, reason = verdict(status, code, run.log_tail())
    if status.state == "stopped" and status.stop_requested is None and code:
        return run.set_status(state, reason)
    return run.settle(state, reason, certain=code is not None)


def verdict(status: RunStatus, code: int | None, log: list[str]) -> tuple[RunState, str]:
    """Return state and reason of a run that wrote no final status, from its exit code and the end of its log."""
    if status.stop_requested is not None:
        if status.state == "queued" and not status.started:
            return "stopped", "stopped on request while it was queued"
        force = ", by force" if code == -signal.SIGKILL else ""
        return "stopped", f"stopped on request at step {status.step} of {status.total_steps}{force}"
    if code is not None and code < 0:
        name = f"signal {-code}"
        if -code in set(signal.Signals):
            name += f" ({signal.Signals(-code).name})"
        if -code == signal.SIGKILL:
            name += ", as the system does when memory runs out,"
        return "crashed", f"killed by {name} at step {status.step} of {status.total_steps}"
    how = "its process is gone" if code is None else f"its process exited with code {code} and no word"
    last = next((line.strip() for line in reversed(log) if _LETTER.search(line)), None)
    return "crashed", f"{how}; the last line of its log: {last}" if last else how


# --- finding and ending them ------------------------------------------------------------------------------------------


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
    with suppress(RunError):  # a damaged status hides no process that shows the path itself
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
        with suppress(psutil.NoSuchProcess):  # it ended on its own, which is what was wanted
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
        if (_ask(process.create_time) or 0.0) > now - _EXEC_SECONDS and not _gone(process)
    )


def _ask(question: Callable[[], Any]) -> Any:
    """Ask the system about a process; None for another user's, or one that has just ended."""
    try:
        return question()
    except psutil.Error:
        return None


def _environ(process: psutil.Process) -> dict[str, str] | None:
    return cast(dict[str, str] | None, _ask(process.environ))


def parent_of(process: psutil.Process) -> psutil.Process | None:
    """Return the process that started it; None if that cannot be told."""
    return cast(psutil.Process | None, _ask(process.parent))


def _gone(process: psutil.Process) -> bool:
    return not _ask(process.is_running) or _ask(process.status) in (None, psutil.STATUS_ZOMBIE)
