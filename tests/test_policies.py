"""Loading policies, and the recipe of the embedded one."""

import pytest
import torch

from assets.tiny.build import Recipe, _batch, build_tiny
from assets.tiny_tools.build import Round, build_tiny_tools
from workbench.assets import EMBEDDED
from workbench.config import SamplingConfig
from workbench.data import load_task
from workbench.errors import PolicyError
from workbench.policies.load import load_policy
from workbench.policies.sampler import sample_group, sample_rows
from workbench.schema import Example


def test_the_embedded_policy_is_small_and_answers_greedily_right(tiny):
    size = sum(file.stat().st_size for file in EMBEDDED["tiny"].iterdir())
    assert size <= 5 * 2**20
    assert 0.5e6 < sum(p.numel() for p in tiny.model.parameters()) < 1.5e6
    task = load_task("chain-arithmetic")
    right = [
        task.answer_is_right(sample_group(tiny, example, num_generations=2, top_k=1).rollouts[0].text, example.columns)
        for example in task.held_out[:20]
    ]
    assert sum(right) >= 18


def test_a_local_folder_and_an_adapter_load(tiny, tmp_path):
    from peft import LoraConfig, get_peft_model

    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    policy = load_policy(str(tmp_path / "model"), device="cpu")
    assert policy.model.dtype == torch.float32
    adapted = get_peft_model(policy.model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path / "adapter")
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
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 64, "initializer_range": 0.5}
    lora = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = get_peft_model(GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval(), lora).eval()
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12]]
    rows = sample_rows(
        model, prompts, SamplingConfig(max_completion_length=6), eos_token_ids=[0], pad_token_id=0, seed=0
    )
    for prompt, row in zip(prompts, rows, strict=True):
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt + row.token_ids])).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        picked = logprobs.gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
        assert row.logprobs == pytest.approx(picked.tolist(), abs=1e-4)


def test_build_tiny_teaches_and_saves_a_loadable_policy_twice_the_same(tmp_path):
    recipe = Recipe(steps=3, batch_size=4, layers=1, hidden_size=32, intermediate_size=32, heads=2)
    losses = []
    for folder in ("one", "two"):
        build_tiny(tmp_path / folder, recipe, lambda step, loss, seconds: losses.append(loss))
    assert losses[0] == losses[1]
    assert load_policy(str(tmp_path / "one"), device="cpu").tokenizer.eos_token == "<|end|>"
    one, two = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("one", "two"))
    assert one == two


def test_tiny_tools_is_small_and_calls_the_calculator_greedily_right():
    assert sum(file.stat().st_size for file in EMBEDDED["tiny-tools"].iterdir()) <= 5 * 2**20
    policy, task = load_policy("tiny-tools", device="cpu"), load_task("calculator")
    assert (task.policy, task.environment) == ("tiny-tools", "calculator")
    settings = {"num_generations": 2, "top_k": 1, "environment": "calculator"}
    groups = [sample_group(policy, row, max_completion_length=192, **settings) for row in task.held_out[:20]]
    right = [task.answer_is_right(group.rollouts[0].text, group.columns) for group in groups]
    assert sum(right) >= 18
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
