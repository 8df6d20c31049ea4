"""Starting a run: its directory is made, its process starts in a session of its own, and the caller goes on at once.

``run:NAME`` and ``run:NAME@STEP`` may stand in the place of a path: a checkpoint of another run of the workspace. The
configuration that is started names the checkpoint's folder, and in ``origins`` what stood there and the SHA-256 of the
checkpoint's manifest, which names every file with its own. Files that changed since are noticed by that.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.config import ModelConfig, Origin, Section
from workbench.errors import ConfigError, RunError, WorkbenchError, cut, quote
from workbench.files import sha256
from workbench.models.find import is_adapter
from workbench.places import default_workspace, is_of_run
from workbench.rundir import REFERENCE, RunDir, checkpoints, find_checkpoint
from workbench.runs.check import check_config, with_absolute_paths, with_model_paths
from workbench.runs.processes import TRAINING, refuse_under_a_launcher, sources, spawn
from workbench.runs.run import Run, discard, open_run
from workbench.training.methods import RunConfig, filled_from_task

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
    """Train as ``train_to_end`` does, but return the run however it ended."""
    with _open_or_start(config, workspace, module).stop_on_error() as run:
        if run.status().state != "finished":
            for row in run.follow():
                if report is not None:
                    report(run, row)
            run.wait()  # two runs at a time would measure each other
    return run


def _open_or_start(config: RunConfig, workspace: Path | str | None, module: str) -> Run:
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
    before, now = (
        with_absolute_paths(one).model_dump(exclude={"origins", "name"})
        for one in (run.config(), resolve(config, workspace))
    )
    if before != now:
        raise ConfigError(
            f"name: run {run.name!r} is there with other settings; give this one another name (--name), or the same "
            "settings to go on with it"
        )


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
    config = resolve(config, workspace)
    if module == TRAINING:  # what another module makes of a configuration is its own affair
        config = check_config(config)
    folder = default_workspace() if workspace is None else Path(workspace)
    try:
        run = RunDir.create(folder.resolve(), config, sources(config))
    except (OSError, ValueError, RuntimeError) as error:  # a full disk, no right to write, no such path
        raise RunError(
            f"a run cannot be made in {quote(str(folder))}: {cut(str(error))}; choose another workspace"
        ) from error
    spawn(run, module, now=now)
    return Run(run.path)


def resolve(config: RunConfig, workspace: Path | str | None = None) -> RunConfig:
    """Return a copy with what the task brings and nobody set, folders for ``run:NAME``, and their ``origins``.

    Raises RunError for a run or checkpoint that is not there or not whole, for a policy in a reward model's place and
    the other way round, and for one named in ``origins`` that is not what it was.
    """
    config = filled_from_task(config)
    origins: dict[str, Origin] = {}

    def find(section: Section, path: str) -> str:
        if not is_of_run(path):
            origins.update({origin.path: origin for origin in config.origins if origin.path == path})
            return path
        folder = find_checkpoint(path, workspace)
        _check_product(config, section, path, folder, workspace)
        manifest = sha256(folder / checkpoints.MANIFEST)
        origins[str(folder)] = Origin(reference=path, path=str(folder), manifest_sha256=manifest)
        return str(folder)

    found = with_model_paths(config, find)
    found.origins = list(origins.values())
    check_origins(found)
    return found


def _check_product(
    config: RunConfig, section: Section, reference: str, path: Path, workspace: Path | str | None
) -> None:
    """Raise RunError if a run trained something else than ``section`` asks for."""
    match = REFERENCE.fullmatch(reference)
    assert match is not None
    try:
        method = open_run(match[1], workspace).config().method
    except WorkbenchError:  # of another version, or damaged: the checkpoint itself is whole
        return
    made, asked = method.reward_format, section.format if isinstance(section, ModelConfig) else None
    if made != asked and (asked is not None or config.method.reward_format is None):
        is_, wanted = (f"a reward model of format {form!r}" if form else "a policy" for form in (made, asked))
        raise RunError(f"{reference} is {is_}, trained by {method.name}, and {wanted} is asked for; name another run")
    if asked is not None and is_adapter(path):
        raise RunError(
            f"{reference} is an adapter alone, which its run puts into the weights at the end; name run:{match[1]}"
        )


def check_origins(config: RunConfig) -> None:
    """Raise RunError for a checkpoint that is gone or has changed since the run was started."""
    for origin in config.origins:
        folder = Path(origin.path)
        if not (folder / checkpoints.MANIFEST).is_file():
            raise RunError(f"{origin.path} ({origin.reference}) is gone; start again with another checkpoint")
        if sha256(folder / checkpoints.MANIFEST) != origin.manifest_sha256:
            raise RunError(
                f"{origin.path} is not the checkpoint that {origin.reference} was: its manifest differs; start a new "
                f"run with {origin.reference} to take the present one"
            )
