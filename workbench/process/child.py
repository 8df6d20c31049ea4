"""The process of one training run: ``python -m workbench.process <run directory> [--resume <checkpoint>]``.

Reads ``run.yaml``, trains, and leaves everything a reader may want in the run's directory; with more than one rank it
is started once a rank by ``torchrun``, and rank 0 alone writes. SIGTERM asks it to stop at the end of the current
step. It knows nothing of who started it or who reads along.
"""

from __future__ import annotations

import argparse
import os
import signal
import traceback
import warnings
from pathlib import Path

import torch
from transformers import PrinterCallback
from transformers.utils import logging as transformers_logging

from workbench.config.run import METHODS, RunConfig
from workbench.errors import RunError
from workbench.process.failures import reason
from workbench.process.recorder import NotANumberError, Recorder
from workbench.quiet import RENAMED
from workbench.rundir import RunDir
from workbench.rundir.checkpoints import saved
from workbench.schema.numbers import counted
from workbench.trackers import Tracking
from workbench.training.methods.method import Listeners, Trainer

__all__ = ["NotANumberError", "Recorder", "main"]


def main(arguments: list[str]) -> int:
    """Run it; the exit code is 0 when the run finished or was stopped, 1 when it failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", metavar="CHECKPOINT")
    args = parser.parse_args(arguments)
    run = RunDir(args.folder)
    writes = os.environ.get("RANK", "0") == "0"
    _quiet()
    config: RunConfig | None = None
    trainer: Trainer | None = None
    tracking: Tracking | None = None
    try:
        config = RunConfig.from_yaml(run.config_text())
        _use_cores(config)
        if writes:
            run.set_status("starting", "loading the policy")
        recorder = Recorder(run, config, writes=writes)
        trainer = METHODS[config.method.name].build(
            config,
            run.checkpoints,
            Listeners(
                recorder.on_rollouts,
                recorder.on_watched,
                recorder.on_rows,
                recorder.on_answers,
                recorder.on_pass,
                callbacks=[recorder],
            ),
        )
        if writes and config.run.report_to:
            tracking = recorder.tracking = Tracking.open(run, config, config.run.report_to, _say)
        trainer.remove_callback(PrinterCallback)  # the recorder's lines say it shorter
        signal.signal(signal.SIGTERM, recorder.request_stop)  # until here it simply ends the process
        _train(trainer, run, config, args.resume)
        _leave_group()
        if writes:
            step, steps = trainer.state.global_step, config.run.steps
            if recorder.stop_requested and step < steps:
                run.set_status("stopped", f"after step {step} of {steps}")
            else:
                run.set_status("finished", counted(steps, "step"))
    except Exception as error:
        traceback.print_exc()
        # Any rank may be the one that knows why; the first to say so is believed, and the others fail after it.
        step = trainer.state.global_step + 1 if trainer is not None else None
        again = "resume the run" if saved(run.checkpoints) else f"start it again: train --from {run.name}"
        run.settle("failed", reason(error, config or RunConfig(), step, again), certain=False)
        return 1
    finally:
        if tracking is not None:
            tracking.finish()
        try:
            run.close()
        except RunError as error:
            print(f"error: {error}", flush=True)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _leave_group() -> None:
    """End the connections between ranks, whose threads would abort a process that exits over them.

    Only once training is over everywhere: a rank that failed would wait here for the others.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _use_cores(config: RunConfig) -> None:
    """Share this machine's cores among the ranks, unless somebody has said how many to use."""
    ranks = config.run.ranks
    said = "OMP_NUM_THREADS" in os.environ and ranks == 1  # for several, torchrun says so itself
    if not said and config.run.device != "cuda" and not torch.cuda.is_available():
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))


def _quiet() -> None:
    """Keep what nobody who reads a run's log can act on out of it."""
    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", RENAMED, FutureWarning)


def _train(trainer: Trainer, run: RunDir, config: RunConfig, checkpoint: str | None) -> None:
    """Train to the last step, from ``checkpoint`` if there is one, and save the final weights."""
    folder = None if checkpoint is None else run.checkpoints / checkpoint
    if folder is not None and folder.name == f"checkpoint-{config.run.steps}":
        trainer.load_weights(folder)  # it was only the final save that was missing
    else:
        trainer.train(resume_from_checkpoint=None if folder is None else str(folder))
    trainer.save_final(run.checkpoints / "final")
