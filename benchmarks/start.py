"""From Start to the first step of a run, warm and as a program of its own, against an import of TRL and one step.

A run's process imports torch, transformers and TRL before it can do anything. It is warm where another process has done
so and forks it. The step is the run's own first one, as its metrics say.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import workbench as wb
from benchmarks import Measure
from workbench.config import RunConfig
from workbench.errors import RunError
from workbench.runs.warm import is_warm, warm_up

RUN = {"steps": 1, "eval_every": 0, "save_every": 0, "watch_prompts": 0, "device": "cpu"}
WARM_SECONDS = 300.0


def measure(repeat: int) -> list[Measure]:
    imports, steps, cold, warm = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "from trl import GRPOConfig, GRPOTrainer"], check=True)
            imports.append(time.perf_counter() - began)
            seconds, step = _first_step(Path(folder), warm=False)
            cold.append(seconds)
            steps.append(step)
            seconds, _ = _first_step(Path(folder), warm=True)
            warm.append(seconds)
    least = [a + b for a, b in zip(imports, steps, strict=True)]
    rows = {"import of TRL + one step": least, "start to first step": cold, "the same, warm": warm}
    return [
        Measure(
            what,
            round(statistics.median(values), 2),
            "s",
            round(statistics.median(value / other for value, other in zip(values, least, strict=True)), 2),
            "import of TRL + one step",
        )
        for what, values in rows.items()
    ]


def _first_step(workspace: Path, *, warm: bool) -> tuple[float, float]:
    """Seconds from Start until the first row of metrics is read, and of that row's step."""
    if warm:
        _wait_until_warm()
    else:
        os.environ["BENCH_COLD"] = "1"  # what is warm has another environment
    try:
        began = time.perf_counter()
        run = wb.train(RunConfig.parse({"run": RUN}), workspace)
    finally:
        os.environ.pop("BENCH_COLD", None)
    row = next((row for row in run.follow() if row["step"] == 1), None)
    seconds = time.perf_counter() - began
    if row is None:
        raise RunError(f"run {run.name} has no first step: {run.status().reason}")
    run.wait()
    return seconds, float(row["step_time"])


def _wait_until_warm() -> None:
    end = time.monotonic() + WARM_SECONDS
    warm_up()
    while not is_warm():
        if time.monotonic() > end:
            raise RunError(f"no process was warm within {WARM_SECONDS:.0f} s; it needs Linux and 4 GB of free memory")
        time.sleep(0.05)
