"""The trainer: what the loss used is what is stored and drawn; TRL's own numbers where ours must equal them."""

import inspect
import json
import math

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from tests import train_on_ranks
from tests.configs import short_run as config
from tests.in_this_process import train_and_store
from tests.ranks import on_ranks
from tests.stored_runs import config_of
from tests.train_on_ranks import SAMPLED, STORED
from workbench.credit import credit_group
from workbench.data import load_task
from workbench.errors import ConfigError, RewardError
from workbench.rundir import RunDir
from workbench.schema import Credit
from workbench.training.config import ProcessGRPOConfig
from workbench.training.loss import kl_estimators
from workbench.training.methods.base import Listeners
from workbench.training.methods.grpo import build as build_trainer
from workbench.training.trainer import ProcessGRPOTrainer

pytestmark = pytest.mark.training


def rows_of(seen: list[dict]) -> dict[tuple[int, ...], bytes]:
    """Every row's advantages in the loss, by the step done before and the ids it was for; padding has advantage 0."""
    rows = {}
    for inputs in seen:
        columns = (inputs[name] for name in ("completion_ids", "completion_mask", "advantages"))
        for ids, mask, row in zip(*columns, strict=True):
            assert row.dtype == torch.float32
            assert not row[mask == 0].any()
            length = int(mask.sum())
            rows[(inputs["step"], *ids[:length].tolist())] = row[:length].numpy().tobytes()
    return rows


@pytest.mark.parametrize(
    "credit",
    [
        {},
        {"scheme": "position", "normalise": "batch", "outcome_weight": 0.5, "clip": 0.9},
        {"scheme": "min", "gamma": 0.9, "options": {"temperature": 0.5}},
        {"scheme": "ktae", "each_reward": True},
        {"oar": True, "outcome_weight": 0.5},
    ],
    ids=["process", "position over the batch", "min", "by tokens", "by importance"],
)
def test_invariant_parity(tmp_path, credit):
    """What is stored for a rollout, and what the heatmap draws of it, is bit for bit what the loss used."""
    from workbench.views.heatmap import heatmap

    run, _, inputs = train_and_store(config(run={"micro_batch_size": 4}, method={"credit": credit}), tmp_path)
    assert len(inputs) == 4  # two optimiser steps of two micro-batches
    rows = rows_of(inputs)
    seen = 0
    for step in (1, 2):
        for credit in run.rollouts.read(step):
            drawn = heatmap(credit).payload()
            if credit.options.get("oar"):  # a page that opens the group needs no model for it
                assert not credit.warnings
                again = credit_group(credit.scored, "process", oar=True, outcome_weight=0.5)
                assert again.advantages.tobytes() == credit.advantages.tobytes()
            for i, rollout in enumerate(credit.scored.group.rollouts):
                used = rows[(step - 1, *rollout.token_ids)]
                assert credit.of(i).tobytes() == used
                assert np.array(drawn["rollouts"][i]["advantages"], dtype=np.float32).tobytes() == used
                for t in range(len(rollout)):  # a stored credit explains itself, whatever its batch was
                    why = credit.explain(i, t)
                    bound = credit.options["clip"] or math.inf
                    assert np.float32(min(max(why.total, -bound), bound)) == why.advantage == credit.of(i)[t]
                seen += 1
    assert seen == 16


def test_invariant_ranks_agree(tmp_path):
    """A group spread over two ranks is normalised as one group: two ranks use one rank's advantages, bit for bit.

    What is seen of watched rows and answered to held-out prompts is told to the first rank alone, and is what one rank
    sees; so are measures of held-out rows, three here.
    """
    one = {name: train_on_ranks.train(tmp_path / "1", name, 1) for name in (*SAMPLED, *STORED)}
    on_ranks(2, "tests.train_on_ranks", str(tmp_path / "2"), "2", log=tmp_path / "ranks.txt")
    two = [json.loads((tmp_path / "2" / f"{rank}.json").read_text()) for rank in (0, 1)]
    for name in SAMPLED:
        halves = [rank[name]["rows"] for rank in two]
        assert [len(half) for half in halves] == [4, 4]
        assert sorted(halves[0] + halves[1]) == sorted(one[name]["rows"])
        assert two[0][name]["groups"] == two[1][name]["groups"] == one[name]["groups"]
        assert any(set(row) != {0.0} for row in one[name]["groups"])
        assert two[0][name]["redrawn"] == two[1][name]["redrawn"] == one[name]["redrawn"]
    assert one["outcome, redrawn"]["redrawn"] > 0
    distinct = {tuple(ids) for ids, _, _ in one["outcome, distinct"]["rows"]}
    assert {counted for _, _, counted in one["outcome, distinct"]["rows"]} == {sum(map(len, distinct))}
    assert len(distinct) < 8
    seen = one["dpo"]["watched"]
    assert two[1]["dpo"]["watched"] == {}
    assert list(two[0]["dpo"]["watched"]) == ["0", "1", "2"]
    for step, texts in seen.items():
        for here, there in zip(texts, two[0]["dpo"]["watched"][str(step)], strict=True):
            assert there == pytest.approx(here, abs=1e-4)  # gradients are summed in another order
    assert max(map(abs, seen[2][0])) > 1e-3
    held_out = load_task("chain-arithmetic").held_out
    answers = one["ppo"]["answers"][0]
    assert [prompt for prompt, _ in answers] == [held_out[row].prompt for row in range(3, 8)]
    assert two[0]["ppo"]["answers"]["0"] == answers
    assert two[1]["ppo"]["answers"] == {}
    gradients = [rank["ppo"]["gradients"] for rank in two]
    assert gradients[0] == gradients[1]  # the critic's are averaged over ranks as the policy's
    assert len(gradients[0]) == 3
    for ours, alone in zip(gradients[0], one["ppo"]["gradients"], strict=True):
        assert any(alone)
        assert ours == pytest.approx(alone, rel=1e-3, abs=1e-6)
    labelled = one["prm"]["logged"]
    assert [len(values) for values in labelled.values()] == [2, 2, 2, 3, 3]
    for name, values in labelled.items():
        assert two[0]["prm"]["logged"][name] == pytest.approx(values, rel=1e-3), name


def test_invariant_end_of_sequence_belongs_to_the_last_step_and_truncation_is_marked(tmp_path):
    short = config(method={"sampling": {"max_completion_length": 60}}, run={"steps": 1})
    run, _, _ = train_and_store(short, tmp_path)
    rollouts = [
        (rollout, scores)
        for credit in run.rollouts.read(1)
        for rollout, scores in zip(credit.scored.group.rollouts, credit.scored.scored, strict=True)
    ]
    assert {rollout.finished for rollout, _ in rollouts} == {True, False}
    for rollout, scores in rollouts:
        if rollout.finished:
            assert scores.step_ends[-1] == len(rollout) - 1
        else:
            assert rollout.truncated
            assert len(rollout) == 60


@pytest.mark.parametrize(
    ("method", "others"),
    [
        ({"loss_type": "dr_grpo", "mask_truncated_completions": True}, {}),
        (
            {"loss_type": "dapo"},
            {"policy": {"lora": {"r": 4, "alpha": 8}}, "optimiser": {"gradient_checkpointing": True}},
        ),
    ],
)
def test_invariant_the_kl_is_zero_where_policy_and_reference_are_one(tmp_path, method, others):
    """Before the first update; what is masked has no reference. The loss has k3 itself."""
    drawn: list[Credit] = []
    sampling = {"num_generations": 2, "max_completion_length": 90}
    trainer = build_trainer(
        config(method={"beta": 0.04, **method, "sampling": sampling}, run={"steps": 2}, **others),
        tmp_path,
        Listeners(on_rollouts=lambda step, credits: drawn.extend(credits)),
    )
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    assert any(not torch.equal(p, before[n]) for n, p in trainer.model.named_parameters() if p.requires_grad)
    assert {"lora" in name for name in before} == {"policy" in others}
    first, last = [row for row in trainer.state.log_history if "loss" in row]
    assert first["kl/k3"] == pytest.approx(0, abs=1e-6)
    assert last["kl/k3"] == pytest.approx(last["kl"], abs=1e-6)
    assert last["kl"] > 0
    masked = method.get("mask_truncated_completions", False)
    for row in drawn[0].scored.group.rollouts:
        if row.finished or not masked:
            assert row.ref_logprobs == pytest.approx(row.logprobs, abs=1e-4)
        else:
            assert row.ref_logprobs is None


def test_kl_estimators_by_hand():
    # d = log(1/2), 0; the third token is masked. k1 = 0.6931, 0; k2 = 0.2402, 0; k3 = 0.5 + 0.6931 - 1 = 0.1931, 0.
    reference = torch.tensor([[0.5, 1.0, 9.0]]).log()
    policy = torch.tensor([[1.0, 1.0, 1.0]]).log()
    sums = {n: v.tolist() for n, v in kl_estimators(reference, policy, torch.tensor([[1, 1, 0]])).items()}
    assert sums["kl/k1"] == pytest.approx([0.6931, 2], abs=1e-4)
    assert sums["kl/k2"] == pytest.approx([0.2402, 2], abs=1e-4)
    assert sums["kl/k3"] == pytest.approx([0.1931, 2], abs=1e-4)


def test_invariant_the_same_run_twice_gives_the_same_curve(tmp_path):
    curves = []
    small = config(run={"eval_steps": 2, "eval_prompts": 2}, method={"sampling": {"max_completion_length": 48}})
    for folder in ("one", "two"):
        trainer = build_trainer(small, tmp_path / folder)
        trainer.train()
        timed = ("time", "runtime", "per_second")
        curves.append(
            [{k: v for k, v in row.items() if not any(t in k for t in timed)} for row in trainer.state.log_history]
        )
    assert curves[0] == curves[1]
    assert [row["accuracy"] for row in curves[0] if "accuracy" in row][:1] != []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"credit": {"scheme": "process"}, "loss_type": "vespo"}, "loss_type: 'vespo' .* 'outcome', .*'sum'"),
        ({"credit": {"scheme": "outcome", "oar": True}, "loss_type": "vespo"}, "loss_type.* oar"),
        ({"credit": {"scheme": "step"}, "off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold: 0.5"),
        (
            {"credit": {"scheme": "min"}, "importance_sampling_level": "sequence"},
            "importance_sampling_level: 'sequence'",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "credit": {"scheme": "step"}},
            "multi_objective_aggregation",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "credit": {"scale": False}},
            "credit: 'scale'",
        ),
        ({"credit": {"options": {"magic": 1}}}, "no option 'magic'"),
        ({"credit": {"scheme": "magic"}}, "'magic'"),
        ({"generation_kwargs": {"stop_strings": ["x"]}}, "generation_kwargs"),
    ],
)
def test_modes_that_assume_one_advantage_a_sequence_are_refused(tmp_path, arguments, named):
    with pytest.raises(ConfigError, match=named):
        ProcessGRPOConfig(output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=8, **arguments)


def test_trl_still_takes_an_advantage_for_each_token():
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    assert "if advantages.dim() == 1:" in loss, (
        "TRL's GRPOTrainer._compute_loss no longer takes (B, T) advantages; nothing in TRL itself needs that branch. "
        "What to do: hold trl below this version in pyproject.toml and requirements.txt; then copy _compute_loss of "
        "the last version that has the branch (1.16), with its licence's notice, into workbench/training/trainer.py "
        "and hold it against tests/test_loss_lens.py, which computes each loss a second time; then lift the bound. "
        "Without the branch every token of a completion would train on one number, not on what the heatmap shows."
    )


SEAM = {
    "_generate": (["prompts"], "return prompt_ids, completion_ids, tool_mask, completions, logprobs"),
    "_generate_single_turn": (
        ["prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"],
        "return completion_ids, logprobs",
    ),
    "_calculate_rewards": (["inputs", "prompts", "completions", "completion_ids_list"], "rewards_per_func"),
    "_generate_and_score_completions": (
        ["inputs"],
        "rewards_per_func = self._calculate_rewards(inputs, prompts, completions, completion_ids_list)",
        '"advantages": advantages',
        '"ref_per_token_logps"',
    ),
    "_compute_loss": (["model", "inputs"], 'inputs["advantages"]'),
}


@pytest.mark.parametrize("name", SEAM)
def test_the_seam_in_trl_is_as_this_project_expects(name):
    """Fails loudly when a new TRL changes what ``training/trainer.py`` builds on."""
    arguments, *parts = SEAM[name]
    method = getattr(GRPOTrainer, name)
    assert list(inspect.signature(method).parameters) == ["self", *arguments]
    source = inspect.getsource(method)
    assert [part for part in parts if part not in source] == []
    assert "return logps, entropies, aux_loss" in inspect.getsource(GRPOTrainer._get_per_token_logps_and_entropies)


FAILS_LATER = """
def mine(prompts, completions, steps, trainer_state, **columns):
    if trainer_state.global_step == 1:
        return 1 / 0
    return [[1.0] * len(texts) for texts in steps]
"""


def failing(tmp_path, **method) -> tuple[RunDir, ProcessGRPOTrainer]:
    rewards = [{"name": "mine", "code": FAILS_LATER}]
    run = RunDir.create(tmp_path, config(method={"rewards": rewards, **method}))
    return run, build_trainer(config_of(run), tmp_path / "out", Listeners(on_rollouts=run.rollouts.write))


def test_a_reward_that_raises_at_the_second_step_ends_the_run_with_its_line(tmp_path):
    run, trainer = failing(tmp_path)
    with pytest.raises(RewardError, match=r"'mine'.* line 4") as caught:
        trainer.train()
    assert (caught.value.reward, caught.value.line) == ("mine", 4)
    assert trainer.state.global_step == 1
    assert run.rollouts.steps() == [1]


def test_reward_errors_are_counted_while_the_budget_lasts(tmp_path, capsys):
    run, trainer = failing(tmp_path, on_reward_error="unscored", max_reward_errors=1)
    trainer.train()
    assert [row["reward_errors"] for row in trainer.state.log_history if "reward_errors" in row] == [0.0, 1.0]
    second = [one for credit in run.rollouts.read(2) for one in credit.scored.scored]
    assert all(reward is None for one in second for reward in one.rewards)
    assert "unscored: reward 'mine' raised ZeroDivisionError" in capsys.readouterr().out

    run, trainer = failing(tmp_path / "again", on_reward_error="unscored", max_reward_errors=0)
    with pytest.raises(RewardError, match="max_reward_errors"):
        trainer.train()


def test_what_trl_samples_is_credited_as_it_was_sampled(tmp_path, monkeypatch):
    """As it is with vLLM."""

    def by_trl(self, *arguments):
        self.sampled = None
        return super(ProcessGRPOTrainer, self)._generate_single_turn(*arguments)

    monkeypatch.setattr(ProcessGRPOTrainer, "_generate_single_turn", by_trl)
    run, _, inputs = train_and_store(config(run={"steps": 1}), tmp_path)
    rows = rows_of(inputs)
    for credit in run.rollouts.read(1):
        for i, rollout in enumerate(credit.scored.group.rollouts):
            assert rollout.logprobs is None  # transformers' generate gives none
            assert rollout.finished
            assert credit.of(i).tobytes() == rows[(0, *rollout.token_ids)]


def test_columns_reach_the_rewards_whatever_they_are_called_and_whoever_lacks_them(tmp_path):
    file = tmp_path / "own.jsonl"
    rows = [
        {"prompt": f"{n} + 1 =", "completions": ["a"], "image": None, **({"hint": "2"} if n else {})} for n in range(4)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = "def told(prompt, step, hint, **columns):\n    return float(sorted(columns) == [] and hint in (None, '2'))\n"
    rewards = [{"name": "told", "kind": "step", "code": code}]
    trainer = build_trainer(config(task=str(file), method={"rewards": rewards}, run={"steps": 1}), tmp_path)
    assert trainer.train_dataset.column_names == ["prompt", "hint"]
    trainer.train()
    assert trainer.state.log_history[0]["step_reward"] == 1.0


def test_evaluation_forms_groups_of_its_own_size(tmp_path):
    """Training has G = 4; evaluation scores its four rows in two groups of two, and logs them apart."""
    trainer = build_trainer(config(), tmp_path)
    trainer.num_generations_eval = 2
    sizes = []
    credited = trainer._credit
    trainer._credit = lambda *given: [sizes.append(len(c.scored.group)) or c for c in credited(*given)]
    trainer.args.per_device_eval_batch_size = 4
    trainer.evaluate(trainer.train_dataset.select([0, 1]))
    assert sizes == [2, 2]
    row = trainer.state.log_history[-1]
    assert 0 <= row["eval_step_reward"] <= 1
    assert "step_reward" not in row
