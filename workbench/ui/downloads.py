"""Where a run's files are downloaded from: ``/workbench-runs/<run>.zip``, ``.csv`` and ``.json``, behind the door.

``/workbench-runs/<run>/model.zip``, ``adapter.zip`` and ``script.zip`` are what ``python -m workbench export`` writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fastapi import FastAPI, HTTPException
from fastapi.responses import Response, StreamingResponse

from workbench.errors import WorkbenchError
from workbench.runs import open_run
from workbench.ui.handlers.runs import export_run, metrics_csv, run_json, write_folder, write_zip
from workbench.ui.handlers.session import Services

FOLDER = "workbench-runs"
_CHUNK = 256 * 1024


def add_downloads(app: FastAPI, services: Services) -> None:
    """Give ``app`` the routes. A run that is not there, or cannot be read, is answered with 404 and the reason."""

    @app.get(f"/{FOLDER}/{{name}}.zip")
    def whole(name: str) -> StreamingResponse:
        with _refusals():
            run = open_run(name, services.workspace)
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has been sent)
        write_zip(run, file)
        file.seek(0)
        return StreamingResponse(_sent(file), media_type="application/zip", headers=_as_file(f"{run.name}.zip"))

    @app.get(f"/{FOLDER}/{{name}}/{{kind}}.zip")
    def exported(name: str, kind: str) -> StreamingResponse:
        with _refusals(), tempfile.TemporaryDirectory(prefix="workbench-export-") as aside:
            folder = Path(aside) / f"{name}-{kind}"
            export_run(name, kind, folder, services.workspace)
            file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has been sent)
            write_folder(folder, file)
        file.seek(0)
        headers = _as_file(f"{name}-{kind}.zip")
        return StreamingResponse(_sent(file), media_type="application/zip", headers=headers)

    @app.get(f"/{FOLDER}/{{name}}.csv")
    def metrics(name: str) -> Response:
        with _refusals():
            text = metrics_csv(open_run(name, services.workspace))
        return Response(text, media_type="text/csv", headers=_as_file(f"{name}-metrics.csv"))

    @app.get(f"/{FOLDER}/{{name}}.json")
    def described(name: str) -> Response:
        with _refusals():
            data = run_json(open_run(name, services.workspace))
        return Response(data, media_type="application/json", headers=_as_file(f"{name}.json"))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except WorkbenchError as error:
        raise HTTPException(404, str(error)) from error


def _as_file(name: str) -> dict[str, str]:
    """``name`` is made of a run's name, so it needs no quoting."""
    return {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}


def _sent(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk
