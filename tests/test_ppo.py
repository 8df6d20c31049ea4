"""PPO: its losses against second implementations, its critic in a run's files, and what a run of it stores."""

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

import workbench as wb
from tests.in_this_process import keep_inputs
from tests.stored_runs import config_of
from workbench.credit import gae
from workbench.errors import RunError
from workbench.process.train import Recorder
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig
from workbench.training.methods.base import Listeners
from workbench.training.methods.ppo import build as build_trainer
from workbench.training.ppo import ProcessPPOTrainer, value_losses
from workbench.views.heatmap import credit_payload

pytestmark = pytest.mark.training

BOTH_KINDS = [
    {"name": "step_correctness", "kind": "step", "weight": 0.1},
    {"name": "answer_correctness", "kind": "outcome", "weight": 7.0},
]


def config(run: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **method: Any) -> RunConfig:
    """A run of a few seconds: two prompts, G = 2, all on the CPU."""
    sampling = {"num_generations": 2, "max_completion_length": 40} | method.pop("sampling", {})
    return RunConfig.parse(
        {
            "method": {"name": "ppo", "prompts_per_step": 2, "sampling": sampling, **method},
            "policy": policy or {},
            "optimiser": {"warmup_steps": 0},
            "run": {"steps": 2, "eval_steps": 0, "watch_prompts": 0, "device": "cpu", **(run or {})},
        }
    )


# -- losses --------------------------------------------------------------------------------------------------------


def test_the_value_loss_is_half_the_larger_square() -> None:
    """V_old 0, epsilon 0.2. V 1 is clipped to 0.2: against G 2, 1.8² > 1². Against G -1 the free 2² is larger."""
    values = torch.tensor([[1.0, 1.0, 0.1]], requires_grad=True)
    losses, clipped = value_losses(values, torch.zeros(1, 3), torch.tensor([[2.0, -1.0, 1.1]]), 0.2)
    assert losses.tolist() == [pytest.approx([1.62, 2.0, 0.5])]
    assert clipped.tolist() == [[1, 0, 0]]
    losses.sum().backward()
    assert values.grad.tolist() == [pytest.approx([0.0, 2.0, -1.0])]  # a clipped value has gone far enough


def reference_loss(trainer: ProcessPPOTrainer, inputs: dict[str, torch.Tensor]) -> tuple[float, float]:
    """(policy loss, value loss), token by token, from the model's own logits and hidden states."""
    args, model = trainer.args, trainer.model
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    start, policy, value, tokens = inputs["prompt_ids"].size(1), 0.0, 0.0, 0
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        logps = output.logits.log_softmax(-1)
        hidden = output.hidden_states[-1]
        if trainer.critic.body is not None:
            hidden = trainer.critic.body(input_ids=ids, attention_mask=mask).last_hidden_state
        for i, t in inputs["completion_mask"].nonzero().tolist():
            place = start + t
            ratio = math.exp(logps[i, place - 1, ids[i, place]] - inputs["old_per_token_logps"][i, t])
            advantage = inputs["advantages"][i, t].item()
            policy -= min(ratio * advantage, min(max(ratio, 1 - args.epsilon), 1 + args.epsilon) * advantage)
            v = float(hidden[i, place - 1] @ trainer.critic.head.weight[0] + trainer.critic.head.bias[0])
            old, g = inputs["old_values"][i, t].item(), inputs["returns"][i, t].item()
            near = min(max(v, old - args.epsilon_value), old + args.epsilon_value)
            value += max((v - g) ** 2, (near - g) ** 2) / 2
            tokens += 1
    return policy / tokens, value / tokens


@pytest.mark.parametrize(
    ("critic", "policy"), [("shared", {}), ("separate", {}), ("shared", {"lora": {"r": 4, "alpha": 8}})]
)
def test_the_loss_is_the_clipped_policy_loss_and_the_clipped_value_loss(tmp_path, critic, policy) -> None:
    trainer = build_trainer(config(critic=critic, policy=policy, value_coef=0.3, rewards=BOTH_KINDS), tmp_path)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    torch.manual_seed(1)
    torch.nn.init.normal_(trainer.critic.head.weight, std=0.05)
    inputs = trainer._generate_and_score_completions([trainer.train_dataset[i // 2] for i in range(4)])
    assert inputs["old_values"].any()
    with torch.no_grad():  # a policy and a critic that have moved since
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter += 0.02 * torch.randn_like(parameter)
    expected_policy, expected_value = reference_loss(trainer, inputs)
    trainer._metrics["train"].clear()
    loss = trainer._compute_loss(trainer.model, inputs)
    (value_loss,), (share,) = (trainer._metrics["train"][name] for name in ("value_loss", "value_clip_share"))
    assert value_loss == pytest.approx(expected_value, abs=2e-6)
    assert loss.item() == pytest.approx(expected_policy + 0.3 * expected_value, abs=2e-6)
    assert 0 < share < 1
    loss.backward()
    trained = [name for name, p in trainer.critic.named_parameters() if p.grad is not None and p.grad.any()]
    assert {"head.weight", "head.bias"} <= set(trained)
    assert any(name.startswith("body") for name in trained) == (critic == "separate")
    assert trainer.beta == trainer.args.beta == 0.05


class KeepsWeights(TrainerCallback):
    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.weights.append(copy.deepcopy(model.state_dict()))


@pytest.mark.parametrize(
    ("target", "skipped"), [(1e-3, [False, True, True, True]), (1e3, [False] * 4), (None, [None] * 4)]
)
def test_a_step_is_skipped_where_the_policy_has_moved_too_far(tmp_path, target, skipped) -> None:
    """Four steps over one generation, of which the first moves it far."""
    settings = config({"steps": 4}, num_iterations=4, target_kl=target, rewards=BOTH_KINDS, kl_coef=0.0)
    settings.optimiser.learning_rate = 0.01
    trainer, keeps = build_trainer(settings, tmp_path), KeepsWeights()
    trainer.add_callback(keeps)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert [row.get("skipped_steps") for row in rows] == skipped
    for was_skipped, (before, after) in zip(skipped[1:], itertools.pairwise(keeps.weights), strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before) == bool(was_skipped)


def test_the_kl_is_in_the_token_rewards_and_not_in_the_loss(tmp_path) -> None:
    trainer = build_trainer(config(kl_coef=0.5, whiten=False, gamma=0.9, lam=0.8), tmp_path)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    trainer.model.train()
    credits: list[Any] = []
    trainer._on_rollouts = lambda step, rows: credits.extend(rows)
    inputs = trainer._generate_and_score_completions([trainer.train_dataset[i // 2] for i in range(4)])
    kl = inputs["old_per_token_logps"] - inputs["ref_per_token_logps"]
    assert kl.abs().max() > 1e-3
    stored = [(credit, r) for credit in credits for r in range(len(credit.scored.scored))]
    assert len(stored) == 4
    for i, (credit, r) in enumerate(stored):
        length = int(inputs["completion_mask"][i].sum())
        rewards = -0.5 * kl[i, :length].double().numpy()
        rewards[-1] += credit.scored.scored[r].outcome
        np.testing.assert_allclose(credit.values["token_reward"][r], rewards, atol=1e-7)
        advantages, returns = gae(rewards, inputs["old_values"][i, :length].double().numpy(), 0.9, 0.8)
        np.testing.assert_allclose(inputs["advantages"][i, :length], advantages, atol=1e-6)
        np.testing.assert_allclose(inputs["returns"][i, :length], returns, atol=1e-6)


# -- a run -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, dict[tuple[int, ...], dict[str, bytes]]]:
    """A run with two passes over each generation, and what its loss was given of each completion."""
    settings = {"steps": 4, "save_steps": 2, "watch_prompts": 1, "watch_every": 4, "micro_batch_size": 2}
    run = RunDir.create(
        tmp_path_factory.mktemp("ppo"), config(settings, rewards=BOTH_KINDS, num_iterations=2, score_clip=5.0)
    )
    recorder = Recorder(run, config_of(run), writes=True)
    listeners = Listeners(on_rollouts=recorder.on_rollouts, on_watched=recorder.on_watched, callbacks=[recorder])
    trainer = build_trainer(config_of(run), run.checkpoints, listeners)
    seen = keep_inputs(trainer)
    trainer.train()
    used: dict[tuple[int, ...], dict[str, bytes]] = {}
    names = {"advantages": "advantage", "old_values": "value", "returns": "return"}
    for inputs in seen:
        for i, (ids, mask) in enumerate(zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)):
            n = int(mask.sum())
            rows = {name: inputs[key][i, :n].numpy().tobytes() for key, name in names.items()}
            generation = inputs["step"] // 2 * 2 + 1
            assert used.setdefault((generation, *ids[:n].tolist()), rows) == rows  # the same in each pass
    trainer.save_final(run.path / "final")
    run.close()
    return run, used


def test_invariant_parity_what_is_stored_and_drawn_is_what_the_loss_used(trained) -> None:
    run, used = trained
    stored = [(step, credit) for step in (1, 3) for credit in run.rollouts.read(step)]
    assert sum(len(credit.scored.group) for _, credit in stored) == 8
    for step, credit in stored:
        drawn = credit_payload(credit)["rollouts"]
        for i, rollout in enumerate(credit.scored.group.rollouts):
            loss = used[(step, *rollout.token_ids)]
            assert credit.of(i).tobytes() == loss["advantage"]
            assert np.array(drawn[i]["advantages"], np.float32).tobytes() == loss["advantage"]
            for name in ("value", "return"):
                assert credit.values[name][i].tobytes() == loss[name]
                assert np.array(drawn[i]["values"][name], np.float32).tobytes() == loss[name]
            for t in range(len(rollout)):
                assert np.float32(credit.explain(i, t).total) == credit.of(i)[t]


def test_what_a_run_logs_is_of_its_rollouts(trained) -> None:
    run, _ = trained
    rows = [row for row in run.read_metrics()[0] if row.get("loss") is not None]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    credits = run.rollouts.read(1)
    outcomes = [scored.outcome for credit in credits for scored in credit.scored.scored]
    assert rows[0]["score_clamped_share"] == np.mean([abs(outcome) > 5 for outcome in outcomes])
    values, returns = (np.concatenate([c.values[n][i] for c in credits for i in (0, 1)]) for n in ("value", "return"))
    assert not values.any()  # the head starts at zero
    assert rows[0]["explained_variance"] == pytest.approx(0.0)
    assert rows[0]["value_loss"] == pytest.approx(np.square(returns, dtype=float).mean() / 2, rel=1e-2)
    assert "kl/k3" in rows[0]
    assert "kl" not in rows[0]  # TRL's, of a KL in the loss


def test_watched_prompts_are_credited_by_the_critic_too(trained) -> None:
    run, _ = trained
    (before,), (after,) = run.rollouts.read(0, watched=True), run.rollouts.read(4, watched=True)
    assert (before.scheme, after.scheme) == ("gae", "gae")
    assert not any(row.any() for row in before.values["value"])
    assert all(row.any() for row in after.values["value"])
    assert [len(row) for row in after.values["value"]] == [len(r) for r in after.scored.group.rollouts]


def test_the_policy_of_a_checkpoint_loads_as_any_and_the_critic_lies_beside_it(trained, tmp_path) -> None:
    run, _ = trained
    policy = wb.load_policy(str(run.path / "final"))
    assert not [name for name in policy.model.state_dict() if "critic" in name]
    assert set(load_file(run.path / "final" / "critic.safetensors")) == {"head.weight", "head.bias"}
    trainer = build_trainer(config_of(run), tmp_path)
    trainer.load_weights(run.path / "final")
    assert trainer.critic.head.weight.any()
    (tmp_path / "bare").mkdir()
    policy.model.save_pretrained(tmp_path / "bare")
    with pytest.raises(RunError, match=r"bare has no critic\.safetensors"):
        trainer.load_weights(tmp_path / "bare")


def test_groups_of_one(tmp_path: Path) -> None:
    one = config({"steps": 1, "save_steps": 0}, sampling={"num_generations": 1}, prompts_per_step=3, rewards=BOTH_KINDS)
    credits: list[Any] = []
    build_trainer(one, tmp_path, Listeners(on_rollouts=lambda step, rows: credits.extend(rows))).train()
    assert [len(credit.scored.group) for credit in credits] == [1, 1, 1]
    pool = np.concatenate([credit.of(0) for credit in credits])
    assert (pool.mean(), pool.std(ddof=1)) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=2e-3))
