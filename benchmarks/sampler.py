"""How fast ``sample_group`` samples, against ``model.generate`` given the same prompt, settings and policy."""

from __future__ import annotations

import statistics
import time

import torch

from benchmarks import Measure
from workbench.policies.load import load_policy
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_group
from workbench.tasks import load_task

GENERATIONS, LENGTH = 8, 128


def measure(repeat: int) -> list[Measure]:
    """Tokens a second up to and including each end of sequence; both take their turn in every round."""
    policy = load_policy("tiny")
    task = load_task("chain-arithmetic")
    rates: dict[str, list[float]] = {"sample_group": [], "generate": []}
    for round_ in range(repeat + 1):
        example = task[round_]
        began = time.perf_counter()
        group = sample_group(policy, example, num_generations=GENERATIONS, max_completion_length=LENGTH, seed=round_)
        rates["sample_group"].append(sum(map(len, group.rollouts)) / (time.perf_counter() - began))

        prompt = torch.tensor([encode_prompt(policy.tokenizer, example.prompt)] * GENERATIONS, device=policy.device)
        torch.manual_seed(round_)
        began = time.perf_counter()
        ids = policy.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            top_k=0,
            max_new_tokens=LENGTH,
            pad_token_id=policy.tokenizer.pad_token_id,
        )
        tokens = int((ids[:, prompt.shape[1] :] != policy.tokenizer.pad_token_id).sum())
        rates["generate"].append(tokens / (time.perf_counter() - began))
    medians = {name: statistics.median(rate[1:]) for name, rate in rates.items()}  # the first round warms up
    return [
        Measure(name, round(rate, 1), "tokens/s", round(rate / medians["generate"], 2), "generate")
        for name, rate in medians.items()
    ]
