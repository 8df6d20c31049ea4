"""Measurements that one command repeats anywhere: ``python -m benchmarks <name>``.

A machine's speed is no property of the code, so what is a speed is given beside what it is measured against, both timed
in turns within one run, and the ratio is what to quote. Adding a bench is adding a module and one line to ``BENCHES``.
"""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from workbench.errors import TaskError


@dataclass(frozen=True)
class Measure:
    """One number; ``ratio`` is it divided by the same number of ``against``."""

    what: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""


@dataclass(frozen=True)
class Bench:
    """``module`` defines ``measure(repeat) -> list[Measure]``; it is imported when it is run.

    One whose module defines ``measure(repeat, full)`` has a longest version, ``full``, and rows of its own; one that
    trains runs under names defines ``measure(repeat, where)``.
    """

    summary: str
    module: str

    def measure(self, repeat: int, *, full: bool = False, where: Any = None) -> list[Any]:
        """One dataclass a row. Raises TaskError for a full version, or runs under names, that it does not have."""
        measure = import_module(self.module).measure
        asked = {name: value for name, value in (("full", full), ("where", where)) if value}
        for name in asked:
            if name not in inspect.signature(measure).parameters:
                flags = "--full version" if name == "full" else "runs for --workspace, --only or --stored"
                raise TaskError(f"this bench has no {flags}; use --repeat")
        rows: list[Any] = measure(repeat, **asked)
        return rows


BENCHES = {
    "credit": Bench("assign_credit under every scheme, on 1,024 completions of 4,096 tokens", "benchmarks.credit"),
    "sampler": Bench("sample_group against transformers' generate, on the embedded policy", "benchmarks.sampler"),
    "step": Bench("a training step of the default run against TRL's own GRPOTrainer", "benchmarks.step"),
    "gpu": Bench("sampling and steps on a CUDA GPU at Qwen2.5's sizes, against generate and TRL", "benchmarks.gpu"),
    "rewards": Bench("the sandbox: calls, starts, kills", "benchmarks.rewards"),
    "ui": Bench("keystroke to repaint, large groups drawn, long runs followed, in Chromium", "benchmarks.ui"),
    "real": Bench("SmolLM2-135M-Instruct through every part on a CPU (make real)", "benchmarks.real"),
    "engines": Bench(
        "a run on SkyRL's own server, and its rows through verl's loss (make engines)", "benchmarks.engines"
    ),
    "schemes": Bench("the default run under every scheme, with right and wrong step labels", "benchmarks.schemes"),
    "blame": Bench("how each scheme spreads its advantages over answers with a planted culprit", "benchmarks.blame"),
}


def median_seconds(
    cases: Mapping[str, Callable[[], object]], repeat: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Each case's median time over ``repeat`` rounds in which all take their turn, after one that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeat + 1):
        for name, case in cases.items():
            began = clock()
            case()
            seconds[name].append(clock() - began)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}
