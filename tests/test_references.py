"""Runs under other roofs: ``run:NAME`` in the place of a path, and answers to held-out rows that a run keeps."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import reward_models
from tests.drafts import draft_of
from tests.stored_runs import config_of, store
from workbench.cli import main
from workbench.config import ModelConfig
from workbench.errors import PolicyError, RunError, WorkbenchError
from workbench.models.find import check_language_model
from workbench.policies.load import load_policy
from workbench.rewards.models.model import LocalModels
from workbench.rundir.checkpoints import seal
from workbench.runs import Run, launch, resolve, start
from workbench.schema import HeldOutAnswer
from workbench.training.methods import RunConfig
from workbench.ui.handlers.reward_forms import run_as_reward
from workbench.ui.handlers.run_follow import problems


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


@pytest.fixture
def judge(tmp_path: Path) -> Run:
    """A finished run that trained a reward model."""
    run = store(tmp_path, "judge", method={"name": "reward"})
    saved(run, "final", "sequence")
    return run


def test_a_started_run_has_the_folders_and_their_hashes_in_its_yaml(
    tmp_path: Path, first: Run, judge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "spawn", lambda *_, **how: None)
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
    stored = config_of(start(config, tmp_path, module="another's").dir)
    final, fourth = first.dir.checkpoints / "final", first.dir.checkpoints / "checkpoint-4"
    judged = judge.dir.checkpoints / "final"
    assert (stored.policy.path, stored.policy.adapter) == (str(final), str(fourth))
    assert stored.method.reward_functions[0].model.path == str(judged)
    assert [(origin.reference, origin.path, origin.manifest_sha256) for origin in stored.origins] == [
        (reference, str(folder), hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest())
        for reference, folder in (("run:first", final), ("run:first@4", fourth), ("run:judge", judged))
    ]
    assert config.policy.path == "run:first"  # the caller's own is as it was
    assert resolve(stored, tmp_path) == stored


def test_the_command_line_takes_runs_where_it_takes_paths(
    tmp_path: Path, first: Run, judge: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path))
    argv = ["--policy", "run:first@2", "--method.sampling.max_completion_length", "4", "--prompt", "7 + 5?", "--json"]
    assert main(["sample", *argv]) == 0
    group: Any = json.loads(capsys.readouterr().out)
    assert group["policy"] == str(first.dir.checkpoints / "checkpoint-2")
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group))
    assert main(["pairs", "--out", str(tmp_path / "x"), "--group", str(file), "--reward-model", "run:nobody"]) == 2
    assert "there is no run 'nobody'" in capsys.readouterr().err
    argv = ["--group", str(file), "--reward-model", "run:judge", "--method.credit.scheme", "outcome", "--json"]
    assert main(["score", *argv]) == 0
    assert all(rollout["outcome"] is not None for rollout in json.loads(capsys.readouterr().out)["rollouts"])


def test_a_policy_is_loaded_by_its_run(tmp_path: Path, first: Run, judge: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_WORKSPACE", str(tmp_path))
    for reference, name in (("run:first", "final"), ("run:first@4", "checkpoint-4")):
        policy = load_policy(reference, device="cpu")
        folder = load_policy(str(first.dir.checkpoints / name), device="cpu")
        assert policy.name == reference
        assert all(torch.equal(a, b) for a, b in zip(policy.model.parameters(), folder.model.parameters(), strict=True))
    with pytest.raises(RunError, match="first"):
        load_policy("run:firt")
    with pytest.raises(PolicyError, match="run:judge"):
        check_language_model("run:judge")
    by_folder = ModelConfig(path=str(judge.dir.checkpoints / "final"), format="classifier")
    scores = [
        LocalModels("cpu").score(config, ["a"], ["b"])
        for config in (ModelConfig(path="run:judge", format="classifier"), by_folder)
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("policy", "method", "model", "message"),
    [
        (
            "run:judge",
            "grpo",
            None,
            "run:judge is a reward model",
        ),
        ("run:judge", "dpo", None, "run:judge is a reward model"),
        (
            "tiny",
            "grpo",
            ("run:first", "ki"),
            "run:first is a policy",
        ),
        (
            "tiny",
            "ppo",
            ("run:judge", "stepwise"),
            "'stepwise'",
        ),
    ],
)
def test_a_policy_is_no_reward_model_and_the_other_way_round(
    tmp_path: Path, first: Run, judge: Run, policy: str, method: str, model: tuple[str, str] | None, message: str
) -> None:
    """Of the formats that ask language models, files alone do not tell; the run that is named does."""
    rewards = (
        {}
        if model is None
        else {"rewards": [{"name": "it", "kind": "step", "model": {"path": model[0], "format": model[1]}}]}
    )
    with pytest.raises(RunError, match=message):
        start(RunConfig.parse({"policy": policy, "method": {"name": method, **rewards}}), tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    resolve(RunConfig.parse({"policy": "run:judge", "method": "reward"}), tmp_path)  # trained further


def test_a_finished_reward_model_becomes_a_row_in_one_click(tmp_path: Path, first: Run, judge: Run) -> None:
    draft = draft_of()
    row = run_as_reward(draft.rows, "judge", tmp_path)
    draft = draft.with_row(row)
    assert (row.name, row.kind) == ("judge", "outcome")
    assert row.model == ModelConfig(path="run:judge", format="classifier")
    assert draft.config().method.reward_functions[2].model == row.model
    for name, message in (
        ("first", "run:first is a policy"),
        ("juge", "did you mean 'judge'"),
        ("", "cannot be a run"),
        ("judge", "in the list already"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            run_as_reward(draft.rows, name, tmp_path)


# ── answers to held-out rows ─────────────────────────────────────────────────────────────────────────────────────────


def answers(*right: bool) -> list[HeldOutAnswer]:
    return [HeldOutAnswer(f"problem {n}", f"it is {is_right}", is_right, "7") for n, is_right in enumerate(right)]


def test_the_first_and_the_newest_measure_are_kept(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    assert run.answers.steps() == []
    for step in (0, 10, 20):
        run.answers.write(step, answers(step > 0, False))
    assert run.answers.steps() == [0, 20]
    assert run.answers.read(20) == answers(True, False)
    run.answers.write(20, answers(False, False))  # measured once more
    assert run.answers.read(20) == answers(False, False)
    run.drop_rollouts(after=15)  # resumed
    assert run.answers.steps() == [0]


def test_the_page_is_told_both_answers_of_each_problem_or_why_not(tmp_path: Path) -> None:
    run = store(tmp_path, "a").dir
    run.answers.write(0, answers(False, True))
    assert problems(tmp_path, "a")["error"] == (  # type: ignore[typeddict-item]
        "run 'a' has measured accuracy 1 times; answers are compared from 2 on"
    )
    run.answers.write(8, answers(True, True))
    told = problems(tmp_path, "a")
    assert "error" not in told
    assert (told["before"], told["now"], [row["now"].prompt for row in told["rows"]]) == (
        0,
        8,
        ["problem 0", "problem 1"],
    )
    assert told["rows"][0] == {"before": answers(False)[0], "now": answers(True)[0]}
    run.answers.write(8, answers(True))
    assert "measured on other rows at step 0 than at 8" in problems(tmp_path, "a")["error"]  # type: ignore[typeddict-item]
    assert "no run 'gone'" in problems(tmp_path, "gone")["error"]  # type: ignore[typeddict-item]
