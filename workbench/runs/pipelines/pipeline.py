"""A pipeline of the workspace: started, opened by name, followed, stopped and resumed.

Its status, its process and its log are kept as a run's are (``rundir``, ``runs.run``); ``drive`` is that process.
Nothing is remembered here that is not in the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.config import RUN_NAME
from workbench.config.reading import read_text, read_yaml
from workbench.errors import RunError, cut, did_you_mean, shown
from workbench.files import opened
from workbench.rundir import RunDir, RunStatus
from workbench.runs import watch
from workbench.runs.follow import MetricsReader
from workbench.runs.job import Job
from workbench.runs.pipelines.check import check_plan
from workbench.runs.pipelines.plan import Plan, Stage, load_plan, read_plan, run_name
from workbench.runs.pipelines.progress import StageProgress, of_run, read_stage
from workbench.runs.processes import kill_all
from workbench.runs.run import Run, default_workspace, open_run
from workbench.runs.spawn import TRAINING, launch, refuse_under_a_launcher

DRIVER = "workbench.runs.pipelines.drive"
WORKBENCH = "workbench"
_POLL = 0.1
_STOP_SECONDS = 25.0  # a run's own ten, and some for what leads to it


@dataclass(frozen=True)
class Pipeline(Job):
    """One pipeline, named by its directory."""

    @property
    def workspace(self) -> Path:
        return self.path.parent.parent

    def plan(self) -> Plan:
        """The stages as they are carried out. Raises WorkbenchError where pipeline.yaml cannot be read."""
        file = self.path / "pipeline.yaml"
        try:
            written = file.stat().st_mtime_ns
        except OSError:
            written = 0
        return _read_stored(file, self.name, written)

    def status(self) -> RunStatus:
        """How it stands; ``step`` of ``total_steps`` stages are done. One whose process is gone has crashed."""
        return self._process.status()

    def wait(self, timeout: float | None = None) -> RunStatus:
        """Block until it is over, at most ``timeout`` seconds; return the status by then."""
        return self._process.wait(timeout)

    def run_of(self, stage: str) -> Run | None:
        """The run of a stage; None before it was started, and for one that makes rows."""
        try:
            return open_run(run_name(self.name, stage), self.workspace)
        except RunError:
            return None

    def file_of(self, stage: str) -> Path:
        """Where the rows of a stage are, once it has made them."""
        return self.path / "data" / f"{stage}.jsonl"

    def stage_file(self, stage: str) -> Path:
        return self.path / "stages" / f"{stage}.json"

    def stages(self) -> list[StageProgress]:
        """How each stage stands, in their order. Raises WorkbenchError where pipeline.yaml cannot be read."""
        over = self.status().final
        return [self._progress(stage, over) for stage in self.plan().stages]

    def follow(self) -> Iterator[tuple[StageProgress, dict[str, Any] | None]]:
        """Each metrics row of the runs as it is written, with its stage; and each stage, without a row, as it ends.

        Stages that were over when this is called are passed by. Ends when the pipeline is over.
        """
        for number, stage in enumerate(self.plan().stages):
            if self.status().step > number:
                continue
            reader: MetricsReader | None = None
            while True:
                status = self.wait(_POLL)
                run = self.run_of(stage.name) if stage.is_run else None
                reader = reader or (MetricsReader(run.dir) if run is not None else None)
                progress = self._progress(stage, status.final)
                for row in reader.read()[0] if reader is not None else ():
                    yield progress, row
                if status.final or status.step > number:
                    break
            if progress.state != "waiting":
                yield progress, None
            if status.final and status.step <= number:
                return

    def stop(self) -> RunStatus:
        """Stop the stage at hand, a run at the end of its step, and the pipeline. Raises RunError if it is over."""
        status = self.status()
        if status.final:
            raise RunError(f"pipeline {self.name!r} is already {status.state} ({status.reason})")
        return self._process.stop(_STOP_SECONDS)

    @property
    def resumable(self) -> bool:
        status = self.status()
        return status.final and status.state != "finished"

    def resume(self, *, now: bool = False, module: str = TRAINING, maker: str = WORKBENCH) -> Pipeline:
        """Go on with the stage at which it ended, in a process of its own, and return at once.

        A run goes on from its newest valid checkpoint, or is begun again where it saved none; so are rows. Raises
        RunError if the pipeline is not over, or finished.
        """
        status = self.status()
        if not status.final:
            raise RunError(f"pipeline {self.name!r} is {status.state}; it goes on by itself, so there is no need to")
        if status.state == "finished":
            raise RunError(f"pipeline {self.name!r} is finished ({status.reason}); start it anew under another name")
        refuse_under_a_launcher()
        watch.join(self.path, status.pid)
        kill_all(self.path, unless=lambda: self.dir.status() != status)
        self.dir.begin_again()
        _launch(self.dir, now, module, maker)
        return self

    @property
    def _process(self) -> Run:
        return Run(self.path)

    def _progress(self, stage: Stage, over: bool) -> StageProgress:
        known = read_stage(self.stage_file(stage.name))
        run = self.run_of(stage.name) if stage.is_run else None
        if run is not None:
            known = {**known, **of_run(run)}
        elif over and known.get("state") in ("queued", "starting", "running"):
            known |= {"state": "stopped", "reason": "ended with the pipeline"}
        if not stage.is_run and known.get("state") == "finished":
            known["rows"] = _count(self.file_of(stage.name))
        kind = stage.config.method.name if stage.is_run and stage.config is not None else stage.kind
        return StageProgress(stage.name, kind, stage.round, **known)


def run_pipeline(
    source: str | Path | Mapping[str, Any],
    workspace: Path | str | None = None,
    *,
    name: str | None = None,
    now: bool = False,
    module: str = TRAINING,
    maker: str = WORKBENCH,
) -> Pipeline:
    """Start a pipeline and return at once; it goes on if this process ends.

    ``source`` is a YAML file, the name of a pipeline that comes along, or the same as plain data; ``name`` what it is
    called (with ``-2``, ``-3``, … where that is taken) instead of the file's own. ``now``: its runs wait for no other.
    Everything is checked before anything is started: raises ConfigError with a line for each problem.
    """
    return start_plan(load_plan(source, name), workspace, name=name, now=now, module=module, maker=maker)


def start_plan(
    plan: Plan,
    workspace: Path | str | None = None,
    *,
    name: str | None = None,
    now: bool = False,
    module: str = TRAINING,
    maker: str = WORKBENCH,
) -> Pipeline:
    """``run_pipeline`` of a plan that is parsed already; ``module`` trains its runs and ``maker`` makes its rows."""
    refuse_under_a_launcher()
    folder = _workspace(workspace)
    plan = check_plan(plan, folder, deeply=module == TRAINING)
    text = plan.to_yaml()

    def fill(draft: Path) -> None:
        (draft / "pipeline.yaml").write_text(text, encoding="utf-8")
        (draft / "stages").mkdir()
        (draft / "data").mkdir()

    try:
        directory = RunDir.make(folder / "pipelines", _free(name or plan.name, plan, folder), fill, len(plan.stages))
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(
            f"a pipeline cannot be made in {shown(str(folder))}: {cut(str(error))}; choose another workspace"
        ) from error
    _launch(directory, now, module, maker)
    return Pipeline(directory.path)


def open_pipeline(name: str, workspace: Path | str | None = None) -> Pipeline:
    """The pipeline called ``name``. Raises RunError where there is none."""
    folder = _workspace(workspace)
    path = folder / "pipelines" / name
    if not RUN_NAME.fullmatch(name) or not _is_pipeline(path):
        names = [pipeline.name for pipeline in list_pipelines(workspace)]
        there = f"the newest there are {', '.join(names[:5])}" if names else "it has none yet"
        near = did_you_mean(name, names)
        raise RunError(f"there is no pipeline {shown(name)} in the workspace {folder}; {there}{near}")
    return Pipeline(path)


def list_pipelines(workspace: Path | str | None = None) -> list[Pipeline]:
    """The pipelines of a workspace, the newest first; none if there is no such folder."""
    folder = _workspace(workspace) / "pipelines"
    paths = [path for path in folder.iterdir() if _is_pipeline(path)] if folder.is_dir() else []
    return [Pipeline(path) for path in sorted(paths, key=_made, reverse=True)]


def _launch(directory: RunDir, now: bool, module: str, maker: str) -> None:
    launch(directory, [DRIVER, str(directory.path), "--module", module, "--maker", maker, *["--now"] * now])


def _free(name: str, plan: Plan, workspace: Path) -> str:
    """``name``, numbered where a pipeline or one of its runs is called so already."""
    for number in range(1, 10_000):
        suffix = f"-{number}" if number > 1 else ""
        candidate = name + suffix
        runs = [workspace / "runs" / run_name(candidate, stage.name) for stage in plan.stages if stage.is_run]
        if not any(path.exists() for path in (workspace / "pipelines" / candidate, *runs)):
            return candidate
    raise RunError(f"pipeline {name!r}: there are thousands of that name; give another one")


def _workspace(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve()


def _is_pipeline(path: Path) -> bool:
    return (
        RUN_NAME.fullmatch(path.name) is not None
        and not path.is_symlink()
        and all(os.path.lexists(path / file) for file in ("status.json", "pipeline.yaml"))
    )


def _made(path: Path) -> int:
    try:
        return (path / "pipeline.yaml").stat().st_mtime_ns  # written once
    except OSError:
        return 0


def _count(file: Path) -> int | None:
    """Rows of a JSONL file that was written whole."""
    try:
        with opened(file) as stream:
            return sum(1 for _ in stream)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _read_stored(file: Path, name: str, written: int) -> Plan:
    plan = read_plan(read_yaml(read_text(file, str(file)), str(file)), name)
    return Plan(name, plan.about, plan.stages)
