"""Tokens that another engine sampled, as vLLM does: its log-probabilities beside the trainer's, kept and drawn."""

import math
from pathlib import Path
from typing import Any

import pytest

from workbench.rundir.rollouts import Rollouts
from workbench.schema import Credit
from workbench.training.methods import RunConfig, grpo
from workbench.training.methods.base import Listeners
from workbench.views.heatmap import credit_payload

OFF = 0.25
"""What the engine's log-probability of every token differs by."""


@pytest.mark.training
def test_log_probs_of_another_engine_are_kept_beside_the_trainers(tmp_path: Path) -> None:
    """A fake in the engine's place, which gives ids and log-probs; the first of each row it does not know."""
    config = RunConfig.parse(
        {
            "method": {
                "prompts_per_step": 1,
                "num_iterations": 2,  # for which TRL computes the old policy's log-probabilities, as it does for vLLM
                "sampling": {"num_generations": 4, "max_completion_length": 16},
            },
            "run": {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "save_steps": 0, "device": "cpu"},
        }
    )
    told: list[Credit] = []
    trainer: Any = grpo.build(config, tmp_path, Listeners(on_rollouts=lambda step, credits: told.extend(credits)))
    sampled = trainer._generate_single_turn

    def engine(*arguments: Any) -> Any:
        ids, logprobs = sampled(*arguments)
        trainer.sampled = None
        return ids, [[math.nan, *(value - OFF for value in row[1:])] for row in logprobs]

    trainer._generate_single_turn = engine
    trainer.train()
    (credit,) = told
    for rollout in credit.scored.group.rollouts:
        assert rollout.logprobs is not None
        assert rollout.raw_logprobs is not None
        off = [ours - theirs for ours, theirs in zip(rollout.raw_logprobs, rollout.logprobs, strict=True)]
        assert off == pytest.approx([0.0, *[OFF] * (len(rollout) - 1)], abs=1e-4)
    stored = Rollouts(tmp_path / "stored", "a")
    stored.write(1, told)
    (again,) = stored.read(1)
    assert again.scored.group.rollouts == credit.scored.group.rollouts
    drawn = credit_payload(again)["rollouts"][0]
    assert drawn["raw"][1] - drawn["logprobs"][1] == pytest.approx(OFF, abs=1e-4)


def test_log_probs_that_are_the_samplers_own_are_drawn_once() -> None:
    from workbench.credit import credit_group
    from workbench.rewards import score_group
    from workbench.steps import StepPattern
    from workbench.ui.handlers.example import first_group

    credit = credit_group(score_group(first_group(), StepPattern(), ["step_correctness"]))
    assert "raw" not in credit_payload(credit)["rollouts"][0]
