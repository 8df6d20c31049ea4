"""A run's configuration: round trips, and refusals that name the field, the value and the fix."""

import subprocess
import sys

import pytest

from workbench.config.section import is_section
from workbench.errors import ConfigError
from workbench.training.methods import METHODS, RunConfig


def test_words_become_one_name():
    assert RunConfig(name=" my first  run ").name == "my-first-run"
    assert RunConfig(name="Zoë's run: GSM8K (2)").name == "Zoe-s-run-GSM8K-2"
    with pytest.raises(ConfigError, match="name: use 1 to 80 letters"):
        RunConfig.parse({"name": "  "})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"optimiser": {"learning_rate": -1}},
            r"optimiser.learning_rate: must be above 0 and at most 1 \(got -1\)",
        ),
        (
            {"optimiser": {"learning_rate": float("nan")}},
            r"optimiser.learning_rate: must be above 0 and at most 1 \(got nan\)",
        ),
        ({"policy": {"lora": {"r": 0}}}, "policy.lora.r: must be at least 1 and at most 1024"),
        (
            {"method": {"beta": float("inf")}},
            r"method.beta: must be at least 0 and at most 1000 \(got inf\)",
        ),
        (
            {"method": {"sampling": {"temperature": "hot"}}},
            r"method.sampling.temperature: a number is wanted \(got 'hot'\)",
        ),
        (
            {
                "method": {"sampling": {"temperature": 1e-300}}
            },  # whose loss is not a number, with the learning rate to blame
            r"method.sampling.temperature: must be at least 0.001 and at most 10 \(got 1e-300\)",
        ),
        (
            {"method": {"sampling": {"top_k": 10**20}}},
            "method.sampling.top_k: must be at least 0 and at most 1,000,000",
        ),
        (
            {"optimiser": {"warmup_steps": 10**24}},
            "optimiser.warmup_steps: must be at least 0 and at most",
        ),
        (
            {"method": {"rewards": [{"name": "a", "weight": 1000000000.0}]}},
            r"method.rewards.0.weight: must be at least -1000 and at most 1000 \(got 1000000000.0\)",
        ),
        ({"method": {"rewards": [{"name": "a", "weight": float("nan")}]}}, r"method.rewards.0.weight: .*\(got nan\)"),
        ({"method": {"rewards": [{"name": "a", "weight": float("-inf")}]}}, r"method.rewards.0.weight: .*\(got -inf\)"),
        ({"optimiser": {"lerning_rate": 1}}, r"optimiser\.lerning_rate: .*'learning_rate'"),
        ({"training": {"steps": 4}}, "training: there is no such field"),
        ({"method": {"name": "grpo", "betta": 1}}, r"method\.betta: .*'beta'"),
        ({"method": {"credit": {"scheme": "proces"}}}, "'proces'.*'process'"),
        ({"method": {"credit": {"scheme": "min", "options": {"temprature": 1}}}}, "'temprature'.*'temperature'"),
        (
            {"method": {"sampling": {"num_generations": 1}}},
            "method.sampling.num_generations: must be at least 2 and at most 64",
        ),
        ({"run": {"ranks": 5}}, r"run.ranks: a batch of 48 completions does not divide over 5 ranks"),
        (
            {"method": {"prompts_per_step": 8}, "run": {"micro_batch_size": 7}},
            "run.micro_batch_size: 7 does not divide the 64 completions of a rank's batch; try 8",
        ),
        (
            {"method": {"num_iterations": 4}, "run": {"save_steps": 6}},
            "run.save_steps: 6 falls inside a generation of 4 iterations; the nearest that does not is 8",
        ),
        ({"method": {"sync_ref_model": True}}, "no reference policy to move while beta is 0; set beta"),
        ({"method": {"loss_type": "cispo"}}, "None would cap cispo's ratio below 1 and scale every gradient down"),
        (
            {"method": {"sync_ref_model": True, "beta": 0.1}, "policy": {"lora": {}}},
            "an adapter's reference is the policy without it; turn one off",
        ),
        ({"policy": {"adapter": "mine", "lora": {}}}, "the policy has the adapter 'mine' already"),
        (
            {
                "method": {"rewards": [{"name": "v", "monte_carlo": {"continuations": 2, "progress": True}}]},
                "run": {"ranks": 4},
            },
            "6 prompts on 4 ranks split a group, and 'v' needs its whole group on one; make it a multiple of 4",
        ),
        ({"method": {"rewards": []}}, "give at least one reward function"),
        (
            {"method": {"rewards": [{"name": "a", "kind": "outcome"}]}},
            "'process' needs a step reward .* so nothing would be learnt",
        ),
        (
            {"method": {"rewards": [{"name": "a"}], "credit": {"scheme": "outcome"}}},
            "'outcome' needs an outcome reward",
        ),
        (
            {"method": {"rewards": [{"name": "a"}], "credit": {"outcome_weight": 0.5}}},
            "0.5 weighs an outcome reward and there is",
        ),
        ({"method": {"rewards": [{"name": "a"}, {"name": "a"}]}}, "'a' is given twice"),
        ({"seed": True}, r"seed: give a number, not true or false \(got True\)"),
        ({"optimiser": {"learning_rate": False}}, "optimiser.learning_rate: give a number, not true or false"),
        ({"method": {"epsilon_high": True}}, "method.epsilon_high: give a number, not true or false"),
        ({"method": {"rewards": [max]}}, r"RewardConfig\(name='max', code="),
        ({"method": {"rewards": [{}]}}, r"rewards\.0\.name: it is missing"),
        ({"run": {"steps": 1.5}}, r"run\.steps: a whole number is wanted \(got 1\.5\)"),
        ({"run": {"project": ""}}, r"run\.project: it is empty"),
        ({"run": 3}, r"run: fields by name are wanted"),
        ({"name": "../../x"}, "name: use 1 to 80 letters"),
        ({"name": "a\0b"}, "name: use 1 to 80 letters"),
        ({"name": "x" * 300}, "name: use 1 to 80 letters, .* a letter or digit first .* 302 characters"),
        ({"name": "a\n"}, "name: use 1 to 80 letters"),
        ({"name": ".hidden"}, "name: use 1 to 80 letters"),
        ({"method": {"loss_type": "vespo"}}, "method.loss_type: choose one of grpo, bnpo"),
        ({"method": {"pattern": {"kind": "middle"}}}, "method.pattern.kind: choose one of starts, ends, is, turns"),
    ],
)
def test_what_cannot_work_is_refused_by_name(data, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.parse(data)


def test_text_that_is_not_yaml_is_said_to_be():
    with pytest.raises(ConfigError, match="not YAML"):
        RunConfig.from_yaml("a: [")


def test_every_field_explains_itself():
    def undocumented(model, path=""):
        for name, field in model.model_fields.items():
            if not field.description and not is_section(field.annotation):
                yield f"{path}{name}"
            if hasattr(field.annotation, "model_fields"):
                yield from undocumented(field.annotation, f"{path}{name}.")

    assert list(undocumented(RunConfig)) == []
    for method in METHODS.values():
        assert list(undocumented(method.section)) == []


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
    with pytest.raises(ConfigError, match=r"hf_token: there is no such field \(got '\[redacted\]'\)"):
        RunConfig.parse({"hf_token": secret})
    with pytest.raises(ConfigError, match=r"api_key: there is no such field \(got '\[redacted\]'\)"):
        RunConfig.parse({"api_key": "hunter22"})


def test_configuration_loads_neither_torch_nor_trl_nor_gradio():
    heavy = "{'torch', 'transformers', 'trl', 'gradio', 'pandas', 'datasets'}"
    code = f"import sys, workbench, workbench.training.methods; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_names_that_fields_had_in_version_0_4_are_read():
    run = {"save_every": 7, "eval_every": 9, "keep_checkpoints": 3}
    config = RunConfig.parse({"run": run, "optimiser": {"lr_scheduler": "cosine"}})
    assert (config.run.save_steps, config.run.eval_steps, config.run.save_total_limit) == (7, 9, 3)
    assert config.optimiser.lr_scheduler_type == "cosine"


def test_a_run_of_version_0_4_says_whether_its_code_was_trusted_and_is_read():
    stored = {"method": {"rewards": [{"name": "step_correctness", "trusted": False}]}}
    assert RunConfig.parse(stored) == RunConfig.parse({"method": {"rewards": [{"name": "step_correctness"}]}})
