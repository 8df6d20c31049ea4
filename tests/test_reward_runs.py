"""Training runs whose rewards are a model, the policy's continuations, a judge or a coroutine function."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests import reward_models
from tests.configs import merged, short_run
from tests.in_this_process import trained
from tests.judge_server import serving, steps_answer
from workbench.config import ModelConfig
from workbench.credit import assign_credit
from workbench.rewards.judges import Judges
from workbench.rewards.models.model import LocalModels
from workbench.rundir import RunDir
from workbench.rundir.rollouts import Rollouts
from workbench.schema import Credit
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build

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
    """The same run twice: of two continuations a step's value is 0, a half or 1."""

    def stored(name: str) -> list[Credit]:
        rewards = [{"name": "values", "kind": "step", "monte_carlo": {"continuations": 2}}]
        run = trained(config(rewards, run={"steps": 1}, method={"prompts_per_step": 1}), tmp_path / name)
        return list(RunDir(run.path).rollouts.read(1))

    one, two = stored("one"), stored("two")
    assert [credit.advantages.tobytes() for credit in one] == [credit.advantages.tobytes() for credit in two]
    assert {value for credit in one for row in credit.scored.step_rewards for value in row} <= {0.0, 0.5, 1.0}
    assert any(credit.advantages.any() for credit in one)


# --- a judge, and a coroutine function of own code --------------------------------------------------------------------

COROUTINE = """
import os

async def outside(completions, trainer_state, log_metric, **columns):
    log_metric("seen_at", trainer_state.global_step)
    return [float("PUBLIC_SETTING" in os.environ) for _ in completions]
"""


def by_length(body: dict[str, Any]) -> str:
    """A step is worth the parity of its length."""
    steps = re.findall(r"(?m)^\[\d+\] (.*)$", body["messages"][0]["content"])
    return steps_answer(*(float(len(text) % 2) for text in steps), quote="=")


def test_a_run_is_scored_by_a_judge_and_stores_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBLIC_SETTING", "1")
    monkeypatch.setattr("workbench.rewards.reward.shared_judges", lambda: judges)
    kept: list[Credit] = []
    with serving(by_length) as endpoint, Judges(tmp_path) as judges:
        rewards = [
            {"name": "judge", "kind": "step", "judge": {"base_url": endpoint.url, "model": "small", "max_calls": 16}},
            {"name": "outside", "kind": "outcome", "code": COROUTINE},
        ]
        config = RunConfig.parse(
            {
                "run": {"steps": 1, "eval_steps": 0, "device": "cpu"},
                "method": {
                    "prompts_per_step": 2,
                    "rewards": rewards,
                    "reward_deadline": 300,
                    "sampling": {"num_generations": 4, "max_completion_length": 112},
                },
            }
        )
        trainer = build(config, tmp_path / "out", Listeners(on_rollouts=lambda step, credits: kept.extend(credits)))
        trainer.train()
        different = {rollout.text for credit in kept for rollout in credit.scored.group.rollouts}
        assert len(endpoint.asked) == len(different)  # copies are asked once
    row = trainer.state.log_history[0]
    assert (row["judge_calls/judge"], row["seen_at"]) == (len(different), 0)
    assert row["rewards/outside/mean"] == 1.0
    for credit in kept:
        for rollout, scored in zip(credit.scored.group.rollouts, credit.scored.scored, strict=True):
            texts = [rollout.text[step.start : step.end].strip() for step in scored.steps]
            assert scored.scores["judge"] == tuple(float(len(text) % 2) for text in texts)
            assert scored.logged["judge"]["reason"] == ("because",) * len(texts)
    files = Rollouts(tmp_path, "run")
    files.write(1, kept)
    assert [c.scored.scored for c in files.read(1)] == [c.scored.scored for c in kept]
