"""Sampling and training on a CUDA GPU, with random weights as large as Qwen2.5-0.5B.

The name of the GPU stands before its figures: unlike those of the other benches, they are quoted with it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks import Measure
from benchmarks.sampler import generated, grouped, random_policy
from workbench.config.run import RunConfig
from workbench.data import load_task
from workbench.errors import TaskError
from workbench.policies.load import load_policy
from workbench.runs import start

SIZE = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
"""Qwen2.5-0.5B's (its config.json); the vocabulary is the embedded policy's, so that what is sampled is text."""
GENERATIONS, LENGTH, STEPS = 16, 256, 6


def measure(repeat: int) -> list[Measure]:
    """Tokens a second and peak memory of sampling, and the median step of a run. Raises TaskError without a GPU."""
    if not torch.cuda.is_available():
        raise TaskError("the bench gpu needs a CUDA GPU, and torch sees none here")
    name = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as folder:
        path = random_policy(Path(folder) / "policy", SIZE)
        rows = [*_sampling(path, repeat), *_training(path, Path(folder))]
    return [Measure(f"{name}: {row.what}", row.value, row.unit, row.ratio, row.against) for row in rows]


def _sampling(path: Path, repeat: int) -> list[Measure]:
    policy = load_policy(str(path), device="cuda", dtype="bfloat16")
    example = load_task("chain-arithmetic")[0]
    rates: dict[str, list[float]] = {"sample_group": [], "generate": []}
    torch.cuda.reset_peak_memory_stats()
    for _ in range(repeat + 1):
        for what, sample in (("sample_group", grouped), ("generate", generated)):
            torch.cuda.synchronize()
            began = time.perf_counter()
            tokens = sample(policy, example, GENERATIONS, LENGTH, 0)
            torch.cuda.synchronize()
            rates[what].append(tokens / (time.perf_counter() - began))
    medians = {what: statistics.median(rate[1:]) for what, rate in rates.items()}
    peak = torch.cuda.max_memory_allocated() / 1e6
    return [
        *(
            Measure(what, round(rate, 1), "tokens/s", round(rate / medians["generate"], 2), "generate")
            for what, rate in medians.items()
        ),
        Measure("sampling, peak memory", round(peak), "MB"),
    ]


def _training(path: Path, folder: Path) -> list[Measure]:
    rows = []
    for what, lora in (("all weights", None), ("LoRA", {"r": 16, "alpha": 32})):
        method = {"prompts_per_step": 8, "sampling": {"num_generations": 8, "max_completion_length": LENGTH}}
        settings: dict[str, Any] = {"steps": STEPS, "eval_steps": 0, "save_steps": 0, "device": "cuda"}
        policy = {"path": str(path), "dtype": "bfloat16", "lora": lora}
        run = start(RunConfig.parse({"policy": policy, "method": method, "run": settings}), folder)
        status = run.wait()
        if status.state != "finished":
            raise TaskError(f"the run that trains {what} {status.state}: {status.reason}")
        logged = run.metrics_rows()[0]
        seconds = [after["seconds"] - before["seconds"] for before, after in pairwise(logged[1:])]
        rows.append(Measure(f"step, {what}", round(statistics.median(seconds), 3), "s"))
        rows.append(Measure(f"step, {what}, peak memory", round(max(row["peak_memory_mb"] for row in logged)), "MB"))
    return rows
