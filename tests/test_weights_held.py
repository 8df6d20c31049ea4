"""How a policy's weights are held and which adapter is trained on them: in a preview, before a run, in a trainer."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench.config import LoraConfig, ModelConfig, PolicySection
from workbench.models.find import policy_path
from workbench.policies.load import load_configured, load_policy, prepared
from workbench.policies.worker import PolicyCache
from workbench.rewards.models.model import load_model, load_trained
from workbench.runs.check import checked
from workbench.schema import Example
from workbench.training.building import load_trained_policy, lora_config, shared_arguments, with_lora
from workbench.training.methods import METHODS, RunConfig
from workbench.training.saving import on_full_weights

ON_CPU = {"device": "cpu", "eval_steps": 0, "watch_prompts": 0}


def configured(policy: dict[str, Any], **more: Any) -> RunConfig:
    return RunConfig.parse({"policy": policy, "run": ON_CPU, **more})


@pytest.fixture
def bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """bitsandbytes as far as its presence is asked for."""
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0" if name == "bitsandbytes" else version(name))


# -- in a preview -----------------------------------------------------------------------------------------------------


def test_weights_are_held_as_the_configuration_says() -> None:
    assert PolicySection().loading == {}
    section = PolicySection(dtype="bfloat16", attention="eager", device_map="auto")
    policy = load_configured(section)
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.bfloat16}
    assert policy.model.config._attn_implementation == "eager"
    assert load_policy("tiny", device="cpu", attention="sdpa").model.config._attn_implementation == "sdpa"


def test_the_worker_loads_anew_what_is_to_be_held_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr("workbench.policies.worker.load_policy", lambda *name, **how: loaded.append((name, how)))
    cache, nobody = PolicyCache(), lambda event: None
    for how in (None, {}, {"dtype": "bfloat16"}, {"dtype": "bfloat16"}, None):
        cache._policy = cache._policy or object()  # type: ignore[assignment]
        cache.get("tiny", None, nobody, how)  # type: ignore[arg-type]
    assert [how for _, how in loaded] == [{}, {"dtype": "bfloat16"}, {}]


# -- refused before a run is queued -----------------------------------------------------------------------------------


# -- in a trainer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "weights", "precision"),
    [
        ({}, torch.float32, {"bf16": False}),
        ({"dtype": "float32"}, torch.float32, {"bf16": False}),
        ({"dtype": "bfloat16"}, torch.bfloat16, {"bf16": True}),
        ({"dtype": "float16"}, torch.float16, {"bf16": False, "fp16": True}),
    ],
)
def test_a_run_trains_weights_in_the_number_format_asked_for(
    policy: dict[str, Any], weights: torch.dtype, precision: dict[str, bool], tmp_path: Path
) -> None:
    config = configured(policy)
    assert {weight.dtype for weight in load_trained_policy(config).model.parameters()} == {weights}
    arguments = shared_arguments(config, tmp_path, 8)
    assert {name: arguments[name] for name in ("bf16", "fp16") if name in arguments} == precision


class Block(nn.Module):
    """Two linear layers under one name each, as in a transformer's."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(6, 6), nn.Linear(6, 6)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(6, 2)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["q_proj"], {"layers.0.q_proj", "layers.1.q_proj"}),
        ("q_proj, v_proj", {f"layers.{i}.{name}" for i in range(2) for name in ("q_proj", "v_proj")}),
        (r".*\.1\.(q|v)_proj", {"layers.1.q_proj", "layers.1.v_proj"}),
    ],
)
def test_the_targets_get_the_adapter(targets: Any, expected: set[str]) -> None:
    from peft import get_peft_model

    section = PolicySection(lora=LoraConfig(r=2, targets=targets))
    adapted = get_peft_model(Model(), lora_config(section, None)).base_model.model
    assert {name for name, module in adapted.named_modules() if hasattr(module, "lora_A")} == expected


def test_a_model_with_a_head_gets_the_same_adapter(tiny: Any) -> None:
    from transformers import LlamaForTokenClassification

    body = LlamaForTokenClassification(tiny.model.config)
    section = PolicySection(lora=LoraConfig(r=2, targets="q_proj", rslora=True))
    adapted = with_lora(body, section)
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert {name.split(".")[-3] for name in trained if "lora_" in name} <= {"lora_A", "lora_B", "q_proj"}
    assert any(".score." in name for name in trained)


def test_only_quantised_weights_are_prepared_for_an_adapter() -> None:
    model = Model()
    assert prepared(model) is model
    assert all(weight.requires_grad for weight in model.parameters())
    model.is_quantized = model.is_loaded_in_4bit = True  # type: ignore[assignment]
    model.head.to(torch.bfloat16)
    assert {weight.dtype for weight in prepared(model).parameters()} == {torch.float32}
    assert not any(weight.requires_grad for weight in model.parameters())


def test_a_resumed_adapter_has_the_number_format_that_it_was_trained_in(tmp_path: Path) -> None:
    """TRL trains an adapter on quantised weights in bfloat16, PEFT reads one in float32."""
    from workbench.training.methods import sft

    config = configured({"lora": {"r": 2, "targets": "q_proj"}}, method={"name": "sft", "batch_size": 2})
    trainer: Any = sft.build(config, tmp_path)
    trained = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    for weight in trained:
        weight.data = torch.full_like(weight, 0.1).to(torch.bfloat16)
    trainer.save_final(tmp_path / "final")
    for weight in trained:
        weight.data = torch.zeros_like(weight)
    trainer.load_weights(tmp_path / "final")
    assert {weight.dtype for weight in trained} == {torch.bfloat16}
    assert all(bool((weight == torch.tensor(0.1).to(torch.bfloat16)).all()) for weight in trained)


@pytest.mark.extras
def test_four_bits_train_and_sample_where_bitsandbytes_is_installed(tmp_path: Path) -> None:
    from workbench.policies.sampler import sample_group
    from workbench.training.methods import sft

    policy = {"quantisation": "4bit", "lora": {"r": 2, "targets": "q_proj"}}
    config = configured(policy, method={"name": "sft", "batch_size": 2})
    config.run.steps = 1
    trainer: Any = sft.build(config, tmp_path)
    trained = [name for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    trainer.train()
    trainer.save_final(tmp_path / "final")
    sampled = load_policy(str(tmp_path / "final"), device="cpu", quantisation="4bit")
    group = sample_group(sampled, Example("Start with 7, add 5.\n"), num_generations=2, max_completion_length=8)
    assert len(group) == 2


# -- reward models ----------------------------------------------------------------------------------------------------


def test_what_was_trained_on_frozen_weights_is_put_into_full_ones(tmp_path: Path) -> None:
    """The head and the adapter are those that were trained, all else is the full model's."""
    section = PolicySection(lora=LoraConfig(r=2, targets="q_proj"))
    frozen, full = (load_trained("tiny", policy_path("tiny"), {})[0] for _ in range(2))
    trained = with_lora(frozen, section)
    for name, weight in trained.named_parameters():
        if "base_layer" in name:  # what few bits leave of the weights
            weight.data.mul_(0.5)
        elif weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.1)
    frozen.config.pad_token_id = 3
    before = full.model.layers[0].self_attn.q_proj.weight.detach().clone()
    merged = on_full_weights(trained, full).merge_and_unload()
    layer = trained.base_model.model.model.layers[0].self_attn.q_proj
    update = layer.scaling["default"] * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(merged.model.layers[0].self_attn.q_proj.weight, before + update, atol=1e-6, rtol=0)
    assert torch.equal(merged.score.weight, trained.base_model.model.score.modules_to_save["default"].weight)
    assert merged.config.pad_token_id == 3


@pytest.mark.extras
@pytest.mark.parametrize("quantisation", ["4bit", "8bit"])
@pytest.mark.parametrize("name", ["reward", "prm"])
def test_a_reward_model_is_trained_on_few_bits_and_saved_in_full(name: str, quantisation: Any, tmp_path: Path) -> None:
    form: Any = "classifier" if name == "reward" else "stepwise"
    config = configured(
        {"quantisation": quantisation, "lora": {"r": 2, "targets": "q_proj"}}, method={"name": name, "batch_size": 2}
    )
    config.run.steps = 2
    checked(config)
    trainer: Any = METHODS[name].build(config, tmp_path)
    trained = [name for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    assert {"lora_" in name or "score" in name for name in trained} == {True}
    assert trainer.model.base_model.model.is_quantized
    trainer.train()
    trainer.save_final(tmp_path / "final")
    whole, in_bits = (
        load_model(ModelConfig(path=str(tmp_path / "final"), format=form, quantisation=bits), "cpu")
        for bits in ("none", quantisation)
    )
    kinds = {str(weight.dtype) for weight in whole.model.parameters()}
    assert kinds == {"torch.float32"}
    assert type(in_bits.model.model.layers[0].mlp.up_proj).__module__.startswith("bitsandbytes")
    assert torch.equal(in_bits.model.score.weight.float(), whole.model.score.weight)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        full, few = (model.model(input_ids=ids).logits.float() for model in (whole, in_bits))
    assert torch.isfinite(few).all()
    assert (full - few).abs().max() < 0.5 * full.abs().max() + 0.5
