"""Decoding against a model's own forward pass: the plain step, and every kind of state that a model may keep."""

import inspect
from types import MethodType
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from tests.forward import picked_logprobs
from workbench.config import SamplingConfig
from workbench.policies import decoding, sampler
from workbench.policies.decoding import (
    CachedDecoder,
    FixedDecoder,
    NotOfThisShape,
    PlainDecoder,
    decoders,
    decoding_of,
    sampling_copy,
    shape_of,
)
from workbench.policies.sampler import Sampled, sample_rows

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "eos_token_id": 1, "pad_token_id": 0,
    "initializer_range": 0.15, "bos_token_id": 2,
}  # fmt: skip
WINDOW = {"sliding_window": 8, "use_sliding_window": True}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ALIKE = [[5, 6, 7, 8, 9, 10, 11]] * 6
PROMPTS = [[5, 6, 7, 8, 9, 10, 11]] * 3 + [[12, 13, 14]] * 2 + [list(range(20, 40))] * 3
CHUNK = 8
"""The cache's first size in these tests."""
LIMITS = [5, 3 * CHUNK - 1, 10, 3, CHUNK, 2 * CHUNK + 1, 7, CHUNK + 1]

SHAPES = {
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, rotary of llama3": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama, rotary of yarn": ("llama", {"rope_parameters": YARN, "attn_implementation": "eager"}),
    "llama, gelu": ("llama", {"hidden_act": "gelu", "num_key_value_heads": 4}),
    "qwen2": ("qwen2", {}),
    "qwen2, a window in some layers": ("qwen2", WINDOW | {"max_window_layers": 1}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral, a window": ("mistral", {"sliding_window": 8}),
}


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK", CHUNK)


def small(kind: str = "llama", **options: Any) -> Any:
    torch.manual_seed(0)
    attention = options.pop("attn_implementation", "sdpa")
    config = AutoConfig.for_model(kind, **{**SIZES, **options})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    for name, parameter in model.named_parameters():  # biases and norms start at 0 and 1, which would show nothing
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.1)
    return model


def sampled(model: Any, prompts: list[list[int]], **sampling: Any) -> list[Sampled]:
    how = SamplingConfig.parse({"temperature": 0.8, "max_completion_length": 3 * CHUNK} | sampling)
    limits = LIMITS[: len(prompts)]
    return sample_rows(model, prompts, how, eos_token_ids=[], pad_token_id=0, seed=3, limits=limits)


def check_log_probabilities(model: Any, prompts: list[list[int]], rows: list[Sampled]) -> None:
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.raw_logprobs == pytest.approx(picked_logprobs(model, prompt, row.token_ids, 0.8).tolist(), abs=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_invariant_a_plain_step_is_the_models_own(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that end one by one, past two growths of the cache: 1e-5 of the forward pass, and the same samples.

    So are those of the step that a GPU captures, here on a CPU: fixed memory under masks, ended rows computed along.
    """
    kind, options = SHAPES[shape]
    model = small(kind, **options)
    prompts = ALIKE if shape == "llama" else PROMPTS
    assert decoding_of(model) == "plain step"
    rows = sampled(model, prompts, top_k=30, repetition_penalty=1.1)
    assert [len(row.token_ids) for row in rows] == LIMITS[: len(prompts)]
    check_log_probabilities(model, prompts, rows)
    with monkeypatch.context() as patched:
        patched.setattr(sampler, "decoders_of", lambda model, prompts, pad, most: decoders(model, prompts, pad))
        expected = sampled(model, prompts, top_k=30, repetition_penalty=1.1)
    monkeypatch.setattr(decoding, "PlainDecoder", FixedDecoder)
    captured = sampled(model, prompts, top_k=30, repetition_penalty=1.1)
    check_log_probabilities(model, prompts, captured)
    for others in (expected, captured):
        assert [row.token_ids for row in rows] == [row.token_ids for row in others]


def test_a_copy_for_sampling_has_the_weights_of_the_model() -> None:
    model, ids = small("qwen2", tie_word_embeddings=True), torch.tensor([ALIKE[0]])
    same, half = sampling_copy(model, torch.float32), sampling_copy(model, torch.bfloat16)
    assert torch.equal(same(ids).logits, model(ids).logits)
    assert {one.data_ptr() for one in same.parameters()} == {one.data_ptr() for one in model.parameters()}
    assert all(one.requires_grad for one in model.parameters())
    assert half.lm_head.weight.data_ptr() == half.model.embed_tokens.weight.data_ptr()
    assert {one.dtype for one in half.parameters()} == {torch.bfloat16}
    assert (half(ids).logits.float() - model(ids).logits).abs().max() < 0.1


def with_lora(model: Any, **options: Any) -> Any:
    adapted = get_peft_model(model, LoraConfig(r=4, **{"target_modules": "all-linear", **options})).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    return adapted


def test_a_copy_for_sampling_has_lora_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = with_lora(small("qwen2")), torch.tensor([ALIKE[0]])
    before = model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight.clone()
    copy = sampling_copy(model, torch.float32)
    torch.testing.assert_close(copy(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    assert torch.equal(model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight, before)
    with model.disable_adapter():
        assert torch.equal(sampling_copy(model, torch.float32)(ids).logits, model(ids).logits)
    with pytest.raises(NotOfThisShape):
        sampling_copy(with_lora(small("qwen2"), use_dora=True), torch.float32)
    monkeypatch.setattr(decoding, "free_memory", lambda device: 1000)
    with pytest.raises(NotOfThisShape, match="memory"):
        sampling_copy(model, torch.float32)


def test_a_large_vocabulary_is_drawn_from_by_blocks_as_by_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    for tokens in (7, 1024, 1025, 5000):
        logits = torch.randn(500, tokens, generator=generator) * 4
        logits[:, torch.randint(tokens, (tokens // 2,), generator=generator)] = -torch.inf
        probabilities, uniform = logits.softmax(-1), torch.rand(500, generator=generator, dtype=torch.float64)
        uniform[0] = 0.0
        cdf = probabilities.double().cumsum(-1)
        expected = torch.searchsorted(cdf, (uniform * cdf[:, -1])[:, None], right=True)[:, 0]
        assert torch.equal(sampler.draw(probabilities, uniform), expected)
        last = sampler.draw(probabilities, torch.full((500,), 1 - 2**-53, dtype=torch.float64))
        assert (probabilities.gather(-1, last[:, None]) > 0).all()


@pytest.mark.parametrize("dora", [False, True])
def test_lora_is_called_and_may_be_switched_off(dora: bool) -> None:
    model = small("qwen2")
    before = sampled(model, PROMPTS)
    adapted = with_lora(
        model, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], lora_dropout=0.5, use_dora=dora
    )
    assert decoding_of(adapted) == "plain step"
    adapted.train()  # dropout is off while sampling
    rows = sampled(adapted, PROMPTS)
    assert adapted.training
    adapted.eval()
    assert rows != before
    check_log_probabilities(adapted, PROMPTS, rows)
    with adapted.disable_adapter():
        assert [row.token_ids for row in sampled(adapted, PROMPTS)] == [row.token_ids for row in before]


def test_a_model_in_trls_trainer_is_as_it_was() -> None:
    """TRL puts a forward of its own around the class's; accelerate leaves that without decorators."""
    model = small()
    model.forward = MethodType(inspect.unwrap(type(model).forward), model)
    assert decoding_of(model) == "plain step"
    add_fused_lm_head(model)
    assert vars(model)["forward"].__func__ is not type(model).forward
    assert decoding_of(model) == "plain step"
    check_log_probabilities(model, ALIKE, sampled(model, ALIKE))


def test_hooks_of_linear_layers_are_heard() -> None:
    model = small()
    calls: list[int] = []
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, args, output: calls.append(len(output)))
    assert decoding_of(model) == "plain step"
    sampled(model, ALIKE[:1])
    assert len(calls) == LIMITS[0]  # the prompt and every token but the last


def test_invariant_weights_are_read_in_place() -> None:
    """After an optimiser's step both decoders go on with the new weights, neither having been told."""
    model = small("qwen3")
    plain = PlainDecoder(model, shape_of(model), ALIKE, range(6), 0, 8)
    cached = CachedDecoder(model, ALIKE, range(6), 0, masked=True)
    before = plain.logits
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(torch.tensor(ALIKE)).logits.square().mean().backward()
    optimiser.step()
    tokens = torch.tensor([5, 6, 7, 8, 9, 10])
    with torch.no_grad():
        for keep in (range(6), [1, 2, 5]):
            for decoder in (plain, cached):
                decoder.advance(tokens[: len(decoder.rows)], keep)
            by_row = {row: plain.logits[place] for place, row in enumerate(plain.rows)}
            torch.testing.assert_close(torch.stack([by_row[row] for row in cached.rows]), cached.logits)
    assert (plain.logits[:3] - before[:3]).abs().max() > 0.1


def test_in_16_bits_the_difference_is_rounding() -> None:
    model = small("qwen3").bfloat16()
    assert decoding_of(model) == "plain step"
    for prompt, row in zip(PROMPTS, sampled(model, PROMPTS), strict=True):
        assert row.logprobs == pytest.approx(picked_logprobs(model, prompt, row.token_ids, 0.8).tolist(), abs=0.15)


def hooked(model: Any) -> Any:
    model.model.layers[1].self_attn.register_forward_hook(lambda module, args, output: None)
    return model


def other_linear(model: Any) -> Any:
    class Quantised(torch.nn.Linear):
        pass

    model.model.layers[0].mlp.up_proj.__class__ = Quantised
    return model


def prompted(model: Any) -> Any:
    return get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))


def another_attention(model: Any) -> Any:
    model.config._attn_implementation = "flex_attention"
    return model


@pytest.mark.parametrize(
    ("kind", "options", "change", "reason"),
    [
        (
            "gemma2",
            {"attn_implementation": "eager"},
            None,
            "Gemma2ForCausalLM",
        ),  # caps its logits
        ("granite", {}, None, "GraniteForCausalLM"),  # multiplies them
        ("llama", {"rope_parameters": {**YARN, "rope_type": "dynamic"}}, None, "'dynamic'"),
        ("llama", {}, hooked, "LlamaAttention has a hook"),
        ("llama", {}, other_linear, "Quantised"),
        ("llama", {}, prompted, "its adapter"),
        ("llama", {}, another_attention, "flex_attention"),
    ],
)
def test_what_a_plain_step_may_not_reproduce_goes_through_transformers(
    kind: str, options: dict[str, Any], change: Any, reason: str
) -> None:
    model = small(kind, **options)
    model = model if change is None else change(model)
    assert decoding_of(model).startswith("transformers' own step (")
    with pytest.raises(Exception, match=reason):
        shape_of(model)


def test_autocast_goes_through_transformers() -> None:
    model = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert decoding_of(model) == "transformers' own step (autocast is on)"
        assert all(row.token_ids for row in sampled(model, ALIKE[:2]))


# ── every kind of state ──────────────────────────────────────────────────────────────────────────────────────────────


ALL_SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 96, "eos_token_id": 1, "bos_token_id": 2,
    "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
SSM = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8}
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
ONE_STATE = {"state_size": 8, "num_hidden_layers": 2, "time_step_rank": 4, "intermediate_size": 64, "expand": 2}

KINDS = {
    "llama": ("plain", {}),
    "gemma2": ("padded", {"sliding_window": 8}),
    "gemma3_text": ("padded", {"sliding_window": 8}),
    "gpt2": ("padded", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}),
    "opt": ("padded", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "phi": ("padded", {}),
    "mixtral": ("padded", {}),
    "falcon_h1": ("by length", SSM | {"mamba_d_ssm": 64}),
    "granitemoehybrid": ("by length", SSM | EXPERTS | {"layer_types": ["mamba", "attention", "mamba", "attention"]}),
    "jamba": (
        "by length",
        EXPERTS | {"mamba_d_state": 8, "mamba_dt_rank": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    ),
    "mamba": ("by length", ONE_STATE),
    "mamba2": (
        "by length",
        {"num_heads": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8, "expand": 2, "num_hidden_layers": 2},
    ),
    "qwen3_next": ("by length", DELTA | EXPERTS),
    "qwen3_5_text": ("by length", DELTA),
    "lfm2": ("by length", {"layer_types": ["conv", "full_attention", "conv", "full_attention"]}),
    "nemotron_h": (
        "whole",
        EXPERTS
        | {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1, "chunk_size": 8}
        | {"layers_block_type": ["mamba", "attention", "mamba", "moe"], "moe_shared_expert_intermediate_size": 16},
    ),
    "minimax": (
        "whole",
        EXPERTS | {"layer_types": ["linear_attention", "full_attention"] * 2, "block_size": 8},
    ),
    "recurrent_gemma": ("whole", {"lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3}),
    "rwkv": ("whole", {"attention_hidden_size": 32, "num_hidden_layers": 2, "context_length": 96}),
    "xlstm": ("whole", {"hidden_size": 128, "num_heads": 2, "num_hidden_layers": 2, "head_dim": ...}),
}
PAIRED = [[5, 6, 7, 8, 9, 10, 11]] * 2 + [[12, 13, 14]] * 2 + [list(range(20, 40))] * 2


def random_model(kind: str, **options):
    known = AutoConfig.for_model(kind).to_dict()
    sizes = {name: value for name, value in (ALL_SIZES | EXPERTS).items() if name in known}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{n: v for n, v in (sizes | options).items() if v is not ...})
    model = AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():  # some start so random_model that every token is as likely as any other
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and parameter.std() < 0.15 and "conv" not in name:
                parameter.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_invariant_sampled_log_probabilities_are_a_plain_forward_passs(kind):
    """Three prompts of three lengths, rows leaving as they end: within 1e-4, and the same again with the same seed."""
    expected, options = KINDS[kind]
    model = random_model(kind, **options)
    sampling = SamplingConfig(max_completion_length=10, temperature=0.8, top_k=30)
    rows, again = (
        sample_rows(model, PAIRED, sampling, eos_token_ids=[1, 3, 4], pad_token_id=0, seed=3) for _ in range(2)
    )
    assert rows == again
    assert (decoding_of(model) == "plain step") == (expected == "plain")
    assert decoding._kinds.get(model, "plain") == expected
    assert len({len(row.token_ids) for row in rows}) > 1
    for prompt, row in zip(PAIRED, rows, strict=True):
        assert row.raw_logprobs == pytest.approx(picked_logprobs(model, prompt, row.token_ids, 0.8).tolist(), abs=1e-4)


@pytest.mark.parametrize("kind", ["lfm2", "mamba"])  # padding would change what mamba samples
def test_a_recurrent_models_rows_are_the_same_however_they_are_batched(kind):
    model = random_model(kind, **KINDS[kind][1])
    how = {"eos_token_ids": [1], "pad_token_id": 0, "seed": 1, "total_rows": len(PAIRED)}
    sampling = SamplingConfig(max_completion_length=10)
    whole = sample_rows(model, PAIRED, sampling, **how)
    parts = [row for i, ids in enumerate(PAIRED) for row in sample_rows(model, [ids], sampling, first_row=i, **how)]
    assert [row.token_ids for row in parts] == [row.token_ids for row in whole]
