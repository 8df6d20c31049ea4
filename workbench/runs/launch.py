"""Starting a run: its directory is made, its process starts in a session of its own, and the caller goes on at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.config.run import RunConfig
from workbench.errors import ConfigError, RunError, cut, shown
from workbench.rundir import RunDir
from workbench.runs.check import checked, with_absolute_paths
from workbench.runs.references import resolved
from workbench.runs.run import Run, default_workspace, open_run
from workbench.runs.spawn import TRAINING, refuse_under_a_launcher, sources, spawn
from workbench.runs.trash import discard

Report = Callable[[Run, Mapping[str, Any]], None]


def train_to_end(
    config: RunConfig, workspace: Path | str | None = None, *, report: Report | None = None, module: str = TRAINING
) -> Run:
    """Train the run called ``config.name`` to its end; pass by one that is finished, and resume one that was stopped.

    ``report(run, row)`` is called with each metrics row as it is written. The run is stopped if the caller is
    interrupted. Raises ConfigError if a run of this name has other settings, RunError if it does not finish, and as
    ``start`` does.
    """
    run = carry_on(config, workspace, report=report, module=module)
    status = run.status()
    if status.state != "finished":
        raise RunError(f"run {run.name!r} {status.state}: {status.reason}")
    return run


def carry_on(
    config: RunConfig, workspace: Path | str | None = None, *, report: Report | None = None, module: str = TRAINING
) -> Run:
    """As ``train_to_end``, but return the run however it ended."""
    with _started(config, workspace, module).held() as run:
        if run.status().state != "finished":
            for row in run.follow():
                if report is not None:
                    report(run, row)
            run.wait()  # two runs at a time would measure each other
    return run


def _started(config: RunConfig, workspace: Path | str | None, module: str) -> Run:
    """Return the run if it is finished or goes on, else resume it, else start it (anew)."""
    assert config.name is not None
    try:
        run = open_run(config.name, workspace)
    except RunError:
        return start(config, workspace, module=module)
    check_same(run, config, workspace)
    status = run.status()
    if not status.final or status.state == "finished":
        return run
    if run.resumable:
        return run.resume(module=module)
    discard(run.name, workspace)
    return start(config, workspace, module=module)


def check_same(run: Run, config: RunConfig, workspace: Path | str | None) -> None:
    """Raise ConfigError if ``run`` was started with other settings than ``config``, names apart."""
    if _settings(run.config()) != _settings(resolved(config, workspace)):
        raise ConfigError(
            f"name: run {run.name!r} is there with other settings; give this one another name (--name), or the same "
            "settings to go on with it"
        )


def _settings(config: RunConfig) -> dict[str, Any]:
    return with_absolute_paths(config).model_dump(exclude={"origins", "name"})


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
