"""Policies: the embedded ones, how weights and adapters are held, and what is damaged on disk refused."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from assets.tiny.build import Recipe, _batch, build_tiny
from assets.tiny_tools.build import Round, build_tiny_tools
from tests import reward_models
from tests.forward import picked_logprobs
from workbench.assets import EMBEDDED
from workbench.config import LoraConfig, PolicySection, SamplingConfig
from workbench.data import load_task
from workbench.errors import PolicyError
from workbench.models import weights
from workbench.policies.load import load_configured, load_policy, prepared
from workbench.policies.prompts import find_chat_template
from workbench.policies.sampler import sample_group, sample_rows
from workbench.policies.worker import PolicyCache
from workbench.schema import Example
from workbench.training.building import load_trained_policy, lora_config, shared_arguments
from workbench.training.methods import RunConfig, sft


def test_the_embedded_policy_is_small_and_answers_greedily_right(tiny):
    assert sum(file.stat().st_size for file in EMBEDDED["tiny"].iterdir()) <= 5 * 2**20
    assert 0.5e6 < sum(p.numel() for p in tiny.model.parameters()) < 1.5e6
    task = load_task("chain-arithmetic")
    right = [
        task.answer_is_right(sample_group(tiny, example, num_generations=2, top_k=1).rollouts[0].text, example.columns)
        for example in task.held_out[:10]
    ]
    assert sum(right) >= 9


def test_a_local_folder_and_an_adapter_load(tiny, tmp_path):
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    policy = load_policy(str(tmp_path / "model"), device="cpu")
    assert policy.model.dtype == torch.float32
    lora = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    peft.get_peft_model(policy.model, lora).save_pretrained(tmp_path / "adapter")
    loaded = load_policy(str(tmp_path / "model"), adapter=str(tmp_path / "adapter"), device="cpu")
    group = sample_group(loaded, Example("Start with 7, add 5.\n"), num_generations=2, max_completion_length=8)
    assert len(group) == 2
    assert not any(p.requires_grad for n, p in loaded.model.named_parameters() if "lora" in n)
    alone = load_policy(str(tmp_path / "adapter"), device="cpu", trainable=True)  # put on the base that it names
    assert alone.name == str(tmp_path / "adapter")
    assert sorted(n for n, _ in alone.model.named_parameters()) == sorted(n for n, _ in loaded.model.named_parameters())
    assert all(p.requires_grad == ("lora" in n) for n, p in alone.model.named_parameters())
    with pytest.raises(PolicyError, match="is an adapter itself"):
        load_policy(str(tmp_path / "adapter"), adapter=str(tmp_path / "adapter"), device="cpu")


def test_an_adapter_does_not_hide_where_tokens_are_placed():
    """GPT-2 adds position embeddings: a left-padded row with an adapter has a plain forward pass's log-probs."""
    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 64, "initializer_range": 0.5}
    lora = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = peft.get_peft_model(GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval(), lora).eval()
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12]]
    rows = sample_rows(
        model, prompts, SamplingConfig(max_completion_length=6), eos_token_ids=[0], pad_token_id=0, seed=0
    )
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.logprobs == pytest.approx(picked_logprobs(model, prompt, row.token_ids).tolist(), abs=1e-4)


def test_build_tiny_teaches_and_saves_a_loadable_policy_twice_the_same(tmp_path):
    recipe = Recipe(steps=2, batch_size=4, layers=1, hidden_size=32, intermediate_size=32, heads=2)
    for folder in ("one", "two"):
        build_tiny(tmp_path / folder, recipe)
    assert load_policy(str(tmp_path / "one"), device="cpu").tokenizer.eos_token == "<|end|>"
    one, two = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("one", "two"))
    assert one == two


def test_tiny_tools_is_small_and_calls_the_calculator_greedily_right():
    assert sum(file.stat().st_size for file in EMBEDDED["tiny-tools"].iterdir()) <= 5 * 2**20
    policy, task = load_policy("tiny-tools", device="cpu"), load_task("calculator")
    assert (task.policy, task.environment) == ("tiny-tools", "calculator")
    settings = {"num_generations": 2, "top_k": 1, "environment": "calculator"}
    groups = [sample_group(policy, row, max_completion_length=192, **settings) for row in task.held_out[:10]]
    assert sum(task.answer_is_right(group.rollouts[0].text, group.columns) for group in groups) >= 9
    assert all(len(rollout.turn_spans) > 1 for group in groups for rollout in group.rollouts)


def test_build_tiny_tools_teaches_and_saves_a_loadable_policy_twice_the_same(tiny, tmp_path):
    """Observations carry no loss."""
    lesson = [("Start with 7.\n", False), ("call: 7*8\n", True), ("= 56\n", False), ("Answer: 56", True)]
    batch = _batch(tiny.tokenizer, [lesson, lesson[:2]])
    taught = batch["input_ids"][0][batch["labels"][0] != -100]
    assert tiny.tokenizer.decode(taught) == "call: 7*8\nAnswer: 56<|end|>"
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    rounds = (Round(steps=2, batch_size=2), Round(steps=1, decay_steps=2, batch_size=2, seed=1))
    for folder in ("one", "two"):
        build_tiny_tools(tmp_path / folder, rounds)
    one, two, before = (
        (folder / "model.safetensors").read_bytes() for folder in (tmp_path / "one", tmp_path / "two", EMBEDDED["tiny"])
    )
    assert one == two != before


def test_a_repositorys_own_code_needs_consent(tiny, tmp_path):
    tiny.tokenizer.save_pretrained(tmp_path)
    auto_map = '{"AutoConfig": "modeling_odd.OddConfig", "AutoModelForCausalLM": "modeling_odd.Odd"}'
    (tmp_path / "config.json").write_text(f'{{"model_type": "odd", "auto_map": {auto_map}}}')
    (tmp_path / "modeling_odd.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(PolicyError, match="trust_remote_code"):
        load_policy(str(tmp_path), device="cpu")
    with pytest.raises(SystemExit, match="it ran"):
        load_policy(str(tmp_path), device="cpu", trust_remote_code=True)


# ── how weights are held ─────────────────────────────────────────────────────────────────────────────────────────────


def configured(policy: dict[str, Any], **more: Any) -> RunConfig:
    return RunConfig.parse({"policy": policy, "run": {"device": "cpu", "eval_steps": 0, "watch_prompts": 0}, **more})


# -- in a preview -----------------------------------------------------------------------------------------------------


def test_weights_are_held_as_the_configuration_says() -> None:
    assert PolicySection().loading == {}
    model = load_configured(PolicySection(dtype="bfloat16", attention="eager", device_map="auto")).model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert model.config._attn_implementation == "eager"
    assert load_policy("tiny", device="cpu", attention="sdpa").model.config._attn_implementation == "sdpa"


def test_the_worker_loads_anew_what_is_to_be_held_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr("workbench.policies.worker.load_policy", lambda *name, **how: loaded.append((name, how)))
    cache, nobody = PolicyCache(), lambda event: None
    for how in (None, {}, {"dtype": "bfloat16"}, {"dtype": "bfloat16"}, None):
        cache._policy = cache._policy or object()  # type: ignore[assignment]
        cache.get("tiny", None, nobody, how)  # type: ignore[arg-type]
    assert [how for _, how in loaded] == [{}, {"dtype": "bfloat16"}, {}]


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


def two_layers() -> nn.Module:
    """Two blocks of two linear layers, named as in a transformer, and a head."""
    blocks = [nn.ModuleDict({"q_proj": nn.Linear(6, 6), "v_proj": nn.Linear(6, 6)}) for _ in range(2)]
    return nn.ModuleDict({"layers": nn.ModuleList(blocks), "head": nn.Linear(6, 2)})


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["q_proj"], {"layers.0.q_proj", "layers.1.q_proj"}),
        ("q_proj, v_proj", {f"layers.{i}.{name}" for i in range(2) for name in ("q_proj", "v_proj")}),
        (r".*\.1\.(q|v)_proj", {"layers.1.q_proj", "layers.1.v_proj"}),
    ],
)
def test_the_targets_get_the_adapter(targets: Any, expected: set[str]) -> None:
    section = PolicySection(lora=LoraConfig(r=2, targets=targets))
    adapted = peft.get_peft_model(two_layers(), lora_config(section, None)).base_model.model
    assert {name for name, module in adapted.named_modules() if hasattr(module, "lora_A")} == expected


def test_only_quantised_weights_are_prepared_for_an_adapter() -> None:
    model = two_layers()
    assert prepared(model) is model
    assert all(weight.requires_grad for weight in model.parameters())
    model.is_quantized = model.is_loaded_in_4bit = True  # type: ignore[assignment]
    model.head.to(torch.bfloat16)
    assert {weight.dtype for weight in prepared(model).parameters()} == {torch.float32}
    assert not any(weight.requires_grad for weight in model.parameters())


def test_a_resumed_adapter_has_the_number_format_that_it_was_trained_in(tmp_path: Path) -> None:
    """TRL trains an adapter on quantised weights in bfloat16, PEFT reads one in float32."""
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
    policy = {"quantisation": "4bit", "lora": {"r": 2, "targets": "q_proj"}}
    config = configured(policy, method={"name": "sft", "batch_size": 2})
    config.run.steps = 1
    trainer: Any = sft.build(config, tmp_path)
    trained = [name for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    assert {"lora_" in name for name in trained} == {True}
    trainer.train()
    trainer.save_final(tmp_path / "final")
    sampled = load_policy(str(tmp_path / "final"), device="cpu", quantisation="4bit")
    group = sample_group(sampled, Example("Start with 7, add 5.\n"), num_generations=2, max_completion_length=8)
    assert len(group) == 2


# ── damaged on disk ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tiny, tmp_path):
    """A copy of the embedded policy to be damaged."""
    tiny.model.save_pretrained(tmp_path / "policy")
    tiny.tokenizer.save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


def edit_json(file, **changes):
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder, **options):
    with pytest.raises(PolicyError) as caught:
        load_policy(str(folder), device="cpu", **options)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


UP, BIAS = "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.bias"


def test_a_gguf_file_that_was_not_read_yet(tmp_path, monkeypatch):
    """Its chat template is not known, and it is refused without the package that reads it."""
    monkeypatch.setattr("workbench.policies.load.find_spec", lambda name: None)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert find_chat_template(str(file)) is None
    with pytest.raises(PolicyError, match="pip install gguf"):
        load_policy(str(file))


def tear(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])


def pickle_weights(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def lose_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def lose_ends(folder):
    edit_json(folder / "tokenizer_config.json", eos_token=..., pad_token=...)
    edit_json(folder / "config.json", eos_token_id=None, pad_token_id=None)
    (folder / "generation_config.json").unlink()


def set_size(**sizes):
    return lambda folder: edit_json(folder / "config.json", **sizes)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (partial(tear, kept=0), ("torn",)),
        (partial(tear, kept=4), ("torn",)),
        (partial(tear, kept=5_000), ("torn",)),
        (pickle_weights, ("pytorch_model.bin",)),
        (lose_tokenizer, ("tokenizer.save_pretrained",)),
        (lose_ends, ("nothing would end an answer", "tokenizer", "generation_config.json")),
        (set_size(num_attention_heads=0), ("num_attention_heads is 0",)),
        (set_size(num_key_value_heads=0), ("num_key_value_heads is 0",)),
        (set_size(num_hidden_layers=-1), ("num_hidden_layers is -1",)),
        (set_size(hidden_size=0), ("hidden_size is 0",)),
        (set_size(num_hidden_layers=3), ("model.layers.3.input_layernorm.weight", "and 6 more")),
        (set_size(intermediate_size=64), ("down_proj.weight is (128, 384)", "(128, 64)", "one of 12")),
        (
            partial(edit_tensors, change=lambda tensors: tensors[UP][3, 5:7].fill_(torch.inf)),
            (f"2 of 49,152 values of tensor {UP}",),
        ),
        (  # 320 x 128 embeddings; 4 layers of 9 tensors, embeddings and the last norm
            partial(edit_tensors, change=lambda tensors: [tensor.fill_(torch.nan) for tensor in tensors.values()]),
            ("40,960 of 40,960 values of tensor model.embed_tokens.weight", "in 38 tensors"),
        ),
        (partial(edit_tensors, change=lambda tensors: tensors.pop(UP)), (f"hold no {UP}",)),
        (partial(edit_tensors, change=lambda tensors: tensors.setdefault(BIAS, torch.zeros(384))), (BIAS,)),
    ],
)
def test_a_damaged_policy_is_refused_by_what_is_wrong(folder, damage, said):
    damage(folder)
    message = refusal(folder)
    assert [part for part in said if part not in message] == []


def test_what_harms_nobody_is_loaded(folder, tiny):
    """Tied tensors are not missing; a value head, which PPO leaves, is beside the model; one end token is enough."""
    assert tiny.model.config.tie_word_embeddings
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    edit_tensors(folder, lambda tensors: tensors.update({"v_head.weight": torch.zeros(1, 128)}))
    edit_json(folder / "tokenizer_config.json", eos_token=..., pad_token=...)
    load_policy(str(folder), device="cpu")


def test_a_model_larger_than_memory_is_refused_before_it_is_built(folder, monkeypatch):
    # 320 × 128 embeddings; a layer 4 × 128² + 3 × 128 × 384 + 2 × 128; the last norm: 894,080 of 4 bytes
    monkeypatch.setattr(weights, "free_memory", lambda device: 3_576_320)
    load_policy(str(folder), device="cpu")
    monkeypatch.setattr(weights, "free_memory", lambda device: 3_576_319)
    assert "894,080 parameters take 3.6 MB" in refusal(folder)
    load_policy(str(folder), device="cpu", dtype="bfloat16")


def test_a_tokenizer_of_another_model_is_refused(folder, tiny, tmp_path):
    for file in folder.glob("tokenizer*"):
        shutil.move(file, tmp_path / file.name)
    assert "tokenizer" in refusal(folder)
    larger = reward_models.tokenizer()
    larger.add_tokens([f"word{i}" for i in range(340 - len(larger))])
    larger.save_pretrained(folder)
    assert "has token ids up to 339 ('word29')" in refusal(folder)
    assert "and the model embeds 320 tokens" in refusal(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(**size, vocab_size=1000, eos_token_id=0)).save_pretrained(folder)
    assert "token ids and the model embeds 1,000 tokens; that is another model's" in refusal(folder)
    LlamaForCausalLM(LlamaConfig(**size, vocab_size=400, eos_token_id=300)).save_pretrained(folder)
    plain = larger.convert_ids_to_tokens(300)
    assert f"token 300 ends an answer by its configuration and is plain {plain!r} in its tokenizer" in refusal(folder)


def test_an_adapter_of_another_base_and_a_broken_one_are_refused(folder, tmp_path):
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(LlamaForCausalLM.from_pretrained(folder), lora).save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "layers.1" in name)

    def refused(**changed):
        save_file({name: tensor for name, tensor in (tensors | changed).items() if tensor is not None}, file)
        with pytest.raises(PolicyError, match=r"^adapter .*") as caught:
            load_policy(str(folder), str(tmp_path / "adapter"), device="cpu")
        return str(caught.value)

    assert f"adapter_model.safetensors holds no {name}; it was trained on another base" in refused(**{name: None})
    deeper = name.replace("layers.1", "layers.9")
    assert f"holds {deeper}, for which this base has no place" in refused(**{deeper: tensors[name].clone()})
    assert "NaN" in refused(**{name: tensors[name] * torch.nan})
    assert "size mismatch" in refused(**{name: torch.zeros(3, 3)})
