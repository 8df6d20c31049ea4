"""Sampling and steps of training on a CUDA GPU, with random weights of Qwen2.5's sizes and its vocabulary of 151,936.

Against ``model.generate``, a step of TRL's own ``GRPOTrainer``, and the time in which the GPU reads all weights once.
The name of the GPU stands before its figures: unlike those of the other benches, they are quoted with it.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from benchmarks import Measure
from benchmarks.step import ours, stock
from workbench.config import SamplingConfig
from workbench.data import load_task
from workbench.errors import TaskError
from workbench.policies.load import Policy, load_policy
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_rows
from workbench.training.methods import RunConfig

SIZES = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""Qwen2.5's, from its config.json."""
VOCABULARY, TOKENS = 151_936, 151_643
"""Rows of its embedding, and ids that stand for a text."""
PROMPTS, GENERATIONS, LENGTH, STEPS = 4, 8, 256, 3
KINDS: dict[str, dict[str, Any]] = {
    "LoRA": {"dtype": "bfloat16", "lora": {"r": 16, "alpha": 32, "targets": "all-linear"}},
    "all weights": {"dtype": "auto"},
}


def measure(repeat: int, full: bool = False) -> list[Measure]:
    """Sampling and steps at 0.5B; ``full``: at 1.5B, too. Raises TaskError without a GPU."""
    if not torch.cuda.is_available():
        raise TaskError("the bench gpu needs a CUDA GPU, and torch sees none here")
    rows: list[Measure] = []
    for size in SIZES if full else ["0.5B"]:
        with tempfile.TemporaryDirectory() as folder:
            path = real_policy(Path(folder) / "policy", SIZES[size])
            rows += [
                Measure(
                    f"{torch.cuda.get_device_name()}, {size}: {row.what}", row.value, row.unit, row.ratio, row.against
                )
                for row in (*sampling(path, repeat, "cuda"), *training(path, Path(folder), repeat, "cuda"))
            ]
    return rows


def real_policy(path: Path, size: dict[str, int]) -> Path:
    """Save random bfloat16 weights and a tokenizer that has a text for each id; every 16th begins a line.

    The weights are made on the GPU where there is one: on a CPU a billion random numbers take half a minute.
    """
    tiny = load_policy("tiny", device="cpu").tokenizer
    torch.manual_seed(0)
    config = Qwen2Config(
        **size,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tiny.eos_token_id,
        pad_token_id=tiny.pad_token_id,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        Qwen2ForCausalLM(config).bfloat16().save_pretrained(path)
    tiny.save_pretrained(path)
    file = path / "tokenizer.json"
    content = json.loads(file.read_text())
    known = content["model"]["vocab"]
    known |= {f"{'Ġ' if number % 16 else 'Ċ'}w{number}": number for number in range(len(known), TOKENS)}
    file.write_text(json.dumps(content))
    return path


def sampling(path: Path, repeat: int, device: str) -> list[Measure]:
    """Tokens a second of 4 prompts × 8 rows, beside ``generate``; a position, beside reading the weights once.

    ``generate_batch`` is transformers' continuous batching, as TRL calls it: it prepares itself anew at every call.
    """
    policy = load_policy(str(path), device=device, dtype="bfloat16")
    task = load_task("chain-arithmetic")
    prompts = [encode_prompt(policy.tokenizer, task[i].prompt) for i in range(PROMPTS) for _ in range(GENERATIONS)]
    samplers: dict[str, Callable[[Policy, Sequence[Sequence[int]]], int]] = {
        "sampler": grouped,
        "generate": generated,
        "generate_batch": batched,
    }
    rates: dict[str, list[float]] = {what: [] for what in samplers}
    peaks = {}
    for _ in range(repeat + 1):
        for what, sample in samplers.items():
            torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            tokens = sample(policy, prompts)  # comes back with the ids, so the GPU has finished
            rates[what].append(tokens / (time.perf_counter() - began))
            peaks[what] = torch.cuda.max_memory_allocated() / 1e6
    medians = {what: statistics.median(rate[1:]) for what, rate in rates.items()}
    ratios = {
        what: statistics.median(a / b for a, b in zip(rate[1:], rates["generate"][1:], strict=True))
        for what, rate in rates.items()
    }
    weights = sum(parameter.nbytes for parameter in policy.model.parameters())
    floor = weights / _bytes_a_second(device)
    position = len(prompts) / medians["sampler"]
    return [
        *(
            Measure(what, round(rate, 1), "tokens/s", round(ratios[what], 2), "generate")
            for what, rate in medians.items()
        ),
        Measure(
            "weights read once", round(1e3 * floor, 3), "ms", round(floor / position, 3), "a position of the sampler"
        ),
        Measure(
            "sampler, peak memory",
            round(peaks["sampler"]),
            "MB",
            _ratio(peaks["sampler"], peaks["generate"]),
            "generate",
        ),
    ]


def grouped(policy: Policy, prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that the group sampler sampled."""
    how = SamplingConfig(num_generations=GENERATIONS, max_completion_length=LENGTH)
    ends, pad = policy.eos_token_ids, policy.tokenizer.pad_token_id
    return sum(
        len(row.token_ids)
        for row in sample_rows(policy.model, prompts, how, eos_token_ids=ends, pad_token_id=pad, seed=0)
    )


def generated(policy: Policy, prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that ``generate`` sampled, from the same prompts padded on the left."""
    pad, width = policy.tokenizer.pad_token_id, max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=policy.device)
    torch.manual_seed(0)
    out = policy.model.generate(
        ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=LENGTH, pad_token_id=pad
    )
    return int((out[:, width:] != pad).sum())


def batched(policy: Policy, prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that ``generate_batch`` sampled."""
    how = GenerationConfig(
        do_sample=True,
        top_k=0,
        max_new_tokens=LENGTH,
        pad_token_id=policy.tokenizer.pad_token_id,
        eos_token_id=policy.eos_token_ids,
    )
    rows = policy.model.generate_batch(
        [list(ids) for ids in prompts],
        generation_config=how,
        continuous_batching_config=ContinuousBatchingConfig(max_memory_percent=0.3),
    )
    return sum(len(row.generated_tokens) for row in rows.values())


def training(path: Path, folder: Path, repeat: int, device: str) -> list[Measure]:
    """Seconds and peak memory of a step of ours, with its sampling, and of TRL's; with LoRA and with all weights."""
    run = {"steps": STEPS, "eval_steps": 0, "save_steps": 0, "watch_prompts": 0, "device": device}
    method = {
        "prompts_per_step": PROMPTS,
        "sampling": {"num_generations": GENERATIONS, "max_completion_length": LENGTH},
        "pattern": {"regex": r"\n"},  # the tokenizer begins a line with every 16th id
        "rewards": [{"name": "length_target", "kind": "outcome"}],
        "credit": {"scheme": "outcome"},
    }
    rows = []
    for what, policy in KINDS.items():
        config = RunConfig.parse({"policy": {"path": str(path), **policy}, "method": method, "run": run})
        seconds: dict[str, list[float]] = {"TRL": [], "ours": []}
        peaks: dict[str, float] = {}
        shares: list[float] = []
        for _ in range(repeat):
            for who, step in (("TRL", stock), ("ours", ours)):
                torch.cuda.reset_peak_memory_stats()
                parts = step(config, folder)
                seconds[who].append(parts["step"])
                shares += [parts["sampling"] / parts["step"]] if who == "ours" else []
                peaks[who] = torch.cuda.max_memory_allocated() / 1e6
                gc.collect()
                torch.cuda.empty_cache()
        ratio = statistics.median(a / b for a, b in zip(seconds["ours"], seconds["TRL"], strict=True))
        mine = statistics.median(seconds["ours"])
        rows += [
            Measure(f"step, {what}", round(mine, 3), "s", round(ratio, 2), "step of TRL"),
            Measure(
                f"step, {what}, sampling",
                round(mine * statistics.median(shares), 3),
                "s",
                round(statistics.median(shares), 2),
                "the step",
            ),
            Measure(
                f"step, {what}, peak memory", round(peaks["ours"]), "MB", _ratio(peaks["ours"], peaks["TRL"]), "TRL"
            ),
        ]
    return rows


def _bytes_a_second(device: str) -> float:
    """What the device reads and writes in a second, by copying half a gigabyte."""
    source = torch.empty(2**29, dtype=torch.uint8, device=device)
    target, seconds = torch.empty_like(source), []
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * 2**29 / statistics.median(seconds[1:])


def _ratio(one: float, other: float) -> float | None:
    return round(one / other, 2) if other else None
