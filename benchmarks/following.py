"""How long the page stands still for a long run on Train: its longest task, in a real Chromium.

A run of ``ROWS`` rows is chosen on a page that shows another, so that what starting the page costs is not counted; then
``LIVE`` more rows are written while the page follows. A task is what the browser's main thread does in one go, from
Chromium's own trace; ``PerformanceObserver`` calls the same "longtask", but tells only of those over 50 ms. A busy
machine stretches tasks: the processor time of the one that took most of it says what the page itself asks for.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from workbench.rundir import RunDir
from workbench.training.methods import RunConfig

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS, LIVE = 10_000, 30
ROW_SECONDS = 0.3
LONG, OTHER = "bench-long", "bench-other"
MAIN_THREAD, TASK = "CrRendererMain", "ThreadControllerImpl::RunTask"

SETTLED = """rows => {
  const charts = [...document.querySelectorAll(".curve")].filter((one) => !one.hidden && one.checkVisibility());
  const near = charts.filter((one) => one.getBoundingClientRect().top < innerHeight);
  return near.length > 0 && near.every((one) => one.querySelector(".js-line")?.getAttribute("d"))
    && document.querySelector(".curve[data-panel=length] figcaption").textContent.includes(String(rows));
}"""
OFFERED = "name => [...document.querySelectorAll('#run-picker option')].some((one) => one.value === name)"


@dataclass(frozen=True)
class Tasks:
    """Seconds of the longest task, and of the one with the most processor time."""

    longest: float
    processor: float


class LongRun:
    """A run of ``ROWS`` rows and more, as if this process were training it."""

    def __init__(self, workspace: Path) -> None:
        other = RunDir.create(workspace, RunConfig(name=OTHER))
        other.set_status("stopped", "before its first step")
        other.close()
        self.directory = RunDir.create(workspace, RunConfig.parse({"name": LONG, "run": {"steps": 2 * ROWS}}))
        self.rows = 0
        for _ in range(ROWS):
            self.write()
        self.directory.set_status("running", device="cpu", step=ROWS)
        self.directory.note(pid=os.getpid(), pid_created=psutil.Process().create_time())

    def write(self) -> None:
        self.rows += 1
        self.directory.append_metrics(row(self.rows))


def row(step: int) -> dict[str, Any]:
    """Every column that a run of the default rewards logs, with numbers that wander; the mean length is the step's own.

    Held-out accuracy is measured every tenth step.
    """
    wave, drift = math.sin(step * 1.3), step / ROWS
    shares = ["accuracy"] * (step % 10 == 0) + [
        "accuracy/train",
        "zero_spread_share",
        "unscored_share",
        "no_match_share",
    ]
    shares += ["clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "completions/clipped_ratio"]
    others = ["reward", "loss", "grad_norm", "learning_rate", "entropy", "kl", "kl/k1", "kl/k2", "kl/k3", "step_reward"]
    others += ["reward_std", "steps_per_answer", "advantage_abs_mean", "step_time", "sampling_time"]
    for name in ("step_correctness", "answer_correctness"):
        others += [f"rewards/{name}/{what}" for what in ("mean", "std", "zero_share", "time")]
    lengths = [f"completions/{which}_{what}length" for which in ("mean", "min", "max") for what in ("", "terminated_")]
    counts = {"time": 1.7e9 + step, "seconds": 1.5 * step, "rollouts": 48 * step, "num_tokens": 4000 * step}
    return {
        "step": step,
        **counts,
        **dict.fromkeys(shares, 0.5 + 0.2 * wave * drift),
        **dict.fromkeys(others, drift + 0.1 * wave),
        **dict.fromkeys(lengths, 60 + 20 * wave),
        "completions/mean_length": float(step),
    }


def longest_tasks(
    workspace: Path, opened: Callable[[str], AbstractContextManager[Page]], rounds: int
) -> dict[str, Tasks]:
    """The worst of ``rounds`` pages, while the long run is drawn first and while rows arrive.

    ``opened`` gives a page for the end of an address.
    """
    run = LongRun(workspace)
    found: dict[str, list[Tasks]] = {"drawn": [], "followed": []}
    for _ in range(rounds):
        with opened(f"&run={OTHER}") as page:
            page.wait_for_function(OFFERED, arg=LONG)
            page.wait_for_function("globalThis.Plotly")
            page.wait_for_timeout(1500)  # what starting the page still does
            found["drawn"].append(_traced(page, partial(_choose, page, run)))
            found["followed"].append(_traced(page, partial(_follow, page, run)))
    run.directory.set_status("stopped")
    run.directory.close()
    return {
        name: Tasks(max(one.longest for one in each), max(one.processor for one in each))
        for name, each in found.items()
    }


def _choose(page: Page, run: LongRun) -> None:
    page.select_option("#run-picker", LONG)
    _settle(page, run)


def _follow(page: Page, run: LongRun) -> None:
    for _ in range(LIVE):
        run.write()
        run.directory.note(step=run.rows)
        time.sleep(ROW_SECONDS)
    _settle(page, run)


def _settle(page: Page, run: LongRun) -> None:
    page.wait_for_function(SETTLED, arg=run.rows, polling=250)  # a test at every frame would be among the tasks
    page.wait_for_timeout(750)


def _traced(page: Page, act: Callable[[], None]) -> Tasks:
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["toplevel"])
    act()
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"]["name"] == MAIN_THREAD
    }
    tasks = [one for one in events if one.get("name") == TASK and "dur" in one and (one["pid"], one["tid"]) in threads]
    return Tasks(max(one["dur"] for one in tasks) / 1e6, max(one.get("tdur", 0) for one in tasks) / 1e6)
