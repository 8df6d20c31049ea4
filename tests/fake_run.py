"""A run's process without torch: does at once what its configuration's ``task`` names. Started by the tests of runs.

It writes through ``RunDir`` as training does, and knows nothing of who started it.
"""

import os
import signal
import subprocess
import sys

from workbench.rundir import RunDir, checkpoints
from workbench.rundir.metrics import resumed
from workbench.training.methods import RunConfig

_PAUSE = "import signal  # of a fake run\nwhile True: signal.pause()"
_BASE, _LATER = 0.3, {"process": (0.5, 0.7, 0.8), "outcome": (0.4, 0.5, 0.6), "sum": (0.4, 0.4, 0.4)}


def finish(run: RunDir) -> None:
    """Three steps that measure accuracy; how good they get depends on the credit scheme."""
    run.append_metrics({"step": 0, "accuracy": _BASE, "seconds": 0.0, "rollouts": 0})
    for step, accuracy in enumerate(_LATER[RunConfig.from_yaml(run.config_text()).grpo.credit.scheme], start=1):
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


def mute(run: RunDir) -> None:
    """Go on until SIGTERM ends it without a word."""
    run.append_metrics({"step": 1})
    while True:
        signal.pause()


def stubborn(run: RunDir) -> None:
    """Ignore every request, with a child that is in a session of its own and has scrubbed its environment."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", _PAUSE], env={}, start_new_session=True)
    run.append_metrics({"step": 1, "child": child.pid})
    while True:
        signal.pause()


def orphan(run: RunDir) -> None:
    """Die by SIGKILL, leaving a child of the same run behind."""
    child = subprocess.Popen([sys.executable, "-c", _PAUSE], start_new_session=True)
    run.append_metrics({"step": 1, "child": child.pid})
    os.kill(os.getpid(), signal.SIGKILL)


def exit_3(run: RunDir) -> None:
    """End with an error that only the log tells."""
    print("Traceback\nMemoryError: no room\n\n=======", flush=True)
    os._exit(3)


def exit_0(run: RunDir) -> None:
    """End as if all were well, without a final status."""


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


def fail(run: RunDir) -> None:
    run.append_metrics({"step": 0, "accuracy": _BASE})
    run.set_status("failed", "loss became NaN at step 1")
    sys.exit(1)


if __name__ == "__main__":
    if os.environ.get("RANK", "0") != "0":  # only the first rank writes
        while True:
            signal.pause()
    directory = RunDir(sys.argv[1])
    directory.set_status("running", device="cpu")
    behaviour = {f.__name__: f for f in (finish, obey, mute, stubborn, orphan, exit_3, exit_0, fail, save)}
    behaviour[RunConfig.from_yaml(directory.config_text()).task.name](directory)
