"""The plain decode step against the model's own forward pass, and what is left to transformers."""

import inspect
from types import MethodType
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from workbench.config import SamplingConfig
from workbench.policies import decoding, sampler
from workbench.policies.decoding import (
    CHUNK,
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
LIMITS = [5, 3 * CHUNK - 9, 40, 3, CHUNK, 2 * CHUNK + 1, 7, CHUNK + 1]

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
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + row.token_ids])).logits[0, len(prompt) - 1 : -1]
        picked = (logits / 0.8).log_softmax(-1).gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
        assert row.raw_logprobs == pytest.approx(picked.tolist(), abs=1e-5)


@pytest.mark.parametrize("prompts", [ALIKE, PROMPTS], ids=["one prompt", "prompts of three lengths"])
@pytest.mark.parametrize("shape", SHAPES)
def test_invariant_a_plain_step_is_the_models_own(
    shape: str, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that end one by one, past two growths of the cache: 1e-5 of the forward pass, and the same samples."""
    kind, options = SHAPES[shape]
    model = small(kind, **options)
    assert decoding_of(model) == "plain step"
    rows = sampled(model, prompts, top_k=30, repetition_penalty=1.1)
    assert [len(row.token_ids) for row in rows] == LIMITS[: len(prompts)]
    check_log_probabilities(model, prompts, rows)
    monkeypatch.setattr(sampler, "decoders_of", lambda model, prompts, pad, most: decoders(model, prompts, pad))
    expected = sampled(model, prompts, top_k=30, repetition_penalty=1.1)
    assert [row.token_ids for row in rows] == [row.token_ids for row in expected]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_that_a_gpu_captures_is_the_plain_one(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU: fixed memory under masks, ended rows computed along, the same samples with the right probabilities."""
    kind, options = SHAPES[shape]
    model = small(kind, **options)
    expected = sampled(model, PROMPTS)
    monkeypatch.setattr(decoding, "PlainDecoder", FixedDecoder)
    rows = sampled(model, PROMPTS)
    assert [row.token_ids for row in rows] == [row.token_ids for row in expected]
    check_log_probabilities(model, PROMPTS, rows)


def test_a_copy_for_sampling_has_the_weights_of_the_model() -> None:
    model, ids = small("qwen2", tie_word_embeddings=True), torch.tensor([ALIKE[0]])
    same, half = sampling_copy(model, torch.float32), sampling_copy(model, torch.bfloat16)
    assert torch.equal(same(ids).logits, model(ids).logits)
    assert {one.data_ptr() for one in same.parameters()} == {one.data_ptr() for one in model.parameters()}
    assert all(one.requires_grad for one in model.parameters())
    assert half.lm_head.weight.data_ptr() == half.model.embed_tokens.weight.data_ptr()
    assert {one.dtype for one in half.parameters()} == {torch.bfloat16}
    assert (half(ids).logits.float() - model(ids).logits).abs().max() < 0.1


def test_a_copy_for_sampling_has_lora_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    def adapted(**options: Any) -> Any:
        model = get_peft_model(small("qwen2"), LoraConfig(r=4, target_modules="all-linear", **options)).eval()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, 0.0, 0.3)
        return model

    model, ids = adapted(), torch.tensor([ALIKE[0]])
    before = model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight.clone()
    copy = sampling_copy(model, torch.float32)
    torch.testing.assert_close(copy(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    assert torch.equal(model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight, before)
    with model.disable_adapter():
        bare = sampling_copy(model, torch.float32)
        assert torch.equal(bare(ids).logits, model(ids).logits)
    with pytest.raises(NotOfThisShape):
        sampling_copy(adapted(use_dora=True), torch.float32)
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


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_the_likeliest_tokens_are_those_of_generate(kind: str) -> None:
    model = small(kind)
    rows = sampled(model, [ALIKE[0], PROMPTS[-1]], top_k=1)
    for prompt, row in zip([ALIKE[0], PROMPTS[-1]], rows, strict=True):
        ids = torch.tensor([prompt])
        generated = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(row.token_ids), do_sample=False,
            eos_token_id=[], pad_token_id=0,
        )  # fmt: skip
        assert row.token_ids == generated[0, len(prompt) :].tolist()


@pytest.mark.parametrize("dora", [False, True])
def test_lora_is_called_and_may_be_switched_off(dora: bool) -> None:
    model = small("qwen2")
    before = sampled(model, PROMPTS)
    targets = ["q_proj", "v_proj", "o_proj", "down_proj"]
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=targets, lora_dropout=0.5, use_dora=dora)).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    assert decoding_of(adapted) == "plain step"
    adapted.train()  # dropout is off while sampling
    rows = sampled(adapted, PROMPTS)
    assert adapted.training
    adapted.eval()
    assert rows != before
    check_log_probabilities(adapted, PROMPTS, rows)
    with adapted.disable_adapter():
        again = sampled(adapted, PROMPTS)
    assert [row.token_ids for row in again] == [row.token_ids for row in before]


def test_a_model_in_trls_trainer_is_as_it_was() -> None:
    """TRL puts a forward of its own around the class's; accelerate leaves that without decorators."""
    model = small()
    model.forward = MethodType(inspect.unwrap(type(model).forward), model)
    assert decoding_of(model) == "plain step"
    add_fused_lm_head(model)
    assert vars(model)["forward"].__func__ is not type(model).forward
    assert decoding_of(model) == "plain step"
    rows = sampled(model, ALIKE)
    check_log_probabilities(model, ALIKE, rows)


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
        with torch.no_grad():
            logits = model(torch.tensor([prompt + row.token_ids])).logits[0, len(prompt) - 1 : -1].float()
        picked = (logits / 0.8).log_softmax(-1).gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
        assert row.logprobs == pytest.approx(picked.tolist(), abs=0.15)


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
            "no plain step is known for Gemma2ForCausalLM",
        ),  # caps its logits
        ("granite", {}, None, "no plain step is known for GraniteForCausalLM"),  # multiplies them
        ("llama", {"rope_parameters": {**YARN, "rope_type": "dynamic"}}, None, "rotary positions of type 'dynamic'"),
        ("llama", {}, hooked, "the forward of its LlamaAttention has a hook"),
        ("llama", {}, other_linear, "a linear layer is a Quantised"),
        ("llama", {}, prompted, "its adapter is a LlamaForCausalLM"),
        ("llama", {}, another_attention, "attention by 'flex_attention'"),
    ],
)
def test_what_a_plain_step_may_not_reproduce_goes_through_transformers(
    kind: str, options: dict[str, Any], change: Any, reason: str
) -> None:
    model = small(kind, **options)
    model = model if change is None else change(model)
    said = decoding_of(model)
    assert said.startswith("transformers' own step (")
    with pytest.raises(Exception, match=reason):
        shape_of(model)


def test_autocast_goes_through_transformers() -> None:
    model = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert decoding_of(model) == "transformers' own step (autocast is on)"
        rows = sampled(model, ALIKE[:2])
    assert all(row.token_ids for row in rows)
