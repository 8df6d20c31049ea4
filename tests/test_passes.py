"""What a run stores of every optimiser step adds up to the loss that TRL logged of it."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.in_this_process import train_and_store
from workbench.credit import pass_losses
from workbench.errors import CreditError, RunError
from workbench.rundir import RunDir
from workbench.rundir.rollouts import Rollouts
from workbench.runs import Run
from workbench.schema import Credit, LossPass, LossSettings, RolloutPass
from workbench.training.methods import RunConfig, grpo
from workbench.training.methods.base import Listeners
from workbench.views.heatmap import credit_payload

FLOAT32 = 1e-6
"""Of the sum of the contributions' sizes: what a sum of float32 numbers is good for, whichever way they cancel."""


def train(folder: Path, method: dict[str, Any], **run: Any) -> tuple[Run, list[float]]:
    """A run of four short steps with rates that move the ratios, and the loss that each of its steps logged."""
    config = {
        "method": {"prompts_per_step": 2, "sampling": {"num_generations": 4, "max_completion_length": 64}, **method},
        "optimiser": {"learning_rate": 0.001, "warmup_steps": 0},
        "run": {"steps": 4, "eval_steps": 0, "watch_prompts": 0, "save_steps": 0, "device": "cpu", **run},
    }
    stored, trainer, _ = train_and_store(RunConfig.parse(config), folder)
    return Run(stored.path), [row["loss"] for row in trainer.state.log_history if "loss" in row]


ADAPTIVE = {"use_adaptive_entropy": True, "entropy_coef": 0.05, "entropy_coef_delta": 0.02, "entropy_target": 5.0}


@pytest.mark.parametrize(
    ("method", "run"),
    [
        ({"num_iterations": 2, "beta": 0.04}, {}),
        ({"num_iterations": 2, "loss_type": "bnpo", "trl": {"delta": 1.3}}, {"micro_batch_size": 4}),
        ({"loss_type": "grpo", "mask_truncated_completions": True, "credit": {"drop_duplicates": True}}, {}),
        ({"loss_type": "dr_grpo", "trl": {"top_entropy_quantile": 0.5}, "rollouts_every": 2}, {"micro_batch_size": 2}),
        ({"loss_type": "grpo", "trl": ADAPTIVE}, {"micro_batch_size": 4}),
    ],
    ids=[
        "dapo, two passes, KL",
        "bnpo, two passes, micro-batches",
        "grpo, masked",
        "dr_grpo, by entropy",
        "adaptive entropy bonus",
    ],
)
@pytest.mark.training
def test_contributions_add_up_to_the_logged_loss(tmp_path: Path, method: dict[str, Any], run: dict[str, Any]) -> None:
    trained, logged = train(tmp_path, method, **run)
    passes = [seen for step in trained.rollout_steps() for seen in trained.passes(step)]
    iterations, every = method.get("num_iterations", 1), method.get("rollouts_every", 1)
    assert [(seen.step, seen.generation, seen.number) for seen in passes] == [
        (step, step - (step - 1) % iterations, 1 + (step - 1) % iterations)
        for step in range(1, 5)
        if (step - 1) // iterations % every == 0
    ]
    sizes = []
    for seen in passes:
        tokens = pass_losses(trained.rollouts(seen.generation), seen)
        total = sum(token.contribution.sum() for token in tokens)
        size = sum(np.abs(token.contribution).sum() for token in tokens)
        sizes.append(size)
        assert total == pytest.approx(logged[seen.step - 1], abs=FLOAT32 * size)
        assert seen.loss == pytest.approx(logged[seen.step - 1], rel=FLOAT32, abs=1e-9)
    assert max(sizes) > 1e-2
    has_bonus = "entropy_coef" in method.get("trl", {})
    assert all(
        (row.bonus is not None) == has_bonus for seen in passes for row in seen.rollouts if row.logprobs is not None
    )
    ratios = np.concatenate([token.ratio for token in tokens])
    assert (np.abs(ratios - 1) > 1e-3).any() == (iterations > 1)


def a_pass(step: int = 3, generation: int = 3, **changes: Any) -> LossPass:
    rows = (RolloutPass(0, np.float32([-0.1, -2]), np.float32([-0.2, -1]), np.float32([1, 0])), RolloutPass(1, None))
    settings = LossSettings("sapo", beta=0.04, delta=1.5, sapo_temperatures=(1.0, 1.1))
    return LossPass(step, generation, step - generation + 1, settings, rows, tokens=9.0, loss=0.125, **changes)


def test_a_pass_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    passes = RunDir(tmp_path / "run").passes
    (tmp_path / "run").mkdir()
    for step, generation in [(3, 3), (4, 3), (5, 5)]:
        passes.write(a_pass(step, generation))
    assert [seen.step for seen in passes.of_generation(3)] == [3, 4]
    here, there = a_pass(), passes.read(3)
    assert (there.settings, there.loss, there.tokens) == (here.settings, here.loss, here.tokens)
    for row, same in itertools.product(zip(here.rollouts, there.rollouts, strict=True), vars(here.rollouts[0])):
        np.testing.assert_array_equal(*(getattr(side, same) for side in row))
    passes.drop(after=3)
    assert passes.steps() == [3]
    assert passes.of_generation(4) == []
    with pytest.raises(RunError, match="step 4"):
        passes.read(4)
    (tmp_path / "run/passes/step-000003.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="loss of run 'run' at step 3"):
        passes.read(3)


def test_a_pass_of_other_rollouts_is_refused() -> None:
    with pytest.raises(CreditError, match="step 3"):
        pass_losses([], a_pass())


# -- tokens that another engine sampled, as vLLM does: its log-probabilities beside the trainer's ---------------------

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
