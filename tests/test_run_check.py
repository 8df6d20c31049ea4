"""What keeps a run from working is refused before the run is queued, in one place for page, shell and notebook."""

import json
import os
from pathlib import Path

import pytest

from workbench import cli, places, runs
from workbench.assets import EMBEDDED
from workbench.errors import WorkbenchError
from workbench.models.find import policy_path
from workbench.runs import check, devices
from workbench.runs.check import check_config
from workbench.runs.launch import start
from workbench.training.methods import RunConfig

STEPS = {"name": "mine", "kind": "step", "code": "def mine(prompt, step, **columns):\n    return 1.0\n"}


def _rows(path: Path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _model(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").touch()


def _code(code: str, **more: object) -> dict:
    return {"method": {"rewards": [STEPS | {"code": code} | more]}}


def test_a_tracker_that_is_not_installed_is_found_before_anything_is_loaded(monkeypatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda name: None if name == "wandb" else name)
    check_config(RunConfig.parse({"run": {"report_to": ["tensorboard"]}}))
    with pytest.raises(WorkbenchError, match=r"run\.report_to: wandb"):
        check_config(RunConfig.parse({"run": {"report_to": ["tensorboard", "wandb"]}}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"environment": "calcolator"}, "calculator"),
        ({"environment": {"name": "Mine", "code": "class Mine: ..."}}, "reset"),
        ({"method": {"pattern": {"regex": "(["}}}, r"method\.pattern: "),
        ({"method": {"pattern": {"regex": "x*"}}}, r"method\.pattern: .*empty"),
        ({"method": {"rewards": [{"name": "step_corectness"}]}}, "step_correctness"),
        (
            {"method": {"rewards": [STEPS, {"name": "answer_correctness", "kind": "step"}]}},
            "answer_correctness",
        ),
        (
            {"method": {"rewards": [STEPS, {"name": "overlong", "kind": "outcome", "options": {"max_len": 3}}]}},
            "max_len",
        ),
        (_code("def mine(prompt, step, **columns)\n    return 1"), "line 1"),
        (_code("import nothing_like_this\ndef mine(prompt, step, **columns):\n    return 1"), "nothing_like_this"),
        (_code("def mine(prompts, completions):\n    return [1]"), "columns"),
        (
            _code("def mine(prompt, step, answr, **columns):\n    return 1"),
            "'answr'.*'answer'",
        ),
        (
            {"method": {"rewards": [{"name": "v", "monte_carlo": {"outcome": "step_correctness"}}]}},
            "outcome reward",
        ),
        (
            {"method": {"rewards": [{"name": "v", "monte_carlo": {"outcome": "anser"}}]}},
            "anser",
        ),
        (
            {"method": {"rewards": [STEPS | {"code": None, "model": {"path": "./prm", "format": "ki"}}]}},
            "./prm",
        ),
        ({"policy": "./llama"}, "./llama"),
        ({"policy": "a/b/c"}, "a/b/c"),
        ({"policy": "my model"}, "my model"),
        ({"policy": "someone/model"}, "HF_HUB_OFFLINE"),
        ({"policy": {"path": "tiny", "adapter": "/nowhere/adapter"}}, "/nowhere/adapter"),
        (
            {"task": "chain-arithmetik"},
            r"task\.name: .*chain-arithmetic",
        ),
        ({"task": "hub:a"}, "hub:OWNER/NAME"),
        ({"task": "gsm8k"}, "'start'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_queue(data: dict, message: str, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WorkbenchError, match=message):
        check_config(RunConfig.parse(data))


@pytest.mark.parametrize(
    ("rows", "data", "message"),
    [
        (
            [{"prompt": "a", "answer": 1}],
            {},
            r"method\.prompts_per_step: 6 ",
        ),
        ([{"prompt": "a"}] * 20, {}, "'answer'.* none"),
        ([{"prompt": "a", "answr": 1}] * 20, {}, "'answer'.*'answr'"),
        ([{"prompt": "a", "answer": 1, "n": 10**30}] * 20, {}, "too large"),
        ([{"prompt": "a", "answer": 1, "n": n} for n in (1, "x")] * 10, {}, "several kinds"),
        ([{"prompt": "a", "completion": 7}] * 40, {"name": "sft"}, "line 1: 'completion'"),
        ([{"question_": "a"}], {}, r"task\.name: rows\.jsonl line 1: .*'prompt'"),
    ],
)
def test_a_task_that_a_run_could_not_use_is_refused(rows: list, data: dict, message: str, tmp_path: Path) -> None:
    method = data or {"rewards": [STEPS, {"name": "answer_correctness", "kind": "outcome"}]}
    config = RunConfig.parse({"task": _rows(tmp_path / "rows.jsonl", *rows), "method": method})
    with pytest.raises(WorkbenchError, match=message):
        check_config(config).method.check_rows(config)


def test_rows_are_looked_at_in_the_runs_first_second(tmp_path: Path) -> None:
    config = RunConfig.parse({"task": "gsm8k", "method": {"name": "sft"}, "run": {"device": "cpu"}})
    status = start(config, tmp_path).wait(120)
    assert (status.state, status.step) == ("failed", 0)
    assert "has no demonstrations" in status.reason


def test_an_adapters_folder_is_looked_at_with_its_base(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/gone/base"}')
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(WorkbenchError, match="/gone/base"):
        check_config(RunConfig(policy=str(folder)))
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "tiny"}')
    assert check_config(RunConfig(policy=str(folder))).policy.path == str(folder)
    with pytest.raises(WorkbenchError, match="adapter"):
        check_config(RunConfig.parse({"policy": {"path": str(folder), "adapter": "tiny"}}))


def test_every_problem_is_named_at_once_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpus", list)
    monkeypatch.setattr(devices, "_DRIVERS", ())
    run = {"device": "cuda"}
    config = RunConfig.parse(
        {"policy": "./gone", "task": "gone.jsonl", "method": {"pattern": {"regex": "["}}, "run": run}
    )
    with pytest.raises(WorkbenchError) as refused:
        runs.start(config, tmp_path)
    lines = str(refused.value).splitlines()
    starts = ("run.device:", "there is no folder", "task.name:", "method.pattern:")
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * 4
    assert not (tmp_path / "runs").exists()
    with pytest.raises(WorkbenchError) as refused:
        check_config(RunConfig(policy="./gone"))
    assert cli.main(["train", "--policy", "./gone", "--workspace", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {refused.value}\n"  # the command line refuses in the same words


# -- paths ------------------------------------------------------------------------------------------------------------


def test_paths_of_this_machine_are_stored_as_absolute_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    _model(Path("models/llama"))
    _rows(Path("rows.jsonl"), *[{"prompt": "a", "answer": "b"}] * 20)
    reward = {"name": "prm", "model": {"path": "models/llama", "format": "stepwise"}}
    config = RunConfig.parse({"policy": "models/llama", "task": "rows.jsonl", "method": {"rewards": [reward]}})
    there = check_config(config)
    model = there.grpo.rewards[0].model
    assert (there.policy.path, model.path) == (str(tmp_path / "models/llama"),) * 2
    assert there.task.name == str(tmp_path / "rows.jsonl")
    assert config.policy.path == "models/llama"  # what was asked for stays as it is
    (tmp_path / "tiny").mkdir()  # what comes along has its name for itself
    assert check_config(RunConfig()).policy.path == "tiny"


def test_a_name_that_can_only_be_a_path_is_not_looked_up_on_the_hub(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.is_hub_id("models/llama")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "llama-3").mkdir()
    assert not places.is_hub_id("models/llama")
    message = places.no_folder("models/llama")
    assert "not looked for on the Hub, as the folder 'models' is here" in message
    assert message.endswith("did you mean 'models/llama-3'?")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    assert places.local_path("loop") is None
    assert policy_path("tiny") == str(EMBEDDED["tiny"])  # from anywhere
    for name in ("./a", "/a", "~/a", "a/b/c", "a b", "", "a\0b", "x" * 5000, "~nobody-at-all/x"):
        assert not places.is_hub_id(name), name
        assert places.local_path(name) is None, name


def test_the_hub_is_asked_once_and_silence_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    from httpx import Request, Response
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    answers: list[Exception | None] = [
        RepositoryNotFoundError("404", response=Response(404, request=Request("GET", "https://hub"))),
        TimeoutError(),
        None,
    ]

    def repo_info(self, name: str, **how: object) -> None:
        if error := answers.pop(0):
            raise error

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "repo_info", repo_info)
    assert "does not exist, or is not open to you" in str(places.hub_problem("nobody/nothing"))
    assert places.hub_problem("somebody/silent") is None
    assert places.hub_problem("somebody/model") is None
    assert not answers


def test_nvidia_smi_is_asked_where_the_driver_shows_no_files(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho GPU-a\necho GPU-b\n")
    program.chmod(0o755)
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "none")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    assert devices.gpus() == devices.pool("auto") == ["GPU-a", "GPU-b"]
    monkeypatch.setenv(devices.VISIBLE, "1")
    assert devices.gpus() == ["GPU-b"]
    program.unlink()
    monkeypatch.delenv(devices.VISIBLE)
    assert (devices.gpus(), devices.pool("auto")) == ([], ["cpu"])
