"""What the sandbox costs: a call, a preview, a function more, a start, a kill at the deadline."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psutil

from benchmarks import Measure
from workbench.errors import RewardError
from workbench.rewards import RewardConfig, Sandbox, load_reward
from workbench.rewards.protocol import Batch
from workbench.steps import StepPattern, split_preview
from workbench.ui.handlers.example import first_draft
from workbench.ui.handlers.scoring import rescore

DEADLINE = 0.5
CALLS = 100  # a round
_CODE = "def reward(prompts, completions, **columns):\n    return [float(len(text)) for text in completions]\n"
_HANGS = "def reward(prompt, step, **columns):\n    while True:\n        pass\n"


def measure(repeat: int) -> list[Measure]:
    small = Batch(["p"], ["Step 1: 7 + 5 = 12"])
    step = "Step 1: 7 + 5 = 12\n".ljust(256, ".")
    large = Batch(["p"] * 16, [step * 64] * 16)  # 16 KB each
    with Sandbox() as worker:
        reward = load_reward(RewardConfig(name="reward", kind="outcome", code=_CODE), worker)
        there = {"small call": small, "16 completions of 16 KB": large}
        rows = []
        for what, batch in there.items():
            rows += _percentiles(what, lambda batch=batch: reward.score(batch), repeat)  # type: ignore[misc]
        pattern, texts = StepPattern(r"Step \d+:"), list(large.completions)
        inside = _seconds(lambda: split_preview(texts, pattern, timeout=9, total=99), 1, repeat)
        rows += _percentiles(
            "split of 16 × 16 KB, 64 steps each", lambda: worker.split(texts, pattern), 1, statistics.median(inside)
        )
        rows += _percentiles("rescore of the page's first group", _preview(worker), 1)
        rows += _functions(worker)
        rows += _starts(worker, repeat)
    return rows


def _percentiles(what: str, call: Callable[[], object], rounds: int, inside: float | None = None) -> list[Measure]:
    took = sorted(_seconds(call, CALLS, rounds))
    rows = []
    for name, value in (("p50", statistics.median(took)), ("p99", took[int(0.99 * (len(took) - 1))])):
        ratio = None if inside is None else round(value / inside, 2)
        rows.append(Measure(f"{what}, {name}", round(1000 * value, 3), "ms", ratio, "in this process" if ratio else ""))
    return rows


def _seconds(call: Callable[[], object], calls: int, rounds: int) -> list[float]:
    call()
    took = []
    for _ in range(calls * rounds):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return took


def _preview(worker: Sandbox) -> Callable[[], object]:
    draft = first_draft()
    return lambda: rescore(draft, worker)


def _functions(worker: Sandbox) -> list[Measure]:
    """From the code of another function to its first scores, and what the process holds."""
    batch, took = Batch(["p"], ["Step 1"]), []
    for number in range(16):
        config = RewardConfig(name=f"reward_{number}", kind="outcome", code=_CODE)
        took += _seconds_once(lambda: load_reward(config, worker).score(batch))  # noqa: B023
    held = psutil.Process(worker.pid).memory_full_info().uss
    return [
        Measure("another function, to its first scores", round(1000 * statistics.median(took), 1), "ms"),
        Measure("memory of the sandbox", round(held / 2**20, 1), "MB"),
    ]


def _starts(worker: Sandbox, repeat: int) -> list[Measure]:
    """From nothing to a first answer, and from the kill of a call that hangs to the next answer."""
    first, again = [], []
    for _ in range(repeat):
        worker.close()
        first += _seconds_once(lambda: worker.split([], StepPattern("a")))
    hanging = RewardConfig(name="reward", code=_HANGS)
    impatient = Sandbox(deadline=DEADLINE)
    with impatient:
        reward = load_reward(hanging, impatient)
        for _ in range(repeat):
            (took,) = _seconds_once(lambda: _fails(lambda: reward.score(Batch(["p"], ["a"], steps=[["a"]]))))
            (answered,) = _seconds_once(lambda: load_reward(hanging, impatient))
            again.append(took - DEADLINE + answered)
    return [
        Measure("start to first answer", round(1000 * statistics.median(first), 1), "ms"),
        Measure("kill at the deadline to next answer", round(1000 * statistics.median(again), 1), "ms"),
    ]


def _seconds_once(call: Callable[[], object]) -> list[float]:
    began = time.perf_counter()
    call()
    return [time.perf_counter() - began]


def _fails(call: Callable[[], object]) -> None:
    try:
        call()
    except RewardError:
        return
