"""What a run's process does, done in the tests' own: libraries are imported once for all runs."""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from transformers.utils import logging

from tests.stored_runs import config_of
from workbench.policies.client import ModelWorker
from workbench.policies.worker import PolicyCache, handle
from workbench.process.train import Recorder, main
from workbench.rewards import Sandbox
from workbench.rewards.models.model import LocalModels
from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.runs.processes import TRAINING, spawn
from workbench.sandbox.client import DEADLINE
from workbench.training import building
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners


def share_sandboxes() -> None:
    """Give runs that train in this process the same sandbox, which takes half a second to start."""
    building.Sandbox = _shared_sandbox  # type: ignore[assignment,misc]


def _shared_sandbox(deadline: float = DEADLINE, *, isolate: bool = False) -> Sandbox:
    return _sandbox_of(os.getpid(), deadline, isolate)  # a rank that is forked off needs its own


@cache
def _sandbox_of(process: int, deadline: float, isolate: bool) -> Sandbox:
    return Sandbox(deadline, isolate=isolate)


def trained(config: RunConfig, workspace: Path) -> Run:
    """A run of ``config`` that is over."""
    return carry_out(Run(RunDir.create(workspace, config).path))


def carry_out(run: Run, resume: str | None = None) -> Run:
    """Train from the beginning, or from the checkpoint named."""
    on_stop = signal.getsignal(signal.SIGTERM)
    try:
        main([str(run.path), *(["--resume", resume] if resume else [])])
    finally:
        signal.signal(signal.SIGTERM, on_stop)
        logging.enable_progress_bar()  # which a run's process has no use for
    return run


def started_here(run: RunDir, module: str = TRAINING, **how: bool) -> None:
    """Stands for ``spawn`` where a run's process is not what is looked at: the run is over when this returns."""
    if module != TRAINING:
        spawn(run, module, **how)
        return
    with run.log.open("a") as log, redirect_stdout(log), redirect_stderr(log):
        carry_out(Run(run.path))
    run.note(pid=None)  # nobody waits for this process to end


def worker_here() -> ModelWorker:
    """Return a model worker without its process."""
    worker = ModelWorker()
    worker._child = _InThisProcess()  # type: ignore[assignment]
    return worker


class _InThisProcess:
    alive = True

    def __init__(self) -> None:
        self._models = PolicyCache(), LocalModels()

    def call(self, request: dict[str, Any], *, on_event: Any, **patience: Any) -> Any:
        def emit(event: dict[str, Any]) -> None:
            if on_event is not None:
                on_event(event)

        emit.cancelled = lambda: False  # type: ignore[attr-defined]
        return json.loads(json.dumps(handle(request, emit, *self._models)))  # type: ignore[arg-type]

    def close(self) -> None:
        pass


def train(run: RunDir, resume: str | None = None) -> Any:
    """Train with the recorder's rows alone, from the beginning or from the checkpoint named; the trainer."""
    config = config_of(run)
    listeners = Listeners(callbacks=[Recorder(run, config, writes=True)])
    trainer: Any = METHODS[config.method.name].build(config, run.checkpoints, listeners)
    trainer.train(resume_from_checkpoint=None if resume is None else str(run.checkpoints / resume))
    run.close()
    return trainer


def train_and_store(config: RunConfig, folder: Path) -> tuple[RunDir, Any, list[dict[str, Any]]]:
    """Train with rollouts and passes stored; the run's directory, its trainer, and what its loss was given."""
    run = RunDir.create(folder, config)
    listeners = Listeners(on_rollouts=run.rollouts.write, on_pass=run.passes.write)
    trainer: Any = METHODS[config.method.name].build(config_of(run), folder / "out", listeners)
    inputs = keep_inputs(trainer)
    trainer.train()
    return run, trainer, inputs


def keep_inputs(trainer: Any) -> list[dict[str, Any]]:
    """What the trainer's loss is given from now on, each with the ``step`` that was done before."""
    seen, original = list[dict[str, Any]](), trainer._compute_loss

    def kept(model: Any, inputs: dict[str, Any]) -> Any:
        seen.append({**inputs, "step": trainer.state.global_step})
        return original(model, inputs)

    trainer._compute_loss = kept
    return seen


def numbers(run: RunDir) -> list[dict[str, Any]]:
    """A run's rows without its clock."""
    timed = ("time", "seconds", "peak_memory_mb")
    return [{name: value for name, value in row.items() if name not in timed} for row in run.read_metrics()[0]]


def written(folder: Path, *rows: Mapping[str, Any], name: str = "rows.jsonl") -> str:
    """A file of these rows."""
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)
