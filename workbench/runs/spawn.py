"""The process of a run, started in a session of its own so that it outlives whoever starts it.

Training is named here, never imported. With more than one rank, ``torchrun`` starts one process a rank.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from workbench.config.run import RunConfig
from workbench.errors import RunError
from workbench.rewards import find_builtin
from workbench.rundir import RunDir
from workbench.runs.processes import TAG
from workbench.runs.warm import start_warm
from workbench.runs.watch import watch
from workbench.sandbox.child import child_environment

TRAINING = "workbench.process"


def spawn(run: RunDir, module: str = TRAINING, *, resume: bool = False, now: bool = False) -> None:
    """Start the process of a queued run and watch it; ``now`` has it wait for no device.

    Raises RunError, the run failed, when the system refuses.
    """
    command = ["workbench.runs.begin", str(run.path), module, "--queued", str(time.time_ns())]
    launch(run, [*command, *["--resume"] * resume, *["--now"] * now])


def launch(run: RunDir, command: Sequence[str]) -> None:
    """Start ``python -m command`` as the process of ``run`` and watch it.

    Raises RunError, the run failed, when the system refuses.
    """
    try:
        with run.log.open("ab") as log:
            environment = tagged_environment(run.path)
            process = start_warm(command, environment, log.fileno()) or subprocess.Popen(
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
    run.note(pid=process.pid, pid_created=_created(process.pid), launched=True)
    watch(process, run)


def tagged_environment(path: Path) -> dict[str, str]:
    """The environment of a process that belongs to the run at ``path``."""
    return {**child_environment(), TAG: str(path), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}


def refuse_under_a_launcher() -> None:
    """Raises RunError in one of several ranks: each would start a run of its own."""
    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        raise RunError(
            f"this process is rank {os.environ.get('RANK', '?')} of {os.environ['WORLD_SIZE']} of torchrun or "
            "accelerate, and a run starts its ranks by itself; start it without the launcher, with --run.ranks"
        )


def training_command(path: Path, ranks: int, module: str = TRAINING, *arguments: str) -> list[str]:
    """What trains the run at ``path`` once it has its device."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", module, str(path), *arguments]


def sources(config: RunConfig) -> dict[str, str]:
    """The source of the built-in rewards the run uses, to be kept beside the code of the user's own."""
    return {
        reward.name: find_builtin(reward.name).source_with(reward.options)
        for reward in config.method.reward_functions
        if reward.is_builtin
    }


def _created(pid: int) -> float | None:
    try:
        created: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    return created
