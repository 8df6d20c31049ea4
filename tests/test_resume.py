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
from tests.resumes import CLERK, difference
from workbench.places import ADAPTER
from workbench.process import train as process
from workbench.rundir import RunDir, checkpoints
from workbench.runs import Run
from workbench.training.methods import RunConfig

pytestmark = pytest.mark.training


LORA = {"lora": {"r": 4, "alpha": 8}}
TWO_REWARDS = [{"name": "step_correctness"}, {"name": "length_and_mistake", "schedule": [[0, 2.0], [8, 0.0]]}]
SMALL_BATCH = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 32}}
STEP_AND_OUTCOME = [{"name": "step_correctness"}, {"name": "answer_correctness", "kind": "outcome"}]
BY_PPO = {**SMALL_BATCH, "name": "ppo", "rewards": STEP_AND_OUTCOME}


def stored(name: str, **more: Any) -> dict[str, Any]:
    """A method on the rows of the embedded task."""
    return {"method": {"name": name, "batch_size": 2, "max_length": 128}, "run": {"watch_prompts": 1}, **more}


RUNS: dict[str, dict[str, Any]] = {
    "grpo": {"run": {"eval_steps": 2, "eval_prompts": 4}},
    "grpo, LoRA, reference, redrawn prompts": {
        "method": {"credit": {"scheme": "outcome"}, "beta": 0.04, "resample_flat": 1},
        "policy": LORA,
    },
    "grpo, two iterations, reference that moves": {
        "method": {
            "rewards": TWO_REWARDS,
            "num_iterations": 2,
            "beta": 0.04,
            "sync_ref_model": True,
            "ref_model_sync_steps": 1,
        }
    },
    "grpo, episodes": {"environment": CLERK, "method": {"beta": 0.04}},
    "ppo, two iterations, separate critic": {"method": {**BY_PPO, "num_iterations": 2, "critic": "separate"}},
    "ppo, LoRA": {"method": BY_PPO, "policy": LORA},
    **{name: stored(name) for name in ("sft", "dpo", "reward", "prm")},
    **{f"{name}, LoRA": stored(name, policy=LORA) for name in ("sft", "dpo", "reward", "prm")},
}


def configured(changes: Mapping[str, Any]) -> RunConfig:
    """A run of four generations that saves after the second."""
    passes = changes.get("method", {}).get("num_iterations", 1)
    run = {"steps": 4 * passes, "save_steps": 2 * passes, "eval_steps": 0, "watch_prompts": 0, "device": "cpu"}
    base = {"seed": 3, "optimiser": {"warmup_steps": 0}, "run": run, "method": SMALL_BATCH}
    if changes.get("method", {}).get("batch_size"):
        base["method"] = {}
    return RunConfig.parse(merged(base, changes))


def resumed(run: Run, step: int) -> Run:
    """A copy of the run, of which it was killed in a later step than ``step``, that went on from there."""
    again = Run(run.path.with_name("again"))
    shutil.copytree(run.path, again.path)
    for point in checkpoints.saved(again.dir.checkpoints):
        if point.step > step:
            shutil.rmtree(point.path)
    shutil.rmtree(again.dir.checkpoints / "final")
    return carry_out(again, f"checkpoint-{step}")


def weights(run: Run) -> dict[int, dict[str, float]]:
    """Of each reward in each generation, by the step that it is stored under."""
    return {
        step: {reward.name: reward.weight for reward in run.rollouts(step)[0].scored.rewards}
        for step in run.rollout_steps()
    }


@pytest.mark.parametrize("name", RUNS)
def test_invariant_a_resumed_run_is_the_run_it_would_have_been(tmp_path: Path, name: str) -> None:
    config = configured(RUNS[name])
    alone = trained(config, tmp_path)
    assert alone.status().state == "finished", alone.status().reason
    every = config.run.save_steps
    assert (alone.dir.checkpoints / f"checkpoint-{every}" / ADAPTER).is_file() == ("LoRA" in name)
    again = resumed(alone, every)
    assert again.status().state == "finished", again.status().reason
    rows = again.metrics_rows()[0]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, config.run.steps + 1))
    assert difference(alone, again) == 0
    for step in alone.rollout_steps(watched=True):
        assert alone.watched_rows(step) == again.watched_rows(step)
    scheduled = {
        step: {reward.name: reward.weight_at(step - 1) for reward in config.method.reward_functions}
        for step in alone.rollout_steps()
    }
    assert weights(alone) == weights(again) == scheduled
    redrawn = [row["resample/prompts"] for row in rows if "resample/prompts" in row]
    assert len(redrawn) == (config.run.steps if getattr(config.method, "resample_flat", 0) else 0)
    assert any(redrawn[every:]) == bool(redrawn)


def test_a_resume_in_a_later_epoch_meets_the_prompts_in_their_order(tmp_path: Path) -> None:
    """Three training rows, one prompt a step: step 5 is in the second epoch, whose order is its own."""
    task = wb.load_task("chain-arithmetic")
    file = written(tmp_path, *({"prompt": task[n].prompt, **task[n].columns} for n in range(4)))
    method = {"prompts_per_step": 1, "sampling": {"num_generations": 2, "max_completion_length": 16}}
    alone = trained(configured({"task": file, "run": {"steps": 8, "save_steps": 4}, "method": method}), tmp_path)
    prompts = [[credit.scored.group.prompt for credit in alone.rollouts(step)] for step in range(1, 9)]
    assert sorted(map(str, prompts[:3])) == sorted(map(str, prompts[3:6]))
    assert prompts[:3] != prompts[3:6]  # or a forgotten epoch would not show
    assert difference(alone, resumed(alone, 4)) == 0
    # metrics.jsonl has the rows; a checkpoint that had them, too, would grow with every step.
    state = json.loads((alone.dir.checkpoints / "checkpoint-8" / "trainer_state.json").read_text())
    assert state["log_history"] == []


def test_a_stopped_run_of_two_ranks_saves_where_it_stops_and_goes_on_from_what_is_whole(tmp_path: Path) -> None:
    """With real processes: both ranks end after the same step, first by themselves and then under their launcher."""
    settings = {"ranks": 2, "eval_steps": 0, "steps": 1000, "save_steps": 2, "device": "cpu"}
    method = {"prompts_per_step": 2, "sampling": {"num_generations": 2, "max_completion_length": 16}}
    run = Run(RunDir.create(tmp_path, RunConfig.parse({"run": settings, "method": method})).path)
    with running_on_ranks(2, "workbench.process", str(run.path), log=run.dir.log) as ranks:
        _reached(run, 3)
        for rank in ranks:
            os.kill(rank.pid, signal.SIGTERM)  # as the launcher passes it on
    status = run.status()
    assert status.state == "stopped", "\n".join(run.log_tail())
    newest, before = checkpoints.saved(run.dir.checkpoints)
    assert status.reason == f"after step {newest.step} of 1000"
    names = set(os.listdir(newest.path))
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors", "manifest.json"} <= names
    (newest.path / "optimizer.pt").write_bytes(b"")
    run.resume()
    _reached(run, newest.step + 1)
    status = run.stop(timeout=120)
    assert (status.state, status.resumed_from) == ("stopped", before.step), "\n".join(run.log_tail())
    assert status.warnings[0].startswith(f"skipped {newest.name}: optimizer.pt is not what was saved")
    steps = [row["step"] for row in run.metrics_rows()[0]]
    assert steps == list(range(1, len(steps) + 1))
    assert run.resumable


def _reached(run: Run, step: int) -> None:
    for row in run.follow():
        if row["step"] == step:
            return
    raise AssertionError("\n".join(run.log_tail()))


# -- what ends a run, in words ----------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = torch.save

    def full(state: object, file: str) -> None:
        if file.endswith("checkpoint-4/scheduler.pt"):
            monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    run = trained(configured(stored("sft", run={"watch_prompts": 0})), tmp_path)
    said = run.status().reason
    assert said.startswith("the disk is full at step 4: checkpoint-4 could not be written")
    assert "checkpoint-2 is whole; free some space and resume the run" in said
    assert [one.name for one in checkpoints.saved(run.dir.checkpoints)] == ["checkpoint-2"]
    assert checkpoints.problem(run.dir.checkpoints / "checkpoint-2") is None


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
