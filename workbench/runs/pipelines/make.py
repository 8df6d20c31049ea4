"""Entry point of the process that makes a stage's rows: ``… make <pipeline's directory> <stage> <module>``.

It waits for a device where the rows are sampled, as a run does, and becomes the data command of ``python -m <module>``
by ``exec``. The rows are in the pipeline's folder once they are whole.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.runs import devices
from workbench.runs.begin import seen_by_the_run, waiting_for
from workbench.runs.check import with_absolute_paths
from workbench.runs.pipelines.check import carried_out
from workbench.runs.pipelines.pipeline import Pipeline
from workbench.runs.pipelines.plan import ROWS, Stage
from workbench.runs.pipelines.progress import write_stage
from workbench.runs.references import resolved


def main(arguments: list[str]) -> None:
    """Become the data command; returns only when that failed, the log saying why."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage")
    parser.add_argument("module")
    parser.add_argument("--now", action="store_true")
    args = parser.parse_args(arguments)
    pipeline = Pipeline(args.folder)
    try:
        plan = pipeline.plan()
        files = {stage.name: pipeline.file_of(stage.name) for stage in plan.stages}
        stage = carried_out(plan.stage(args.stage), plan, files)
        command = [sys.executable, "-m", args.module, *arguments_of(stage, pipeline)]
        held = {} if stage.config is None else _device(stage, pipeline, args.now)
    except WorkbenchError as error:
        print(f"error: {error}", flush=True)
        return
    write_stage(pipeline.stage_file(stage.name), "running")
    os.environ.update(held)
    os.execv(command[0], command)


def arguments_of(stage: Stage, pipeline: Pipeline) -> list[str]:
    """The data command and its arguments; what is sampled is written into a file beside the rows, for ``--config``."""
    assert stage.options is not None
    options = stage.options.model_dump(exclude_none=True)
    if stage.config is not None:
        config = with_absolute_paths(resolved(stage.config, pipeline.workspace))
        file = pipeline.path / "data" / f"{stage.name}.yaml"
        file.write_text(config.to_yaml(), encoding="utf-8")
        options |= {"config": file}
    flags = [text for name, value in options.items() for text in _flag(name, value)]
    return [*ROWS[stage.kind].words, str(pipeline.file_of(stage.name)), *flags, "--json"]


def _flag(name: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for each in values for text in (f"--{name.replace('_', '-')}", str(each))]


def _device(stage: Stage, pipeline: Pipeline, now: bool) -> dict[str, str]:
    """Wait for the device, and hold it through ``exec``; the environment that names it."""
    assert stage.config is not None
    pool = devices.pool(stage.config.run.device)

    def waits(behind: Path | None, device: str) -> None:
        reason, _ = waiting_for(behind, device, pipeline.workspace)
        write_stage(pipeline.stage_file(stage.name), "queued", reason)
        print(reason, flush=True)

    held = devices.take_now(pool, 1, pipeline.path) if now else devices.take(pool, 1, pipeline.path, waits)
    return seen_by_the_run(held)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(1)
