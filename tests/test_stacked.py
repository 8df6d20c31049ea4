"""Several adapters on one policy: put into its weights, trained over, saved as one, resumed, exported and refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from tests.in_this_process import carry_out, trained, written
from tests.resumes import stored_rows
from workbench.places import ADAPTER
from workbench.policies.load import Lora, Policy, load_policy, stacked
from workbench.policies.sampler import sample_group, with_reference
from workbench.rundir import RunDir
from workbench.runs import Run
from workbench.runs.export import card, export_model
from workbench.schema import Example
from workbench.training.methods import METHODS, RunConfig

TEXT = "Start with 7, add 5.\nStep 1: 7 + 5 = 12"
MODULES = ("q_proj", "down_proj")


def adapter(folder: Path, seed: int, r: int, alpha: int, modules: Any, **more: Any) -> Path:
    """An adapter of ``tiny`` with random A and B."""
    torch.manual_seed(seed)
    model = get_peft_model(
        load_policy("tiny", device="cpu").model,
        LoraConfig(r=r, lora_alpha=alpha, target_modules=modules, task_type="CAUSAL_LM", **more),
    )
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapter(tmp_path_factory.mktemp("first"), 1, 2, 6, list(MODULES))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapter(tmp_path_factory.mktemp("second"), 2, 3, 3, ["q_proj", "v_proj"], use_rslora=True)


@torch.no_grad()
def log_probs(policy: Policy | str) -> torch.Tensor:
    """Of each token of ``TEXT`` after the first."""
    policy = load_policy(policy, device="cpu") if isinstance(policy, str) else policy
    ids = policy.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    logits = policy.model(input_ids=ids).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]


def by_hand(*adapters: tuple[Path, float, float]) -> Policy:
    """``tiny`` with W + Σ weight · scale · B A, of (folder, weight, scale)."""
    policy = load_policy("tiny", device="cpu")
    for folder, weight, scale in adapters:
        tensors = load_file(folder / ADAPTER)
        for name, a in tensors.items():
            if ".lora_A." in name:
                module = name.removeprefix("base_model.model.").partition(".lora_A")[0]
                update = weight * scale * tensors[name.replace("lora_A", "lora_B")] @ a
                policy.model.get_parameter(f"{module}.weight").data += update
    return policy


def test_adapters_are_added_to_the_weights_as_by_hand(first: Path, second: Path) -> None:
    merged = load_policy("tiny", merge={str(first): 1.0, str(second): -0.5}, device="cpu")
    expected = log_probs(by_hand((first, 1.0, 6 / 2), (second, -0.5, 3 / math.sqrt(3))))
    torch.testing.assert_close(log_probs(merged), expected, atol=1e-5, rtol=1e-6)
    assert (expected - log_probs("tiny")).abs().max() > 0.05
    group = sample_group(merged, Example(TEXT), num_generations=2, max_completion_length=4)
    assert group.sampling["merge"] == {str(first): 1.0, str(second): -0.5}
    assert with_reference(merged, group) is not None


def test_a_sum_of_adapters_is_one_adapter_with_the_first_one_s_rows_in_front() -> None:
    """2 · [1; 2] [3 4] + 6 · [1; 0] [1 1] on the module x, 6 · [5; 7] [1 0] on y: ranks 1 and 1, scales 2 and 6."""
    ours = Lora({"x": (torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0], [2.0]]))}, 2.0)
    of_x = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0], [0.0]])
    of_y = torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0], [7.0]])
    together = stacked(ours, [Lora({"x": of_x, "y": of_y}, 6.0)])
    assert (together.rank, together.scale) == (2, 2.0)
    a, b = together.factors["x"]
    assert a.tolist() == [[3.0, 4.0], [3.0, 3.0]]
    assert (2 * b @ a).tolist() == [[12.0, 14.0], [12.0, 16.0]]
    a, b = together.factors["y"]
    assert a.tolist() == [[0.0, 0.0], [3.0, 0.0]]
    assert (2 * b @ a).tolist() == [[30.0, 0.0], [42.0, 0.0]]


def configured(policy: dict[str, Any], task: str = "chain-arithmetic", **method: Any) -> RunConfig:
    return RunConfig.parse(
        {
            "name": "mine",
            "policy": policy,
            "task": task,
            "optimiser": {"learning_rate": 0.02, "warmup_steps": 0},
            "run": {"steps": 2, "eval_steps": 0, "watch_prompts": 0, "save_steps": 1, "device": "cpu"},
            "method": method or {"name": "sft", "batch_size": 2},
        }
    )


@pytest.mark.parametrize("how", ["a new one", "one of them"])
def test_an_adapter_trained_over_merged_ones_is_saved_with_them_and_resumes(
    how: str, first: Path, second: Path, tmp_path: Path
) -> None:
    policy: dict[str, Any] = {"merge": {str(first): 0.5}}
    policy |= {"lora": {"r": 2, "alpha": 4, "targets": "v_proj"}} if how == "a new one" else {"adapter": str(second)}
    run = trained(configured(policy, written(tmp_path, *stored_rows("sft", 10))), tmp_path)
    assert run.status().state == "finished", run.status().reason
    final = run.dir.checkpoints / "final"
    other = METHODS["sft"].build(run.config(), tmp_path / "again")
    begun = log_probs(Policy("", other.model, other.processing_class))
    if how == "one of them":
        expected = log_probs(by_hand((first, 0.5, 6 / 2), (second, 1.0, 3 / math.sqrt(3))))
        torch.testing.assert_close(begun, expected, atol=1e-5, rtol=1e-6)
    other.load_weights(final)
    alone = log_probs(Policy("", other.model.eval(), other.processing_class))
    assert (alone - begun).abs().max() > 1e-3
    torch.testing.assert_close(log_probs(str(final)), alone, atol=1e-5, rtol=1e-6)
    plain = PeftModel.from_pretrained(load_policy("tiny", device="cpu").model, str(final)).eval()
    torch.testing.assert_close(log_probs(Policy("", plain, other.processing_class)), alone, atol=1e-5, rtol=1e-6)
    resumed = Run(RunDir.create(tmp_path / "resumed", run.config()).path)
    (run.dir.checkpoints / "checkpoint-1").rename(resumed.dir.checkpoints / "checkpoint-1")
    carry_out(resumed, "checkpoint-1")
    ours, theirs = (load_file(folder.dir.checkpoints / "final" / ADAPTER) for folder in (run, resumed))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for form in ("adapter", "merged"):
        folder = export_model("mine", form, tmp_path / form, tmp_path)  # type: ignore[arg-type]
        torch.testing.assert_close(log_probs(str(folder)), alone, atol=1e-4, rtol=0)
    assert f"| merged adapters | 0.5 × {first.name} |" in card(run, run.config(), final, final)


def test_all_weights_are_trained_from_the_merged_ones_on_and_so_is_the_reference(first: Path, tmp_path: Path) -> None:
    small = {"prompts_per_step": 1, "sampling": {"num_generations": 2, "max_completion_length": 8}}
    config = configured({"merge": {str(first): 1.0}}, name="grpo", beta=0.1, **small)
    trainer: Any = METHODS["grpo"].build(config, tmp_path)
    expected = log_probs(by_hand((first, 1.0, 3.0)))
    for model in (trainer.model, trainer.ref_model):
        ours = log_probs(Policy("", model.eval(), trainer.processing_class))
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-6)
