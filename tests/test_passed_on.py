"""What a run passes on to TRL: names and types checked against TRL's own source, refusals, and that it arrives."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.config import OptimiserSection
from workbench.errors import ConfigError
from workbench.runs.check import check_config
from workbench.training.building import shared_arguments, trainer_arguments
from workbench.training.methods import RunConfig
from workbench.views.estimate import estimate

ON_CPU = {"device": "cpu", "eval_steps": 0, "watch_prompts": 0}


def configured(method: str = "grpo", trl: Any = None, **more: Any) -> RunConfig:
    return RunConfig.parse({"method": {"name": method, "trl": trl or {}}, "run": ON_CPU, **more})


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "trl", "named"),
    [
        ("grpo", {"top_entropy_quantil": 1}, "GRPOConfig.*'top_entropy_quantil'.*'top_entropy_quantile'"),
        ("prm", {"top_entropy_quantile": 1}, "TrainingArguments"),
        ("sft", {"lerning_rate": 1}, "'learning_rate'"),
        ("grpo", {"learning_rate": 1e-5}, r"method\.trl\.learning_rate: "),
        ("grpo", {"num_train_epochs": 2}, r"run\.epochs"),
        ("sft", {"per_device_train_batch_size": 2}, r"run\.micro_batch_size"),
        ("ppo", {"beta": 0.1}, r"method\.trl\.beta: "),
        ("grpo", {"steps_per_generation": 2}, r"method\.prompts_per_step"),
        ("sft", {"push_to_hub": True}, "export RUN --push"),
        ("grpo", {"delta": "high"}, r"method\.trl\.delta: .*\(got 'high'\)"),
        ("grpo", {"log_completions": "perhaps"}, r"method\.trl\.log_completions: "),
    ],
)
def test_what_is_passed_on_is_refused_when_the_trainer_is_made(
    method: str, trl: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=named):
        trainer_arguments(configured(method, trl), tmp_path)


# -- what arrives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "trl", "expected"),
    [
        ("grpo", "disable_dropout=false, delta=2", {"disable_dropout": False, "delta": 2.0}),
        ("ppo", {"use_bias_correction_kl": True, "delta": 2}, {"use_bias_correction_kl": True, "delta": 2.0}),
        ("sft", {"packing": "true", "neftune_noise_alpha": "5"}, {"packing": True, "neftune_noise_alpha": 5.0}),
        ("dpo", 'lr_scheduler_kwargs={"num_cycles": 2}', {"lr_scheduler_kwargs": {"num_cycles": 2}}),
        ("prm", {"label_smoothing_factor": 0.1}, {"label_smoothing_factor": 0.1}),
    ],
)  # fmt: skip
def test_what_is_passed_on_arrives(method: str, trl: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    read = trainer_arguments(configured(method, trl), tmp_path)
    assert {name: read[name] for name in expected} == expected


# -- usual names of our own -------------------------------------------------------------------------------------------


def test_warm_up_is_a_share_of_the_steps() -> None:
    assert OptimiserSection().warmup(1000) == 5
    assert OptimiserSection(warmup_ratio=0.1).warmup(25) == 3  # 2.5, rounded up
    assert OptimiserSection(warmup_ratio=0, warmup_steps=9).warmup(25) == 0


def test_optimiser_and_schedule_reach_the_trainer(tmp_path: Path) -> None:
    from transformers.training_args import OptimizerNames, SchedulerType

    config = configured(optimiser={"optim": "adafactor", "warmup_ratio": 0.25, "lr_scheduler_type": "constant"})
    arguments = shared_arguments(config, tmp_path, 8)
    assert (arguments["optim"], arguments["warmup_steps"], arguments["lr_scheduler_type"]) == (
        "adafactor",
        21,  # a quarter of 84
        "constant",
    )
    optimisers = OptimiserSection.model_fields["optim"].annotation.__args__  # type: ignore[union-attr]
    assert set(optimisers) <= {name.value for name in OptimizerNames}
    schedules = OptimiserSection.model_fields["lr_scheduler_type"].annotation.__args__  # type: ignore[union-attr]
    assert set(schedules) <= {name.value for name in SchedulerType}


def test_epochs_set_the_steps_of_a_run(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}", "chosen": "a", "rejected": "b"} for i in range(20)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    task = {"name": str(file)}  # the last tenth of the rows is held out
    run = {**ON_CPU, "epochs": 2.5, "save_steps": 0}
    stored = check_config(RunConfig.parse({"task": task, "run": run, "method": {"name": "dpo", "batch_size": 4}}))
    assert stored.run.steps == 12  # 2.5 x 18 rows / 4, rounded up
    assert check_config(stored).run.steps == 12
    sampled = {"prompts_per_step": 4, "num_iterations": 2, "rewards": [{"name": "length_target", "kind": "outcome"}]}
    sampled["credit"] = {"scheme": "outcome"}
    assert check_config(RunConfig.parse({"task": task, "run": run, "method": sampled})).run.steps == 24
    assert "counted when the run starts" in dict(estimate(stored, None, None))["time"]
    with pytest.raises(ConfigError, match="1,250,000,000"):
        check_config(RunConfig.parse({"run": {**run, "epochs": 100_000}, "method": {"name": "sft", "batch_size": 8}}))


def test_the_estimate_counts_the_logits_of_a_large_vocabulary():
    """48 completions of 512 tokens over 151,936 ids, a logit and its gradient: 29.9 GB."""
    sampling = {"num_generations": 8, "max_completion_length": 512}
    config = RunConfig.parse({"method": {"prompts_per_step": 6, "sampling": sampling}, "run": {"steps": 4}})
    assert "29.9 GB" in dict(estimate(config, None, 494_000_000, 151_936))["memory"]
    assert "logits" not in dict(estimate(config, None, 494_000_000))["memory"]
    assert "logits" not in dict(estimate(RunConfig.parse({"method": "sft"}), None, 494_000_000, 151_936))["memory"]


def test_bfloat16_weights_and_a_rate_they_cannot_follow_are_named():
    """At 1e-6 a step of Adam moves 2 % of bfloat16 weights in five steps, and all in float32."""

    def lost(policy, rate):
        return RunConfig.parse({"policy": policy, "optimiser": {"learning_rate": rate}}).lost_updates

    half = {"path": "tiny", "dtype": "bfloat16"}
    assert lost(half, 1e-6)
    assert not lost("tiny", 1e-6)
    assert not lost(half, 1e-3)
    assert not lost({**half, "lora": {"r": 4, "alpha": 8}}, 1e-6)
