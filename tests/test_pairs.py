"""Training on pairs: the losses against independent references, runs that resume, measures, and what is refused."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import reward_models
from tests.configs import short_run
from tests.forward import picked_logprobs
from tests.in_this_process import numbers, train, trained, written
from workbench.config import ModelConfig, PolicySection
from workbench.data import load_task
from workbench.data.rows import Pair
from workbench.errors import ConfigError, PolicyError
from workbench.models.find import base_and_adapters, base_of
from workbench.policies.load import load_policy
from workbench.policies.prompts import encode_prompt
from workbench.rewards import RewardConfig
from workbench.rewards.models.formats import guess_format
from workbench.rewards.models.model import load_model, load_trained
from workbench.rewards.reward import score_group
from workbench.rundir import RunDir
from workbench.runs.check import check_config
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import METHODS, RunConfig, dpo, reward
from workbench.training.watching import pair_metrics

SUMS = [(a, b) for a in range(2, 8) for b in range(3, 7)]


def write_sums(folder: Path) -> str:
    """Write 24 short pairs in TRL's format, each with the right answer; the last two rows are held out."""
    rows = [
        {
            "prompt": f"Start with {a}, add {b}.\n",
            "chosen": f"Step 1: {a} + {b} = {a + b}\nAnswer: {a + b}",
            "rejected": f"Step 1: {a} + {b} = {a + b + 1}\nAnswer: {a + b + 1}",
            "answer": str(a + b),
        }
        for a, b in SUMS
    ]
    return written(folder, *rows)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sums(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random language model of two layers, 32 wide."""
    return reward_models.save("causal", tmp_path_factory.mktemp("small"), eos_token_id=1)


def configuration(task: Any, method: Mapping[str, Any], policy: Any = "tiny", **run: Any) -> RunConfig:
    return RunConfig.parse(
        {
            "seed": 3,
            "policy": policy,
            "task": task,
            "method": {"batch_size": 4, **method},
            "optimiser": {"warmup_steps": 0, "learning_rate": 5e-5},
            "run": {"steps": 4, "eval_steps": 2, "eval_prompts": 2, "save_steps": 2, "device": "cpu", **run},
        }
    )


REWARD = {"name": "reward"}
DPO = {"name": "dpo", "sampling": {"max_completion_length": 8}}


# -- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.training
def test_a_run_by_dpo_finishes_and_prefers_what_was_chosen(tmp_path: Path, sums: str) -> None:
    run = trained(configuration(sums, DPO | {"batch_size": 20}, steps=3), tmp_path)
    assert run.status().state == "finished", run.status().reason
    rows = numbers(run.dir)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    measured = [row for row in rows if "pair_accuracy" in row]
    assert [row["step"] for row in measured] == [0, 2, 3]
    assert all(0 <= row["accuracy"] <= 1 for row in measured)
    # Before training policy and reference are one: every margin is 0, every pair a toss, and a toss is well calibrated.
    assert [measured[0][name] for name in ("margin", "pair_accuracy", "calibration_error")] == [0, 0.5, 0]
    assert rows[1]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert rows[3]["margin/train"] > rows[2]["margin/train"] > 0
    assert rows[3]["loss"] < rows[2]["loss"] < rows[1]["loss"]
    load_policy(str(run.dir.checkpoints / "final"))


@pytest.mark.parametrize("method", ["dpo", "reward"])
def test_a_batch_shrinks_to_the_rows_there_are(
    tmp_path: Path, small: str, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"{n}?\n", "chosen": f"{n}", "rejected": f"{n + 1}"} for n in range(3)]  # one is held out
    task, losses = written(tmp_path, *rows), {}
    for batch, micro in ((2, None), (8, None), (8, 1)):
        config = configuration(task, {"name": method, "batch_size": batch}, small, steps=2, micro_batch_size=micro)
        run = trained(config, tmp_path / f"{batch}-{micro}")
        assert run.status().state == "finished"
        losses[batch, micro] = [row["loss"] for row in numbers(run.dir) if "loss" in row]
        assert ("a step takes 2 pairs" in capsys.readouterr().out) == (batch == 8)
    assert losses[8, None] == losses[2, None]
    assert losses[8, 1] == pytest.approx(losses[2, None], rel=1e-4)


@pytest.mark.training
def test_an_adapter_that_is_trained_on_is_its_own_reference_at_first(tmp_path: Path, sums: str, small: str) -> None:
    policy: dict[str, Any] = {"path": small, "lora": {"r": 2, "alpha": 4}}
    before = RunDir.create(tmp_path, configuration(sums, DPO, policy, steps=1, eval_steps=0, save_steps=0))
    train(before).save_final(before.checkpoints / "final")
    policy = {"path": str(before.checkpoints / "final")}
    run = RunDir.create(tmp_path, configuration(sums, DPO, policy, steps=2, eval_steps=0, save_steps=0))
    learns = [name for name, value in train(run).model.named_parameters() if value.requires_grad]
    assert {"lora_" in name for name in learns} == {True}
    first, second = numbers(run)
    assert (first["margin/train"], first["rewards/chosen"]) == (0, 0)
    assert second["loss"] != first["loss"]


@pytest.mark.training
def test_a_files_rows_are_trained_on_and_the_tasks_prompts_measured(tmp_path: Path, small: str) -> None:
    rows = [{"prompt": f"{a} + {b}?", "chosen": str(a + b), "rejected": str(a - b)} for a, b in SUMS]
    task: Any = {"name": "chain-arithmetic", "data": written(tmp_path, *rows)}
    run = RunDir.create(tmp_path, configuration(task, DPO, small, steps=1, save_steps=0))
    trainer = train(run)
    prompts = {trainer.processing_class.decode(row["prompt_ids"]) for row in trainer.train_dataset}
    # The policy has a chat template, and the file's prompts are questions; the last tenth, two rows, is held out.
    assert prompts == {f"<|start|>user\n{row['prompt']}<|end|><|start|>assistant\n" for row in rows[:22]}
    assert {"accuracy", "pair_accuracy"} <= numbers(run)[0].keys()  # the file's rows have no answer to be right
    with pytest.raises(ConfigError, match=r"task\.data: grpo trains on prompts"):
        RunConfig.parse({"task": {"data": "pairs.jsonl"}})


@pytest.mark.training
def test_a_run_by_reward_makes_a_model_that_scores_in_another_run(tmp_path: Path, sums: str) -> None:
    run = trained(configuration(sums, REWARD, steps=2, eval_steps=2), tmp_path)
    assert run.status().state == "finished", run.status().reason
    rows = numbers(run.dir)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {"pair_accuracy", "margin", "calibration_error"} <= rows[2].keys() & rows[0].keys()
    assert {"loss", "pair_accuracy/train", "margin/train", "mean_reward"} <= rows[2].keys()
    assert not {"accuracy", "min_loss"} & rows[2].keys()

    folder = str(run.dir.checkpoints / "final")
    assert guess_format(folder) == "classifier"
    judge = RewardConfig(name="judge", kind="outcome", model={"path": folder, "format": "classifier"})
    groups = [
        Group(pair.prompt, tuple(Rollout((5, 1), (text, ""), finished=True) for text in (pair.chosen, pair.rejected)))
        for pair in load_task(sums).rows("pairs", held_out=True)
    ]
    scored = [score_group(group, StepPattern(), [judge]).outcomes for group in groups]
    # What it scores as a reward is what was measured of it: the same ids, the same head.
    margins = [chosen - rejected for chosen, rejected in scored]
    assert rows[2]["margin"] == pytest.approx(sum(margins) / len(margins), abs=1e-5)
    assert max(map(abs, margins)) > 1e-3

    config = short_run(
        run={"steps": 1, "save_steps": 0, "watch_prompts": 0},
        method={
            "rewards": [judge],
            "credit": {"scheme": "outcome"},
            "sampling": {"num_generations": 2, "max_completion_length": 8},
        },
    )
    trainer: Any = METHODS["grpo"].build(config, tmp_path / "grpo")
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, small: str) -> str:
    """An adapter on ``small`` that changes it."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    lora.task_type = "CAUSAL_LM"
    adapted = get_peft_model(load_policy(small, device="cpu").model, lora)
    adapted.save_pretrained(folder := tmp_path_factory.mktemp("adapter"))
    return str(folder)


@pytest.mark.parametrize("kind", ["classifier", "stepwise", "ki"])
@pytest.mark.parametrize("by", ["path", "adapter"])
def test_a_reward_model_of_a_policy_with_an_adapter_begins_with_both(
    small: str, adapter: str, kind: Any, by: str
) -> None:
    section = PolicySection(path=adapter) if by == "path" else PolicySection(path=small, adapter=adapter)
    where = base_and_adapters(section)
    assert where == (small, {adapter: 1.0})
    model, _ = load_trained(section.path, *where, kind)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        expected, base = (load_policy(path, device="cpu").model.base_model for path in (adapter, small))
        expected = getattr(expected, "model", expected)  # in the adapter's wrapper
        states = [getattr(body, "model", body)(ids).last_hidden_state for body in (model, expected, base)]
    torch.testing.assert_close(states[0], states[1], atol=1e-5, rtol=1e-5)
    assert (states[0] - states[2]).abs().max() > 1e-2
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.training
@pytest.mark.parametrize("lora", [None, {"r": 2, "alpha": 4}, "on an adapter"])
def test_a_reward_model_is_saved_as_any_classifier(
    tmp_path: Path, sums: str, small: str, adapter: str, lora: Any
) -> None:
    policy = {"path": small, "lora": lora}
    if lora == "on an adapter":
        policy = {"path": adapter, "lora": {"r": 2, "alpha": 4}}
        check_config(configuration(sums, REWARD, policy))
    run = RunDir.create(tmp_path, configuration(sums, REWARD, policy, steps=2))
    trainer = train(run)
    learns = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
    assert [name for name in learns if "lora_" not in name and "score" not in name] == [] or lora is None
    if lora == "on an adapter":  # its base is in no folder
        with pytest.raises(PolicyError, match="names no base model"):
            base_of(run.checkpoints / "checkpoint-2")

    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(3)])
    expected = trainer.model.eval()(**batch).logits
    trainer.save_final(tmp_path / "final")
    assert not (tmp_path / "final" / "adapter_model.safetensors").exists()  # merged: any loader of classifiers reads it
    loaded = load_model(ModelConfig(path=str(tmp_path / "final"), format="classifier"), "cpu")
    torch.testing.assert_close(loaded.model(**batch).logits, expected, atol=1e-5, rtol=0)


# -- losses ----------------------------------------------------------------------------------------------------------


def random_rows(generator: torch.Generator) -> list[dict[str, list[int]]]:
    """Four pairs of random ids, of several lengths."""
    return [
        {
            name: torch.randint(5, 300, (length,), generator=generator).tolist()
            for name, length in (("prompt_ids", 3 + i), ("chosen_ids", 9 - i), ("rejected_ids", 4 + 2 * i))
        }
        for i in range(4)
    ]


REFERENCES = {
    # Rafailov et al., arXiv 2305.18290, eq. 7
    "sigmoid": lambda w, r, beta: -math.log(1 / (1 + math.exp(-beta * (w - r)))),
    # Zhao et al., arXiv 2305.10425, as a hinge on the margin
    "hinge": lambda w, r, beta: max(0.0, 1 - beta * (w - r)),
    # Chowdhury et al., arXiv 2403.00409, eq. 11, with label_smoothing 0.1
    "robust": lambda w, r, beta: (
        (0.9 * math.log1p(math.exp(-beta * (w - r))) - 0.1 * math.log1p(math.exp(beta * (w - r)))) / 0.8
    ),
}


@pytest.mark.parametrize("loss", REFERENCES)
def test_the_dpo_loss_is_the_papers_on_random_ids_and_weights(tmp_path: Path, small: str, sums: str, loss: str) -> None:
    """The largest difference was 5e-7 in the loss and 4e-6 in a margin: float32 against float64."""
    method = {**DPO, "beta": 0.5, "loss_type": loss, "label_smoothing": 0.1 if loss == "robust" else 0.0}
    trainer: Any = dpo.build(configuration(sums, method, small, eval_steps=0), tmp_path)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    rows = random_rows(generator)
    sums = {
        model: [
            [
                float(picked_logprobs(model, row["prompt_ids"], row[side]).sum())
                for side in ("chosen_ids", "rejected_ids")
            ]
            for row in rows
        ]
        for model in (trainer.model, trainer.ref_model)
    }
    ratios = np.subtract(*sums.values()).tolist()
    batch = trainer.data_collator(rows)
    expected = sum(REFERENCES[loss](w, r, 0.5) for w, r in ratios) / 4
    assert abs(trainer.compute_loss(trainer.model, batch).item() - expected) < 1e-5
    with torch.no_grad():
        margins = dpo.margins(trainer, batch).tolist()
    assert margins == pytest.approx([0.5 * (w - r) for w, r in ratios], abs=1e-5)
    assert min(map(abs, margins)) > 1e-3  # the numbers above are not all 0


@pytest.mark.parametrize("centred", [None, 0.25])
def test_the_reward_loss_is_bradley_and_terrys_on_random_ids(
    tmp_path: Path, small: str, sums: str, centred: float | None
) -> None:
    """Ouyang et al., arXiv 2203.02155, eq. 1. Largest difference: 5e-7 in the loss, 3e-6 in a margin."""
    method = {**REWARD, "center_rewards_coefficient": centred}
    trainer: Any = reward.build(configuration(sums, method, small, eval_steps=0), tmp_path)
    generator = torch.Generator().manual_seed(1)
    rows = random_rows(generator)
    with torch.no_grad():
        trainer.model.score.weight *= 0.3  # scores of a few units
        scores = [
            [
                trainer.model(input_ids=torch.tensor([row[side]])).logits.item()
                for side in ("chosen_ids", "rejected_ids")
            ]
            for row in rows
        ]
    expected = sum(math.log1p(math.exp(r - w)) + (centred or 0) * (w + r) ** 2 for w, r in scores) / 4
    batch = trainer.data_collator(rows)
    assert abs(trainer.compute_loss(trainer.model, dict(batch)).item() - expected) < 1e-5
    with torch.no_grad():
        margins = reward.margins(trainer, batch).tolist()
    assert margins == pytest.approx([w - r for w, r in scores], abs=1e-5)
    assert min(map(abs, margins)) > 1e-3


def test_a_reward_model_learns_from_the_ids_that_it_will_score() -> None:
    tokenizer = load_policy("tiny").tokenizer
    pairs = [Pair("Start with 7, add 5.\n", "Answer: 12", "Answer: 13"), Pair("7 + 5?", "12 " * 40, "a")]
    (row,) = reward.token_rows(tokenizer, pairs, max_length=64)  # a side of the second pair is longer
    assert tokenizer.decode(row["chosen_ids"]) == "Start with 7, add 5.\nAnswer: 12"
    assert tokenizer.decode(row["rejected_ids"]) == "Start with 7, add 5.\nAnswer: 13"
    (ended,) = reward.token_rows(tokenizer, pairs, max_length=64, end_token=True)
    assert ended["chosen_ids"] == [*row["chosen_ids"], tokenizer.eos_token_id]


def test_pairs_become_the_ids_that_sampling_has() -> None:
    tokenizer = load_policy("tiny").tokenizer
    pairs = [Pair("Start with 7, add 5.\n", "Answer: 12", "Answer: 13"), Pair("Start. " * 50, "a", "b")]
    (row,) = dpo.token_rows(tokenizer, pairs, max_length=64)  # the second prompt alone is longer
    assert row["prompt_ids"] == encode_prompt(tokenizer, pairs[0].prompt)
    assert tokenizer.decode(row["chosen_ids"]) == f"Answer: 12{tokenizer.eos_token}"
    assert row["rejected_ids"][-1] == tokenizer.eos_token_id
    message = {"role": "user", "content": "7 + 5?"}
    assert dpo.token_rows(None, [Pair([message], "12", "13")], 64) == [
        {
            "prompt": [message],
            "chosen": [{"role": "assistant", "content": "12"}],
            "rejected": [{"role": "assistant", "content": "13"}],
        }
    ]


# -- measures --------------------------------------------------------------------------------------------------------


def test_pair_metrics_by_hand() -> None:
    measured = pair_metrics([math.log(9), math.log(9), -math.log(9), 0.0])
    assert measured["pair_accuracy"] == (1 + 1 + 0 + 0.5) / 4
    assert measured["margin"] == pytest.approx(math.log(9) / 4)
    # Three at confidence .9 of which two are right, one toss at .5 that counts half.
    assert measured["calibration_error"] == pytest.approx(3 / 4 * (0.9 - 2 / 3))
    assert pair_metrics([1e6, -1e6])["calibration_error"] == 0.5
