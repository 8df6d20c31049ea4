"""Starting a run: its directory is made, its process starts in a session of its own, and the caller goes on at once.

Training is named here, never imported. With more than one rank, ``torchrun`` starts one process a rank.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from workbench.child import child_environment
from workbench.config import RunConfig
from workbench.credit.schemes import find_scheme
from workbench.errors import RunError
from workbench.rewards import find_builtin
from workbench.rundir import RunDir
from workbench.runs.processes import TAG
from workbench.runs.run import Run, default_workspace
from workbench.runs.watch import watch

TRAINING = "workbench.training.child"


def start(config: RunConfig, workspace: Path | str | None = None, *, module: str = TRAINING) -> Run:
    """Start a run of ``config`` in ``workspace`` and return at once; it goes on if this process ends.

    ``module`` is the module run as ``python -m <module> <run directory>``. The workspace is by default the folder named
    by WORKBENCH_WORKSPACE, or ``workspace`` in the current one.

    Raises RunError if the directory cannot be made or the process cannot be started, and CreditError for an unknown
    credit scheme. What goes wrong after that is in the run's status.
    """
    find_scheme(config.credit.scheme)
    folder = default_workspace() if workspace is None else Path(workspace)
    try:
        run = RunDir.create(folder.resolve(), config, _sources(config))
    except OSError as error:
        raise RunError(f"a run cannot be made in {folder}: {error}; choose another workspace") from error
    try:
        with run.log.open("ab") as log:
            process = subprocess.Popen(
                command(run.path, config.training.ranks, module),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(run.path),
                start_new_session=True,
            )
    except OSError as error:
        run.set_status("failed", f"its process could not be started: {error}")
        raise RunError(f"run {run.name!r}: its process could not be started: {error}") from error
    run.note(pid=process.pid, pid_created=_created(process.pid), started=time.time())
    watch(process, run)
    return Run(run.path)


def command(path: Path, ranks: int, module: str = TRAINING) -> list[str]:
    """What starts the run at ``path``."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", module, str(path)]


def _environment(path: Path) -> dict[str, str]:
    """A child's, with the run's tag."""
    return {**child_environment(), TAG: str(path), "PYTHONUNBUFFERED": "1"}


def _sources(config: RunConfig) -> dict[str, str]:
    """The source of the built-in rewards the run uses, to be kept beside the code of the user's own."""
    return {
        reward.name: find_builtin(reward.name).source_with(reward.options)
        for reward in config.rewards
        if reward.is_builtin
    }


def _created(pid: int) -> float | None:
    try:
        created: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    return created
