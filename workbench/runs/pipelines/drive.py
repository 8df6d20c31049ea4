"""Entry point of a pipeline's process: ``python -m workbench.runs.pipelines.drive <pipeline's directory>``.

Goes through the stages in their order: what is finished is passed by, what was begun goes on, what is new is started.
Runs are started as any other, so that they outlive this process; rows are made by a child that ends with it. It holds
no torch and no device. SIGTERM stops the stage at hand.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from workbench.child import is_forked
from workbench.errors import RunError, WorkbenchError
from workbench.files import read_json
from workbench.rundir import RunState
from workbench.runs.launch import go_on
from workbench.runs.pipelines.check import carried_out
from workbench.runs.pipelines.pipeline import Pipeline
from workbench.runs.pipelines.plan import Stage, run_name
from workbench.runs.pipelines.progress import read_stage, write_stage
from workbench.runs.run import WORKSPACE
from workbench.runs.spawn import TRAINING, tagged_environment
from workbench.runs.warm import warm_up
from workbench.schema.wording import counted
from workbench.tasks.made import provenance_of, sha256

MAKE = "workbench.runs.pipelines.make"
_POLL = 0.2
_CHILD_SECONDS = 5.0
End = tuple[RunState, str]
"""How a stage ended, and why."""


class Driver:
    """One life of a pipeline's process. ``stop_requested`` is set by SIGTERM and looked at while a stage goes on."""

    def __init__(self, pipeline: Pipeline, module: str, maker: str, now: bool) -> None:
        self.pipeline, self.plan = pipeline, pipeline.plan()
        self.module, self.maker, self.now = module, maker, now
        self.files = {stage.name: pipeline.file_of(stage.name) for stage in self.plan.stages}
        self.stop_requested = False

    def request_stop(self, *_: object) -> None:
        self.stop_requested = True

    def go(self) -> End:
        """Carry out the stages from the first that is not done; how the pipeline ended."""
        stages = self.plan.stages
        if is_forked() or (self.module == TRAINING and sum(stage.is_run for stage in stages) > 1):
            warm_up(wait=True)
        for number, stage in enumerate(stages):
            if self.stop_requested:
                return "stopped", f"on request before stage {stage.name}"
            self.pipeline.dir.set_status("running", f"stage {number + 1} of {len(stages)}: {stage.name}", step=number)
            state, reason = self.carry_out(stage)
            if state != "finished":
                ended: RunState = "stopped" if state == "stopped" else "failed"
                return ended, f"stage {stage.name} {state}: {reason}" if reason else f"stage {stage.name} {state}"
        self.pipeline.dir.note(step=len(stages))
        return "finished", counted(len(stages), "stage")

    def carry_out(self, stage: Stage) -> End:
        file = self.pipeline.stage_file(stage.name)
        state: RunState
        try:
            if self._is_done(stage):
                state, reason = "finished", ""
            else:
                write_stage(file, "running")
                print(f"stage {stage.name}", flush=True)
                state, reason = self._train(stage) if stage.is_run else self._make(stage)
        except WorkbenchError as error:
            state, reason = "failed", str(error)
        if (state, read_stage(file).get("state")) != ("finished", "finished"):
            write_stage(file, state, reason, ended=True)
        return state, reason

    def _is_done(self, stage: Stage) -> bool:
        if not stage.is_run:
            return self._is_made(stage)
        run = self.pipeline.run_of(stage.name)
        return run is not None and run.status().state == "finished"

    # -- a run ------------------------------------------------------------------------------------------------------

    def _train(self, stage: Stage) -> End:
        config = carried_out(stage, self.plan, self.files).config
        assert config is not None
        config.name = run_name(self.pipeline.name, stage.name)
        run = go_on(config, self.pipeline.workspace, now=self.now, module=self.module)
        while not (status := run.wait(_POLL)).final:
            if self.stop_requested:
                status = run.stop()
                break
        return status.state, status.reason

    # -- rows -------------------------------------------------------------------------------------------------------

    def _make(self, stage: Stage) -> End:
        command = [sys.executable, "-m", MAKE, str(self.pipeline.path), stage.name, self.maker, *["--now"] * self.now]
        environment = {**tagged_environment(self.pipeline.path), WORKSPACE: str(self.pipeline.workspace)}
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        while True:
            try:
                code = child.wait(_POLL)
                break
            except subprocess.TimeoutExpired:
                if self.stop_requested:
                    _end(child)
                    return "stopped", "while its rows were made"
        if code == 0 and self._is_made(stage):
            return "finished", ""
        said = [line for line in self.pipeline.log_tail() if line.startswith("error: ")]
        reason = said[-1].removeprefix("error: ") if said and code > 0 else f"its process ended with code {code}"
        return ("failed" if code > 0 else "crashed"), reason

    def _is_made(self, stage: Stage) -> bool:
        """Whether the stage's rows are there as they were written. Raises RunError for rows that changed since."""
        file = self.files[stage.name]
        if not file.exists():
            return False
        try:
            written = read_json(provenance_of(file))["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            written = None
        if written != sha256(file):
            raise RunError(f"{file} is not what this stage wrote; remove it, and it is made again")
        return True


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def main(arguments: list[str]) -> int:
    """Drive the pipeline to its end; the exit code is 0 unless a stage failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--module", required=True, help="what a run becomes")
    parser.add_argument("--maker", required=True, help="the module of the data commands")
    parser.add_argument("--now", action="store_true", help="wait for no device")
    args = parser.parse_args(arguments)
    pipeline = Pipeline(args.folder)
    try:
        driver = Driver(pipeline, args.module, args.maker, args.now)
        signal.signal(signal.SIGTERM, driver.request_stop)
        state, reason = driver.go()
    except WorkbenchError as error:
        state, reason = "failed", str(error)
    except Exception as error:
        traceback.print_exc()
        state, reason = "failed", f"{type(error).__name__}: {error}"
    pipeline.dir.set_status(state, reason)
    print(f"{state}: {reason}", flush=True)
    return 0 if state in ("finished", "stopped") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
