"""Runs through the real child process, on the embedded policy: from start to finish, stopped, and failed."""

import math
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

import workbench as wb
from tests.configs import merged, short_run
from tests.in_this_process import trained
from tests.stored_runs import config_of
from workbench.checks.metrics import find_metric
from workbench.process.train import NotANumberError, Recorder, main
from workbench.rundir import RunDir
from workbench.runs import processes
from workbench.runs.processes import members
from workbench.training.methods import METHODS
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build as build_trainer

pytestmark = pytest.mark.training


def config(**changes):
    return short_run(**merged({"run": {"eval_steps": 1, "eval_prompts": 8}}, changes))


@pytest.mark.usefixtures("standby")
def test_a_run_is_what_it_is_in_this_process_and_keeps_what_it_did_when_it_is_stopped(tmp_path, monkeypatch):
    """Trained by a standby process. Both draw the same 1,000 rows."""
    same = {"method": {"beta": 0.01}, "optimiser": {"lr_scheduler_type": "constant", "warmup_steps": 0}}
    few = {"eval_prompts": 2, "watch_prompts": 0}
    run = wb.train(config(**same, run={"steps": 500, **few}), tmp_path)
    monkeypatch.setattr(processes, "FREE_BYTES", 2**63)  # no other standby, which would import for nothing
    here = trained(config(**same, run=few), tmp_path / "here")
    for row in run.follow():
        if row["step"] >= 2:
            break
    process = psutil.Process(run.status().pid)
    assert process.cmdline()[-1] == "--standby"
    assert process in members(run.path)

    status = run.stop(timeout=120)
    assert status.state == "stopped", "\n".join(run.log_tail())
    assert members(run.path) == set()
    assert "of 500" in status.reason
    metrics, first = run.metrics(), here.metrics()
    for name in ("step", "rollouts", "accuracy", "loss", "grad_norm", "reward"):
        np.testing.assert_array_equal(metrics[name][:3], first[name])
    assert metrics["seconds"].is_monotonic_increasing
    wb.load_policy(str(run.path / "checkpoints" / "final"), device="cpu")  # it is whole


def test_every_number_that_a_run_logs_is_explained(tmp_path):
    metrics = trained(config(method={"beta": 0.01}), tmp_path).metrics()
    expected = [
        *("loss", "reward", "step_reward", "steps_per_answer", "unscored_share", "zero_spread_share", "entropy"),
        *("advantage_abs_mean", "kl", "kl/k1", "kl/k2", "kl/k3", "clip_ratio/region_mean", "accuracy/train"),
        *("rewards/step_correctness/mean", "rewards/answer_correctness/mean", "completions/mean_length"),
    ]
    assert metrics.loc[1:, expected].notna().all().all()
    assert metrics["accuracy"].notna().all()
    assert metrics["rollouts"].tolist() == [0, 8, 16]
    assert [name for name in metrics if find_metric(name) is None] == [], "each column has its line in the glossary"


def test_ranks_part_once_training_is_over(tmp_path, monkeypatch):
    """A process that exits over the threads of their connections aborts now and then."""

    class Trained:
        state = SimpleNamespace(global_step=2)

        def __getattr__(self, name):
            return lambda *_, **__: None

    monkeypatch.setitem(METHODS, "grpo", replace(METHODS["grpo"], build=lambda *_, **__: Trained()))
    before = signal.getsignal(signal.SIGTERM)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert main([str(RunDir.create(tmp_path, config()).path)]) == 0
        assert not torch.distributed.is_initialized()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_loss_that_is_not_a_number_names_the_step_and_the_way_out(tmp_path):
    run = RunDir.create(tmp_path, config(run={"steps": 3, "eval_steps": 0}))
    recorder = Recorder(run, config_of(run), writes=True)
    trainer = build_trainer(config_of(run), tmp_path / "out", Listeners(callbacks=[recorder]))
    loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: loss(model, inputs) * (math.nan if trainer.state.global_step else 1)
    with pytest.raises(NotANumberError, match="step 2"):
        trainer.train()
    rows, _ = run.read_metrics()
    assert [row["loss"] is None for row in rows] == [False, True]
    run.close()
