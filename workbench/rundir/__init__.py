"""A run's directory, written and read: the single source of truth about a run.

::

    <workspace>/runs/<run id>/
    ├── run.yaml         the whole configuration
    ├── rewards/         the reward code as it ran, settings of models, manifest.json with each file's SHA-256
    ├── environment.json versions, device and git state of what ran it
    ├── status.json      RunStatus, replaced atomically
    ├── about.json       what somebody says of it: a note and tags (``runs.run``)
    ├── metrics.jsonl    one JSON object a row, appended by one os.write each (``rundir.metrics``)
    ├── rollouts/        step-000012.parquet: that step's generation, advantages as the loss used them;
    │                    watched-000020.parquet: what the policy answers the watched prompts after that step, or
    │                    what the model makes of the watched rows
    ├── passes/          step-000012.parquet: what that optimiser step computed its loss from (``rundir.rollouts``)
    ├── answers/         step-000020.json: what the policy answered the held-out rows, at the first and newest measure
    ├── checkpoints/     checkpoint-20: what a run is resumed from, hashed (``rundir.checkpoints``)
    └── log.txt          what the run's processes printed

One process writes metrics and rollouts (the run's first rank); several may write the status, one at a time under a
lock. Readers take no lock. This module does not start, stop or watch processes (``runs`` does) and does not know what a
metric means (``training`` does).
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil
from pydantic import TypeAdapter

from workbench.config import RUN_NAME, SharedConfig
from workbench.errors import RunError, did_you_mean, redact
from workbench.files import encode, move_in, replace_file
from workbench.places import default_workspace, is_of_run
from workbench.rundir import checkpoints
from workbench.rundir import metrics as metrics_log
from workbench.rundir.checkpoints import write_rewards
from workbench.rundir.metrics import MetricsWriter

if TYPE_CHECKING:
    import pandas as pd

    from workbench.rundir.rollouts import Answers, Passes, Rollouts

_TAIL_BYTES = 64 * 1024
RESERVE = ".reserve"

RunState = Literal["queued", "starting", "running", "finished", "stopped", "failed", "crashed"]
FINAL_STATES: frozenset[RunState] = frozenset({"finished", "stopped", "failed", "crashed"})


@dataclass(frozen=True)
class RunStatus:
    """State and progress of a run. Times are unix seconds; ``step`` of ``total_steps`` is training's progress.

    ``pid`` and ``pid_created`` name the run's first process (a launcher when ``ranks`` > 1) in a way that survives a
    process id used again. Until that process exists they name the one that is starting it, and ``launched`` is false.
    ``tag`` is what that process shows in ``WORKBENCH_RUN`` if not the run's path: it was a standby process before.
    ``started`` is when the run got its device. ``stop_requested`` is when somebody asked the run to stop.

    ``behind`` names the run that a queued one waits for; ``now`` says that it is to wait no longer. ``resumed_from`` is
    the step of the checkpoint that the run last went on from, ``warnings`` what was met on the way that a reader should
    know, a checkpoint skipped say.
    """

    state: RunState
    reason: str = ""
    step: int = 0
    total_steps: int = 0
    created: float = 0.0
    started: float | None = None
    updated: float = 0.0
    pid: int | None = None
    pid_created: float | None = None
    launched: bool = False
    tag: str | None = None
    ranks: int = 1
    device: str = ""
    behind: str | None = None
    now: bool = False
    stop_requested: float | None = None
    resumed_from: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


_ADAPTER = TypeAdapter(RunStatus)


class RunDir:
    """The directory of one run. Holds no state but the open metrics log and the corrupt rows met while reading.

    ``corrupt`` maps the byte offset of each unreadable row of ``metrics.jsonl`` to what is wrong with it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.corrupt: dict[int, str] = {}
        self._metrics: MetricsWriter | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def rollouts(self) -> Rollouts:
        """The rollouts of its steps, and of the watched prompts or rows."""
        from workbench.rundir.rollouts import Rollouts

        return Rollouts(self.path / "rollouts", self.name)

    @property
    def answers(self) -> Answers:
        """Return what the policy answered the held-out rows."""
        from workbench.rundir.rollouts import Answers

        return Answers(self.path / "answers", self.name)

    @property
    def passes(self) -> Passes:
        """Return what every optimiser step over a stored generation computed its loss from."""
        from workbench.rundir.rollouts import Passes

        return Passes(self.path / "passes", self.name)

    def drop_rollouts(self, after: int) -> None:
        """Remove rollouts, passes and answers of later steps than ``after``, which a run resumed there makes again."""
        self.answers.drop(after)
        self.passes.drop(after)
        self.rollouts.drop(after)

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    # -- making and describing ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, workspace: Path | str, config: SharedConfig, reward_sources: Mapping[str, str] | None = None
    ) -> RunDir:
        """Make the directory of a new run in ``workspace``, status queued, complete or not at all.

        It is named ``config.name`` (with ``-2``, ``-3``, … where that is taken) or after the date.
        ``reward_sources`` gives the source of the rewards that ``config`` only names, the built-in ones.
        """
        parent = Path(workspace) / "runs"
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        now = time.time()
        status = RunStatus(
            "queued",
            total_steps=config.run.steps,
            ranks=config.run.ranks,
            created=now,
            updated=now,
            pid=os.getpid(),
            pid_created=psutil.Process().create_time(),
        )
        try:
            (draft / "run.yaml").write_text(config.to_yaml(), encoding="utf-8")
            write_rewards(draft / "rewards", config, reward_sources or {})
            (draft / "rollouts").mkdir()
            (draft / "checkpoints").mkdir()
            (draft / "metrics.jsonl").write_bytes(metrics_log.HEADER)
            (draft / "log.txt").touch()
            replace_file(draft / "status.json", encode(dataclasses.asdict(status)))
            _reserve(draft)
            return cls(move_in(draft, parent, config.name))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def config_text(self) -> str:
        """Return the stored configuration as YAML; ``RunConfig.from_yaml`` parses it."""
        try:
            text = (self.path / "run.yaml").read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise RunError(
                f"run {self.name!r} has no readable run.yaml ({error}); restore it, or delete the run ({self.path})"
            ) from error
        if not text.strip():
            raise RunError(f"run {self.name!r} has an empty run.yaml; restore it, or delete the run ({self.path})")
        return text

    # -- status ---------------------------------------------------------------------------------------------------

    def status(self) -> RunStatus:
        """Return the status as last written. ``runs.Run.status`` knows whether its process still lives."""
        try:
            return _ADAPTER.validate_json((self.path / "status.json").read_bytes())
        except (OSError, ValueError) as error:
            if not self.path.exists():
                raise RunError(f"there is no run at {self.path}") from error
            raise RunError(
                f"the status of run {self.name!r} cannot be read: {error}; restore its status.json, or delete the run "
                f"({self.path})"
            ) from error

    def set_status(self, state: RunState, reason: str = "", **more: Any) -> RunStatus:
        """Replace state and reason, and the other fields of RunStatus given; the rest stays. Atomic."""
        return self.note(state=state, reason=reason, **more)

    def note(self, **more: Any) -> RunStatus:
        """Replace the given fields of RunStatus and leave state and reason to whoever else writes them. Atomic."""
        with self._locked():
            return self._write_status(self.status(), **more)

    def settle(self, state: RunState, reason: str, *, certain: bool) -> RunStatus:
        """Write a final state for a run that did not write one itself, and return the one that stands.

        A final state already there stays, except that a certain cause (``certain``) replaces the guess of a crash.
        """
        with self._locked():
            status = self.status()
            if status.final and not (certain and status.state == "crashed"):
                return status
            return self._write_status(status, state=state, reason=reason)

    def _write_status(self, status: RunStatus, **changes: Any) -> RunStatus:
        status = dataclasses.replace(status, **{"updated": time.time(), **changes})
        status = dataclasses.replace(
            status, reason=redact(status.reason), warnings=tuple(redact(warning) for warning in status.warnings)
        )
        path, data, reserve = self.path / "status.json", encode(dataclasses.asdict(status)), self.path / RESERVE
        try:
            replace_file(path, data)
        except RunError:
            if not reserve.exists():
                raise
            reserve.unlink()  # so that a run that ends because the disk is full can say so
            replace_file(path, data)
        return status

    def begin_again(self) -> RunStatus:
        """Queue a run that is over once more, named as being started by this process.

        Raises RunError when it is not over, two who resume it at once included.
        """
        with self._locked():
            status = self.status()
            if not status.final:
                raise RunError(f"run {self.name!r} is {status.state}; only a run that is over can be resumed")
            _reserve(self.path)
            return self._write_status(
                status,
                state="queued",
                reason="",
                pid=os.getpid(),
                pid_created=psutil.Process().create_time(),
                launched=False,
                started=None,
                now=False,
                stop_requested=None,
            )

    @contextmanager
    def lock_finished(self) -> Iterator[RunStatus]:
        """Hold a run that is over, so that nobody resumes it in the block. Raises RunError when it is not over."""
        with self._locked():
            status = self.status()
            if not status.final:
                raise RunError(f"run {self.name!r} is {status.state}; stop it first")
            yield status

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self.path / ".status.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(f"the status of run {self.name!r} cannot be written: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    # -- metrics --------------------------------------------------------------------------------------------------

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one row: once this returns, no death of this process can lose it.

        NaN and infinities become null and are named in the row's ``not_finite``. Raises RunError when the row could
        not be written whole, as on a full disk.
        """
        if self._metrics is None:
            self._metrics = MetricsWriter(self.path / "metrics.jsonl", self.name)
        self._metrics.append(row)

    def sync_metrics(self) -> None:
        """Have every row appended so far on the disk before going on."""
        if self._metrics is not None:
            self._metrics.sync()

    def read_metrics(self, cursor: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the rows from byte ``cursor`` on, each step once, and the cursor to ask from next time.

        An unterminated last row is still being written and is left for the next call. A corrupt row is skipped and
        named in ``corrupt``. Rows that a resume superseded are left out.

        Raises RunError, asking to read again from 0, when the run was resumed since ``cursor``: some of the rows that
        the caller has may be superseded.
        """
        try:
            reading = metrics_log.read(self.path / "metrics.jsonl", self.name, cursor)
        except OSError as error:
            raise RunError(f"metrics of run {self.name!r} cannot be read: {error}") from error
        self.corrupt.update(reading.corrupt)
        if cursor and reading.resumed_from is not None:
            raise RunError(f"run {self.name!r} was resumed from step {reading.resumed_from} since; read again from 0")
        return reading.rows, reading.cursor

    def metrics(self) -> pd.DataFrame:
        """Return all rows as a table, NaN and infinities as they were; a metric that a row lacks is NaN there too."""
        import pandas as pd

        return pd.DataFrame([metrics_log.restore(row) for row in self.read_metrics()[0]])

    def warnings(self) -> list[str]:
        """Return what a reader should know: the status's warnings, and the corrupt rows met by this reader."""
        return [*self.status().warnings, *(f"skipped {what}" for what in self.corrupt.values())]

    def close(self) -> None:
        """Have all rows on the disk and close the log; the next append opens it again."""
        if self._metrics is not None:
            writer, self._metrics = self._metrics, None
            writer.close()

    # -- log ------------------------------------------------------------------------------------------------------

    def log_tail(self, lines: int = 50) -> list[str]:
        """Return the last lines of the log, without secrets; of a line redrawn with carriage returns, its last state.

        Empty without a log; of one that cannot be read, a line that says why.
        """
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            return [f"log.txt cannot be read: {error.strerror or error}"]
        rows = [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
        return redact("\n".join(rows[-lines:])).split("\n") if text else []


# -- runs and their checkpoints by name: <workspace>/runs/NAME, run:NAME and run:NAME@STEP ----------------------------


REFERENCE = re.compile(r"run:([^@]+)(?:@(\d+))?")
"""A run's name and, if there is one, the step of a checkpoint."""
_OF_A_RUN = ("status.json", "run.yaml", "metrics.jsonl", "checkpoints")
"""A folder that has one of these is a run's, if a damaged one: it is listed, and says what it has lost."""


def list_dirs(workspace: Path | str | None = None) -> list[RunDir]:
    """Return the runs' directories of a workspace (the default one unless told), the newest first."""
    folder = _runs_folder(workspace)
    paths = [path for path in folder.iterdir() if _is_run(path)] if folder.is_dir() else []
    return [RunDir(path) for path in sorted(paths, key=_creation_time, reverse=True)]


def find_dir(name: str, workspace: Path | str | None = None) -> RunDir:
    """Return the directory of the run called ``name``. Raises RunError if there is none, and for no name of a run."""
    folder = _runs_folder(workspace)
    if not RUN_NAME.fullmatch(name):
        raise RunError(f"{name[:80]!r} cannot be a run's name: {RUN_NAME.pattern} is the pattern of one")
    if not _is_run(folder / name):
        names = [run.name for run in list_dirs(workspace)]
        there = f"the newest there are {', '.join(names[:5])}" if names else "it has no runs yet"
        close = did_you_mean(name, names)
        raise RunError(f"there is no run {name!r} in the workspace {folder.parent}; {there}{close}")
    return RunDir(folder / name)


def find_checkpoint(reference: str, workspace: Path | str | None = None) -> Path:
    """Return the folder of the checkpoint that ``reference`` names: a step's, or the run's last. Raises RunError."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise RunError(f"{reference[:80]!r} is no checkpoint of a run; write run:NAME, or run:NAME@STEP")
    run = find_dir(match[1], workspace)
    folder = run.checkpoints / ("final" if match[2] is None else f"checkpoint-{int(match[2])}")
    if not folder.is_dir():
        steps = sorted(checkpoint.step for checkpoint in checkpoints.saved(run.checkpoints))
        raise RunError(
            f"{reference}: run {run.name!r} ({run.status().state}) has no {folder.name}; it has those of steps "
            f"{', '.join(map(str, steps)) or 'none'}: name one as run:{run.name}@STEP, or let it train to its end"
        )
    if (problem := checkpoints.problem(folder)) is not None:
        raise RunError(f"{reference}: {folder.name} cannot be used: {problem}; name another checkpoint of the run")
    return folder


def checkpoint_or(name: str) -> str:
    """The folder of a run's checkpoint where ``name`` stands for one of the default workspace; any other name as it is.

    Raises RunError for a run or checkpoint that is not there.
    """
    return str(find_checkpoint(name)) if is_of_run(name) else name


def _runs_folder(workspace: Path | str | None) -> Path:
    return (default_workspace() if workspace is None else Path(workspace)).resolve() / "runs"


def _creation_time(path: Path) -> int:
    try:
        return (path / "run.yaml").stat().st_mtime_ns  # written once
    except OSError:
        return 0  # deleted since it was listed


def _is_run(path: Path) -> bool:
    return RUN_NAME.fullmatch(path.name) is not None and any(os.path.lexists(path / file) for file in _OF_A_RUN)


def _reserve(folder: Path) -> None:
    """Reserve disk space for the final status of a run whose disk gets full."""
    with suppress(OSError):  # on a disk as full as that the run says so at its first row
        (folder / RESERVE).write_bytes(bytes(64 * 1024))
