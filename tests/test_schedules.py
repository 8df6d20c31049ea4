"""Weights of rewards that depend on the step of training: the numbers, what is refused, and what training uses."""

from pathlib import Path

import pytest

from tests.configs import config_of
from workbench.config.rewards import weight_at
from workbench.errors import ConfigError
from workbench.rewards import RewardConfig, load_reward
from workbench.schema import Credit
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build

POINTS = [(2, 1.0), (6, 0.0), (10, -0.5)]


@pytest.mark.parametrize(
    ("step", "weight"),
    # Before 2 as at 2; from 1 to 0 over four steps; from 0 to -0.5 over four; behind 10 as at 10.
    [(0, 1.0), (2, 1.0), (3, 0.75), (5, 0.25), (6, 0.0), (7, -0.125), (10, -0.5), (1000, -0.5)],
)
def test_a_weight_lies_on_straight_lines_between_the_points(step: int, weight: float) -> None:
    assert weight_at(POINTS, step) == weight
    assert RewardConfig(name="step_correctness", schedule=POINTS).weight_at(step) == weight
    reward = load_reward(RewardConfig(name="step_correctness", schedule=POINTS))
    assert (reward.weight, reward.at(step).weight) == (1.0, weight)  # what is loaded counts as before the first step


def test_the_flag_and_yaml_are_the_same_and_show_it(tmp_path: Path) -> None:
    config = config_of("--reward-schedule", "step_correctness=0:1,60:0.25")
    reward = config.grpo.rewards[0]
    assert (reward.schedule, reward.weight_text) == ([(0, 1.0), (60, 0.25)], " × 1 at step 0 → 0.25 at step 60")
    assert "step_correctness × 1 at step 0 → 0.25 at step 60" in dict(config.grpo.facts())["rewards"]
    (tmp_path / "run.yaml").write_text(config.to_yaml())
    assert config_of("--config", str(tmp_path / "run.yaml")).grpo.rewards == config.grpo.rewards
    with pytest.raises(ConfigError, match="'nobody'"):
        config_of("--reward-schedule", "nobody=0:1")
    with pytest.raises(ConfigError, match="'half' is no STEP:WEIGHT; write 0:1,60:0"):
        config_of("--reward-schedule", "step_correctness=half")


@pytest.mark.training
def test_a_generation_is_scored_with_the_weight_of_its_step_and_stored_so(tmp_path: Path) -> None:
    """Two steps of one generation each, then the weights are 2, 1.5, 1 of the step reward and 0, 0.5, 1 of the other.

    The weighted sums that are stored are those weights times the scores, and TRL's logged reward is the outcome's.
    """
    rewards = [
        {"name": "length_and_mistake", "schedule": [[0, 2.0], [2, 1.0]]},
        {"name": "step_correctness"},
        {"name": "answer_correctness", "kind": "outcome", "schedule": [[0, 0.0], [2, 1.0]]},
    ]
    sampling = {"num_generations": 4, "max_completion_length": 112}
    config = RunConfig.parse(
        {
            "seed": 1,
            "method": {"rewards": rewards, "prompts_per_step": 2, "sampling": sampling},
            "run": {"steps": 3, "eval_steps": 0, "save_steps": 0, "watch_prompts": 0, "device": "cpu"},
        }
    )
    seen: list[list[Credit]] = []
    trainer = build(config, tmp_path, Listeners(on_rollouts=lambda step, credits: seen.append(list(credits))))
    trainer.train()
    weights = [{r.name: r.weight for r in credits[0].scored.rewards} for credits in seen]
    names = ("length_and_mistake", "step_correctness", "answer_correctness")
    expected = ((2.0, 1.0, 0.0), (1.5, 1.0, 0.5), (1.0, 1.0, 1.0))
    assert weights == [dict(zip(names, row, strict=True)) for row in expected]
    for credits, of_step, row in zip(seen, weights, trainer.state.log_history, strict=False):
        scored = [scores for credit in credits for scores in credit.scored.scored]
        for scores in scored:
            for k, reward in enumerate(scores.rewards):
                assert reward == sum(of_step[name] * values[k] for name, values in scores.scores.items())  # type: ignore[operator]
        right = [scores.outcome_scores["answer_correctness"] or 0.0 for scores in scored]
        weight = of_step["answer_correctness"]  # nothing is counted of a weight of 0
        assert row["reward"] == (pytest.approx(weight * sum(right) / len(right)) if weight else None)
