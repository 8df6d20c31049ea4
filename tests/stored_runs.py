"""Runs as they lie on a disk after training, written in milliseconds: for whatever reads runs."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.training.methods import RunConfig


def config_of(run: RunDir) -> RunConfig:
    """The stored configuration of a run."""
    return RunConfig.from_yaml(run.config_text())


def store(
    workspace: Path,
    name: str,
    rows: Iterable[dict[str, Any]] = (),
    *,
    state: str = "finished",
    made: float = 1_760_000_000.0,
    **config: Any,
) -> Run:
    """A run of ``config`` with these metrics rows, in ``state``, made at ``made`` (unix seconds)."""
    run = RunDir.create(workspace, RunConfig.parse({"name": name, **config}))
    step = 0
    for row in rows:
        run.append_metrics(row)
        step = row["step"]
    run.close()
    run.set_status(
        state, step=step, total_steps=max(step, config_of(run).run.steps), device="cpu", created=made, started=made
    )  # type: ignore[arg-type]
    os.utime(run.path / "run.yaml", (made, made))
    return Run(run.path)


def alive(run: Run) -> Run:
    """As if this process were training it."""
    run.dir.note(pid=os.getpid(), pid_created=psutil.Process().create_time())
    return run


def learning(steps: int, *, best: float = 0.8, seed: int = 0) -> Iterable[dict[str, Any]]:
    """Rows as a run logs them, with curves that rise to about ``best``; another ``seed``, another wobble."""
    for step in range(1, steps + 1):
        done = step / steps
        wobble = 0.03 * math.sin(step * (1.3 + seed) + seed)
        level = 0.3 + (best - 0.3) * (1 - math.exp(-4 * done)) + wobble
        row = {
            "step": step,
            "seconds": 1.5 * step,
            "rollouts": 48 * step,
            "loss": wobble / 3,
            "grad_norm": 0.4 + wobble,
            "learning_rate": 5e-4 * (1 - done),
            "entropy": 0.9 * (1 - 0.6 * done) + wobble,
            "reward": level,
            "step_reward": level - 0.05,
            "accuracy/train": level - 0.02,
            "kl/k1": done / 50 + wobble / 90,
            "kl/k2": done / 55,
            "kl/k3": done / 52,
            "clip_ratio/region_mean": abs(wobble) / 9,
            "completions/mean_length": 52 + 6 * done + 20 * wobble,
            "completions/max_length": 84 + 6 * done,
            "steps_per_answer": 4.1 + wobble,
            "zero_spread_share": 0.3 * done,
            "unscored_share": 0.0,
            "no_match_share": 0.05 * (1 - done),
            "advantage_abs_mean": 0.7 - 0.3 * done,
        }
        yield row if step % 4 else row | {"accuracy": level}
