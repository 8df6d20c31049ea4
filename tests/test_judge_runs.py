"""A judge, a coroutine function of own code in training itself: what is scored, stored and logged."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.judge_server import serving, steps_answer
from workbench.rewards.judges import Judges
from workbench.rundir.rollouts import Rollouts
from workbench.schema import Credit
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build

pytestmark = pytest.mark.training

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
