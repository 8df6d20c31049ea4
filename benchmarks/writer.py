"""A run's process without torch, for injecting faults: it writes as training does and takes a blink to start.

Started as ``python -m benchmarks.writer <run directory> [--resume <checkpoint>]``. The configuration's ``task``
says which moment of a run it stays in: ``load`` (starting), ``write`` (running, a row every few milliseconds) or
``save`` (in the middle of a checkpoint). After each row it notes the step in ``ACKNOWLEDGED``: a row noted there was
promised.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workbench.config import RunConfig
from workbench.errors import RunError
from workbench.rewards.seal import sealed_environment, sealed_folder
from workbench.rundir import RunDir, checkpoints
from workbench.rundir.metrics import resumed

ACKNOWLEDGED = "acknowledged"
ROW_SECONDS = 0.002
SAVE_EVERY = 20
REWARD_WORKER = "import signal\nwhile True: signal.pause()"


def main(folder: str, *flags: str) -> int:
    run = RunDir(Path(folder))
    if os.environ.get("RANK", "0") != "0":  # only the first rank writes
        while True:
            signal.pause()
    task = RunConfig.from_yaml(run.config_text()).task.name
    # As a rank's reward worker: in a session of its own, with the environment that such a one has.
    environment = sealed_environment(dict(os.environ)) | sealed_folder(Path(tempfile.gettempdir()))
    subprocess.Popen([sys.executable, "-c", REWARD_WORKER], env=environment, start_new_session=True)
    while task == "load":
        time.sleep(ROW_SECONDS)
    signal.signal(signal.SIGTERM, lambda *_: _stopped(run))
    begin = int(flags[1].rpartition("-")[2]) if flags else 0
    run.set_status("running", device="cpu", step=begin)
    try:
        _write(run, begin, task)
    except RunError as error:
        run.settle("failed", str(error), certain=False)
    return 1


def _write(run: RunDir, begin: int, task: str) -> None:
    if begin:
        run.append_metrics(resumed(begin))
    noted = os.open(run.path / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT, 0o644)
    for step in itertools.count(begin + 1):
        run.append_metrics({"step": step, "loss": 1.0 / step, "seconds": 0.0})
        os.pwrite(noted, f"{step:12d}".encode(), 0)
        if step % SAVE_EVERY == 0:
            _save(run, step, stay=task == "save")
        time.sleep(ROW_SECONDS)


def _save(run: RunDir, step: int, *, stay: bool) -> None:
    draft = run.checkpoints / checkpoints.SAVING
    draft.mkdir(exist_ok=True)
    weights = draft / "model.safetensors"
    weights.write_bytes(bytes(64 * 1024))
    while stay:
        weights.write_bytes(bytes(64 * 1024))
    checkpoints.seal(draft, run.checkpoints / f"checkpoint-{step}", {"step": step})
    checkpoints.prune(run.checkpoints, 2)


def _stopped(run: RunDir) -> None:
    run.set_status("stopped", "on request")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
