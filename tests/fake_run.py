"""A run's process without torch: does at once what its configuration's ``task`` names. Started by the tests of runs.

It writes through ``RunDir`` as training does, knows nothing of who started it, and imports little: it is started often.
"""

import os
import signal
import sys
from typing import Any

import yaml

from workbench.rundir import RunDir, checkpoints
from workbench.rundir.metrics import resumed

_BASE, _LATER = 0.3, {"process": (0.5, 0.7, 0.8), "outcome": (0.4, 0.5, 0.6), "sum": (0.4, 0.4, 0.4)}


def stored(run: RunDir) -> Any:
    """A run's configuration as plain data."""
    return yaml.safe_load(run.config_text())


def finish(run: RunDir) -> None:
    """Three steps that measure accuracy; how good they get depends on the credit scheme."""
    run.append_metrics({"step": 0, "accuracy": _BASE, "seconds": 0.0, "rollouts": 0})
    for step, accuracy in enumerate(_LATER[stored(run)["method"]["credit"]["scheme"]], start=1):
        run.append_metrics(
            {"step": step, "reward": 0.5, "accuracy": accuracy, "seconds": step * 1.5, "rollouts": 64 * step}
        )
    run.set_status("finished", step=3)


def obey(run: RunDir) -> None:
    """Go on until asked to stop, then say so and end."""

    def stop(*_: object) -> None:
        run.set_status("stopped", "stopped at step 1 of 84")
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    run.append_metrics({"step": 1})
    while True:
        signal.pause()


def save(run: RunDir) -> None:
    """Log six steps and save every other one; in its first life die by SIGKILL after the fifth."""
    steps, life = 6, 1
    begin = 0
    if sys.argv[2:]:
        _, checkpoint = sys.argv[2:]
        begin, life = int(checkpoint.removeprefix("checkpoint-")), 2
        run.append_metrics(resumed(begin))
        run.drop_rollouts(after=begin)
    for step in range(begin + 1, steps + 1):
        run.append_metrics({"step": step, "life": life})
        run.note(step=step)
        if step % 2 == 0:
            draft = run.checkpoints / checkpoints.SAVING
            draft.mkdir()
            (draft / "weights").write_text(f"{step}")
            checkpoints.seal(draft, run.checkpoints / f"checkpoint-{step}", {"step": step})
        if step == 5 and life == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    run.set_status("finished", "6 steps", step=steps)


if __name__ == "__main__":
    directory = RunDir(sys.argv[1])
    directory.set_status("running", device="cpu")
    behaviour = {f.__name__: f for f in (finish, obey, save)}
    behaviour[stored(directory)["task"]["name"]](directory)
