"""A run's configuration: round trips, and refusals that name the field, the value and the fix."""

import pytest

from workbench.config import SharedConfig, leaves
from workbench.errors import ConfigError
from workbench.training.methods import METHODS, RunConfig


def test_words_become_one_name():
    assert RunConfig(name=" my first  run ").name == "my-first-run"
    assert RunConfig(name="Zoë's run: GSM8K (2)").name == "Zoe-s-run-GSM8K-2"


def reward(**changes):
    return {"method": {"rewards": [{"name": "a", **changes}]}}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"optimiser": {"learning_rate": -1}}, r"optimiser.learning_rate: .*-1"),
        ({"optimiser": {"learning_rate": float("nan")}}, r"optimiser.learning_rate: .*nan"),
        ({"policy": {"lora": {"r": 0}}}, "policy.lora.r: .*1024"),
        ({"method": {"beta": float("inf")}}, r"method.beta: .*inf"),
        ({"method": {"sampling": {"temperature": "hot"}}}, r"method.sampling.temperature: .*'hot'"),
        # whose loss is not a number, with the learning rate to blame
        ({"method": {"sampling": {"temperature": 1e-300}}}, r"method.sampling.temperature: .*1e-300"),
        ({"method": {"sampling": {"top_k": 10**20}}}, "method.sampling.top_k: .*1,000,000"),
        ({"optimiser": {"warmup_steps": 10**24}}, "optimiser.warmup_steps: "),
        (reward(weight=1e9), r"method.rewards.0.weight: .*1000000000.0"),
        (reward(weight=float("nan")), r"method.rewards.0.weight: .*nan"),
        (reward(weight=float("-inf")), r"method.rewards.0.weight: .*-inf"),
        ({"optimiser": {"lerning_rate": 1}}, r"optimiser\.lerning_rate: .*'learning_rate'"),
        ({"training": {"steps": 4}}, "training: "),
        ({"method": {"name": "grpo", "betta": 1}}, r"method\.betta: .*'beta'"),
        ({"method": {"credit": {"scheme": "proces"}}}, "'proces'.*'process'"),
        ({"method": {"credit": {"scheme": "min", "options": {"temprature": 1}}}}, "'temprature'.*'temperature'"),
        ({"method": {"sampling": {"num_generations": 1}}}, "method.sampling.num_generations: "),
        ({"run": {"ranks": 5}}, r"run.ranks: .*48.* 5 "),
        ({"method": {"prompts_per_step": 8}, "run": {"micro_batch_size": 7}}, "run.micro_batch_size: 7 .*64.* 8"),
        ({"method": {"num_iterations": 4}, "run": {"save_steps": 6}}, "run.save_steps: 6 .* 8"),
        ({"method": {"sync_ref_model": True}}, "beta is 0"),
        ({"method": {"loss_type": "cispo"}}, "cispo's ratio"),
        ({"method": {"sync_ref_model": True, "beta": 0.1}, "policy": {"lora": {}}}, "adapter's reference"),
        ({"policy": {"adapter": "mine", "lora": {}}}, "'mine'"),
        (reward(monte_carlo={"continuations": 2, "progress": True}) | {"run": {"ranks": 4}}, "'a' .* multiple of 4"),
        ({"method": {"rewards": []}}, "at least one"),
        (reward(kind="outcome"), "'process' .*step reward"),
        ({"method": {"rewards": [{"name": "a"}], "credit": {"scheme": "outcome"}}}, "'outcome' .*outcome reward"),
        ({"method": {"rewards": [{"name": "a"}], "credit": {"outcome_weight": 0.5}}}, "0.5 weighs"),
        ({"method": {"rewards": [{"name": "a"}, {"name": "a"}]}}, "'a' .*twice"),
        ({"seed": True}, r"seed: .*True"),
        ({"optimiser": {"learning_rate": False}}, "optimiser.learning_rate: "),
        ({"method": {"epsilon_high": True}}, "method.epsilon_high: "),
        ({"method": {"rewards": [max]}}, r"RewardConfig\(name='max'"),
        ({"method": {"rewards": [{}]}}, r"rewards\.0\.name: "),
        ({"run": {"steps": 1.5}}, r"run\.steps: .*1\.5"),
        ({"run": {"project": ""}}, r"run\.project: "),
        ({"run": 3}, "run: "),
        ({"task": {"name": "gsm8k", "columns": "question"}}, r"task\.columns: "),
        ({"task": {"name": "gsm8k", "rows": 0}}, r"task\.rows: "),
        *(({"name": name}, "name: ") for name in ("  ", "../../x", "a\0b", "a\n", ".hidden")),
        ({"name": "x" * 300}, "name: .* 302 "),
        ({"method": {"loss_type": "vespo"}}, "method.loss_type: .*grpo, bnpo"),
        ({"method": {"pattern": {"kind": "middle"}}}, "method.pattern.kind: .*starts, ends, is, turns"),
    ],
)
def test_what_cannot_work_is_refused_by_name(data, named):
    with pytest.raises(ConfigError, match=named):
        RunConfig.parse(data)


@pytest.mark.parametrize("section", [SharedConfig, *(method.section for method in METHODS.values())])
def test_every_field_explains_itself(section):
    assert [leaf.name for leaf in leaves(section) if not leaf.help] == []


def test_a_secret_in_a_configuration_is_kept_nowhere():
    secret = "hf_" + "aB3" * 11
    config = RunConfig.parse(
        {
            "policy": f"https://me:{secret}@hub.example/model",
            "method": {
                "rewards": [{"name": "mine", "code": f"def mine(prompt, step, **c):\n    return len('{secret}')\n"}]
            },
        }
    )
    assert config.policy.path == "https://[redacted]@hub.example/model"
    assert config.grpo.rewards[0].code == "def mine(prompt, step, **c):\n    return len('[redacted]')\n"
    config.policy.adapter = secret  # set later, not only when read
    assert secret not in config.to_yaml()
    with pytest.raises(ConfigError, match=r"hf_token: .*'\[redacted\]'"):
        RunConfig.parse({"hf_token": secret})
    with pytest.raises(ConfigError, match=r"api_key: .*'\[redacted\]'"):
        RunConfig.parse({"api_key": "hunter22"})


def test_the_names_that_fields_had_in_version_0_4_are_read():
    run = {"save_every": 7, "eval_every": 9, "keep_checkpoints": 3}
    rewards = [{"name": "step_correctness", "trusted": False}]
    optimiser = {"lr_scheduler": "cosine"}
    config = RunConfig.parse({"run": run, "optimiser": optimiser, "method": {"rewards": rewards}})
    assert (config.run.save_steps, config.run.eval_steps, config.run.save_total_limit) == (7, 9, 3)
    assert config.optimiser.lr_scheduler_type == "cosine"
    assert config.grpo.rewards == RunConfig.parse({"method": {"rewards": [{"name": "step_correctness"}]}}).grpo.rewards
