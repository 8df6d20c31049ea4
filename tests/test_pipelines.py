"""Pipelines carried out: by processes that are killed and stopped in every kind of stage, to the same end.

The stages are ``fake_stage``'s, which come to a digest of all they were made of; one test trains for real.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fake_stage import DEATHS, digest
from workbench.errors import RunError
from workbench.rundir import RunStatus
from workbench.runs import list_runs, open_run, trashed
from workbench.runs.pipelines import Pipeline, StageProgress, list_pipelines, open_pipeline, run_pipeline
from workbench.runs.pipelines.progress import write_stage
from workbench.runs.processes import TAG

pytestmark = pytest.mark.usefixtures("warm_fake_runs")

FAKE = "tests.fake_stage"
JUDGE = {"name": "judge", "kind": "outcome", "model": {"path": "run:judge", "format": "classifier"}}
STAGES = [
    {"name": "policy", "run": {"method": "sft", "run": {"steps": 4, "save_every": 2}}},
    {"name": "pairs", "pairs": {"policy": "run:policy", "prompts": 4}},
    {
        "name": "judge",
        "run": {"method": "reward", "task": {"data": "data:pairs"}, "run": {"steps": 3, "save_every": 0}},
    },
    {"name": "learnt", "mix": {"fresh": "data:pairs", "replay": ["data:pairs"], "share": 0.5}},
    {
        "name": "endless",
        "run": {
            "policy": "run:policy@2",
            "method": {"rewards": [JUDGE], "credit": {"scheme": "outcome"}},
            "run": {"steps": 2},
        },
    },
]


def weights(seed: int, steps: int, policy: str, rewards: list[str], rows: str = "") -> str:
    """What a fake run comes to, worked out without one."""
    state = digest(policy, rewards, rows, seed)
    for step in range(1, steps + 1):
        state = digest(state, step)
    return state


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One life after the other of a pipeline, each ended in another stage; see ``LIVES``."""
    workspace = tmp_path_factory.mktemp("workspace")
    write_death(workspace, "policy", 3)
    pipeline = run_pipeline({"stages": STAGES}, workspace, name="it", module=FAKE, maker=FAKE)
    yield pipeline
    if not pipeline.status().final:
        pipeline.stop()


def write_death(workspace: Path, who: str, step: int, **more: Any) -> None:
    (workspace / DEATHS).write_text(json.dumps({"who": who, "step": step, **more}))


def go_on(pipeline: Pipeline) -> RunStatus:
    return pipeline.resume(module=FAKE, maker=FAKE).wait()


def states(pipeline: Pipeline) -> list[str]:
    return [stage.state for stage in pipeline.stages()]


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What was read of the process of a stage while it lived."""
    return {}


@pytest.fixture(scope="module")
def lives(pipeline: Pipeline, seen: dict[str, Any]) -> list[tuple[RunStatus, list[StageProgress]]]:
    """The status and the stages at each end: a run killed, rows killed, the pipeline killed in a run, a mix killed, and
    stopped."""
    ends = [(pipeline.wait(), pipeline.stages())]
    for who, step, more in (("pairs", 0, {}), ("judge", 2, {"driver": True}), ("learnt", 0, {})):
        write_death(pipeline.workspace, who, step, **more)
        ends.append((go_on(pipeline), pipeline.stages()))
    pipeline.resume(module=FAKE, maker=FAKE)
    for progress, row in pipeline.follow():
        if progress.name == "endless" and row is not None:
            if not seen:
                process = psutil.Process(open_run("it.endless", pipeline.workspace).status().pid)
                seen |= {"tag": process.environ()[TAG], "command": process.cmdline()[1:]}
                seen["leads a session"] = os.getsid(process.pid) == process.pid
            pipeline.stop()
    ends.append((pipeline.status(), pipeline.stages()))
    (pipeline.workspace / "go-on").touch()
    ends.append((go_on(pipeline), pipeline.stages()))
    return ends


def test_a_killed_run_ends_the_pipeline_and_says_why(lives: list[tuple[RunStatus, list[StageProgress]]]) -> None:
    status, stages = lives[0]
    assert (status.state, status.step, status.total_steps) == ("failed", 0, 5)
    assert (
        status.reason == "stage policy crashed: killed by signal 9 (SIGKILL), as the system does when memory runs "
        "out, at step 2 of 4"
    )
    assert [stage.state for stage in stages] == ["crashed", *["waiting"] * 4]


def test_killed_rows_and_a_killed_pipeline_are_found_as_such(
    lives: list[tuple[RunStatus, list[StageProgress]]],
) -> None:
    status, stages = lives[1]
    assert (status.state, status.reason) == ("failed", "stage pairs crashed: its process ended with code -9")
    assert [stage.state for stage in stages[:3]] == ["finished", "crashed", "waiting"]
    status, stages = lives[2]
    assert (status.state, status.step) == ("crashed", 2)
    assert "SIGKILL" in status.reason
    assert [stage.state for stage in stages[:2]] == ["finished", "finished"]
    status, stages = lives[3]
    assert (status.state, status.reason) == ("failed", "stage learnt crashed: its process ended with code -9")
    assert [stage.state for stage in stages] == [*["finished"] * 3, "crashed", "waiting"]


def test_a_stop_ends_the_stage_at_hand_cleanly(lives: list[tuple[RunStatus, list[StageProgress]]]) -> None:
    status, stages = lives[4]
    assert (status.state, status.reason) == ("stopped", "stage endless stopped: after step 1 of 4")
    assert [stage.state for stage in stages] == [*["finished"] * 4, "stopped"]


@pytest.mark.usefixtures("lives")
def test_a_stage_is_forked_by_a_copy_of_the_pipelines_own_process(pipeline: Pipeline, seen: dict[str, Any]) -> None:
    """Which was forked itself, with all that runs import; and the stage has the tag that a run is found by."""
    tag = str(pipeline.workspace / "runs" / "it.endless")
    assert seen == {"tag": tag, "command": ["-u", "-P", "-m", "tests.light_forks"], "leads a session": True}


def test_invariant_a_pipeline_that_was_killed_in_every_stage_comes_to_the_same_end(
    pipeline: Pipeline, lives: list[tuple[RunStatus, list[StageProgress]]]
) -> None:
    status, stages = lives[5]
    assert (status.state, status.reason, status.step) == ("finished", "5 stages", 5)
    policy = weights(0, 4, "tiny", [])
    rows = [{"prompt": f"{i}?", "chosen": f"{policy} {i}", "rejected": "no"} for i in range(20)]
    written = pipeline.file_of("pairs").read_text()
    assert [json.loads(line) for line in written.splitlines()] == rows
    judge = weights(0, 3, "tiny", [], written)
    last = weights(0, 2, weights(0, 2, "tiny", []), [judge])
    runs = {name: open_run(f"it.{name}", pipeline.workspace) for name in ("policy", "judge", "endless")}
    ends = [(run.dir.checkpoints / "final" / "weights").read_text() for run in runs.values()]
    assert ends == [policy, judge, last]
    assert runs["policy"].status().resumed_from == 2
    assert [row["step"] for row in runs["policy"].metrics_rows()[0]] == [0, 1, 2, 3, 4]
    assert len(list_runs(pipeline.workspace)) == 3
    assert [deleted.name for deleted in trashed(pipeline.workspace)] == ["it.endless"], "it had saved nothing"
    assert [(stage.metric, stage.before, stage.after, stage.rows) for stage in stages] == [
        ("accuracy", 0.25, 0.5, None),
        (None, None, None, 20),
        ("pair_accuracy", 0.25, 0.5, None),
        (None, None, None, 29),  # 20 and half of 18 that are not held out
        ("accuracy", 0.25, 0.5, None),
    ]


def test_a_finished_pipeline_is_listed_and_not_resumed(
    pipeline: Pipeline, lives: list[tuple[RunStatus, list[StageProgress]]]
) -> None:
    assert list_pipelines(pipeline.workspace) == [pipeline]
    assert open_pipeline("it", pipeline.workspace) == pipeline
    with pytest.raises(RunError, match=r"'it' is finished \(5 stages\); start it anew under another name"):
        pipeline.resume()
    with pytest.raises(RunError, match="'it' is already finished"):
        pipeline.stop()


def test_rows_that_changed_are_not_taken_for_those_that_were_made(
    pipeline: Pipeline, lives: list[tuple[RunStatus, list[StageProgress]]]
) -> None:
    from workbench.runs.pipelines.drive import Driver

    driver = Driver(pipeline, FAKE, FAKE, now=False)
    write_stage(pipeline.stage_file("pairs"), "running")  # as if it had been killed between rows and stage file
    assert driver.carry_out(pipeline.plan().stage("pairs")) == ("finished", "")
    assert pipeline.stages()[1].state == "finished"
    file = pipeline.file_of("pairs")
    file.write_text(file.read_text() + "\n")
    state, reason = driver.carry_out(pipeline.plan().stage("pairs"))
    assert (state, reason) == ("failed", f"{file} is not what this stage wrote; remove it, and it is made again")
