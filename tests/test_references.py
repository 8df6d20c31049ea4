"""``run:NAME`` in the place of a path: resolved when a run is started, with its hash, and refused when gone."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import reward_models
from tests.stored_runs import config_of, store
from workbench.cli import main
from workbench.config import RunConfig
from workbench.errors import RunError
from workbench.rundir.checkpoints import seal
from workbench.runs import Run, resolved, start

FAKE = "tests.fake_run"


def saved(run: Run, name: str, kind: str = "causal") -> Path:
    """A small model sealed as the run's checkpoint ``name``."""
    draft = run.dir.checkpoints / ".saving"
    draft.mkdir()
    reward_models.save(kind, draft, seed=len(name))
    seal(draft, run.dir.checkpoints / name, {"step": 2})
    return run.dir.checkpoints / name


@pytest.fixture
def first(tmp_path: Path) -> Run:
    """A finished run with the checkpoints 2, 4 and final."""
    run = store(tmp_path, "first")
    for name in ("checkpoint-2", "checkpoint-4", "final"):
        saved(run, name)
    return run


def sha256(folder: Path) -> str:
    return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def test_a_started_run_has_the_folders_and_their_hashes_in_its_yaml(tmp_path: Path, first: Run) -> None:
    judge = saved(store(tmp_path, "judge"), "final", "sequence")
    model = {"path": "run:judge", "format": "classifier"}
    config = RunConfig.parse(
        {
            "policy": {"path": "run:first", "adapter": "run:first@4"},
            "task": "finish",
            "method": {
                "rewards": [{"name": "judge", "kind": "outcome", "model": model}],
                "credit": {"scheme": "outcome"},
            },
        }
    )
    run = start(config, tmp_path, module=FAKE)
    run.wait()
    stored = config_of(run.dir)
    final, fourth = first.dir.checkpoints / "final", first.dir.checkpoints / "checkpoint-4"
    assert (stored.policy.path, stored.policy.adapter) == (str(final), str(fourth))
    assert stored.method.reward_functions[0].model.path == str(judge)
    assert [(origin.reference, origin.path, origin.manifest_sha256) for origin in stored.origins] == [
        ("run:first", str(final), sha256(final)),
        ("run:first@4", str(fourth), sha256(fourth)),
        ("run:judge", str(judge), sha256(judge)),
    ]
    assert config.policy.path == "run:first"  # the caller's own is as it was
    assert resolved(stored, tmp_path) == stored


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("run:firt", "there is no run 'firt'"),
        ("run:first@3", r"run 'first' \(finished\) has no checkpoint-3; it has those of steps 2, 4, and its final one"),
        ("run:first@last", "'run:first@last' is no checkpoint of a run; write run:NAME, or run:NAME@STEP"),
        ("run:", "'run:' is no checkpoint of a run"),
        ("run:../first", "cannot be a run's name"),
        ("run:empty", r"run 'empty' \(running\) has no final; it has saved none"),
    ],
)
def test_what_is_not_there_is_refused_before_a_run_is_queued(
    tmp_path: Path, first: Run, reference: str, message: str
) -> None:
    store(tmp_path, "empty", state="running").dir.set_status("running")
    before = sorted((tmp_path / "runs").iterdir())
    with pytest.raises(RunError, match=message):
        resolved(RunConfig.parse({"policy": reference}), tmp_path)
    with pytest.raises(RunError):
        start(RunConfig.parse({"policy": reference}), tmp_path)
    assert sorted((tmp_path / "runs").iterdir()) == before


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, first: Run) -> None:
    (first.dir.checkpoints / "final" / "config.json").write_text("{}")
    with pytest.raises(RunError, match=r"run:first: final cannot be used: config.json has 2 bytes"):
        resolved(RunConfig.parse({"policy": "run:first"}), tmp_path)


def test_a_checkpoint_that_changed_since_is_noticed(tmp_path: Path, first: Run) -> None:
    config = resolved(RunConfig.parse({"policy": "run:first"}), tmp_path)
    final = first.dir.checkpoints / "final"
    shutil.rmtree(final)
    with pytest.raises(RunError, match=r"final \(run:first\) is gone"):
        resolved(config, tmp_path)
    saved(first, "final", "sequence")
    with pytest.raises(RunError, match="is not the checkpoint that run:first was"):
        resolved(config, tmp_path)
    run = start(config.model_copy(update={"origins": []}), tmp_path, module=FAKE)
    run.wait()
    config.policy.path = "run:first"  # named again, it is the present one
    assert resolved(config, tmp_path).origins[0].manifest_sha256 == sha256(final)


def test_a_queued_run_sees_that_its_base_was_replaced(tmp_path: Path, first: Run) -> None:
    run = store(tmp_path, "second", state="stopped", policy="run:first")
    config = resolved(RunConfig.parse({"policy": "run:first"}), tmp_path)
    (run.path / "run.yaml").write_text(config.to_yaml())
    shutil.rmtree(first.dir.checkpoints / "final")
    shutil.copytree(first.dir.checkpoints / "checkpoint-4", first.dir.checkpoints / "final")
    from workbench.runs.begin import main as begin

    begin([str(run.path), FAKE])
    assert "is not the checkpoint that run:first was" in run.dir.status().reason


def test_the_command_line_takes_runs_where_it_takes_paths(
    tmp_path: Path, first: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path))
    saved(store(tmp_path, "judge"), "final", "sequence")
    argv = ["--policy", "run:first@2", "--grpo.sampling.max_completion_length", "4", "--prompt", "7 + 5?", "--json"]
    assert main(["sample", *argv]) == 0
    group: Any = json.loads(capsys.readouterr().out)
    assert group["policy"] == str(first.dir.checkpoints / "checkpoint-2")
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group))
    assert main(["pairs", "--out", str(tmp_path / "x"), "--group", str(file), "--reward-model", "run:nobody"]) == 2
    assert "there is no run 'nobody'" in capsys.readouterr().err
    argv = ["--group", str(file), "--reward-model", "run:judge", "--grpo.credit.scheme", "outcome", "--json"]
    assert main(["score", *argv]) == 0
    assert all(rollout["outcome"] is not None for rollout in json.loads(capsys.readouterr().out)["rollouts"])
