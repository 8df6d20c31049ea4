"""What is left of a run after each kind of fault: rows lost, processes orphaned, time to find it again, resumed curve.

Runs are started, killed, stopped, starved of disk and corrupted as they would be in use. Most are ``bench.writer``,
which writes with training's own log and checkpoint code; the resumed ones are real training on the embedded policy.
Locks and workspace are the bench's own. ``full`` injects as many faults as the promise speaks of.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import writer
from benchmarks.corruptions import CORRUPTIONS
from benchmarks.resumes import CONFIGURATIONS, resumed_difference
from workbench.config import RunConfig
from workbench.rundir import RunDir, RunStatus, checkpoints
from workbench.runs import Run, devices, open_run, start
from workbench.runs.processes import kill_all, members

WRITER = "benchmarks.writer"
PHASES = ("queued", "starting", "running", "saving", "two ranks")


@dataclass(frozen=True)
class Fault:
    """What ``injected`` faults of one kind did; None where it does not apply.

    ``lost_rows`` are rows that had been acknowledged and are not in the log, ``orphans`` processes left behind,
    ``seconds`` the longest it took (to stop, or to be found again), ``max_difference`` that of any metric between a
    resumed run and one that was never interrupted, ``named`` how many ended in a message that names the fault.
    """

    fault: str
    injected: int
    lost_rows: int | None = None
    orphans: int | None = None
    seconds: float | None = None
    max_difference: float | None = None
    named: int | None = None


def measure(repeat: int, full: bool = False) -> list[Fault]:
    """``repeat`` faults of each kind (four times as many kills of a run), or all that are promised."""
    draw = random.Random(0)
    with _own_place() as workspace:
        steps: list[Callable[[], Fault]] = [
            lambda: killed_runs(workspace, 100 if full else 4 * repeat, draw),
            lambda: killed_ranks(workspace, 12 if full else min(repeat, 3)),
            lambda: stopped_runs(workspace, 50 if full else max(repeat, len(PHASES))),
            lambda: killed_apps(workspace, 20 if full else repeat),
            lambda: full_disks(workspace, 10 if full else repeat),
            lambda: corrupted(workspace),
        ]
        chosen = list(CONFIGURATIONS)[: len(CONFIGURATIONS) if full else min(repeat, len(CONFIGURATIONS))]
        rows = []
        for step in steps:
            rows.append(step())
            _say(rows[-1])
        for name in chosen:
            rows.append(resumed_training(workspace, name))
            _say(rows[-1])
    return rows


# -- the faults -------------------------------------------------------------------------------------------------------


def killed_runs(workspace: Path, count: int, draw: random.Random) -> Fault:
    """SIGKILL at a random moment of writing."""
    lost = orphans = named = 0
    for _ in range(count):
        run = _begin(workspace, "write")
        _at_row(run, draw.randrange(1, 80))
        psutil.Process(run.status().pid).kill()
        status = run.wait()
        named += status.state == "crashed" and "SIGKILL" in status.reason
        lost += _lost(run)
        orphans += _orphans(run)
    return Fault("SIGKILL of a run", count, lost, orphans, named=named)


def killed_ranks(workspace: Path, count: int) -> Fault:
    """SIGKILL of rank 0, rank 1 or the launcher of a run on two ranks."""
    lost = orphans = named = 0
    for number in range(count):
        run = _begin(workspace, "write", ranks=2)
        _at_row(run, 5)
        launcher = run.status().pid
        ranks = [p for p in members(run.path) if p.pid != launcher and "RANK" in _environment(p)]
        ranks.sort(key=lambda process: _environment(process)["RANK"])
        (ranks[number % 3] if number % 3 < len(ranks) else psutil.Process(launcher)).kill()
        named += run.wait().state == "crashed"
        lost += _lost(run)
        orphans += _orphans(run)
    return Fault("SIGKILL of a rank or launcher", count, lost, orphans, named=named)


def stopped_runs(workspace: Path, count: int) -> Fault:
    """Stop in every phase of a run, each in its turn."""
    lost = orphans = named = 0
    longest = 0.0
    for number in range(count):
        with _in_phase(workspace, PHASES[number % len(PHASES)]) as run:
            began = time.monotonic()
            named += run.stop().state == "stopped"
            longest = max(longest, time.monotonic() - began)
            lost += _lost(run)
            orphans += _orphans(run)
    return Fault("stop, over " + ", ".join(PHASES), count, lost, orphans, round(longest, 2), named=named)


def killed_apps(workspace: Path, count: int) -> Fault:
    """SIGKILL of the process that started a run; another one finds the run and follows it."""
    lost = orphans = named = 0
    longest = 0.0
    for number in range(count):
        name = f"app-{number}"
        app = _python(_APP, workspace, name, stdout=subprocess.PIPE)
        assert app.stdout is not None
        app.stdout.readline()  # it follows the run
        app.kill()
        app.communicate()
        began = time.monotonic()
        page = _python(_PAGE, workspace, name, stdout=subprocess.PIPE)
        seen = json.loads(page.communicate()[0])
        longest = max(longest, time.monotonic() - began)
        named += seen["state"] == "running" and seen["steps"] == list(range(1, len(seen["steps"]) + 1))
        run = open_run(name, workspace)
        run.stop()
        lost += _lost(run)
        orphans += _orphans(run)
    return Fault("SIGKILL of the app", count, lost, orphans, round(longest, 2), named=named)


def full_disks(workspace: Path, count: int) -> Fault:
    """The log grows to the limit on a file's size, where a write is cut short or refused as on a full disk."""
    lost = orphans = named = 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for number in range(count):
        try:
            # The checkpoints' files fit, a log of a few thousand rows does not.
            resource.setrlimit(resource.RLIMIT_FSIZE, (70_000 + number, limits[1]))
            run = _begin(workspace, "write")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        status = run.wait()
        usable, _ = checkpoints.newest_valid(run.dir.checkpoints)
        step = _acknowledged(run) + 1
        named += status.state == "failed" and f"step {step}" in status.reason and usable is not None
        lost += _lost(run)
        orphans += _orphans(run)
    return Fault("disk full", count, lost, orphans, named=named)


def corrupted(workspace: Path) -> Fault:
    """Files of a run damaged in every way that is promised to be named."""
    lost = named = 0
    whole = _begin(workspace, "write")
    _at_row(whole, 2 * writer.SAVE_EVERY + 1)
    psutil.Process(whole.status().pid).kill()
    whole.wait()
    for name, corrupt in CORRUPTIONS.items():
        copy = whole.path.with_name(re.sub(r"\W+", "-", name))
        shutil.copytree(whole.path, copy)
        message = corrupt(open_run(copy.name, workspace))
        named += message is not None
        if message is None:
            print(f"not named: {name}", file=sys.stderr)
    return Fault("corrupted file", len(CORRUPTIONS), lost, named=named)


def resumed_training(workspace: Path, name: str) -> Fault:
    """Real training killed after a checkpoint and resumed, against the same run left alone."""
    result = resumed_difference(workspace, CONFIGURATIONS[name])
    return Fault(f"resumed: {name}", 1, result.lost_rows, result.orphans, max_difference=result.max_difference)


# -- runs to do it to -------------------------------------------------------------------------------------------------


@contextmanager
def _own_place() -> Iterator[Path]:
    """A workspace and locks of the bench's own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="workbench-faults-") as folder:
        before = os.environ.get(devices.LOCKS)
        os.environ[devices.LOCKS] = str(Path(folder) / "locks")
        try:
            yield Path(folder)
        finally:
            for path in Path(folder).glob("runs/*"):
                kill_all(path)
            os.environ.pop(devices.LOCKS)
            if before is not None:
                os.environ[devices.LOCKS] = before


def _begin(workspace: Path, task: str, *, ranks: int = 1) -> Run:
    config = {"name": task, "task": task, "training": {"ranks": ranks, "device": "cpu"}}
    return start(RunConfig.parse(config), workspace, module=WRITER)


@contextmanager
def _in_phase(workspace: Path, phase: str) -> Iterator[Run]:
    """A run that has come to ``phase`` and stays there."""
    ahead = _begin(workspace, "load") if phase == "queued" else None
    if ahead is not None:
        _when(ahead, lambda status: status.state == "starting")
    task = {"starting": "load", "saving": "save"}.get(phase, "write")
    run = _begin(workspace, task, ranks=2 if phase == "two ranks" else 1)
    if phase == "queued":
        _when(run, lambda status: status.behind is not None)
    elif phase == "starting":
        _when(run, lambda status: status.state == "starting" and bool(psutil.Process(status.pid).children()))
    elif phase == "saving":
        _when(run, lambda status: (run.dir.checkpoints / checkpoints.SAVING).exists())
    else:
        _at_row(run, 3)
    yield run
    if ahead is not None:
        ahead.stop()


def _when(run: Run, ready: Callable[[RunStatus], bool]) -> None:
    while not (status := run.status()).final and not ready(status):
        time.sleep(0.01)


def _at_row(run: Run, step: int) -> None:
    _when(run, lambda status: _acknowledged(run) >= step)


def _acknowledged(run: Run) -> int:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int((run.path / writer.ACKNOWLEDGED).read_bytes())
    return 0


def _lost(run: Run) -> int:
    steps = {row["step"] for row in RunDir(run.path).read_metrics()[0]}
    return len(set(range(1, _acknowledged(run) + 1)) - steps)


def _orphans(run: Run) -> int:
    """Processes of the run that are left, its reward worker without a tag included."""
    return len(members(run.path)) + sum(_is_lost_worker(process) for process in psutil.process_iter())


def _is_lost_worker(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[-1:] == [writer.REWARD_WORKER] and process.ppid() == 1
    except psutil.Error:
        return False


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        environment: Mapping[str, str] = process.environ()
    except psutil.Error:
        return {}
    return environment


_APP = """
import sys
from workbench.config import RunConfig
from workbench.runs import start
config = RunConfig.parse({"name": sys.argv[2], "task": "write", "run": {"device": "cpu"}})
for row in start(config, sys.argv[1], module="benchmarks.writer").follow():
    print(row["step"], flush=True)
"""
_PAGE = """
import json, sys, time
from workbench.runs import open_run
run = open_run(sys.argv[2], sys.argv[1])
rows, cursor = run.metrics_rows()
more = []
while not more and not run.status().final:
    more, cursor = run.metrics_rows(cursor)
print(json.dumps({"state": run.status().state, "steps": [row["step"] for row in rows + more]}))
"""


def _python(code: str, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], env=environment, **options)


def _say(row: Fault) -> None:
    print(f"{row.fault}: {row}", file=sys.stderr, flush=True)
