"""Starting a run: its directory is made, its process starts in a session of its own, and the caller goes on at once."""

from __future__ import annotations

from pathlib import Path

from workbench.config import RunConfig
from workbench.errors import RunError, cut, shown
from workbench.rundir import RunDir
from workbench.runs.check import checked
from workbench.runs.references import resolved
from workbench.runs.run import Run, default_workspace, open_run
from workbench.runs.spawn import TRAINING, refuse_under_a_launcher, sources, spawn
from workbench.runs.trash import discard


def go_on(config: RunConfig, workspace: Path | str | None = None, *, now: bool = False, module: str = TRAINING) -> Run:
    """The run called ``config.name``: as it is where it is finished or goes on, else resumed, or started (anew).

    A run that ended early and saved nothing to go on from is moved to the trash. Raises as ``start`` and ``resume`` do.
    """
    assert config.name is not None
    try:
        run = open_run(config.name, workspace)
    except RunError:
        return start(config, workspace, now=now, module=module)
    status = run.status()
    if not status.final or status.state == "finished":
        return run
    if run.resumable:
        return run.resume(now=now, module=module)
    discard(run.name, workspace)
    return start(config, workspace, now=now, module=module)


def start(config: RunConfig, workspace: Path | str | None = None, *, now: bool = False, module: str = TRAINING) -> Run:
    """Start a run of ``config`` in ``workspace`` and return at once; it goes on if this process ends.

    While another run has the device it is queued, unless it is to start ``now``, beside that run. ``module`` is the
    module run as ``python -m <module> <run directory>``. The workspace is by default the folder named by
    WORKBENCH_WORKSPACE, or ``workspace`` in the current one.

    Raises the WorkbenchError of what would keep the run from working as far as that is known before it loads, and for
    several such things ConfigError with a line for each (``runs.check``); RunError if the directory cannot be made or
    the process cannot be started. What goes wrong after that is in the run's status. Paths of this machine are stored
    as absolute ones, and checkpoints of other runs (``run:NAME``) as their folders.
    """
    refuse_under_a_launcher()
    config = resolved(config, workspace)
    if module == TRAINING:  # what another module makes of a configuration is its own affair
        config = checked(config)
    folder = default_workspace() if workspace is None else Path(workspace)
    try:
        run = RunDir.create(folder.resolve(), config, sources(config))
    except (OSError, ValueError, RuntimeError) as error:  # a full disk, no right to write, no such path
        raise RunError(
            f"a run cannot be made in {shown(str(folder))}: {cut(str(error))}; choose another workspace"
        ) from error
    spawn(run, module, now=now)
    return Run(run.path)
