"""A run as a file to keep: the whole of it as a ZIP, its metrics as CSV, metrics and settings as JSON.

Checkpoints are left out of the ZIP for their size. Nothing that is a link is followed, and secrets are taken out of the
log as they are where the page shows it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

from workbench.errors import redact
from workbench.files import encode
from workbench.rundir.metrics import restored
from workbench.runs import Run
from workbench.ui.handlers.csv_text import csv_text

KEPT_FILES = ("run.yaml", "status.json", "environment.json", "metrics.jsonl")
KEPT_FOLDERS = ("rewards", "rollouts", "answers")


def metrics_csv(run: Run) -> str:
    """All metrics rows, one column a metric in the order in which they appear; NaN and infinities as they were."""
    rows = [restored(row) for row in run.metrics_rows()[0]]
    headers = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(headers, ([row.get(name) for name in headers] for row in rows), newline="\n")


def run_json(run: Run) -> bytes:
    """Name, status, configuration and metrics rows as one JSON object; what is not finite is null."""
    data = run.data()
    del data["path"]  # of this machine
    return encode(data) + b"\n"


def write_zip(run: Run, file: IO[bytes]) -> None:
    """Configuration, status, environment, metrics, log, reward code and rollouts, in a folder of the run's name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _kept_files(run.path):
            archive.write(path, str(Path(run.name) / path.relative_to(run.path)))
        if _is_plain(run.dir.log):
            log = run.dir.log.read_text(encoding="utf-8", errors="replace")
            archive.writestr(f"{run.name}/log.txt", redact(log))


def write_folder(folder: Path, file: IO[bytes]) -> None:
    """A folder with all that is in it, as it is: weights hardly shrink."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if _is_plain(path):
                archive.write(path, str(path.relative_to(folder.parent)))


def _kept_files(folder: Path) -> list[Path]:
    inner = [
        path for name in KEPT_FOLDERS if not (folder / name).is_symlink() for path in sorted((folder / name).glob("*"))
    ]
    return [path for path in (*(folder / name for name in KEPT_FILES), *inner) if _is_plain(path)]


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")
