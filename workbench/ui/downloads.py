"""Downloads of a run's files: ``/workbench-runs/<run>.zip`` and ``.csv``, behind the door.

``/workbench-runs/<run>/model.zip``, ``adapter.zip`` and ``script.zip`` are what ``python -m workbench export`` writes.
"""

import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from workbench.errors import RunError, WorkbenchError, cut, redact
from workbench.places import RUN
from workbench.rundir.metrics import restore
from workbench.runs import Run, open_run
from workbench.sandbox.child import child_environment
from workbench.ui.handlers.session import Services
from workbench.views.export import csv_text

FOLDER = "workbench-runs"
_CHUNK = 256 * 1024


def add_downloads(app: FastAPI, services: Services) -> None:
    """Give ``app`` the routes. A run that is not there, or cannot be read, is answered with 404 and the reason."""

    @app.exception_handler(WorkbenchError)
    def refuse(request: Request, error: WorkbenchError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 404)

    @app.get(f"/{FOLDER}/{{name}}.zip")
    def whole(name: str) -> StreamingResponse:
        run = open_run(name, services.workspace)
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has been sent)
        write_zip(run, file)
        file.seek(0)
        return StreamingResponse(_sent(file), media_type="application/zip", headers=_as_file(f"{run.name}.zip"))

    @app.get(f"/{FOLDER}/{{name}}/{{kind}}.zip")
    def exported(name: str, kind: str) -> StreamingResponse:
        with tempfile.TemporaryDirectory(prefix="workbench-export-") as aside:
            folder = Path(aside) / f"{name}-{kind}"
            export_run(name, kind, folder, services.workspace)
            file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has been sent)
            write_folder(folder, file)
        file.seek(0)
        return StreamingResponse(_sent(file), media_type="application/zip", headers=_as_file(f"{name}-{kind}.zip"))

    @app.get(f"/{FOLDER}/{{name}}.csv")
    def metrics(name: str) -> Response:
        return Response(
            metrics_csv(open_run(name, services.workspace)),
            media_type="text/csv",
            headers=_as_file(f"{name}-metrics.csv"),
        )


def _as_file(name: str) -> dict[str, str]:
    """``name`` is made of a run's name, so it needs no quoting."""
    return {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}


def _sent(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk


# ── what is downloaded ───────────────────────────────────────────────────────────────────────────────────────────────

EXPORTS = {"model": "--merged", "adapter": "--adapter", "script": "--script"}
"""What a run is exported as, and the flag of ``python -m workbench export`` that does it."""
LONGEST_EXPORT = 1800
"""Seconds."""
_one_at_a_time = threading.Lock()


def export_run(name: str, kind: str, folder: Path, workspace: Path) -> None:
    """Write the model or adapter of a run's newest checkpoint, or its script, into ``folder``: ``workbench export``.

    In a process of its own, as the page's holds no model. Raises RunError with what that said.
    """
    run = open_run(name, workspace)
    if kind not in EXPORTS:
        raise RunError(f"{kind!r} is nothing that a run is exported as; take one of {', '.join(EXPORTS)}")
    command = [sys.executable, "-m", "workbench", "export", EXPORTS[kind], str(folder)]
    newest = next(iter(run.summary().policies), run.name).removeprefix(RUN)
    command += ["--workspace", str(workspace), "--", run.name if kind == "script" else newest]
    with _one_at_a_time:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_EXPORT,
                env={**child_environment(), "PYTHONSAFEPATH": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(
                f"exporting run {run.name!r} took longer than {LONGEST_EXPORT} s; use the command"
            ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RunError(
            cut(lines[-1].removeprefix("error: "), 500) if lines else f"the export ended with code {done.returncode}"
        )


KEPT_FILES = ("run.yaml", "status.json", "environment.json", "metrics.jsonl")
KEPT_FOLDERS = ("rewards", "rollouts", "answers")


def metrics_csv(run: Run) -> str:
    """All metrics rows, one column a metric in the order in which they appear; NaN and infinities as they were."""
    rows = [restore(row) for row in run.metrics_rows()[0]]
    headers = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(headers, ([row.get(name) for name in headers] for row in rows), newline="\n")


def write_zip(run: Run, file: IO[bytes]) -> None:
    """Configuration, status, environment, metrics, log, reward code and rollouts, in a folder of the run's name."""
    folders = [run.path / name for name in KEPT_FOLDERS if not (run.path / name).is_symlink()]
    inner = [path for folder in folders for path in sorted(folder.glob("*"))]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in filter(_is_plain, (*(run.path / name for name in KEPT_FILES), *inner)):
            archive.write(path, str(Path(run.name) / path.relative_to(run.path)))
        if _is_plain(run.dir.log):
            archive.writestr(f"{run.name}/log.txt", redact(run.dir.log.read_text(encoding="utf-8", errors="replace")))


def write_folder(folder: Path, file: IO[bytes]) -> None:
    """A folder with all that is in it, as it is: weights hardly shrink."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if _is_plain(path):
                archive.write(path, str(path.relative_to(folder.parent)))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")
