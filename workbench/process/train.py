"""The process of one training run: ``python -m workbench.process <run directory> [--resume <checkpoint>]``.

Reads ``run.yaml``, trains, and leaves everything a reader may want in the run's directory; with more than one rank it
is started once a rank by ``torchrun``, and rank 0 alone writes. SIGTERM asks it to stop at the end of the current
step. It knows nothing of who started it or who reads along.

``Recorder`` is a transformers callback around the run's directory; every rank takes part in agreeing to stop.
"""

import argparse
import hashlib
import math
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging as transformers_logging

from workbench.config import SharedConfig
from workbench.errors import EngineError, RewardError, RunError, WorkbenchError
from workbench.files import no_room
from workbench.models.weights import RENAMED, is_out_of_memory
from workbench.rundir import RunDir
from workbench.rundir.checkpoints import peak_memory_mb, saved
from workbench.rundir.metrics import resumed
from workbench.schema import Credit, LossPass, WatchedRow, say_count
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners, Trainer


def main(arguments: list[str]) -> int:
    """Run it; the exit code is 0 when the run finished or was stopped, 1 when it failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", metavar="CHECKPOINT")
    args = parser.parse_args(arguments)
    run = RunDir(args.folder)
    writes = os.environ.get("RANK", "0") == "0"
    transformers_logging.disable_progress_bar()  # nobody who reads a run's log can act on these
    warnings.filterwarnings("ignore", RENAMED, FutureWarning)
    config: RunConfig | None = None
    trainer: Trainer | None = None
    try:
        config = RunConfig.from_yaml(run.config_text())
        if (ranks := config.run.ranks) > 1 and config.run.device != "cuda" and not torch.cuda.is_available():
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))  # they share this machine's cores
        if writes:
            run.set_status("starting", "loading the policy")
        if config.run.report_to:
            prepare_trackers(run, config)
        recorder = Recorder(run, config, writes=writes)
        trainer = build_of(config)(
            config,
            run.checkpoints,
            Listeners(
                recorder.on_rollouts,
                recorder.on_watched,
                recorder.on_rows,
                run.answers.write,
                recorder.on_pass,
                callbacks=[recorder, StopSignal(recorder)],
            ),
        )
        trainer.remove_callback(PrinterCallback)  # the recorder's lines say it shorter
        _train(trainer, run, config, args.resume)
        # Its threads would abort a process that exits; a rank that failed would wait here for the others.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        if writes:
            step, steps = trainer.state.global_step, config.run.steps
            if recorder.stop_requested and step < steps:
                run.set_status("stopped", f"after step {step} of {steps}")
            else:
                run.set_status("finished", say_count(steps, "step"))
    except Exception as error:
        traceback.print_exc()
        # Any rank may be the one that knows why; the first to say so is believed, and the others fail after it.
        step = trainer.state.global_step + 1 if trainer is not None else None
        again = "resume the run" if saved(run.checkpoints) else f"start it again: train --from {run.name}"
        run.settle("failed", reason(error, config or RunConfig(), step, again), certain=False)
        return 1
    finally:
        try:
            run.close()
        except RunError as error:
            print(f"error: {error}", flush=True)
    return 0


def prepare_trackers(run: RunDir, config: SharedConfig) -> None:
    """Say where trackers look for what transformers does not tell them; a resumed run goes on in wandb."""
    os.environ.setdefault("WANDB_PROJECT", config.run.project)
    os.environ.setdefault("WANDB_RUN_ID", hashlib.sha256(str(run.path).encode()).hexdigest()[:12])
    os.environ.setdefault("WANDB_RESUME", "allow")
    os.environ.setdefault("WANDB_DIR", str(run.path))
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))


def build_of(config: RunConfig) -> Callable[..., Any]:
    """Return what builds a run's trainer: its method's, or a server's that samples and trains."""
    if config.engine.is_remote:
        from workbench.engines.tinker import TinkerTrainer

        return TinkerTrainer
    return METHODS[config.method.name].build


def _train(trainer: Trainer, run: RunDir, config: RunConfig, checkpoint: str | None) -> None:
    """Train to the last step, from ``checkpoint`` if there is one, and save the final weights."""
    folder = None if checkpoint is None else run.checkpoints / checkpoint
    if folder is not None and folder.name == f"checkpoint-{config.run.steps}":
        trainer.load_weights(folder)  # it was only the final save that was missing
    else:
        trainer.train(resume_from_checkpoint=None if folder is None else str(folder))
    trainer.save_final(run.checkpoints / "final")


class NotANumberError(WorkbenchError):
    """The loss or the gradient became NaN or infinite."""


class Recorder(TrainerCallback):
    """Writes each step's metrics to the run directory and watches for a request to stop and for a loss gone bad."""

    def __init__(self, run: RunDir, config: SharedConfig, *, writes: bool) -> None:
        self.run = run
        self.stop_requested = False
        self._writes = writes
        self._began = 0.0  # when training did, of which a resumed run's earlier processes are a part
        self._method, self._engine, self._saves = config.method, config.engine, config.run.save_steps > 0
        self._logged = dict.fromkeys(("loss", *METHODS[config.method.name].metrics[:5], "grad_norm"))

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (step := state.global_step) and self._writes:  # a resume supersedes what is later; the clock goes on from it
            rows = [row for row in self.run.read_metrics()[0] if row.get("step", 0) <= step]
            self._began = time.monotonic() - max((row.get("seconds") or 0.0 for row in rows), default=0.0)
            self.run.append_metrics(resumed(step, time=time.time()))
            self.run.drop_rollouts(after=step)
        self._began = self._began or time.monotonic()
        if self._writes:
            engine = self._engine
            device = f"{engine.kind} at {engine.where}" if engine.is_remote else str(args.device)
            self.run.set_status("running", step=state.global_step, total_steps=state.max_steps, device=device)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.world_size > 1:  # all ranks have to end after the same step
            any_asked = torch.tensor(int(self.stop_requested), device=args.device)
            torch.distributed.all_reduce(any_asked, torch.distributed.ReduceOp.MAX)
            self.stop_requested = bool(any_asked.item())
        if self.stop_requested:
            control.should_training_stop = True
            # Only between generations is there a place to resume from.
            control.should_save |= self._saves and state.global_step % self._method.iterations == 0

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs:  # transformers' closing summary, not a step
            return
        step = state.global_step
        state.log_history.clear()  # metrics.jsonl has it; every checkpoint would hold all of it once more
        if self._writes:
            self._began = self._began or time.monotonic()  # what is measured before training is logged before it begins
            each, generations = self._method.rollouts_per_step, -(-step // self._method.iterations)
            row = {
                "step": step,
                "time": time.time(),
                "seconds": round(time.monotonic() - self._began, 3),
                "peak_memory_mb": peak_memory_mb(),
                **({"rollouts": generations * each} if each else {}),
                **{name: value for name, value in logs.items() if name != "epoch"},
            }
            self.run.append_metrics(row)
            self.run.note(step=step)
            shown = (f"{name} {logs[name]:.4g}" for name in self._logged if isinstance(logs.get(name), float))
            print(f"step {step}/{state.max_steps}  " + "  ".join(shown), flush=True)
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

    def on_watched(self, step: int, credits: list[Credit]) -> None:
        self.run.rollouts.write(step, credits, watched=True)

    def on_pass(self, seen: LossPass) -> None:
        if self._writes:
            self.run.passes.write(seen)

    def on_rows(self, step: int, rows: list[WatchedRow]) -> None:
        self.run.rollouts.write_rows(step, rows)


class StopSignal(TrainerCallback):
    """Has SIGTERM ask for a stop once training begins. Until then it ends the process, which may wait for a server."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, self._recorder.request_stop)


def reason(error: BaseException, config: SharedConfig, step: int | None, again: str) -> str:
    """``step`` is the one that was under way, None before the first; ``again`` how the run can be had after all."""
    where = "while loading" if step is None else f"at step {step}"
    said = step is None and isinstance(error, WorkbenchError)  # of weights that do not fit: batches are not to blame
    if is_out_of_memory(error) and not said:
        return f"out of memory {where}; {config.method.less_memory(config)}"
    text = str(error) if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {error}"
    if full := no_room(error):
        text = text if full[0] in text else f"{full[0]} {where}: {text}"
        return f"{text}; {full[1]} and {again}"
    if isinstance(error, EngineError):
        return f"{where}: {text}; {again} once it answers"
    if isinstance(error, RewardError) and step is not None:
        return f"{where}: {text}"
    return text
