"""How fast ``sample_group`` samples, against ``model.generate`` given the same prompt, settings and policy.

Tokens a second up to and including each end of sequence. Both take their turn in every round, and the ratio is the
median of the rounds' own ratios: what slows a machine for a while slows both.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import Measure
from workbench.data import load_task
from workbench.policies.load import Policy, load_policy
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_group
from workbench.schema import Example

LENGTH = 128
SIZE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 11, "num_attention_heads": 6}
"""17 million weights, random: most completions are as long as their limit allows."""


def measure(repeat: int, full: bool = False) -> list[Measure]:
    """The embedded policy's groups of 8 and of 48 rows; ``full``: also 16 rows of 512 tokens of 17M random weights."""
    tiny = load_policy("tiny")
    rows = [*_pair(tiny, "tiny, 8 rows", 8, LENGTH, repeat), *_pair(tiny, "tiny, 48 rows", 48, LENGTH, repeat)]
    if full:
        with tempfile.TemporaryDirectory() as folder:
            policy = load_policy(str(random_policy(Path(folder), SIZE)))
            rows += _pair(policy, "17M, 16 rows of 512 tokens", 16, 512, repeat)
    return rows


def random_policy(path: Path, size: dict[str, int]) -> Path:
    """Save a random policy of this size, with grouped-query attention and the embedded policy's tokenizer."""
    tokenizer = load_policy("tiny", device="cpu").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        **size,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def _pair(policy: Policy, what: str, rows: int, length: int, repeat: int) -> list[Measure]:
    task = load_task("chain-arithmetic")
    rates: dict[str, list[float]] = {"sample_group": [], "generate": []}
    for round_ in range(repeat + 1):
        for name, sample in (("sample_group", grouped), ("generate", generated)):
            began = time.perf_counter()
            tokens = sample(policy, task[round_], rows, length, round_)
            rates[name].append(tokens / (time.perf_counter() - began))
    counted = {name: rate[1:] for name, rate in rates.items()}  # the first round warms up
    return [
        Measure(
            f"{what}: {name}",
            round(statistics.median(rate), 1),
            "tokens/s",
            round(statistics.median(a / b for a, b in zip(rate, counted["generate"], strict=True)), 2),
            "generate",
        )
        for name, rate in counted.items()
    ]


def grouped(policy: Policy, example: Example, rows: int, length: int, seed: int) -> int:
    """Tokens that ``sample_group`` sampled."""
    group = sample_group(policy, example, num_generations=rows, max_completion_length=length, seed=seed)
    return sum(map(len, group.rollouts))


def generated(policy: Policy, example: Example, rows: int, length: int, seed: int) -> int:
    """Tokens that ``generate`` sampled, each end of sequence included."""
    prompt = torch.tensor([encode_prompt(policy.tokenizer, example.prompt)] * rows, device=policy.device)
    torch.manual_seed(seed)
    ids = policy.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=0,
        max_new_tokens=length,
        pad_token_id=policy.tokenizer.pad_token_id,
    )
    return int((ids[:, prompt.shape[1] :] != policy.tokenizer.pad_token_id).sum())
