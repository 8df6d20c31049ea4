"""A training run whose step reward is a model or the policy's continuations, from configuration to advantages."""

import numpy as np
import pytest

from tests import reward_models
from tests.configs import merged, short_run
from tests.in_this_process import trained
from tests.stored_runs import config_of
from workbench.config import ModelConfig
from workbench.credit import assign_credit
from workbench.rewards.models.model import LocalModels
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build as build_trainer

pytestmark = pytest.mark.training


def config(rewards, **sections) -> RunConfig:
    return short_run(**merged(sections, {"method": {"rewards": rewards}}))


def test_a_run_on_a_process_reward_model(tmp_path):
    """What the run stored is what the model gives the stored texts, and what was learnt from."""
    path = reward_models.save("token", tmp_path / "prm")
    model = {"path": path, "format": "stepwise"}
    rewards = [
        {"name": "prm", "kind": "step", "model": model},
        {"name": "least", "kind": "outcome", "weight": 0.5, "model": model | {"reduce": "min"}},
    ]
    run = trained(config(rewards, method={"credit": {"outcome_weight": 1.0}}), tmp_path / "workspace")
    assert run.status().state == "finished", run.status()
    assert {"rewards/prm/mean", "rewards/least/mean"} <= set(run.metrics().columns)
    models, seen = LocalModels("cpu"), 0
    for credit in RunDir(run.path).rollouts.read(1):
        scored = credit.scored
        texts = [
            [rollout.text[step.start : step.end] for step in one.steps]
            for rollout, one in zip(scored.group.rollouts, scored.scored, strict=True)
        ]
        again = models.score(ModelConfig(**model), [scored.group.prompt] * 4, texts)
        for one, values in zip(scored.scored, again, strict=True):
            assert one.scores["prm"] == pytest.approx(values, abs=1e-5)
            assert one.outcome_scores["least"] == pytest.approx(min(values), abs=1e-5)
            seen += len(values)
        advantages = assign_credit(
            scored.step_rewards,
            scored.step_ends,
            scored.lengths,
            "process",
            step_starts=scored.step_starts,
            outcome_rewards=scored.outcomes,
            outcome_weight=1.0,
        )
        assert advantages.tobytes() == credit.advantages.tobytes()
        assert advantages.any()
    assert seen > 8


def test_a_run_on_monte_carlo_values(tmp_path):
    rewards = [{"name": "values", "kind": "step", "monte_carlo": {"continuations": 2}}]
    stored = []
    for folder in ("one", "two"):
        run = RunDir.create(tmp_path / folder, config(rewards))
        build_trainer(config_of(run), tmp_path / folder / "out", Listeners(on_rollouts=run.rollouts.write)).train()
        stored.append([credit for step in (1, 2) for credit in run.rollouts.read(step)])
    for one, two in zip(*stored, strict=True):  # the same run twice
        assert np.array_equal(one.advantages, two.advantages)
        for row in one.scored.step_rewards:
            assert set(row) <= {0.0, 0.5, 1.0}
    assert any(credit.advantages.any() for credit in stored[0])
