"""The process of one training run: ``python -m workbench.training.child <run directory>``.

Reads ``run.yaml``, trains, and leaves everything a reader may want in the run's directory; with more than one rank it
is started once a rank by ``torchrun``, and rank 0 alone writes. SIGTERM asks it to stop at the end of the current
step. It knows nothing of who started it or who reads along.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from workbench.config import RunConfig
from workbench.errors import WorkbenchError
from workbench.redact import RedactedStream
from workbench.rundir import RunDir
from workbench.schema import Credit
from workbench.training.build import build_trainer
from workbench.training.trainer import ProcessGRPOTrainer


class NotANumberError(WorkbenchError):
    """The loss or the gradient became NaN or infinite."""


class Recorder(TrainerCallback):
    """Writes each step's metrics to the run directory and watches for a request to stop and for a loss gone bad."""

    def __init__(self, run: RunDir, config: RunConfig, *, writes: bool) -> None:
        self.run = run
        self.stop_requested = False
        self._writes = writes
        self._began: float | None = None
        self._rollouts_per_generation = config.training.prompts_per_step * config.sampling.num_generations
        self._iterations = config.training.num_iterations
        self._rollouts_every = config.training.rollouts_every

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._seconds()
        if self._writes:
            self.run.set_status("running", step=state.global_step, total_steps=state.max_steps, device=str(args.device))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.stop_requested:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs:  # transformers' closing summary, not a step
            return
        step = state.global_step
        if self._writes:
            generations = -(-step // self._iterations)
            self.run.append_metrics(
                {
                    "step": step,
                    "time": time.time(),
                    "seconds": round(self._seconds(), 3),
                    "rollouts": generations * self._rollouts_per_generation,
                    **{name: value for name, value in logs.items() if name != "epoch"},
                }
            )
            self.run.note(step=step)
            print(_line(step, state.max_steps, logs), flush=True)
        for name in ("loss", "grad_norm"):
            value = logs.get(name)
            if isinstance(value, float) and not math.isfinite(value):
                raise NotANumberError(
                    f"{name} became {value} at step {step}; lower training.learning_rate or training.max_grad_norm, "
                    "or bound the rewards"
                )

    def on_rollouts(self, step: int, credits: list[Credit]) -> None:
        generation = (step - 1) // self._iterations
        if self._writes and generation % self._rollouts_every == 0:
            self.run.write_rollouts(step, credits)

    def _seconds(self) -> float:
        """Since training began: since the first thing heard of it."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began


def main(folder: str) -> int:
    """Run it; the exit code is 0 when the run finished or was stopped, 1 when it failed."""
    run = RunDir(Path(folder))
    rank = int(os.environ.get("RANK", "0"))
    writes = rank == 0
    try:
        config = run.config()
        if config.training.device != "cuda" and not torch.cuda.is_available():
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // config.training.ranks))
        recorder = Recorder(run, config, writes=writes)
        signal.signal(signal.SIGTERM, recorder.request_stop)
        if writes:
            run.set_status("starting")
        trainer = build_trainer(config, run.checkpoints, on_rollouts=recorder.on_rollouts, callbacks=[recorder])
        trainer.remove_callback(PrinterCallback)  # the recorder's lines say it shorter
        trainer.train()
        if writes:
            save(trainer, run)
            if recorder.stop_requested and trainer.state.global_step < config.training.steps:
                run.set_status("stopped", f"after step {trainer.state.global_step} of {config.training.steps}")
            else:
                run.set_status("finished", f"{trainer.state.global_step} steps")
    except Exception as error:
        traceback.print_exc()
        # Any rank may be the one that knows why; the first to say so is believed.
        if writes or isinstance(error, WorkbenchError):
            run.settle("failed", _reason(error), certain=False)
        return 1
    finally:
        run.close()
    return 0


def save(trainer: ProcessGRPOTrainer, run: RunDir) -> None:
    """The final weights (or adapter) and tokenizer, loadable by ``load_policy``."""
    folder = run.checkpoints / "final"
    trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle; the arguments are in run.yaml
    trainer.processing_class.save_pretrained(str(folder))


def _line(step: int, total: int, logs: dict[str, Any]) -> str:
    """One step in the run's log."""
    names = ("loss", "reward", "step_reward", "accuracy", "accuracy/train", "grad_norm")
    shown = [f"{name} {logs[name]:.4g}" for name in names if isinstance(logs.get(name), float)]
    return f"step {step}/{total}  " + "  ".join(shown)


def _reason(error: Exception) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory on the GPU; try a smaller training.micro_batch_size, num_generations or completion length"
    if isinstance(error, WorkbenchError):
        return str(error)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)
    sys.exit(main(sys.argv[1]))
