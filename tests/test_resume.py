"""A resumed run is the run it would have been: bit for bit on one CPU, whatever is trained and however it ended."""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import workbench as wb
from tests.configs import merged
from tests.ranks import running_on_ranks
from tests.resumes import CONFIGURATIONS, configuration, difference
from tests.stored_runs import config_of
from workbench.errors import RunError
from workbench.process import train as process
from workbench.process.train import Recorder, reason
from workbench.rundir import RunDir, checkpoints
from workbench.runs import Run
from workbench.training.methods import METHODS, RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training


Watch = Callable[[ProcessGRPOTrainer], None]
RESUMED = (
    "process, all weights",
    "outcome scheme, LoRA, reference, redrawn prompts",
    "two iterations, reference that moves",
    "episodes of several turns",
)


def train(run: RunDir, *, resume: str | None = None, watch: Watch = lambda _: None) -> None:
    """What the run's process does, in this one."""
    config = config_of(run)
    recorder = Recorder(run, config, writes=True)
    listeners = Listeners(on_rollouts=recorder.on_rollouts, callbacks=[recorder])
    trainer: Any = METHODS[config.method.name].build(config, run.checkpoints, listeners)
    watch(trainer)
    try:
        trainer.train(resume_from_checkpoint=None if resume is None else str(run.checkpoints / resume))
    finally:
        run.close()


def broken_after(step: int) -> Callable[[ProcessGRPOTrainer], None]:
    """Have the trainer's loss fail in the step after ``step``."""

    def watch(trainer: ProcessGRPOTrainer) -> None:
        loss = trainer._compute_loss

        def failing(model, inputs):
            if trainer.state.global_step == step:
                raise RuntimeError("the power went")
            return loss(model, inputs)

        trainer._compute_loss = failing

    return watch


def by_ppo(**method: Any) -> RunConfig:
    """Saves between its second and third generation, as ``configuration`` has it."""
    policy = method.pop("policy", {})
    passes = method.get("num_iterations", 1)
    sampling = {"num_generations": 2, "max_completion_length": 32}
    run = {"steps": 4 * passes, "save_steps": 2 * passes, "eval_steps": 0, "device": "cpu"}
    method = {"name": "ppo", "prompts_per_step": 2, "sampling": sampling, "rewards": PPO_REWARDS, **method}
    return RunConfig.parse(
        {"seed": 3, "method": method, "policy": policy, "optimiser": {"warmup_steps": 0}, "run": run}
    )


PPO_REWARDS = [{"name": "step_correctness", "kind": "step"}, {"name": "answer_correctness", "kind": "outcome"}]
SHORT = {"method": {"sampling": {"num_generations": 2, "max_completion_length": 32}}}
RUNS = {name: configuration(merged(CONFIGURATIONS[name], SHORT)) for name in RESUMED} | {
    "ppo, two iterations, separate critic": by_ppo(num_iterations=2, critic="separate"),
    "ppo, LoRA": by_ppo(policy={"lora": {"r": 4, "alpha": 8}}),
}


def weights(run: Run) -> dict[int, dict[str, float]]:
    """Of each reward in each generation, by the step that it is stored under."""
    return {
        step: {reward.name: reward.weight for reward in run.rollouts(step)[0].scored.rewards}
        for step in run.rollout_steps()
    }


@pytest.mark.parametrize("name", RUNS)
def test_invariant_a_resumed_run_is_the_run_it_would_have_been(tmp_path: Path, name: str) -> None:
    config = RUNS[name]
    alone, broken = RunDir.create(tmp_path, config), RunDir.create(tmp_path, config)
    train(alone)
    every = config.run.save_steps
    with pytest.raises(RuntimeError, match="the power went"):
        train(broken, watch=broken_after(every + config.sampled.num_iterations))
    (newest, *_), skipped = checkpoints.saved(broken.checkpoints), checkpoints.newest_valid(broken.checkpoints)[1]
    assert (newest.step, skipped) == (every, [])
    train(broken, resume=newest.name)
    steps = [row["step"] for row in broken.read_metrics()[0]]
    assert steps == list(range(0 if config.run.eval_steps else 1, config.run.steps + 1))
    assert difference(Run(alone.path), Run(broken.path)) == 0
    scheduled = {
        step: {reward.name: reward.weight_at(step - 1) for reward in config.method.reward_functions}
        for step in Run(alone.path).rollout_steps()
    }
    assert weights(Run(alone.path)) == weights(Run(broken.path)) == scheduled
    redrawn = [row["resample/prompts"] for row in alone.read_metrics()[0] if "resample/prompts" in row]
    assert len(redrawn) == (config.run.steps if getattr(config.method, "resample_flat", 0) else 0)
    assert any(redrawn[every:]) == bool(redrawn)


def test_a_resume_in_a_later_epoch_meets_the_prompts_in_their_order(tmp_path: Path) -> None:
    """Three training rows, one prompt a step: step 5 is in the second epoch, whose order is its own."""
    task = wb.load_task("chain-arithmetic")
    rows = [{"prompt": task[n].prompt, **task[n].columns} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"eval_steps": 0, "device": "cpu", "steps": 8, "save_steps": 4}
    method = {"prompts_per_step": 1, "sampling": {"num_generations": 2, "max_completion_length": 16}}
    config = RunConfig.parse({"task": str(tmp_path / "rows.jsonl"), "run": settings, "method": method})
    alone, resumed = RunDir.create(tmp_path, config), RunDir.create(tmp_path, config)
    train(alone)
    prompts = [[credit.scored.group.prompt for credit in alone.rollouts.read(step)] for step in range(1, 9)]
    assert sorted(map(str, prompts[:3])) == sorted(map(str, prompts[3:6]))
    assert prompts[:3] != prompts[3:6]  # or a forgotten epoch would not show
    with pytest.raises(RuntimeError, match="the power went"):
        train(resumed, watch=broken_after(5))
    train(resumed, resume="checkpoint-4")
    assert difference(Run(alone.path), Run(resumed.path)) == 0
    # metrics.jsonl has the rows; a checkpoint that had them, too, would grow with every step.
    state = json.loads((resumed.checkpoints / "checkpoint-8" / "trainer_state.json").read_text())
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
    run = RunDir.create(tmp_path, configuration({"run": {"eval_steps": 0}}))
    save = torch.save

    def full(state: object, file: str) -> None:
        if file.endswith("checkpoint-4/scheduler.pt"):
            monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunError, match="the disk is full at step 4: checkpoint-4 could not be written") as raised:
        train(run)
    assert "checkpoint-2 is whole" in str(raised.value)
    assert reason(raised.value, config_of(run), 5, "X") == f"{raised.value}; free some space and X"
    assert [one.name for one in checkpoints.saved(run.checkpoints)] == ["checkpoint-2"]
    assert checkpoints.problem(run.checkpoints / "checkpoint-2") is None


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
