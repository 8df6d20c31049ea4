"""How long a fresh process takes to import the package and to answer with the page, against ``import gradio``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial

from benchmarks import Measure, median_seconds
from workbench.errors import ChildDied

ANSWER_SECONDS = 120.0


def measure(repeat: int) -> list[Measure]:
    seconds = median_seconds(
        {
            "python": partial(_python, "pass"),
            "import workbench": partial(_python, "import workbench"),
            "import gradio": partial(_python, "import gradio"),
            "the page answers": _first_answer,
        },
        repeat,
    )
    return [
        Measure(name, round(took, 3), "s", round(took / seconds["import gradio"], 2), "import gradio")
        for name, took in seconds.items()
    ]


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def _first_answer() -> None:
    """From the start of ``python -m workbench app`` until its page has been received."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as workspace:
        page = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "workbench",
                "app",
                "--no-browser",
                "--no-token",
                "--port",
                str(port),
                "--workspace",
                workspace,
            ],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "GRADIO_ANALYTICS_ENABLED": "False"},
        )
        try:
            _wait_for(page, f"http://127.0.0.1:{port}/")
        finally:
            page.kill()
            page.wait()


def _wait_for(page: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=ANSWER_SECONDS).read()
            return
        except urllib.error.HTTPError:
            raise  # an answer, though not the page
        except (urllib.error.URLError, ConnectionError) as error:
            if page.poll() is not None:
                raise ChildDied(f"the page's process exited {page.returncode} before it answered") from error
            if time.monotonic() > deadline:
                raise ChildDied(f"the page gave no answer in {ANSWER_SECONDS:g} s: {error}") from error
            time.sleep(0.02)
