"""How long the page stands still for a long run on Train: its longest task, in a real Chromium.

A run of ``ROWS`` rows is chosen on a page that already shows Train, so that starting the page itself is not counted;
then ``LIVE`` more rows are written while the page follows. A task is what the browser's main thread does in one go, from
Chromium's own trace; ``PerformanceObserver`` reports the same tasks, but only those over 50 ms.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from workbench.config import RunConfig
from workbench.rundir import RunDir

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS, LIVE = 10_000, 30
ROW_SECONDS = 0.3
LONG, OTHER = "bench-long", "bench-other"
MAIN_THREAD = "CrRendererMain"
TASK = "ThreadControllerImpl::RunTask"

DRAWN = f"""() => [...document.querySelectorAll(".curve")].some((one) => !one.hidden) && [...document.querySelectorAll(".curve")]
  .filter((one) => !one.hidden && one.checkVisibility()).every((one) => one.querySelector("path.path-0")?.getAttribute("d") || one.getBoundingClientRect().top > innerHeight + 200)
  && document.querySelector(".curve[data-panel=reward] figcaption")?.textContent.includes("{ROWS}")"""  # noqa: E501


def write_runs(workspace: Path) -> RunDir:
    """The long run, as if this process were training it, and one without rows that the page can show before."""
    other = RunDir.create(workspace, RunConfig(name=OTHER))
    other.set_status("stopped", "before its first step")
    other.close()
    run = RunDir.create(workspace, RunConfig.parse({"name": LONG, "training": {"steps": ROWS + LIVE}}))
    for step in range(1, ROWS + 1):
        run.append_metrics(row(step))
    run.set_status("running", device="cpu", step=ROWS)
    run.note(pid=os.getpid(), pid_created=psutil.Process().create_time())
    return run


def row(step: int) -> dict[str, Any]:
    """Every column that a run of the default rewards logs, with numbers that wander; ``reward`` is the step's number."""
    wave, drift = math.sin(step * 1.3), step / ROWS
    shares = ("accuracy/train", "clip_ratio/region_mean", "zero_spread_share", "unscored_share", "no_match_share")
    shares = (*shares, "completions/clipped_ratio", "clip_ratio/low_mean", "clip_ratio/high_mean", "accuracy")
    others = ("loss", "grad_norm", "learning_rate", "entropy", "kl", "kl/k1", "kl/k2", "kl/k3", "step_reward")
    others = (*others, "reward_std", "steps_per_answer", "advantage_abs_mean", "step_time", "sampling_time")
    lengths = [
        f"completions/{which}_{what}" for which in ("mean", "min", "max") for what in ("length", "terminated_length")
    ]
    rewards = [
        f"rewards/{name}/{what}"
        for name in ("step_correctness", "answer_correctness")
        for what in ("mean", "std", "zero_share", "time")
    ]
    return {
        "step": step,
        "time": 1.7e9 + step,
        "seconds": 1.5 * step,
        "rollouts": 48 * step,
        "num_tokens": 4000 * step,
        "reward": float(step),
        **{name: 0.5 + 0.2 * wave * drift for name in shares},
        **{name: drift + 0.1 * wave for name in (*others, *rewards)},
        **{name: 60 + 20 * wave for name in lengths},
    }


def longest_tasks(page: Page, workspace: Path, run: RunDir) -> tuple[float, float]:
    """Seconds of the longest task while the long run is drawn first, and while its next rows arrive."""
    page.wait_for_function(f"document.querySelector('#run-picker')?.value === {json.dumps(OTHER)}")
    page.wait_for_function(
        f"[...document.querySelectorAll('#run-picker option')].some(one => one.value === {json.dumps(LONG)})"
    )
    page.wait_for_timeout(1000)
    _begin(page)
    page.select_option("#run-picker", LONG)
    page.wait_for_function(DRAWN, polling=250)
    page.wait_for_timeout(1500)
    first = _end(page)
    _begin(page)
    for step in range(ROWS + 1, ROWS + LIVE + 1):
        run.append_metrics(row(step))
        run.note(step=step)
        time.sleep(ROW_SECONDS)
    page.wait_for_function(
        f"document.querySelector('.curve[data-panel=reward] figcaption').textContent.includes('{ROWS + LIVE}')",
        polling=250,
    )
    page.wait_for_timeout(500)
    return first, _end(page)


OBSERVE = """() => { globalThis.long = []; new PerformanceObserver((list) => long.push(...list.getEntries().map(e => e.duration))).observe({ entryTypes: ["longtask"] }); }"""


def _begin(page: Page) -> None:
    page.evaluate(OBSERVE)
    page.context.browser.start_tracing(
        page=page, categories=["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline"]
    )


def _end(page: Page) -> float:
    trace = page.context.browser.stop_tracing()
    open(f"/tmp/w/cv/trace-{time.time():.0f}.json", "wb").write(trace)
    events = json.loads(trace)["traceEvents"]
    threads = {
        (e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name" and e["args"]["name"] == MAIN_THREAD
    }
    tasks = sorted(
        (
            (e["dur"], e.get("tdur", 0))
            for e in events
            if e.get("name") == TASK and e.get("ph") == "X" and (e["pid"], e["tid"]) in threads
        ),
        reverse=True,
    )
    print(tasks[:6], page.evaluate("long"), len(trace))
    return tasks[0][0] / 1e6
