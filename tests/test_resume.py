"""A resumed run is the run it would have been: bit for bit on one CPU, whatever is trained and however it ended."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import workbench as wb
from tests.configs import merged
from tests.in_this_process import carry_out, trained, written
from tests.ranks import running_on_ranks
from tests.resumes import CLERK, difference, stored_rows
from workbench.places import ADAPTER
from workbench.process import train as process
from workbench.rundir import RunDir, checkpoints
from workbench.runs import Run, start
from workbench.runs.processes import members
from workbench.training.methods import METHODS, RunConfig

pytestmark = pytest.mark.training


LORA = {"policy": {"lora": {"r": 4, "alpha": 8}}}
SAMPLED = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 32}}
TWO_REWARDS = [{"name": "step_correctness"}, {"name": "length_and_mistake", "schedule": [[0, 2.0], [4, 0.0]]}]
STEP_AND_OUTCOME = [{"name": "step_correctness"}, {"name": "answer_correctness", "kind": "outcome"}]
MOVING_REFERENCE = {"beta": 0.04, "sync_ref_model": True, "ref_model_sync_steps": 1}
CHANGES: dict[str, dict[str, Any]] = {
    "grpo": {
        "method": {"rewards": TWO_REWARDS, "num_iterations": 2, **MOVING_REFERENCE},
        "run": {"eval_steps": 2, "eval_prompts": 2},
    },
    "grpo, LoRA": {
        "method": {"credit": {"scheme": "outcome"}, "beta": 0.04, "resample_flat": 1},
        "environment": CLERK,
    },
    "ppo": {"method": {"rewards": STEP_AND_OUTCOME, "num_iterations": 2, "critic": "separate"}},
    "ppo, LoRA": {"method": {"rewards": STEP_AND_OUTCOME}},
}


def configured(folder: Path, method: str, changes: Mapping[str, Any]) -> RunConfig:
    """Return a run of two generations that saves after each; one that does not sample has ten rows, one held out."""
    passes = changes.get("method", {}).get("num_iterations", 1)
    run = {"steps": 2 * passes, "save_steps": passes, "eval_steps": 0, "watch_prompts": 0, "device": "cpu"}
    base = {"seed": 3, "optimiser": {"warmup_steps": 0}, "run": run, "method": {"name": method, **SAMPLED}}
    if rows := stored_rows(method, 10):
        base["method"], base["task"] = {"name": method, "batch_size": 2}, written(folder, *rows)
        run["watch_prompts"] = 1
    return RunConfig.parse(merged(base, changes))


def resumed(run: Run, step: int) -> Run:
    """Return a copy of the run that was killed after it had saved ``step``, and went on from there."""
    again = Run(run.path.with_name("again"))
    shutil.copytree(run.path, again.path)
    for point in checkpoints.saved(again.dir.checkpoints):
        if point.step > step:
            shutil.rmtree(point.path)
    shutil.rmtree(again.dir.checkpoints / "final")
    return carry_out(again, f"checkpoint-{step}")


def final_weights(run: Run) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run.dir.checkpoints / "final").glob("*.safetensors")}


@pytest.mark.parametrize("lora", [False, True], ids=["plain", "LoRA"])
@pytest.mark.parametrize("method", METHODS)
def test_invariant_a_resumed_run_is_the_run_it_would_have_been(tmp_path: Path, method: str, lora: bool) -> None:
    changes = CHANGES.get(f"{method}, LoRA" if lora else method, {})
    config = configured(tmp_path, method, {**changes, **(LORA if lora else {})})
    alone = trained(config, tmp_path)
    assert alone.status().state == "finished", alone.status().reason
    every = config.run.save_steps
    assert (alone.dir.checkpoints / f"checkpoint-{every}" / ADAPTER).is_file() == lora
    again = resumed(alone, every)
    assert again.status().state == "finished", again.status().reason
    rows = again.metrics_rows()[0]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, config.run.steps + 1))
    assert difference(alone, again) == 0
    assert final_weights(alone) == final_weights(again) != {}
    if config.run.watch_prompts:
        assert alone.watched_rows() == again.watched_rows()
    assert any(row.get("resample/prompts") for row in rows[-1:]) == ("resample_flat" in changes.get("method", {}))


def test_a_resume_in_a_later_epoch_meets_the_prompts_in_their_order(tmp_path: Path) -> None:
    """Three training rows, one prompt a step: step 5 is in the second epoch, whose order is its own."""
    task = wb.load_task("chain-arithmetic")
    file = written(tmp_path, *({"prompt": task[n].prompt, **task[n].columns} for n in range(4)))
    method = {"prompts_per_step": 1, "sampling": {"num_generations": 2, "max_completion_length": 8}}
    changes = {"task": file, "run": {"steps": 6, "save_steps": 4}, "method": method}
    alone = trained(configured(tmp_path, "grpo", changes), tmp_path)
    prompts = [alone.rollouts(step)[0].scored.group.prompt for step in range(1, 7)]
    assert sorted(map(str, prompts[:3])) == sorted(map(str, prompts[3:]))
    assert prompts[:3] != prompts[3:]  # or a forgotten epoch would not show
    assert difference(alone, resumed(alone, 4)) == 0
    # metrics.jsonl has the rows; a checkpoint that had them, too, would grow with every step.
    state = json.loads((alone.dir.checkpoints / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["log_history"] == []


# -- two ranks --------------------------------------------------------------------------------------------------------


def test_a_stopped_run_of_two_ranks_saves_where_it_stops_and_goes_on_from_what_is_whole(tmp_path: Path) -> None:
    settings = {"ranks": 2, "eval_steps": 0, "watch_prompts": 0, "steps": 1000, "save_steps": 2, "device": "cpu"}
    method = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 16}}
    run = Run(RunDir.create(tmp_path, RunConfig.parse({"run": settings, "method": method})).path)
    _stop_ranks_after(run, 3)
    newest, before = checkpoints.saved(run.dir.checkpoints)
    assert run.status().reason == f"after step {newest.step} of 1000"
    names = set(os.listdir(newest.path))
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors", "manifest.json"} <= names
    (newest.path / "optimizer.pt").write_bytes(b"")
    whole, skipped = checkpoints.newest_valid(run.dir.checkpoints)
    assert whole == before
    assert "optimizer.pt" in skipped[0]
    _stop_ranks_after(run, newest.step + 1, "--resume", before.name)
    steps = [row["step"] for row in run.metrics_rows()[0]]
    assert steps == list(range(1, len(steps) + 1))
    assert run.resumable


def _stop_ranks_after(run: Run, step: int, *arguments: str) -> None:
    """Start two ranks and ask both to stop, as their launcher passes it on."""
    with running_on_ranks(2, "workbench.process", str(run.path), *arguments, log=run.dir.log) as ranks:
        _reached(run, step)
        for rank in ranks:
            os.kill(rank.pid, signal.SIGTERM)
    assert run.status().state == "stopped", "\n".join(run.log_tail())


def _reached(run: Run, step: int) -> None:
    for row in run.follow():
        if row["step"] == step:
            return
    raise AssertionError("\n".join(run.log_tail()))


def test_a_launcher_passes_on_what_asks_its_ranks_to_stop(tmp_path: Path) -> None:
    run = start(RunConfig(task="obey", run={"ranks": 2, "device": "cpu"}), tmp_path, module="tests.fake_run")
    _reached(run, 1)
    status = run.stop(timeout=120)
    assert (status.state, status.reason) == ("stopped", "stopped at step 1 of 84"), "\n".join(run.log_tail())
    assert members(run.path) == set()


# -- what ends a run, in words ----------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = torch.save

    def full(state: object, file: str) -> None:
        if file.endswith("checkpoint-2/scheduler.pt"):
            monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    run = trained(configured(tmp_path, "sft", {}), tmp_path)
    said = run.status().reason
    assert said.startswith("the disk is full at step 2: checkpoint-2 could not be written")
    assert "checkpoint-1 is whole; free some space and resume the run" in said
    assert [one.name for one in checkpoints.saved(run.dir.checkpoints)] == ["checkpoint-1"]
    assert checkpoints.problem(run.dir.checkpoints / "checkpoint-1") is None


@pytest.mark.parametrize(("saved", "way"), [(False, "train --from a"), (True, "resume the run")])
def test_a_run_that_ends_on_a_full_disk_says_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool, way: str
) -> None:
    run = RunDir.create(tmp_path, RunConfig(name="a"))
    if saved:
        (run.checkpoints / "checkpoint-2").mkdir(parents=True)

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process, "Recorder", full)
    assert process.main([str(run.path)]) == 1
    said = run.status().reason
    assert said.endswith(way)
    assert Run(run.path).resumable == saved == ("resume" in said)
