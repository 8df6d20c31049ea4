"""Every kind of state a model may keep: random small models of each against their own forward pass."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from workbench.config import RunSection, SamplingConfig
from workbench.errors import ConfigError
from workbench.policies import decoding
from workbench.policies.decoding import decoding_of
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_rows, to_rollout
from workbench.training.watching import HeldOutAccuracy

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 96, "eos_token_id": 1, "bos_token_id": 2,
    "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
SSM = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
EXPERTS |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
DELTA["layer_types"] = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
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
    "bamba": ("by length", SSM | {"attn_layer_indices": [1]}),
    "granitemoehybrid": ("by length", SSM | EXPERTS | {"layer_types": ["mamba", "attention", "mamba", "attention"]}),
    "jamba": (
        "by length",
        EXPERTS | {"mamba_d_state": 8, "mamba_dt_rank": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    ),
    "mamba": ("by length", ONE_STATE),
    "falcon_mamba": ("by length", ONE_STATE),
    "mamba2": (
        "by length",
        {"num_heads": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8, "expand": 2, "num_hidden_layers": 2},
    ),
    "qwen3_next": ("by length", DELTA | EXPERTS),
    "qwen3_5_text": ("by length", DELTA),
    "olmo_hybrid": ("by length", DELTA | {"linear_num_key_heads": 4}),
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
PROMPTS = [[5, 6, 7, 8, 9, 10, 11]] * 2 + [[12, 13, 14]] * 2 + [list(range(20, 40))] * 2


def small(kind: str, **options):
    known = AutoConfig.for_model(kind).to_dict()
    sizes = {name: value for name, value in (SIZES | EXPERTS).items() if name in known}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{n: v for n, v in (sizes | options).items() if v is not ...})
    model = AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():  # some start so small that every token is as likely as any other
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and parameter.std() < 0.15 and "conv" not in name:
                parameter.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_invariant_sampled_log_probabilities_are_a_plain_forward_passs(kind):
    """Three prompts of three lengths, rows leaving as they end: within 1e-4, and the same again with the same seed."""
    expected, options = KINDS[kind]
    model = small(kind, **options)
    sampling = SamplingConfig(max_completion_length=14, temperature=0.8, top_k=30)
    rows, again = (
        sample_rows(model, PROMPTS, sampling, eos_token_ids=[1, 3, 4], pad_token_id=0, seed=3) for _ in range(2)
    )
    assert rows == again
    assert (decoding_of(model) == "plain step") == (expected == "plain")
    assert decoding._kinds.get(model, "plain") == expected
    assert len({len(row.token_ids) for row in rows}) > 1
    for prompt, row in zip(PROMPTS, rows, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + row.token_ids]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        picked = (logits / 0.8).log_softmax(-1).gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
        assert row.raw_logprobs == pytest.approx(picked.tolist(), abs=1e-4)


@pytest.mark.parametrize("kind", ["lfm2", "mamba"])  # padding would change what mamba samples
def test_a_recurrent_models_rows_are_the_same_however_they_are_batched(kind):
    model = small(kind, **KINDS[kind][1])
    how = {"eos_token_ids": [1], "pad_token_id": 0, "seed": 1, "total_rows": len(PROMPTS)}
    sampling = SamplingConfig(max_completion_length=10)
    whole = sample_rows(model, PROMPTS, sampling, **how)
    parts = [row for i, ids in enumerate(PROMPTS) for row in sample_rows(model, [ids], sampling, first_row=i, **how)]
    assert [row.token_ids for row in parts] == [row.token_ids for row in whole]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_invariant_held_out_accuracy_does_not_depend_on_ranks(random_policy, ranks):
    """22 prompts: on 3 ranks 8, 8 and 6 of them. Every rank samples what one alone would."""
    columns = [{"row": number} for number in range(22)]
    rows = [SimpleNamespace(prompt=f"Start with {number}, add 5.\n", columns=columns[number]) for number in range(22)]
    texts: dict[int, str] = {}
    task = SimpleNamespace(
        held_out=rows, checked=lambda text, row: (texts.setdefault(row["row"], text) and row["row"] % 2 == 0, "7")
    )

    class Sampler:
        rows_at_once = 5

        def encode(self, prompt):
            return encode_prompt(random_policy.tokenizer, prompt)

        def all_thinking_open(self, prompts):
            return [False] * len(prompts)

        def rollout(self, row):
            return to_rollout(random_policy.tokenizer, row)

        def __call__(self, prompt_ids, seed, *, first_row, total_rows, **asked):
            sampling = SamplingConfig(max_completion_length=6)
            return sample_rows(
                random_policy.model, prompt_ids, sampling, eos_token_ids=random_policy.eos_token_ids, pad_token_id=1,
                seed=seed, first_row=first_row, total_rows=total_rows,
            )  # fmt: skip

    def measure(rank, ranks, skip=0):
        accelerator = SimpleNamespace(
            num_processes=ranks, process_index=rank, device=torch.device("cpu"), reduce=lambda count, reduction: count
        )
        run = RunSection(eval_steps=1, eval_prompts=22, eval_skip=skip)
        return HeldOutAccuracy(SimpleNamespace(accelerator=accelerator), Sampler(), task, run)()["accuracy"]

    total = sum(measure(rank, ranks) for rank in range(ranks))
    together, texts = texts, {}
    assert measure(0, 1) == pytest.approx(total)
    assert texts == together
    texts.clear()
    measure(0, 1, skip=3)
    assert list(texts) == list(range(3, len(rows)))  # the others are apart, for settings to be chosen on
    with pytest.raises(ConfigError, match=f"run.eval_skip: {len(rows)} leaves none of the task's {len(rows)} held-out"):
        measure(0, 1, skip=len(rows))
