"""The model of a run taken elsewhere: merged, as an adapter, and to a Hub that a fake stands for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.in_this_process import trained
from workbench import cli
from workbench.errors import RunError
from workbench.policies.load import load_policy
from workbench.runs import Run
from workbench.runs.export import export_model
from workbench.training.methods import RunConfig

ON_CPU = {"steps": 1, "eval_steps": 0, "watch_prompts": 0, "save_steps": 1, "device": "cpu"}


def run_of(folder: Path, lora: dict[str, Any] | None) -> Run:
    data = {
        "name": "mine",
        "policy": {"lora": lora},
        "optimiser": {"learning_rate": 0.05, "warmup_steps": 0},
        "run": ON_CPU,
        "method": {"name": "sft", "batch_size": 2},
    }
    run = trained(RunConfig.parse(data), folder)
    assert run.status().state == "finished", run.status().reason
    return run


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("adapted"), {"r": 2, "targets": "q_proj, v_proj", "rslora": True})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("whole"), None)


@torch.no_grad()
def logits(where: str) -> torch.Tensor:
    policy = load_policy(where, device="cpu")
    ids = policy.tokenizer("Start with 7, add 5.\nStep 1: 7 + 5 = 12", return_tensors="pt")["input_ids"]
    result: torch.Tensor = policy.model(input_ids=ids).logits
    return result


def test_a_merged_model_computes_what_base_and_adapter_do(adapted: Run, tmp_path: Path) -> None:
    folder = export_model("mine", "merged", tmp_path / "merged", adapted.path.parents[1])
    together = logits(str(adapted.dir.checkpoints / "final"))
    assert (together - logits("tiny")).abs().max() > 1e-2  # the adapter has learnt something
    torch.testing.assert_close(logits(str(folder)), together, atol=1e-4, rtol=1e-4)
    assert not (folder / "adapter_config.json").exists()
    assert folder.stat().st_mode & 0o777 == 0o755
    assert adapted.summary().adapter  # and so the page offers it


def test_whole_weights_are_exported_as_they_are(whole: Run, tmp_path: Path) -> None:
    folder = export_model("mine", "merged", tmp_path / "model", whole.path.parents[1])
    torch.testing.assert_close(logits(str(folder)), logits(str(whole.dir.checkpoints / "final")))
    assert not whole.summary().adapter
    with pytest.raises(RunError, match="no adapter"):
        export_model("mine", "adapter", tmp_path / "none", whole.path.parents[1])
    with pytest.raises(RunError, match="checkpoint-7"):
        export_model("mine@7", "merged", tmp_path / "none", whole.path.parents[1])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # nothing half-written is left


def test_the_card_holds_the_runs_table_and_no_path_of_this_machine(adapted: Run, tmp_path: Path) -> None:
    folder = export_model("mine", None, tmp_path / "model", adapted.path.parents[1])
    text = (folder / "README.md").read_text(encoding="utf-8")
    loss = adapted.metrics_rows()[0][-1]["loss"]
    assert text.startswith("---\nlibrary_name: peft\ntags:\n- trl\n- sft\n---\n\n# mine\n")
    assert f"| loss | {loss:.4g} at step 1 |" in text
    assert "| adapter | LoRA, r 2, α 32, on q_proj, v_proj |" in text
    assert "| task | chain-arithmetic |" in text
    assert str(adapted.path.parent) not in text


def test_a_push_is_shown_first_and_done_when_it_is_asked_for(
    adapted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []

    class Hub:
        def create_repo(self, repo_id: str, **how: Any) -> None:
            calls.append((repo_id, how))

        def upload_folder(self, *, repo_id: str, folder_path: str, repo_type: str) -> None:
            calls.append(sorted(path.name for path in Path(folder_path).iterdir()))

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    base = ["export", "mine", "--workspace", str(adapted.path.parents[1]), "--push", "me/mine"]
    assert cli.main([*base, "--merged", str(tmp_path / "shown")]) == 0
    shown = capsys.readouterr().out
    assert "model.safetensors" in shown
    assert calls == []
    assert cli.main([*base, "--merged", str(tmp_path / "sent"), "--yes", "--public", "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)
    assert (sent["pushed"], sent["private"]) == (True, False)
    assert calls[0] == ("me/mine", {"private": False, "exist_ok": True, "repo_type": "model"})
    assert calls[1] == sorted(sent["files"])
