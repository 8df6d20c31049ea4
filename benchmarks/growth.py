"""How time and memory grow with what a person has: rollouts, tokens, prompts, rows of data, stored runs, logged steps.

Each size is timed in turn with the ones before it, and its ratio is that of the next smaller one, beside the factor
between the two sizes: a ratio of that factor or less is linear or better. Times are processor times of this process, so
that a busy machine tells the same. Memory is the most that was allocated meanwhile, of what Python and NumPy allocate
(``tracemalloc``). The last row tells what a process has grown by when it does the same many times.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import psutil

from benchmarks import Measure, median_seconds
from benchmarks.following import row
from benchmarks.ui import made_up_group
from workbench.config import RunConfig
from workbench.credit import credit_group, credit_groups
from workbench.figures.heatmap import EXPLAINED_AT_ONCE, credit_payload, to_json
from workbench.rewards import score_group
from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.sections import TaskSection
from workbench.tasks import load_task
from workbench.ui.handlers.metrics_cache import kept
from workbench.ui.handlers.runs import table

GROUP_SIZES, LENGTHS, PROMPTS = (8, 16, 32, 64), (256, 1024, 4096), (8, 16, 32, 64)
DATA_ROWS, RUNS, LOGGED = (2_000, 20_000, 200_000), (10, 100, 1_000), (100, 1_000, 10_000)
RESCORED = 500
TASK = load_task("chain-arithmetic")
REWARDS = ["step_correctness", "answer_correctness"]


def measure(repeat: int) -> list[Measure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = {size: _data(folder, size) for size in DATA_ROWS}
        runs = {size: _runs(folder / str(size), size) for size in RUNS}
        logged = {size: _logged(folder / "logged", size) for size in LOGGED}
        grown = [
            *_grown("a group of {} × 256 tokens scored, credited, drawn", GROUP_SIZES, lambda n: _seen(n, 256), repeat),
            *_grown("a group of 64 × {} tokens scored, credited, drawn", LENGTHS, lambda n: _seen(64, n), repeat),
            *_grown("{} groups of 8 × 256 tokens credited", PROMPTS, _batch, repeat),
            *_grown("a task of {} rows, its last one read", DATA_ROWS, lambda n: partial(_opened, data[n]), repeat),
            *_grown("the table of {} stored runs", RUNS, lambda n: partial(table, runs[n]), repeat),
            *_grown("the curves of a run of {} rows", LOGGED, lambda n: partial(_curves, logged[n]), repeat),
        ]
    return [*grown, _repeated(RESCORED)]


def _grown(what: str, sizes: Iterable[int], case: Callable[[int], Callable[[], object]], repeat: int) -> list[Measure]:
    cases = {what.format(f"{size:,}"): (size, case(size)) for size in sizes}
    seconds = median_seconds({name: call for name, (_, call) in cases.items()}, repeat, time.process_time)
    rows: list[Measure] = []
    before: tuple[str, int] | None = None
    for name, (size, call) in cases.items():
        ratio, against = None, ""
        if before is not None:
            ratio = round(seconds[name] / seconds[before[0]], 2)
            against = f"{before[1]:,}, {size / before[1]:g} times less"
        rows.append(Measure(name, round(1000 * seconds[name], 2), "ms", ratio, against))
        rows.append(Measure(f"{name}: memory", round(_peak(call) / 1e6, 2), "MB"))
        before = name, size
    return rows


def _peak(call: Callable[[], object]) -> int:
    """The most bytes allocated during a call, of what was not there before."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _seen(size: int, length: int) -> Callable[[], object]:
    """What a keystroke in the pattern asks of the page's process."""
    group = made_up_group(TASK[0], size, length)

    def see() -> str:
        credit = credit_group(score_group(group, TASK.pattern, REWARDS))
        return to_json(credit_payload(credit, explain_at_most=EXPLAINED_AT_ONCE))

    return see


def _batch(prompts: int) -> Callable[[], object]:
    scored = score_group(made_up_group(TASK[0], 8, 256), TASK.pattern, REWARDS)
    return partial(credit_groups, [scored] * prompts, "process")


def _data(folder: Path, size: int) -> Path:
    path = folder / f"{size}.jsonl"
    line = json.dumps({"prompt": "What is 2 + 2?", "answer": "4", "source": "made up"})
    path.write_text(f"{line}\n" * size)
    return path


def _opened(path: Path) -> object:
    task = load_task(TaskSection(name=str(path)))
    return task[len(task) - 1]


def _runs(workspace: Path, size: int) -> Path:
    for number in range(size):
        run = RunDir.create(workspace, RunConfig(name=f"run-{number}"))
        for step in range(1, 61):
            run.append_metrics(row(step))
        run.close()
        run.set_status("finished", step=60, total_steps=60, device="cpu")
    return workspace


def _logged(workspace: Path, size: int) -> Run:
    run = RunDir.create(workspace, RunConfig(name=f"rows-{size}"))
    for step in range(1, size + 1):
        run.append_metrics(row(step))
    run.close()
    return Run(run.path)


def _curves(run: Run) -> object:
    """All curves, as a page gets them that has seen none."""
    with kept(run) as seen:
        seen.read_on(run)
        return seen.block()


def _repeated(times: int) -> Measure:
    """Memory of this process after it scored and drew one group so many times, above that after a tenth of them."""
    see = _seen(16, 256)
    process = psutil.Process()
    for _ in range(times // 10):
        see()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(times - times // 10):
        see()
    gc.collect()
    grown = (process.memory_info().rss - before) / 1e6
    return Measure(f"memory after {times} re-scorings, above that after {times // 10}", round(grown, 1), "MB")
