"""Training on episodes: what the loss is given, what is measured, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.resumes import CLERK
from tests.stored_runs import config_of
from workbench.errors import EpisodeError
from workbench.rundir import RunDir
from workbench.schema import Credit, Rollout
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training

FUSSY = """
class Clerk:
    stop = ("\\n",)
    def reset(self, prompt, **columns): pass
    def reply(self, turn):
        raise ValueError("never again")
"""


def config(environment: dict[str, Any] = CLERK, **sections: Any) -> RunConfig:
    method = {
        "prompts_per_step": 2,
        "sampling": {"num_generations": 4, "max_completion_length": 80},
        **sections.pop("method", {"beta": 0.04}),
    }
    run = {"steps": 1, "eval_steps": 0, "save_steps": 0, "device": "cpu", **sections.pop("run", {})}
    return RunConfig.parse(
        {"environment": environment, "method": method, "run": run, "optimiser": {"warmup_steps": 0}, **sections}
    )


COLUMNS = ("completion_ids", "completion_mask", "tool_mask", "advantages")


def by_ids(run: RunDir) -> dict[tuple[int, ...], tuple[Credit, int, Rollout]]:
    """The rollouts of the first step, which the loss has in an order of its own."""
    return {
        rollout.token_ids: (credit, i, rollout)
        for credit in run.rollouts.read(1)
        for i, rollout in enumerate(credit.scored.group.rollouts)
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[ProcessGRPOTrainer, RunDir, list[dict[str, Any]]]:
    """A run of one step: its trainer, its directory, and the inputs of its loss."""
    folder = tmp_path_factory.mktemp("episodes")
    run = RunDir.create(folder, config())
    trainer = build(config_of(run), folder / "out", Listeners(on_rollouts=run.rollouts.write))
    inputs: list[dict[str, Any]] = []
    original = trainer._compute_loss

    def watched(model: Any, given: dict[str, Any]) -> torch.Tensor:
        inputs.append(given)
        return original(model, given)

    trainer._compute_loss = watched
    trainer.train()
    return trainer, run, inputs


def test_invariant_the_loss_has_the_stored_mask_and_nothing_for_observations(trained):
    """Bit for bit what is stored; the mask stands where TRL expects that of its tools."""
    _, run, (inputs,) = trained
    stored = by_ids(run)
    assert any(rollout.policy_length < len(rollout) for _, _, rollout in stored.values())
    sampled = 0
    for ids, mask, tool, row in zip(*(inputs[name] for name in COLUMNS), strict=True):
        length = int(mask.sum())
        credit, i, rollout = stored[tuple(ids[:length].tolist())]
        assert tool[:length].tolist() == list(rollout.mask)
        assert row[:length].numpy().tobytes() == credit.of(i).tobytes()
        assert not row[:length][tool[:length] == 0].any()
        sampled += rollout.policy_length
    assert inputs["num_items_in_batch"] == sampled


def test_lengths_kl_and_entropy_are_of_sampled_tokens(trained):
    trainer, run, _ = trained
    rollouts = [rollout for credit in run.rollouts.read(1) for rollout in credit.scored.group.rollouts]
    row = next(row for row in trainer.state.log_history if "turns_per_answer" in row)
    lengths = [rollout.policy_length for rollout in rollouts]
    assert row["completions/mean_length"] == pytest.approx(np.mean(lengths))
    assert row["completions/max_length"] == max(lengths)
    assert row["turns_per_answer"] == pytest.approx(np.mean([len(rollout.turn_spans) for rollout in rollouts]))
    total = sum(map(len, rollouts))
    assert row["observation_share"] == pytest.approx((total - sum(lengths)) / total)
    assert row["environment/errors"] == 0
    assert row["completions/clipped_ratio"] == np.mean([rollout.truncated for rollout in rollouts])
    entropies = [
        entropy
        for rollout in rollouts
        for entropy, sampled in zip(rollout.entropies, rollout.mask, strict=True)
        if sampled
    ]
    assert row["entropy"] == pytest.approx(np.mean(entropies), abs=1e-4)
    assert row["kl/k3"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("resampled", [0, 1])
def test_an_error_of_an_environment_ends_the_run_or_its_row(tmp_path, resampled):
    def trainer_of(how: str, keep: list[Credit]) -> ProcessGRPOTrainer:
        fussy = {"name": "Clerk", "code": FUSSY, "on_environment_error": how}
        rewards = [{"name": "length_target", "kind": "outcome"}]
        method = {"resample_flat": resampled, "rewards": rewards, "credit": {"scheme": "outcome"}}
        listeners = Listeners(on_rollouts=lambda step, credits: keep.extend(credits))
        return build(config(fussy, method=method), tmp_path / how, listeners)

    credits: list[Credit] = []
    with pytest.raises(EpisodeError, match=r"row \d, turn 1: environment 'Clerk' raised ValueError at line 6: never"):
        trainer_of("run", credits).train()
    assert credits == []
    trainer = trainer_of("row", credits)
    trainer.train()
    turns = [rollout.turns for credit in credits for rollout in credit.scored.group.rollouts]
    assert all(len(row) == 1 for row in turns)
    errors = sum(row[0].error is not None for row in turns)
    assert next(r["environment/errors"] for r in trainer.state.log_history if "environment/errors" in r) == errors > 0
