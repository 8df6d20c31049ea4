"""What a run's process does, done in the tests' own: libraries are imported once for all runs."""

from __future__ import annotations

import signal
from pathlib import Path

from transformers.utils import logging

from workbench.config.run import RunConfig
from workbench.process.train import main
from workbench.rundir import RunDir
from workbench.runs import Run


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
