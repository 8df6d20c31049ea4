"""Trainer callback that records metrics, rollouts and progress, and stops on request.

A transformers callback around one ``RunDir``. Rank 0 alone writes; every rank takes part in agreeing to stop. It does
not know how a run was started, nor what becomes of an error that it raises.
"""

from __future__ import annotations

import math
import time
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback

from workbench.config import SharedConfig
from workbench.errors import WorkbenchError
from workbench.rundir import RunDir
from workbench.rundir.checkpoints import peak_memory_mb
from workbench.rundir.metrics import resumed
from workbench.schema import Credit, HeldOutAnswer, LossPass, WatchedRow
from workbench.trackers import Tracking


class NotANumberError(WorkbenchError):
    """The loss or the gradient became NaN or infinite."""


class Recorder(TrainerCallback):
    """Writes each step's metrics to the run directory and watches for a request to stop and for a loss gone bad."""

    def __init__(self, run: RunDir, config: SharedConfig, *, writes: bool) -> None:
        self.run = run
        self.tracking: Tracking | None = None
        self.stop_requested = False
        self._writes = writes
        self._began: float | None = None
        self._method = config.method
        self._saves = config.run.save_every > 0

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step and self._writes:
            self._resume(state.global_step)
        self._seconds()
        if self._writes:
            self.run.set_status("running", step=state.global_step, total_steps=state.max_steps, device=str(args.device))

    def _resume(self, step: int) -> None:
        """Supersede what was logged and stored after ``step``, and let the clock go on from there."""
        rows = [row for row in self.run.read_metrics()[0] if row.get("step", 0) <= step]
        seconds = max((row["seconds"] for row in rows if row.get("seconds") is not None), default=0.0)
        self.run.append_metrics(resumed(step, time=time.time()))
        self.run.drop_rollouts(after=step)
        self._began = time.monotonic() - seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._all_asked_to_stop(args):
            control.should_training_stop = True
            # Only between generations is there a place to resume from.
            control.should_save |= self._saves and state.global_step % self._method.iterations == 0

    def _all_asked_to_stop(self, args: Any) -> bool:
        """Whether any rank was asked: all of them have to end after the same step."""
        if args.world_size > 1:
            any_asked = torch.tensor(int(self.stop_requested), device=args.device)
            torch.distributed.all_reduce(any_asked, torch.distributed.ReduceOp.MAX)
            self.stop_requested = bool(any_asked.item())
        return self.stop_requested

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs:  # transformers' closing summary, not a step
            return
        step = state.global_step
        state.log_history.clear()  # metrics.jsonl has it; every checkpoint would hold all of it once more
        if self._writes:
            generations = -(-step // self._method.iterations)
            rollouts = (
                {"rollouts": generations * self._method.rollouts_per_step} if self._method.rollouts_per_step else {}
            )
            row = {
                "step": step,
                "time": time.time(),
                "seconds": round(self._seconds(), 3),
                "peak_memory_mb": peak_memory_mb(),
                **rollouts,
                **{name: value for name, value in logs.items() if name != "epoch"},
            }
            self.run.append_metrics(row)
            if self.tracking is not None:
                self.tracking.row(row)
            self.run.note(step=step)
            print(_line(step, state.max_steps, logs), flush=True)
        for name in ("loss", "grad_norm"):
            value = logs.get(name)
            if isinstance(value, float) and not math.isfinite(value):
                raise NotANumberError(
                    f"{name} is {'NaN' if math.isnan(value) else value} at step {step}; lower optimiser.learning_rate "
                    "or optimiser.max_grad_norm, or bound the rewards"
                )
        if self._writes and control.should_save:
            self.run.sync_metrics()  # a checkpoint is never ahead of the log

    def on_rollouts(self, step: int, credits: list[Credit]) -> None:
        if self._writes:
            self.run.rollouts.write(step, credits)
            if self.tracking is not None:
                self.tracking.rollouts(step, credits)

    def on_watched(self, step: int, credits: list[Credit]) -> None:
        self.run.rollouts.write(step, credits, watched=True)
        if self.tracking is not None:
            self.tracking.watched(step, credits)

    def on_pass(self, seen: LossPass) -> None:
        if self._writes:
            self.run.passes.write(seen)

    def on_answers(self, step: int, answers: list[HeldOutAnswer]) -> None:
        self.run.answers.write(step, answers)

    def on_rows(self, step: int, rows: list[WatchedRow]) -> None:
        self.run.rollouts.write_rows(step, rows)
        if self.tracking is not None:
            self.tracking.watched(step, rows)

    def _seconds(self) -> float:
        """Seconds since training began."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began


def _line(step: int, total: int, logs: dict[str, Any]) -> str:
    """One step as a line of the run's log."""
    names = (
        "loss",
        "reward",
        "step_reward",
        "accuracy",
        "no_answer_share",
        "accuracy/train",
        "pair_accuracy",
        "step_accuracy",
        "grad_norm",
    )
    shown = [f"{name} {logs[name]:.4g}" for name in names if isinstance(logs.get(name), float)]
    return f"step {step}/{total}  " + "  ".join(shown)
