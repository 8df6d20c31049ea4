"""Runs as processes: started, followed, stopped to the last grandchild, and never silently dead."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import fake_run
from tests.configs import merged
from tests.waiting import wait_for
from workbench import runs
from workbench.errors import RunError
from workbench.rundir import RunDir, RunStatus, checkpoints
from workbench.rundir.metrics import resumed
from workbench.runs import Run, compare, devices, entrypoint, launch, list_runs, open_run, processes
from workbench.runs.processes import Standby
from workbench.training.methods import RunConfig

FAKE = "tests.fake_run"
Start = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Start]:
    """Start fake runs, and end whatever a failed test leaves of them."""
    started: list[Run] = []

    def begin(task: str, **config: object) -> Run:
        started.append(runs.start(RunConfig(name=task.replace("_", "-"), task=task, **config), tmp_path, module=FAKE))
        return started[-1]

    yield begin
    for run in started:
        processes.kill_all(run.path)


@pytest.fixture
def running(begin: Start) -> Run:
    """A fake run that has written its first row, and goes on until it is asked to stop."""
    run = begin("obey")
    next(iter(run.follow()))
    return run


def gone(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- a run that ends by itself --------------------------------------------------------------------------------------


def test_a_run_goes_from_start_to_finished(begin: Start, tmp_path: Path) -> None:
    run = begin("finish")
    assert run.path == tmp_path / "runs" / "finish"
    rows = list(run.follow())
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    status = run.wait()
    assert (status.state, status.step, status.device) == ("finished", 3, "cpu")
    assert status.started is not None
    assert gone(status.pid)
    assert list(run.metrics()["accuracy"]) == [0.3, 0.5, 0.7, 0.8]
    assert run.metrics_rows(run.metrics_rows()[1])[0] == []
    assert "def step_correctness(" in (run.path / "rewards" / "step_correctness.py").read_text()
    made = json.loads((run.path / "environment.json").read_text())
    assert made["packages"]["torch"] == version("torch")
    assert made["git"] == checkpoints.git_state(Path(runs.__file__).parents[2])


def test_a_run_s_process_is_detached_found_by_its_tag_and_stopped(running: Run) -> None:
    assert running.wait(timeout=0).state == "running"
    process = psutil.Process(running.status().pid)
    assert process.environ()[processes.TAG] == str(running.path)
    assert os.getsid(process.pid) == process.pid
    assert os.readlink(f"/proc/{process.pid}/fd/0") == os.devnull
    assert process.cmdline()[1:] == ["-m", FAKE, str(running.path)]
    running.dir.note(pid_created=0.0, launched=False)  # its starter died before it noted the process
    assert running.status().state == "running"
    running.dir.note(launched=True)
    for _ in range(2):  # also where it was stopped
        with pytest.raises(KeyboardInterrupt), running.stop_on_error():
            raise KeyboardInterrupt
        assert (running.status().state, running.status().reason) == ("stopped", "stopped at step 1 of 84")
    assert processes.members(running.path) == set()
    with pytest.raises(RunError, match="already stopped"):
        running.stop()


def test_a_standby_is_for_the_environment_that_it_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that it does not fit starts cold; ``tests.echo_child`` waits for its input as a standby does."""
    monkeypatch.setattr(processes, "FREE_BYTES", 0)
    standby, run = Standby("tests.echo_child"), RunDir.create(tmp_path, RunConfig())
    assert standby.take(run, ["this"], {}) is None
    standby.prepare()
    monkeypatch.setenv("HF_HOME", "/elsewhere")
    assert standby.take(run, ["this"], {}) is None
    monkeypatch.delenv("HF_HOME")
    process = standby.take(run, ["this"], {})
    assert process is not None
    process.wait(60)
    assert standby.take(run, ["this"], {}) is None
    monkeypatch.setattr(processes, "FREE_BYTES", 2**63)
    standby.prepare()
    assert standby.take(run, ["this"], {}) is None


def test_a_standby_that_has_to_wait_starts_anew_without_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exec_(command: list[str]) -> None:
        assert command[1:3] == ["-m", "workbench.runs.entrypoint"]
        sys.exit()

    monkeypatch.setenv(processes.STANDBY, "tag")
    monkeypatch.setattr(devices, "take", lambda pool, count, path, waits, **how: waits(None, "cpu"))
    monkeypatch.setattr(entrypoint, "_exec", exec_)
    run = RunDir.create(tmp_path, RunConfig())
    with pytest.raises(SystemExit):
        entrypoint.main([str(run.path), FAKE])
    assert (run.status().state, run.status().tag) == ("queued", "tag")


# -- a run that dies ------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Run]:
    """Start a run whose process is a shell script, which starts in no time."""

    def start(script: str) -> Run:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            return runs.start(RunConfig(), tmp_path, module=FAKE)

    return start


def printed_pid(run: Run) -> int:
    """The process whose id the run's script has printed."""
    return int(wait_for(lambda: run.log_tail(), "the script prints")[0])


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "printf 'Traceback\\nMemoryError: no room\\n\\n=====\\n'; exit 3",
            "its process exited with code 3 and no word; the last line of its log: MemoryError: no room",
        ),
        ("exit 0", "its process exited with code 0 and no word"),
        ("kill -9 $$", "killed by signal 9 (SIGKILL), as the system does when memory runs out, at step 0 of 84"),
    ],
)
def test_a_run_that_ends_without_a_word_has_crashed(shell: Callable[[str], Run], script: str, reason: str) -> None:
    run = shell(script)
    status = run.wait()
    assert (status.state, status.reason) == ("crashed", reason)
    assert open_run(run.name, run.path.parents[1]).status() == status


def test_a_run_killed_by_a_signal_leaves_no_orphan(shell: Callable[[str], Run]) -> None:
    run = shell("setsid sleep 600 & echo $!; kill -9 $$")
    assert run.wait().state == "crashed"
    assert gone(printed_pid(run))


def test_a_crash_nobody_watched_is_found_by_the_first_reader_and_written_once(tmp_path: Path) -> None:
    """The starter was another process that is gone too: the exit code is lost, the log is not."""
    folder = RunDir.create(tmp_path, RunConfig(name="a"))
    folder.log.write_text("loading\nRuntimeError: no such device\n")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    created = psutil.Process(ended.pid).create_time()
    ended.wait()
    folder.set_status("running", pid=ended.pid, pid_created=created, step=4)
    status = open_run("a", tmp_path).status()
    assert (status.state, status.step) == ("crashed", 4)
    assert status.reason == "its process is gone; the last line of its log: RuntimeError: no such device"
    assert RunDir(folder.path).status() == status


def test_the_starter_killed_leaves_the_run_going_and_findable(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from workbench import runs; from workbench.training.methods import RunConfig\n"
        f"run = runs.start(RunConfig(name='a', task='obey'), sys.argv[1], module={FAKE!r})\n"
        "next(iter(run.follow())); os.kill(os.getpid(), signal.SIGKILL)"
    )
    starter = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert starter.returncode == -signal.SIGKILL
    run = open_run("a", tmp_path)
    assert run.status().state == "running"
    assert [row["step"] for row in run.metrics_rows()[0]] == [1]
    assert run.stop().reason == "stopped at step 1 of 84"
    assert processes.members(run.path) == set()


# -- stopping -------------------------------------------------------------------------------------------------------


def test_a_run_that_ends_without_a_word_when_it_is_asked_to_was_stopped(shell: Callable[[str], Run]) -> None:
    status = shell("exec sleep 600").stop()
    assert (status.state, status.reason) == ("stopped", "stopped on request while it was queued")
    run = shell("exec sleep 600")
    run.dir.set_status("running", step=3)
    assert run.stop().reason == "stopped on request at step 3 of 84"


def test_a_run_that_does_not_listen_is_ended_with_all_it_started(shell: Callable[[str], Run]) -> None:
    """Its child has neither the run's tag nor its session: only its parent gives it away."""
    run = shell("trap '' TERM; env -i setsid sleep 600 & echo $!; while :; do sleep 600; done")
    child = printed_pid(run)
    run.dir.set_status("running")
    status = run.stop(timeout=0.5)
    assert (status.state, status.reason) == ("stopped", "stopped on request at step 0 of 84, by force")
    assert gone(child)
    assert gone(status.pid)


# -- one run a device ------------------------------------------------------------------------------------------------


def until(run: Run, wanted: Callable[[RunStatus], bool]) -> RunStatus:
    """The first status that is as wanted."""
    while not wanted(status := run.status()):
        assert not status.final, status
        run.wait(timeout=0.02)
    return status


def test_a_queue_is_served_in_its_order_and_a_dead_waiter_forgotten(begin: Start, running: Run, tmp_path: Path) -> None:
    first, second, last = begin("obey"), begin("finish"), begin("finish")
    status = until(first, lambda status: status.behind == "obey")
    assert (status.state, status.reason, status.started) == ("queued", "waiting: run 'obey' uses the CPU", None)
    assert status.pid is not None
    waiting = psutil.Process(status.pid)
    assert waiting.memory_full_info().uss < 2**27  # torch alone is more
    until(second, lambda status: status.behind == "obey-2")
    until(last, lambda status: status.behind == "finish")
    waiting.kill()
    assert first.wait().state == "crashed"
    second.start_now()
    assert second.wait().state == "finished"
    assert until(last, lambda status: status.behind == "obey").state == "queued"
    beside = runs.start(RunConfig(name="beside", task="finish"), tmp_path, now=True, module=FAKE)
    assert beside.wait().state == "finished"
    for run, state in ((second, "finished"), (running, "running")):
        with pytest.raises(RunError, match=f"is {state}"):
            run.start_now()
    running.stop()
    assert last.wait().state == "finished"
    assert [row["step"] for row in last.metrics_rows()[0]] == [0, 1, 2, 3]
    assert last.status().behind is None


def test_only_the_devices_that_are_held_are_seen_by_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert entrypoint.seen_by_the_run(("GPU-b", "GPU-c")) == {devices.VISIBLE: "GPU-b,GPU-c"}
    for there, on_cpu in (([], {}), (["GPU-b"], {devices.VISIBLE: ""})):  # a CPU run does not open the GPU
        monkeypatch.setattr(devices, "gpus", lambda there=there: there)
        assert entrypoint.seen_by_the_run(("cpu",)) == on_cpu
    assert entrypoint.seen_by_the_run(("cuda",)) == {}  # no device is called that


# -- resuming --------------------------------------------------------------------------------------------------------


def test_a_killed_run_is_resumed_from_its_last_checkpoint_and_shows_each_step_once(begin: Start) -> None:
    run = begin("save")
    assert run.wait().state == "crashed"
    assert run.resumable
    assert [row["step"] for row in run.metrics_rows()[0]] == [1, 2, 3, 4, 5]
    _, cursor = run.metrics_rows()
    file, config = run.path / "run.yaml", run.config().model_dump(mode="json")
    for change, said in (
        ({"seed": 9}, "seed (was 0, is 9)"),
        ({"method": {"sampling": {"num_generations": 2}}}, "method.sampling.num_generations (was 8, is 2)"),
    ):
        file.write_text(RunConfig.parse(merged(config, change)).to_yaml())
        with pytest.raises(RunError, match=re.escape(said)):
            run.resume(module=FAKE)
        assert run.status().state == "crashed"
    file.write_text(RunConfig.parse(merged(config, {"run": {"steps": 200, "micro_batch_size": 8}})).to_yaml())
    status = run.resume(module=FAKE).wait()
    assert (status.state, status.resumed_from, status.warnings) == ("finished", 4, ())
    lives = [(row["step"], row["life"]) for row in run.metrics_rows()[0]]
    assert lives == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2)]
    with pytest.raises(RunError, match="from step 4"):
        run.metrics_rows(cursor)
    assert not run.resumable
    with pytest.raises(RunError, match="is finished"):
        run.resume()


def test_rows_that_are_lost_before_a_resume_are_named(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, RunConfig())
    for step in (1, 2):
        run.append_metrics({"step": step})
    (run.checkpoints / checkpoints.SAVING).mkdir()
    checkpoints.seal(run.checkpoints / checkpoints.SAVING, run.checkpoints / "checkpoint-4", {"step": 4})
    assert entrypoint._pick_checkpoint(run, save_steps=2) == ["--resume", "checkpoint-4"]
    assert run.status().warnings == ("metrics.jsonl ends at step 2; rows of steps 3 to 4 are lost",)


def test_a_follower_is_given_what_a_resume_did_again(tmp_path: Path) -> None:
    """This process stands for the run's; it is killed and resumed between two looks of the follower."""
    folder = RunDir.create(tmp_path, RunConfig(name="a"))
    for step in (1, 2, 3):
        folder.append_metrics({"step": step, "life": 1})
    rows = Run(folder.path).follow()
    assert [next(rows)["step"] for _ in range(3)] == [1, 2, 3]
    folder.append_metrics(resumed(2))
    for step in (3, 4):
        folder.append_metrics({"step": step, "life": 2})
    folder.set_status("finished", resumed_from=2, pid=None)
    assert [(row["step"], row["life"]) for row in rows] == [(3, 2), (4, 2)]


# -- finding runs ---------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_only_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path) == []
    for number, name in enumerate(("b", "a", "c")):
        path = RunDir.create(tmp_path, RunConfig(name=name)).path
        os.utime(path / "run.yaml", (number, number))
    (tmp_path / "runs" / "no-run").mkdir()
    (tmp_path / "runs" / "file").touch()
    assert [run.name for run in list_runs(tmp_path)] == ["c", "a", "b"]


def test_the_default_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_WORKSPACE", raising=False)
    RunDir.create(tmp_path / "workspace", RunConfig(name="a"))
    assert open_run("a").path == tmp_path / "workspace" / "runs" / "a"


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "a\x00", "x" * 300, "-a"])
def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="name"):
        open_run(name, tmp_path)


# -- comparing ------------------------------------------------------------------------------------------------------


def test_schemes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are over as soon as their last row was reported."""
    seen: list[tuple[str, int]] = []

    def go_on(run: RunDir, module: str, **how: bool) -> None:
        fake_run.finish(run)
        run.set_status("running")

    def report(run: Run, row: dict[str, Any]) -> None:
        seen.append((run.name, row["step"]))
        if row["step"] == 3:
            run.dir.set_status("finished", step=3, pid=None)

    monkeypatch.setattr(launch, "spawn", go_on)
    config = RunConfig(task="finish", seed=5)
    compared = list(compare(config, ["outcome", "process"], 1, tmp_path, report=report, module=FAKE))
    assert seen == [(f"compare-{scheme}-5", step) for scheme in ("outcome", "process") for step in range(4)]
    assert [(run.config().grpo.credit.scheme, row.final_accuracy) for run, row in compared] == [
        ("outcome", 0.6),
        ("process", 0.8),
    ]
