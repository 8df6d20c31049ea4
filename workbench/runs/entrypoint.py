"""Entry point of a run's process: ``python -m workbench.runs.entrypoint <run directory> <module> …``.

It looks at the run's rows, waits for its device, picks the checkpoint to resume from, writes down what the run is made
with, and becomes training: the process, its id, its tag and its lock stay. Until then it uses no torch: a run that
waits costs nothing. A standby process, which has imported training already, goes on as training if it gets the CPU at
once. If it has to wait it starts anew as this program; on a GPU as training, since CUDA may have looked at other
devices than the run's.
"""

import argparse
import os
import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import psutil

from workbench.errors import WorkbenchError
from workbench.rundir import RunDir, checkpoints
from workbench.rundir.checkpoints import write_environment
from workbench.runs import devices
from workbench.runs.launch import check_origins
from workbench.runs.processes import STANDBY, TRAINING, training_command
from workbench.training.methods import RunConfig


class _HasToWaitError(Exception):
    """A standby process does not get its device at once."""


def main(arguments: list[str]) -> None:
    """Become training; returns only when that failed, the run's status saying why."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("module", help="what to become")
    parser.add_argument("--queued", type=int, default=time.time_ns(), help="since when the run waits, in nanoseconds")
    parser.add_argument("--now", action="store_true", help="without waiting for the device")
    parser.add_argument("--resume", action="store_true", help="from the newest valid checkpoint")
    args = parser.parse_args(arguments)
    run = RunDir(args.folder)
    tag = os.environ.pop(STANDBY, None)
    run.note(pid=os.getpid(), pid_created=psutil.Process().create_time(), launched=True, tag=tag)
    try:
        config = RunConfig.from_yaml(run.config_text())
        check_origins(config)
        if args.module == TRAINING and not args.resume:
            config.method.check_rows(config)
        held = _wait_for_device(run, config, args.queued, now=args.now, is_standby=tag is not None)
        run.note(started=time.time(), behind=None, device="")
        resume = _pick_checkpoint(run, config.run.save_steps) if args.resume else []
        write_environment(run.path, config)
    except _HasToWaitError:
        _exec([sys.executable, "-m", "workbench.runs.entrypoint", *arguments])
    except WorkbenchError as error:
        print(f"error: {error}", flush=True)
        run.set_status("failed", str(error))
        return
    run.set_status("starting", "loading the trainer")
    os.environ.update(seen_by_the_run(held))
    command = training_command(run.path, config.run.ranks, args.module, *resume)
    if tag is not None and held == ("cpu",):
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
        sys.exit()
    _exec(command)


def _exec(command: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    os.execv(command[0], list(command))


def seen_by_the_run(held: tuple[str, ...]) -> dict[str, str]:
    """Environment that limits CUDA to the devices held: to none on the CPU, and as it is where they have no names."""
    if held == ("cpu",):
        return {devices.VISIBLE: ""} if devices.gpus() else {}
    named = all(name.startswith(devices.NAMED) for name in held)
    return {devices.VISIBLE: ",".join(held)} if named else {}


def _wait_for_device(run: RunDir, config: RunConfig, since: int, *, now: bool, is_standby: bool) -> tuple[str, ...]:
    def waits(behind: Path | None, device: str) -> None:
        if is_standby:
            raise _HasToWaitError
        name = behind.name if behind is not None and behind.parent == run.path.parent else None
        other = "another run (not in this workspace)" if name is None else f"run {name!r}"
        used = "the CPU" if device == "cpu" else f"GPU {device.removeprefix('GPU-')[:8]}"
        reason = f"waiting: {other} uses {used}"
        run.set_status("queued", reason, behind=name)
        print(reason, flush=True)

    pool = devices.pool(config.run.device)
    one_each = config.policy.device_map == "none"  # else one process spreads its weights over all
    count = config.run.ranks if one_each else len(pool)
    return devices.take(pool, count, run.path, waits, since=since, hurried=lambda: now or run.status().now)


def _pick_checkpoint(run: RunDir, save_steps: int) -> list[str]:
    """Return the arguments that have training resume. Raises RunError naming what is wrong with every checkpoint."""
    run.set_status("starting", "checking the checkpoints")
    checkpoint, skipped = checkpoints.newest_valid(run.checkpoints)
    if checkpoint is None:
        raise checkpoints.nothing_usable(run.name, skipped, save_steps=save_steps, step=run.status().step or 0)
    warnings, step = [f"skipped {what}" for what in skipped], checkpoint.step
    last = max((row.get("step") or 0 for row in run.read_metrics()[0]), default=0)  # every step logs a row
    if last < step:
        warnings.append(f"metrics.jsonl ends at step {last}; rows of steps {last + 1} to {step} are lost")
    for line in (*warnings, f"resuming from {checkpoint.name}"):
        print(line, flush=True)
    run.note(warnings=tuple(warnings), resumed_from=step, step=step)
    return ["--resume", checkpoint.name]


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(1)
