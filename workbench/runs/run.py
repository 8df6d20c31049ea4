"""A run: opened by name, followed through its directory, stopped through its processes.

Nothing is remembered here that is not in the directory, so that every opener, in any process, sees the same thing.

A note and tags lie in the run's directory (``about.json``). A run that is over may be renamed: its directory moves, and
what names it as ``run:NAME`` has to follow by hand. A deleted run moves to ``<workspace>/trash`` and, on request, home
again::

    <workspace>/trash/<run id>@1763730000123456789/

Nothing is erased here. A run that is not over is neither moved nor, while it moves, resumed.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psutil

from workbench.config import RUN_NAME, run_name_of
from workbench.errors import RunError, WorkbenchError
from workbench.files import encode, read_json, replace_file
from workbench.models.find import is_adapter
from workbench.places import RUN, default_workspace
from workbench.rundir import RunDir, RunStatus, find_dir, list_dirs
from workbench.rundir.checkpoints import MANIFEST, find_edits, nothing_usable, saved
from workbench.runs.processes import (
    TRAINING,
    join,
    kill_all,
    lives,
    members,
    parent_of,
    refuse_under_a_launcher,
    settle,
    spawn,
    wait_gone,
)
from workbench.schema import Credit, LossPass, WatchedRow
from workbench.training.methods import METHODS, Method, RunConfig

if TYPE_CHECKING:
    import pandas as pd

_POLL = 0.1
_FORCE_SECONDS = 2.0  # of a stop's time, kept for ending by force what did not end when asked


@dataclass(frozen=True)
class Run:
    """One run, named by its directory."""

    path: Path

    @cached_property
    def dir(self) -> RunDir:
        return RunDir(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def log_tail(self, lines: int = 50) -> list[str]:
        return self.dir.log_tail(lines)

    def config(self) -> RunConfig:
        """Return the configuration in ``run.yaml``."""
        return self._config().model_copy(deep=True)

    def _config(self) -> RunConfig:
        """Return the same, parsed once as long as the file stays, and shared: to be read only."""
        try:
            stat = (self.path / "run.yaml").stat()
            written = stat.st_mtime_ns, stat.st_size
        except OSError:
            written = 0, 0
        return _parsed_config(self.path, written)

    def summary(self) -> RunSummary:
        """Return the run as a row of a list. Never raises: an unreadable run has the reason."""
        try:
            return self.summary_of(self.status(), self._config())
        except WorkbenchError as error:
            return RunSummary(self.name, "unreadable", str(error))

    def summary_of(self, status: RunStatus, config: RunConfig) -> RunSummary:
        """The same of a status and a configuration that were read already."""
        gives: Literal["policy", "reward model"] = "policy" if config.method.reward_format is None else "reward model"
        policies: dict[str, Path] = {}  # those that were written to their end; whether they are whole is not looked at
        if status.final and gives == "policy":
            named = {f"{RUN}{self.name}@{point.step}": point.path for point in saved(self.dir.checkpoints)}
            policies = {f"{RUN}{self.name}": self.dir.checkpoints / "final", **named}
            policies = {name: folder for name, folder in policies.items() if (folder / MANIFEST).is_file()}
        return RunSummary(
            self.name,
            status.state,
            status.reason,
            final=status.final,
            resumable=status.final and status.state != "finished" and bool(saved(self.dir.checkpoints)),
            stopping=status.stop_requested is not None and not status.final,
            behind=status.behind,
            step=status.step,
            total_steps=status.total_steps,
            created=status.created,
            started=status.started,
            updated=status.updated,
            task=config.task.name,
            policy=config.policy.path,
            method=config.method.name,
            scheme=config.method.label,
            seed=config.seed,
            gives=gives if status.state == "finished" else None,
            policies=tuple(policies),
            adapter=any(is_adapter(folder) for folder in [*policies.values()][:1]),
        )

    def data(self) -> dict[str, Any]:
        """Name, path, status, configuration and metrics rows as plain data; what is not finite is None.

        Raises WorkbenchError for a run that cannot be read.
        """
        return {
            "name": self.name,
            "path": str(self.path),
            "status": asdict(self.status()),
            "config": self.config().model_dump(mode="json"),
            "metrics": self.metrics_rows()[0],
        }

    def status(self) -> RunStatus:
        """Current status of the run.

        A run whose process is gone without a final status has crashed: what it left behind is ended, and the status,
        with the reason as far as it can be known, is written once for everybody.
        """
        status = self.dir.status()
        if status.final or lives(status, self.path):
            return status
        if not status.launched and members(self.path):
            return status  # its starter died before it could note the process that it had started
        if join(self.path, status.pid):
            return self.dir.status()
        kill_all(self.path, unless=lambda: self.dir.status().pid != status.pid)
        return settle(self.dir, None, status.pid)

    def wait(self, timeout: float | None = None) -> RunStatus:
        """Block until the run is over and its process gone, at most ``timeout`` seconds; return the status by then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if status.final and not lives(status, self.path):
                join(self.path, status.pid)
                return self.dir.status()
            left = _POLL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return status
            time.sleep(min(_POLL, left))

    def follow(self, report: Callable[[str], None] = lambda reason: None) -> Iterator[dict[str, Any]]:
        """Yield the metrics rows from the first on, each as soon as it is written, until the run is over.

        ``report`` is told, while there are none yet, why: what a queued run waits for, what a starting one loads.
        """
        said = ""
        for news in MetricsReader(self.dir).follow(lambda: self.wait(_POLL), lambda: None):
            if news.status.reason != said and not news.status.final:
                said = news.status.reason
                report(f"{self.name}: {news.status.state}, {said}".rstrip(", "))
            rows = news.rows
            if news.restarted:  # what was yielded of later steps is superseded, and yielded again
                since = self.dir.status().resumed_from or 0
                rows = [row for row in rows if row.get("step", 0) > since]
            yield from rows

    @property
    def method(self) -> Method:
        """The run's method; the default one for a run whose configuration cannot be read."""
        try:
            return METHODS[self.config().method.name]
        except WorkbenchError:
            return next(iter(METHODS.values()))

    def stop(self, timeout: float = 10.0) -> RunStatus:
        """Ask the run to stop, end by force what has not ended in time, and return its final status.

        When this returns no process of the run is left, its ranks and workers included, after at most about ``timeout``
        seconds. SIGTERM goes to the run's first process alone, so that it can end the current step with its workers
        alive; a launcher passes it on to its ranks. A final status that the run itself wrote stands.

        Raises RunError if the run is over already.
        """
        status = self.status()
        if status.final:
            raise RunError(
                f"run {self.name!r} is already {status.state}" + (f" ({status.reason})" * bool(status.reason))
            )
        self.dir.note(stop_requested=time.time())
        deadline = time.monotonic() + max(timeout - _FORCE_SECONDS, timeout / 2)
        processes = members(self.path)
        signalled = [process for process in processes if parent_of(process) not in processes]
        for process in signalled:
            with suppress(psutil.NoSuchProcess):  # it ended on its own, which is what was wanted
                process.terminate()
        while not (ended := wait_gone(signalled, _POLL)) and time.monotonic() < deadline:
            processes = members(self.path, processes)
        kill_all(self.path, processes)
        pid = self.dir.status().pid
        join(self.path, pid)
        return settle(self.dir, None if ended else -signal.SIGKILL, pid)

    @contextmanager
    def stop_on_error(self) -> Iterator[Self]:
        """Stop the run if the block is left by an exception, Ctrl+C included."""
        try:
            yield self
        except BaseException:
            if not self.status().final:
                self.stop()
            raise

    def start_now(self) -> RunStatus:
        """Have a run that waits for its device start beside the run that has it. Raises RunError for any other run."""
        status = self.status()
        if status.state != "queued" or status.started is not None:
            raise RunError(f"run {self.name!r} is {status.state} and waits for no device; there is nothing to start")
        return self.dir.note(now=True)

    @property
    def resumable(self) -> bool:
        """Return whether ``resume`` can go on: the run is over before its last step and saved a checkpoint.

        Whether a checkpoint is as it was saved is found out when it is resumed.
        """
        status = self.status()
        return status.final and status.state != "finished" and bool(saved(self.dir.checkpoints))

    def resume(self, *, now: bool = False, module: str = TRAINING) -> Run:
        """Go on from the newest valid checkpoint, in a process of its own as ``start`` does, and return at once.

        ``now``: without waiting for a device that another run has.

        The run keeps its directory and its log; rows and rollouts of later steps than the checkpoint's are superseded.
        A damaged checkpoint is skipped and named in the status's ``warnings``.

        Raises RunError if the run is not over, is finished, or has saved no checkpoint, and if a field of its
        configuration was edited that its curve depends on.
        """
        status = self.status()
        if not status.final:
            raise RunError(f"run {self.name!r} is {status.state}; it goes on by itself, so there is nothing to resume")
        if status.state == "finished":
            raise RunError(
                f"run {self.name!r} is finished ({status.reason}); to train anew: train --from {self.name}, with more "
                "--run.steps if it should go further"
            )
        if not saved(self.dir.checkpoints):
            every = self.config().run.save_steps
            raise nothing_usable(self.name, [], save_steps=every, step=status.step or 0)
        if changed := find_edits(self.path, self.config()):
            raise RunError(
                f"run {self.name!r}: {', '.join(changed)} was edited, and a resumed run goes on as it began; put it "
                f"back in run.yaml, or start a new run from its policy: train --from {self.name} --policy.path "
                f"{RUN}{self.name}"
            )
        refuse_under_a_launcher()
        join(self.path, status.pid)
        kill_all(self.path, unless=lambda: self.dir.status() != status)
        self.dir.begin_again()
        spawn(self.dir, module, resume=True, now=now)
        return self

    def metrics(self) -> pd.DataFrame:
        """Return all metrics logged so far, one row a logged step."""
        return self.dir.metrics()

    def metrics_rows(self, cursor: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the rows from byte ``cursor`` on, and the cursor to ask from next time."""
        return self.dir.read_metrics(cursor)

    def rollouts(self, step: int, *, watched: bool = False) -> list[Credit]:
        """Return the groups of one training step with the advantages the loss used.

        ``watched`` gives instead what the policy answered the watched prompts after that step.
        """
        return self.dir.rollouts.read(step, watched=watched)

    def passes(self, step: int) -> list[LossPass]:
        """Return what each optimiser step over the generation of ``step`` computed its loss from (``pass_losses``)."""
        return self.dir.passes.of_generation(step)

    def watched_rows(self, step: int | None = None) -> list[WatchedRow]:
        """The watched rows of a method on stored rows, as the model saw them after ``step`` (by default the last one).

        Each has ``before``: as the model saw it at first. ``rollout_steps(watched=True)`` are the steps there are.
        """
        steps = self.rollout_steps(watched=True)
        step = (steps[-1] if steps else 0) if step is None else step
        rows = self.dir.rollouts.read_rows(step)
        if step == steps[0]:
            return rows
        first = self.dir.rollouts.read_rows(steps[0])
        return [replace(row, before=before) for row, before in zip(rows, first, strict=True)]

    def rollout_steps(self, *, watched: bool = False) -> list[int]:
        """Return the training steps whose rollouts, or watched rollouts, are stored, ascending."""
        return self.dir.rollouts.steps(watched=watched)

    def rollouts_frame(self, step: int) -> pd.DataFrame:
        """Return the steps of one training step's rollouts as a table, one row a step of a completion.

        Columns: ``group``, ``rollout`` and ``k`` (from 0), ``text``, a column for each step reward's score, ``reward``,
        ``normalised``, ``advantage`` (of the step's last token), ``outcome`` and ``finished`` (of the completion).
        """
        import pandas as pd

        columns = ("text", "reward", "normalised", "advantage")
        taken = {"group", "rollout", "k", *columns, "outcome", "finished"}
        rows = [
            {"group": g, "rollout": i, "k": k, "text": row["text"]}
            | {f"score of {name}" if name in taken else name: value for name, value in row["scores"].items()}
            | {name: row[name] for name in columns}
            | {"outcome": credit.scored.scored[i].outcome, "finished": not rollout.truncated}
            for g, credit in enumerate(self.rollouts(step))
            for i, rollout in enumerate(credit.scored.group.rollouts)
            for k, row in enumerate(credit.rows(i))
        ]
        return pd.DataFrame(rows)


def list_runs(workspace: Path | str | None = None) -> list[Run]:
    """Return the runs of a workspace, the newest first; none if there is no such folder."""
    return [Run(run.path) for run in list_dirs(workspace)]


def open_run(name: str, workspace: Path | str | None = None) -> Run:
    """Return the run called ``name``, in the default workspace unless told another.

    Raises RunError if the name could not be a run's, and if the workspace has no such run.
    """
    return Run(find_dir(name, workspace).path)


@lru_cache(maxsize=1024)
def _parsed_config(path: Path, written: tuple[int, int]) -> RunConfig:
    return RunConfig.from_yaml(RunDir(path).config_text())


@dataclass(frozen=True)
class RunSummary:
    """A run's status and the settings that tell it from others; ``state`` is "unreadable", and ``reason`` says why,
    where they cannot be read. Times are unix seconds."""

    name: str
    state: str
    reason: str
    final: bool = True
    resumable: bool = False
    stopping: bool = False
    """Somebody asked it to stop, and it has not ended yet."""
    behind: str | None = None
    step: int | None = None
    total_steps: int | None = None
    created: float | None = None
    started: float | None = None
    updated: float | None = None
    task: str | None = None
    policy: str | None = None
    method: str | None = None
    scheme: str | None = None
    seed: int | None = None
    gives: Literal["policy", "reward model"] | None = None
    """What its last checkpoint is, which run:NAME names; None for a run that has not finished."""
    policies: tuple[str, ...] = ()
    """What names its policy's checkpoints in the place of a policy, the newest first: run:NAME of a finished run, and
    run:NAME@STEP."""
    adapter: bool = False
    """Whether the newest of them is an adapter alone."""

    @property
    def readable(self) -> bool:
        return self.state != "unreadable"

    def row(self, *columns: str) -> dict[str, Any]:
        """These fields by name, None where unknown."""
        return {name: getattr(self, name) for name in columns}


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class News:
    """One reading of a run: its status, the rows since the look before, and whether they replace all earlier ones."""

    status: RunStatus
    rows: Rows
    restarted: bool


@dataclass
class MetricsReader:
    """One reader's place in a metrics log. ``cursor`` is the byte from which it reads on."""

    run: RunDir
    cursor: int = 0

    def read(self) -> tuple[Rows, bool]:
        """The rows written since, and whether they are all rows anew: the log was resumed or replaced since the last
        look, so that what was read before is superseded. Raises RunError for a log that cannot be read."""
        try:
            rows, self.cursor = self.run.read_metrics(self.cursor)
        except RunError:
            if not self.cursor:
                raise
            rows, self.cursor = self.run.read_metrics()
            return rows, True
        return rows, False

    def follow(self, status: Callable[[], RunStatus], pause: Callable[[], object]) -> Iterator[News]:
        """Look at the run until it is over, or ``pause``, called between two looks, returns something true."""
        while True:
            now = status()  # asked before reading: no row follows a final status
            yield News(now, *self.read())
            if now.final or pause():
                return


# -- notes, names and the trash ----------------------------------------------------------------------------------------


FILE = "about.json"


@dataclass(frozen=True)
class About:
    """A note and tags."""

    note: str = ""
    tags: tuple[str, ...] = ()


def about(run: Run) -> About:
    """Read what is said of a run; nothing if its file is missing or damaged."""
    try:
        values = read_json(run.path / FILE)
        return About(values["note"], tuple(values["tags"]))
    except (OSError, ValueError, KeyError, TypeError):
        return About()


def describe(name: str, note: str, tags: list[str], workspace: Path | str | None = None) -> About:
    """Say something of a run, whatever its state."""
    run = open_run(name, workspace)
    cleaned = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
    said = About(note.strip(), cleaned)
    replace_file(run.path / FILE, encode(asdict(said)))
    return said


def rename(name: str, new: str, workspace: Path | str | None = None) -> Run:
    """Give a run that is over another name. Raises RunError where it cannot have it."""
    run, new = open_run(name, workspace), run_name_of(new)
    if not RUN_NAME.fullmatch(new):
        raise RunError(f"{new[:80]!r} cannot be a run's name: letters, digits, '.', '_' and '-', at most 80")
    path = run.path.with_name(new)
    _move_finished(run, path)
    return Run(path)


_ENTRY = re.compile(r"(.+)@(\d{19})")


@dataclass(frozen=True)
class Trashed:
    """A deleted run: ``entry`` is what ``restore`` takes, ``deleted`` unix seconds."""

    entry: str
    name: str
    deleted: float


def discard(name: str, workspace: Path | str | None = None) -> Trashed:
    """Move the run's folder to the trash.

    Raises RunError for a run that is not there or not over, and where the folder cannot be moved.
    """
    run = open_run(name, workspace)
    entry = f"{name}@{time.time_ns():019d}"
    run.status()  # settles one that has crashed
    home = _trash(workspace)
    home.mkdir(parents=True, exist_ok=True)
    _move_finished(run, home / entry)
    return Trashed(entry, name, time.time())


def restore(entry: str, workspace: Path | str | None = None) -> Run:
    """Take a deleted run back. Raises RunError if it is not in the trash, or if its name is another run's by now."""
    deleted = next((candidate for candidate in trashed(workspace) if candidate.entry == entry), None)
    if deleted is None:
        raise RunError(f"{entry[:80]!r} is nothing in the trash; it may have been taken back already")
    home = _trash(workspace) / entry
    try:  # refused by the system if there is a run of that name
        home.rename(home.parents[1] / "runs" / deleted.name)
    except OSError as error:
        raise RunError(
            f"run {deleted.name!r} cannot be taken back: {error}; delete the run of that name, if there is one"
        ) from error
    return open_run(deleted.name, workspace)


def trashed(workspace: Path | str | None = None) -> list[Trashed]:
    """List the trash, the last deleted first."""
    found = [match for path in _trash(workspace).glob("*@*") if (match := _ENTRY.fullmatch(path.name))]
    entries = [Trashed(match[0], match[1], int(match[2]) / 1e9) for match in found]
    return sorted(entries, key=lambda entry: -entry.deleted)


def _move_finished(run: Run, path: Path) -> None:
    """Move the folder of a run that is over. Raises RunError where it cannot be moved."""
    try:
        with RunDir(run.path).lock_finished():
            if members(run.path):
                raise RunError(f"the processes of run {run.name!r} are still ending; try again in a moment")
            if os.path.lexists(path):
                raise RunError(f"there is a run {path.name!r} already; choose another name")
            run.path.rename(path)
    except OSError as error:
        raise RunError(f"run {run.name!r} cannot be moved to {path.parent}: {error}") from error


def _trash(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve() / "trash"
