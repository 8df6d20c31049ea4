"""Recipes: their values, what this machine lacks for them, flags laid over them, and each carried out, reduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.in_this_process import trained
from workbench import cli, places, runs
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.policies.find import policy_path
from workbench.runs import Run, find_checkpoint, resolved
from workbench.runs.pipelines import Plan
from workbench.runs.pipelines.check import carried_out
from workbench.runs.pipelines.plan import run_name
from workbench.runs.recipes import check_recipe, find_recipe, recipes
from workbench.runs.recipes.models import made_model
from workbench.tasks import load_task

NAMES = ["gsm8k", "qwen3-4b", "sentiment", "short-stories", "text-to-sql"]


def plan_of(name: str, workspace: Path, *, reduced: bool = False) -> Plan:
    return find_recipe(name).plan(reduced, workspace)


def config_of(name: str, workspace: Path, stage: str = "trained") -> RunConfig:
    config = plan_of(name, workspace).stage(stage).config
    assert config is not None
    return config


def said(values: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """What a configuration says at the same dotted places."""

    def at(place: str) -> Any:
        value: Any = config
        for part in place.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        return value

    return {place: at(place) for place in values}


# -- values -----------------------------------------------------------------------------------------------------------

VALUES: dict[tuple[str, str], dict[str, Any]] = {
    ("gsm8k", "trained"): {
        "policy.path": "Qwen/Qwen2.5-0.5B-Instruct",
        "policy.dtype": "bfloat16",
        "optimiser.learning_rate": 5e-6,
        "optimiser.adam_beta1": 0.9,
        "optimiser.adam_beta2": 0.99,
        "optimiser.weight_decay": 0.1,
        "optimiser.warmup_ratio": 0.1,
        "optimiser.lr_scheduler": "cosine",
        "optimiser.max_grad_norm": 0.1,
        "run.micro_batch_size": 8,
        "method.rollouts_per_step": 8 * 4,
        "method.sampling.num_generations": 8,
        "method.sampling.max_completion_length": 200,
    },
    ("short-stories", "trained"): {
        "policy.path": "HuggingFaceTB/SmolLM-135M-Instruct",
        "policy.lora.r": 16,
        "policy.lora.alpha": 32,
        "policy.lora.targets": "all-linear",
        "optimiser.learning_rate": 2e-5,
        "optimiser.optim": "adamw_bnb_8bit",
        "run.micro_batch_size": 4,
        "method.rollouts_per_step": 4 * 2,
        "method.max_prompt_length": 512,
        "method.sampling.max_completion_length": 96,
        "method.sampling.num_generations": 4,
    },
    ("qwen3-4b", "format"): {"method.name": "sft", "policy.path": "Qwen/Qwen3-4B-Base"},
    ("qwen3-4b", "reinforced"): {"policy.path": "run:format", "method.name": "grpo", "method.trl.use_vllm": True},
}
REWARDS = {
    ("gsm8k", "trained"): {"correctness", "integer", "strict_format", "soft_format", "xml_count"},
    ("short-stories", "trained"): {"length_target"},
    ("qwen3-4b", "reinforced"): {"format_exact", "format_approximate", "answer"},
    ("sentiment", "trained"): {"positive"},
    ("text-to-sql", "reinforced"): {"judge"},
}


@pytest.mark.parametrize("place", VALUES, ids=lambda place: ".".join(place))
def test_a_recipe_has_the_values_of_its_source(place: tuple[str, str], tmp_path: Path) -> None:
    name, stage = place
    assert said(VALUES[place], config_of(name, tmp_path, stage)) == VALUES[place]


@pytest.mark.parametrize("place", REWARDS, ids=lambda place: ".".join(place))
def test_a_recipe_has_the_rewards_of_its_source(place: tuple[str, str], tmp_path: Path) -> None:
    rewards = config_of(place[0], tmp_path, place[1]).method.reward_functions
    assert {reward.name.removeprefix("gsm8k_").removeprefix("qwen3_") for reward in rewards} == REWARDS[place]


def test_the_format_is_taught_by_59_demonstrations_in_the_prompts_that_are_reinforced(tmp_path: Path) -> None:
    taught, reinforced = (config_of("qwen3-4b", tmp_path, stage) for stage in ("format", "reinforced"))
    rows = load_task(taught.task).rows("demonstrations")
    assert len(rows) == 59
    assert all(
        row.completion.endswith("</SOLUTION>") and row.completion.count("<end_working_out>") == 1 for row in rows
    )
    assert rows[0].prompt.endswith("\n<start_working_out>")
    assert taught.task.prompt_template == reinforced.task.prompt_template


# -- the reduced ones, end to end -------------------------------------------------------------------------------------


def carry_out(name: str, workspace: Path) -> dict[str, Run]:
    """Each run of the reduced recipe, by its stage."""
    plan = plan_of(name, workspace, reduced=True)
    runs: dict[str, Run] = {}
    for stage in plan.stages:
        config = carried_out(stage, plan, {}).config
        assert config is not None
        config.name = run_name(plan.name, stage.name)
        run = runs[stage.name] = trained(resolved(config, workspace), workspace)
        status = run.status()
        assert (status.state, status.step) == ("finished", config.run.steps), status.reason
    return runs


def reward_columns(run: Run) -> set[str]:
    rows, _ = run.metrics_rows()
    names = {name for row in rows for name, value in row.items() if value is not None}
    found = {name.split("/")[1] for name in names if name.startswith("rewards/") and name.endswith("/mean")}
    return {name.removeprefix("gsm8k_").removeprefix("qwen3_") for name in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_reduced_recipe_is_carried_out_to_its_end(name: str, tmp_path: Path) -> None:
    plan = plan_of(name, tmp_path, reduced=True)
    stages = [stage.name for stage in plan_of(name, tmp_path).stages]
    check_recipe(name, plan, tmp_path, reduced=True)
    runs = carry_out(name, tmp_path)
    assert list(runs) == stages
    for stage, run in runs.items():
        if (name, stage) in REWARDS:
            assert reward_columns(run) == REWARDS[name, stage]
    if name == "short-stories":
        _merge_and_generate(runs["trained"], tmp_path)


def _merge_and_generate(run: Run, folder: Path) -> None:
    """The merged weights are W + α/r·B·A, and the merged folder is a policy that is sampled."""
    import torch
    from safetensors.torch import load_file

    from workbench.runs.export import export_model

    merged = export_model(run.name, "merged", folder / "merged", folder)
    checkpoint = Path(find_checkpoint(f"run:{run.name}", folder))
    base, adapter = load_file(Path(policy_path("tiny")) / "model.safetensors"), load_file(checkpoint / places.ADAPTER)
    weights, layer = load_file(merged / "model.safetensors"), "model.layers.0.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{layer}.lora_{side}.weight"] for side in "AB")
    expected = base[f"{layer}.weight"] + 32 / 16 * b @ a
    torch.testing.assert_close(weights[f"{layer}.weight"], expected, atol=1e-6, rtol=1e-5)

    from workbench import load_policy, sample_group

    group = sample_group(load_policy(str(merged)), load_task("chain-arithmetic")[0], num_generations=2, seed=0)
    assert len(group.rollouts) == 2


def test_the_random_classifier_knows_both_labels(tmp_path: Path) -> None:
    folder = made_model("classifier", tmp_path)
    assert made_model("classifier", tmp_path) == folder
    assert json.loads((folder / "config.json").read_text())["id2label"] == {"0": "NEGATIVE", "1": "POSITIVE"}
    with pytest.raises(ConfigError, match=r"\{models\}/clasifier: no such model is made; did you mean 'classifier'\?"):
        made_model("clasifier", tmp_path)


# -- the command line -------------------------------------------------------------------------------------------------


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main([*arguments]) == 2
    return capsys.readouterr().err


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, and a Hub that does not answer."""

    def silent(self: Any, repository: str, **options: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", silent)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args, **options: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("workbench.runs.devices.gpus", list)


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(recipes("train")) == NAMES
    assert cli.main(["recipes", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["recipes"]
    assert [recipe["name"] for recipe in data["recipes"]] == NAMES
    assert cli.main(["recipes"]) == 0
    assert "text-to-sql    reward → dpo → ppo" in capsys.readouterr().out
    assert cli.main(["recipes", "gsm8k"]) == 0
    assert capsys.readouterr().out.startswith("name: gsm8k\n")


@pytest.mark.usefixtures("nothing_here")
def test_what_a_machine_lacks_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.packages.find_spec", lambda name: None)
    lines = error_of(capsys, "train", "recipe:qwen3-4b", "--workspace", str(tmp_path)).splitlines()
    wanted = [
        "stage format: policy.dtype: 'bfloat16' is meant for a GPU",
        "stage format: the Hub's model 'Qwen/Qwen3-4B-Base' is not in the cache and the Hub does not answer",
        "stage reinforced: task.name: the Hub's dataset 'open-r1/DAPO-Math-17k-Processed' is not in the cache",
        "stage format: optimiser.optim: 'adamw_bnb_8bit' needs the package bitsandbytes",
        "stage reinforced: method.trl.use_vllm: it needs the package vllm",
    ]
    for beginning in wanted:
        assert sum(beginning in line for line in lines) == 1, beginning
    assert lines[-1].endswith("train recipe:qwen3-4b --reduced")
    assert not (tmp_path / "pipelines").exists()
    lines = error_of(capsys, "train", "recipe:sentiment", "--workspace", str(tmp_path)).splitlines()
    assert any("reward 'positive': the Hub's model 'distilbert/" in line for line in lines)
    assert not (tmp_path / "runs").exists()


def test_wrong_names_get_the_nearest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no recipe 'gsm8'; did you mean 'gsm8k'?" in error_of(capsys, "train", "recipe:gsm8")
    assert "'gsm8k' is nothing to train; write recipe:gsm8k" in error_of(capsys, "train", "gsm8k")
    assert "--reduced is of a recipe" in error_of(capsys, "train", "--reduced")
    assert "give one of them" in error_of(capsys, "train", "recipe:gsm8k", "--from", "some")
    file = tmp_path / "mine.yaml"
    file.write_text("{stages: [{name: one, run: {}}], reduced: {onee: {}}}")
    assert "there is no stage 'onee'; did you mean 'one'?" in error_of(capsys, "train", f"recipe:{file}")
    file.write_text("{stages: [{name: one, run: {}}], redused: {}}")
    assert "'redused' is nothing of a recipe; did you mean 'reduced'?" in error_of(capsys, "train", f"recipe:{file}")
    file.write_text("stages: [{name: one, run: {}}]")
    assert "mine: it has no reduced form" in error_of(capsys, "train", f"recipe:{file}", "--reduced")


def test_code_of_a_recipes_file_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reward = {"name": "mine", "code": "def mine(prompt, step, **columns):\n    return 1.0\n"}
    settings = {"method": {"rewards": [reward]}}
    for stages in ([{"name": "a", "run": settings}], [{"name": name, "run": settings} for name in "ab"]):
        file = tmp_path / "mine.yaml"
        file.write_text(json.dumps({"stages": stages}))
        error = error_of(capsys, "train", f"recipe:{file}", "--workspace", str(tmp_path / "workspace"))
        assert f"recipe:{file}" in error
        assert "--trust" in error
    assert not (tmp_path / "workspace" / "runs").exists()


# -- flags laid over --------------------------------------------------------------------------------------------------


class Started(Exception):
    """In the place of a start, with what would be started."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a command's arguments: the configuration or the plan that would be started."""

    def start(what: Any, workspace: Path, **options: Any) -> None:
        raise Started(what, options)

    monkeypatch.setattr(runs, "start", start)
    monkeypatch.setattr("workbench.cli.recipe.start_plan", start)

    def command(*arguments: str) -> Any:
        with pytest.raises(Started) as caught:
            cli.main(["train", *arguments, "--workspace", str(tmp_path)])
        return caught.value.args

    return command


def test_flags_are_laid_over_a_recipe_of_one_run(started: Any) -> None:
    config, _ = started("recipe:gsm8k", "--reduced", "--run.steps", "1", "--grpo.beta", "0.5", "--name", "mine")
    assert (config.name, config.run.steps, config.method.beta) == ("mine", 1, 0.5)
    assert config.optimiser.learning_rate == 5e-6
    assert config.method.sampling.num_generations == 4


def test_flags_are_laid_over_the_stages_that_have_them(started: Any) -> None:
    flags = ["--run.steps", "1", "--grpo.beta", "0.5", "--policy", "tiny", "--policy.lora.r", "4", "--name", "mine"]
    plan, options = started("recipe:qwen3-4b", "--reduced", *flags)
    taught, reinforced = (stage.config for stage in plan.stages)
    assert options["name"] == "mine"
    assert (taught.run.steps, reinforced.run.steps) == (1, 1)
    assert (taught.policy.path, taught.policy.lora.r) == ("tiny", 4)
    assert (reinforced.policy.path, reinforced.policy.lora, reinforced.method.beta) == ("run:format", None, 0.5)


def test_what_cannot_be_laid_over_several_stages_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--task", "x"], ["--method", "ppo"], ["--reward", "length_target"], ["--config", "x.yaml"]):
        error = error_of(capsys, "train", "recipe:qwen3-4b", *flags)
        assert f"{flags[0]}: qwen3-4b has 2 stages, and this is of one; copy " in error
    error = error_of(capsys, "train", "recipe:qwen3-4b", "--dpo.beta", "1")
    assert "--dpo.beta: no stage of qwen3-4b is of that method; theirs are grpo, sft" in error
