"""A run's directory, written and read: the one truth about a run, whoever asks and whenever.

::

    <workspace>/runs/<run id>/
    ├── run.yaml         the whole configuration
    ├── rewards/         the reward code as it ran, settings of models, manifest.json with each file's SHA-256
    ├── status.json      RunStatus, replaced atomically
    ├── metrics.jsonl    one JSON object a row, appended by one os.write each
    ├── rollouts/        step-000012.parquet: that step's generation, advantages as the loss used them
    ├── checkpoints/
    └── log.txt          what the run's processes printed

One process writes metrics and rollouts (the run's first rank); several may write the status, one at a time under a
lock. Readers take no lock. This module does not start, stop or watch processes (``runs`` does) and does not know what a
metric means (``training`` does).
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import psutil

from workbench.config import RUN_NAME, RewardConfig, RunConfig
from workbench.errors import RunError
from workbench.redact import redact, redact_known
from workbench.rundir.files import decode, encode, replace_file, sync
from workbench.schema import Credit

if TYPE_CHECKING:
    import pandas as pd

RunState = Literal["queued", "starting", "running", "finished", "stopped", "failed", "crashed"]
FINAL_STATES: frozenset[RunState] = frozenset({"finished", "stopped", "failed", "crashed"})

_ROLLOUTS_FILE = re.compile(r"step-(\d{6,})\.parquet")
_TAIL_BYTES = 64 * 1024
_HASHED_BYTES = 2**30  # a start is not to wait for more


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands. Times are unix seconds; ``step`` of ``total_steps`` is training's progress.

    ``pid`` and ``pid_created`` name the run's first process (a launcher when ``ranks`` > 1) in a way that survives a
    process id used again; until that process exists they name the one that is starting it. ``stop_requested`` is when
    somebody asked the run to stop.
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
    ranks: int = 1
    device: str = ""
    stop_requested: float | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


class RunDir:
    """The directory of one run. Holds no state but the open metrics file and the corrupt rows met while reading.

    ``corrupt`` maps the byte offset of each unreadable row of ``metrics.jsonl`` to what is wrong with it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.corrupt: dict[int, str] = {}
        self._metrics_fd: int | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    # -- making and describing ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, workspace: Path | str, config: RunConfig, reward_sources: Mapping[str, str] | None = None
    ) -> RunDir:
        """Make the directory of a new run in ``workspace``, status queued, complete or not at all.

        It is named ``config.name`` (with ``-2``, ``-3``, … where that is taken) or after the date.
        ``reward_sources`` gives the source of the rewards that ``config`` only names, the built-in ones.
        """
        runs = Path(workspace) / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=runs))
        try:
            (draft / "run.yaml").write_text(config.to_yaml(), encoding="utf-8")
            _write_reward_code(draft / "rewards", config, reward_sources or {})
            (draft / "rollouts").mkdir()
            (draft / "checkpoints").mkdir()
            (draft / "metrics.jsonl").touch()
            (draft / "log.txt").touch()
            now = time.time()
            status = RunStatus(
                "queued",
                total_steps=config.training.steps,
                ranks=config.training.ranks,
                created=now,
                updated=now,
                pid=os.getpid(),
                pid_created=psutil.Process().create_time(),
            )
            replace_file(draft / "status.json", encode(dataclasses.asdict(status)))
            return cls(_move_in(draft, runs, config.name))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def config(self) -> RunConfig:
        try:
            return RunConfig.load(self.path / "run.yaml")
        except OSError as error:
            raise RunError(f"run {self.name!r} has no readable run.yaml: {error}") from error

    # -- status ---------------------------------------------------------------------------------------------------

    def status(self) -> RunStatus:
        """As last written. Whether the process named there still lives is ``runs.Run.status``'s question."""
        path = self.path / "status.json"
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise RunError(f"there is no run at {self.path}: it has no status.json") from error
        except (OSError, ValueError) as error:
            raise RunError(f"the status of run {self.name!r} cannot be read ({path}): {error}") from error
        if not isinstance(data, dict) or data.get("state") not in get_args(RunState):
            raise RunError(f"the status of run {self.name!r} cannot be read ({path}): it names no known state")
        known = {field.name for field in dataclasses.fields(RunStatus)}
        return RunStatus(**{name: value for name, value in data.items() if name in known})

    def set_status(self, state: RunState, reason: str = "", **more: Any) -> RunStatus:
        """Replace state and reason, and the other fields of RunStatus given; the rest stays. Atomic."""
        with self._locked():
            return self._write_status(self.status(), state=state, reason=reason, **more)

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
        status = dataclasses.replace(status, reason=redact(status.reason))
        replace_file(self.path / "status.json", encode(dataclasses.asdict(status)))
        return status

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
        """Append one row: once this returns, no death of this process can lose it. NaN and infinities become null.

        Raises RunError when the row could not be written whole, as on a full disk.
        """
        line = encode(row) + b"\n"
        if self._metrics_fd is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._metrics_fd = os.open(self.path / "metrics.jsonl", flags, 0o644)
            size = os.fstat(self._metrics_fd).st_size
            if size and os.pread(self._metrics_fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # close the row that an earlier writer left torn, or it would take this one along
        try:
            written = os.write(self._metrics_fd, line)
        except OSError as error:
            raise RunError(f"metrics of run {self.name!r} cannot be written at {_where(row)}: {error}") from error
        if written != len(line):
            self.close()
            raise RunError(
                f"metrics of run {self.name!r}: {written} of {len(line)} bytes written at {_where(row)}; "
                "is the disk full? Free some space and start again"
            )

    def read_metrics(self, cursor: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The rows from byte ``cursor`` on, and the cursor to ask from next time.

        An unterminated last row is still being written and is left for the next call. A corrupt row is skipped and
        named in ``corrupt``.
        """
        try:
            with open(self.path / "metrics.jsonl", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if cursor and (not 0 < cursor <= size or os.pread(file.fileno(), 1, cursor - 1) != b"\n"):
                    raise RunError(
                        f"run {self.name!r}: no row of metrics.jsonl ({size} bytes) begins at byte {cursor}; "
                        "read again from 0"
                    )
                file.seek(cursor)
                block = file.read(size - cursor)
        except OSError as error:
            raise RunError(f"metrics of run {self.name!r} cannot be read: {error}") from error
        rows: list[dict[str, Any]] = []
        for line in io.BytesIO(block[: block.rfind(b"\n") + 1]):
            try:
                rows.append(decode(line))
            except ValueError as error:
                self.corrupt[cursor] = f"metrics.jsonl, byte {cursor}: {error}"
            cursor += len(line)
        return rows, cursor

    def metrics(self) -> pd.DataFrame:
        """All rows as a table; a metric that a row lacks is NaN there."""
        import pandas as pd

        return pd.DataFrame(self.read_metrics()[0])

    def close(self) -> None:
        """Close the metrics file; the next append opens it again."""
        if self._metrics_fd is not None:
            os.close(self._metrics_fd)
            self._metrics_fd = None

    # -- rollouts -------------------------------------------------------------------------------------------------

    def write_rollouts(self, step: int, credits: Sequence[Credit]) -> None:
        """Store the groups of one generation; ``read_rollouts`` gives them back equal, floats bit for bit.

        What cannot come back as it was, lone surrogates and tuples in columns, is described in ``rundir.rollouts``.
        """
        from workbench.rundir import rollouts

        path = self._rollouts_path(step)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}.tmp")
        try:
            rollouts.write(draft, credits)
            sync(draft)
            os.replace(draft, path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise RunError(f"rollouts of run {self.name!r} cannot be written at step {step}: {error}") from error

    def rollout_steps(self) -> list[int]:
        """The training steps whose rollouts are stored, ascending."""
        folder = self.path / "rollouts"
        names = (_ROLLOUTS_FILE.fullmatch(name) for name in (os.listdir(folder) if folder.is_dir() else ()))
        return sorted(int(match[1]) for match in names if match)

    def read_rollouts(self, step: int) -> list[Credit]:
        """The groups stored for one training step, in the order they were written."""
        from workbench.rundir import rollouts

        path = self._rollouts_path(step)
        if not path.is_file():
            steps = self.rollout_steps()
            stored = f"stored are {len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "none are stored yet"
            raise RunError(f"run {self.name!r} has no rollouts of step {step}; {stored}")
        try:
            return rollouts.read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"rollouts of run {self.name!r} at step {step} cannot be read ({path}): {error}") from error

    def _rollouts_path(self, step: int) -> Path:
        return self.path / "rollouts" / f"step-{step:06d}.parquet"

    # -- log ------------------------------------------------------------------------------------------------------

    def log_tail(self, lines: int = 50) -> list[str]:
        """The last lines of the log, without secrets; of a line redrawn with carriage returns, its last state."""
        try:
            with self.log.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        found = [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
        if size > _TAIL_BYTES:
            found = found[1:]  # the first one is cut
        return redact("\n".join(found[-lines:])).split("\n") if text else []


def _move_in(draft: Path, runs: Path, name: str | None) -> Path:
    """Give the finished draft its name; a name taken gets the next free number."""
    number = 1
    while True:
        if name is None:
            path = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        else:
            suffix = f"-{number}" if number > 1 else ""
            path = runs / f"{name[: 80 - len(suffix)]}{suffix}"
        number += 1
        if os.path.lexists(path):
            continue
        try:
            draft.rename(path)  # refused by the system if a run of that name has appeared meanwhile
        except OSError:
            if not path.exists():
                raise
            continue
        return path


def _write_reward_code(folder: Path, config: RunConfig, sources: Mapping[str, str]) -> None:
    """A function's code; of a reward model or Monte-Carlo values, the settings, and for a folder its files' hashes."""
    folder.mkdir()
    manifest = []
    for number, reward in enumerate(config.rewards):
        stem = reward.name if RUN_NAME.fullmatch(reward.name) else f"reward-{number}"
        given = reward.model or reward.monte_carlo
        if given is not None:
            file, text = f"{stem}.json", json.dumps(_described(reward), indent=2, ensure_ascii=False) + "\n"
        else:
            code = reward.code if reward.code is not None else sources.get(reward.name)
            if code is None:
                continue
            file, text = f"{stem}.py", redact_known(code)
        data = text.encode("utf-8", "replace")
        (folder / file).write_bytes(data)
        manifest.append({"name": reward.name, "file": file, "sha256": hashlib.sha256(data).hexdigest()})
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _described(reward: RewardConfig) -> dict[str, Any]:
    """The settings, and of a reward model in a folder its files' sizes and, up to _HASHED_BYTES, their SHA-256."""
    settings = reward.model_dump(exclude_none=True, exclude={"options"})
    if reward.model is None:
        return settings
    folder = Path(reward.model.path).expanduser()
    files = sorted(path for path in folder.glob("*") if path.suffix in (".json", ".safetensors") and path.is_file())
    return settings | {"files": {path.name: _identity(path) for path in files}}


def _identity(path: Path) -> dict[str, Any]:
    """Empty for a file that cannot be read; whoever loads it says so."""
    try:
        size = path.stat().st_size
        if size > _HASHED_BYTES:
            return {"bytes": size}
        with path.open("rb") as file:
            return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError:
        return {}


def _where(row: Mapping[str, Any]) -> str:
    return f"step {row['step']}" if "step" in row else "the last row"
