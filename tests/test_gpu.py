"""What only a GPU can show (``make gpu``): random weights of Qwen2.5-0.5B's size, and the embedded policy.

With ``WORKBENCH_GPU_TESTS=cpu`` the same tests run on the CPU at a toy size. That shows that they say what they mean,
and nothing about a GPU; those of memory and of visible devices are then left out.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from benchmarks import gpu as bench
from benchmarks.gpu import SIZES
from benchmarks.sampler import random_policy
from workbench.errors import RunError
from workbench.policies import decoding
from workbench.policies.decoding import FixedDecoder
from workbench.policies.load import load_policy
from workbench.runs import Run

ON_CPU = os.environ.get("WORKBENCH_GPU_TESTS") == "cpu"
DEVICE = "cpu" if ON_CPU else "cuda"
SECONDS = 600.0
pytestmark = pytest.mark.gpu
on_a_gpu = pytest.mark.skipif(ON_CPU, reason="says something about CUDA itself")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy as large as Qwen2.5-0.5B, but for its vocabulary, which is the embedded policy's."""
    toy = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return random_policy(tmp_path_factory.mktemp("policies") / "large", toy if ON_CPU else SIZES["0.5B"])


def begun(
    workspace: Path, name: str, policy: Any = "tiny", *, checkpointing: bool = False, prompts: int = 2, **run: Any
) -> Run:
    run = {"steps": 2, "eval_steps": 0, "save_steps": 0, "device": DEVICE, **run}
    method = {"prompts_per_step": prompts, "sampling": {"num_generations": 4, "max_completion_length": 48}}
    optimiser = {"gradient_checkpointing": checkpointing}
    data = {"name": name, "policy": policy, "method": method, "optimiser": optimiser, "run": run}
    return wb.train(wb.RunConfig.parse(data), workspace)


def ended(run: Run) -> list[dict[str, Any]]:
    """The rows of a run that finished."""
    status = run.wait(timeout=SECONDS)
    assert status.state == "finished", "\n".join(run.log_tail())
    assert status.device.startswith(DEVICE)
    return run.metrics_rows()[0]


@pytest.mark.parametrize(("dtype", "off"), [("float32", 1e-3), ("bfloat16", 0.15)])
def test_what_the_preview_samples_has_the_log_probs_of_a_plain_forward(folder: Path, dtype: str, off: float) -> None:
    policy = load_policy(str(folder), device=DEVICE, dtype=dtype)
    task = wb.load_task("chain-arithmetic")
    group = wb.sample_group(policy, task[0], num_generations=8, max_completion_length=64, seed=1)
    prompt = policy.tokenizer(task[0].prompt, add_special_tokens=False).input_ids
    prompt = list(group.prompt_ids) if getattr(group, "prompt_ids", None) else prompt
    for rollout in group.rollouts:
        ids = torch.tensor([[*prompt, *rollout.token_ids]], device=policy.model.device)
        with torch.no_grad():
            logits = policy.model(ids).logits[0, len(prompt) - 1 : -1].float()
        sampled = torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
        torch.testing.assert_close(torch.tensor(rollout.logprobs), sampled, atol=off, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_default_run_goes_to_its_end(tmp_path: Path, dtype: str) -> None:
    config = wb.RunConfig.parse({"policy": {"path": "tiny", "dtype": dtype}, "run": {"steps": 8, "device": DEVICE}})
    rows = ended(wb.train(config, tmp_path))
    assert [row["step"] for row in rows] == list(range(9))
    assert all(0 <= row["accuracy"] <= 1 for row in rows if row.get("accuracy") is not None)


@pytest.mark.parametrize("lora", [None, {"r": 8, "alpha": 16}], ids=["all weights", "lora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_policy_is_trained_whole_and_by_an_adapter(
    tmp_path: Path, folder: Path, dtype: str, lora: dict[str, int] | None
) -> None:
    if ON_CPU and dtype == "bfloat16" and lora is None:
        dtype = "float32"
    rows = ended(begun(tmp_path, "it", {"path": str(folder), "dtype": dtype, "lora": lora}))
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["peak_memory_mb"] > 0 for row in rows)


def test_activations_computed_again_give_the_same_gradients_in_less_memory(tmp_path: Path, folder: Path) -> None:
    policy = {"path": str(folder), "dtype": "float32"}
    plain, again = (
        ended(begun(tmp_path, name, policy, checkpointing=name == "again", prompts=8)) for name in ("plain", "again")
    )
    assert [row["grad_norm"] for row in again] == pytest.approx([row["grad_norm"] for row in plain], rel=1e-3)
    if not ON_CPU:
        assert again[-1]["peak_memory_mb"] < plain[-1]["peak_memory_mb"]


def test_tokens_are_sampled_by_the_plain_step_in_a_run(tmp_path: Path, folder: Path) -> None:
    """Also under the autocast of a GPU's run, with an adapter."""
    run = begun(tmp_path, "it", {"path": str(folder), "lora": {"r": 8, "alpha": 16}})
    ended(run)
    said = "float32" if ON_CPU else "bfloat16"
    assert any(f"sampled by the plain step in {said}" in line for line in run.log_tail(200))


def test_a_graph_of_the_step_samples_what_its_operations_would(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, task = load_policy(str(folder), device=DEVICE, dtype="float32"), wb.load_task("chain-arithmetic")

    def group() -> wb.Group:
        return wb.sample_group(policy, task[0], num_generations=6, max_completion_length=300, seed=3)

    captured = group()
    monkeypatch.setattr(FixedDecoder, "_stepped", FixedDecoder._step)
    monkeypatch.setattr(decoding, "PlainDecoder", FixedDecoder)
    launched = group()
    assert [row.token_ids for row in captured.rollouts] == [row.token_ids for row in launched.rollouts]
    for one, other in zip(captured.rollouts, launched.rollouts, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@on_a_gpu
def test_the_bench_measures_its_rows(tmp_path: Path) -> None:
    path = bench.real_policy(tmp_path / "policy", {**SIZES["0.5B"], "num_hidden_layers": 2})
    rows = [*bench.sampling(path, 1, DEVICE), *bench.training(path, tmp_path, 1, DEVICE)]
    assert all(row.value > 0 for row in rows)


@on_a_gpu
def test_a_gpu_that_is_full_is_named_with_what_helps(tmp_path: Path, folder: Path) -> None:
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(1, free - 3 * 2**30), dtype=torch.uint8, device="cuda")
    try:
        run = begun(tmp_path, "it", {"path": str(folder), "dtype": "float32"})
        status = run.wait(timeout=SECONDS)
    finally:
        del held
        torch.cuda.empty_cache()
    assert status.state == "failed", "\n".join(run.log_tail())
    assert "out of memory" in status.reason
    assert "try smaller" in status.reason


@on_a_gpu
def test_only_visible_devices_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RunError, match="cuda"):
        ended(begun(tmp_path, "none"))
    run = begun(tmp_path, "cpu", device="auto")
    assert run.wait(timeout=SECONDS).state == "finished"
    assert run.status().device == "cpu"
