"""Recipes: the values of their sources, and each in small carried out with a signal."""

from pathlib import Path
from typing import Any

import pytest

from tests.in_this_process import trained
from workbench import places
from workbench.assets import recipes
from workbench.cli.arguments import read_file
from workbench.data import group_of, load_task
from workbench.models.find import policy_path
from workbench.rewards import Batch, load_reward, score_group
from workbench.runs import Run, find_checkpoint, resolve
from workbench.steps import PRESETS
from workbench.training.methods import RunConfig, fill_from_task

SMALL = (
    *("gsm8k", "short-stories", "qwen3-4b-format", "qwen3-4b", "text-to-sql-taught", "text-to-sql-judge"),
    *("text-to-sql-ppo", "text-to-sql-dpo", "sentiment", "first-real-run"),
)
"""In an order in which what one trains is there for the next."""


def config_of(name: str) -> RunConfig:
    data = read_file(recipes()[name])
    fill_from_task(data)
    return RunConfig.parse(data)


def said(values: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """What a configuration says at the same dotted places."""

    def at(place: str) -> Any:
        value: Any = config
        for part in place.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        return value

    return {place: at(place) for place in values}


def test_a_full_recipe_names_its_data_set_and_its_small_form() -> None:
    for name in SMALL:
        told = recipes()[name].read_text(encoding="utf-8").splitlines()[1]
        source = config_of(name).task.name
        assert f"recipe:{name}-small." in told
        assert f"{name}-small" in recipes()
        assert ("come along" in told) == (not source.startswith("hub:"))
        assert not source.startswith("hub:") or "/".join(source.removeprefix("hub:").split("/")[:2]) in told


VALUES: dict[str, dict[str, Any]] = {
    "gsm8k": {
        "policy.path": "Qwen/Qwen2.5-0.5B-Instruct",
        "policy.dtype": "bfloat16",
        "optimiser.learning_rate": 5e-6,
        "optimiser.adam_beta1": 0.9,
        "optimiser.adam_beta2": 0.99,
        "optimiser.weight_decay": 0.1,
        "optimiser.warmup_ratio": 0.1,
        "optimiser.lr_scheduler_type": "cosine",
        "optimiser.max_grad_norm": 0.1,
        "run.micro_batch_size": 8,
        "method.rollouts_per_step": 8 * 4,
        "method.sampling.num_generations": 8,
        "method.sampling.max_completion_length": 200,
    },
    "short-stories": {
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
    "sentiment": {
        "policy.path": "Qwen/Qwen2.5-0.5B-Instruct",
        "task.name": "hub:stanfordnlp/imdb",
        "method.name": "ppo",
        "method.critic": "shared",
        "method.target_kl": 0.03,
        "task.prompt_template": "{text:.40}",
        "method.rollouts_per_step": 128,
        "run.micro_batch_size": 16,
        "optimiser.learning_rate": 6e-6,
    },
    "text-to-sql-taught": {
        "method.name": "sft",
        "policy.path": "facebook/opt-1.3b",
        "policy.lora.r": 128,
        "policy.lora.alpha": 1,
    },
    "text-to-sql-judge": {"method.name": "reward", "policy.path": "facebook/opt-350m"},
    "text-to-sql-ppo": {
        "method.name": "ppo",
        "policy.path": "run:text-to-sql-taught",
        "method.kl_coef": 0.1,
        "method.lam": 0.95,
        "method.epsilon": 0.2,
        "method.epsilon_value": 0.2,
        "method.score_clip": 5.0,
    },
    "text-to-sql-dpo": {
        "policy.path": "openai-community/gpt2",
        "method.beta": 0.1,
        "method.batch_size": 8,
        "method.max_length": 100,
        "optimiser.optim": "rmsprop",
        "optimiser.learning_rate": 1e-5,
    },
    "qwen3-4b-format": {"method.name": "sft", "policy.path": "Qwen/Qwen3-4B-Base"},
    "qwen3-4b": {"policy.path": "run:qwen3-4b-format", "method.name": "grpo", "method.trl.use_vllm": True},
}
REWARDS = {
    "gsm8k": {"correctness", "integer", "strict_format", "soft_format", "xml_count"},
    "short-stories": {"length_target"},
    "qwen3-4b": {"format_exact", "format_approximate", "answer"},
    "sentiment": {"positive"},
    "text-to-sql-ppo": {"judge"},
}


def test_the_first_real_run_pays_a_line_for_its_number_and_for_its_sums() -> None:
    by_name = {reward.name: load_reward(reward) for reward in config_of("first-real-run").method.reward_functions}
    answer = "1. 3 * 4 = 12\n2. 12 + 5 = 18\n2. so it is\n4. 6 + 6 = 12\n#### 18"
    question = "3 boxes of 4 apples and 5 more: how many?"
    scored = score_group(group_of(question, [answer]), PRESETS["line"].pattern, [by_name["numbered_step"]])
    # A sum that does not hold, a number that was, and a sum with no number of the question.
    assert scored.scored[0].rewards == (1.0, 0.5, 0.0, 0.5, None)
    texts = [answer, "#### 1,200", "18 ####", "1. 2 + 2 = 4\nso #### 4", ""]
    assert by_name["answer_line"].score(Batch([""] * 5, texts, {}))[0] == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", VALUES)
def test_a_recipe_has_the_values_of_its_source(name: str) -> None:
    assert said(VALUES[name], config_of(name)) == VALUES[name]


@pytest.mark.parametrize("name", REWARDS)
def test_a_recipe_has_the_rewards_of_its_source(name: str) -> None:
    rewards = config_of(name).method.reward_functions
    assert {reward.name.removeprefix("gsm8k_").removeprefix("qwen3_") for reward in rewards} == REWARDS[name]


def test_the_format_is_taught_by_59_demonstrations_in_the_prompts_that_are_reinforced() -> None:
    taught, reinforced = (config_of(name) for name in ("qwen3-4b-format", "qwen3-4b"))
    rows = load_task(taught.task).rows("demonstrations")
    assert len(rows) == 59
    assert all(
        row.completion.endswith("</SOLUTION>") and row.completion.count("<end_working_out>") == 1 for row in rows
    )
    assert rows[0].prompt.endswith("\n<start_working_out>")
    assert taught.task.prompt_template == reinforced.task.prompt_template


@pytest.mark.training
def test_each_in_small_comes_to_its_end_and_learns_from_something(tmp_path: Path) -> None:
    for recipe in SMALL:
        name = f"{recipe}-small"
        config = config_of(name).model_copy(update={"name": name})
        if recipe == "qwen3-4b-format":  # whose policy the next one goes on with: all its steps, on half its rows
            config.method.batch_size = 4
        else:
            config.run.steps = 2
        config.run.watch_prompts = 0
        run = trained(resolve(config, tmp_path), tmp_path)
        assert (run.status().state, run.status().step) == ("finished", config.run.steps), run.status().reason
        rows = run.metrics_rows()[0]
        moved = [row["grad_norm"] for row in rows if row.get("grad_norm")]
        assert moved, f"{name}: no step had a gradient"
        if recipe == "short-stories":
            merge_and_generate(run, tmp_path)


def merge_and_generate(run: Run, folder: Path) -> None:
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
