"""A run's configuration: round trips, and refusals that name the field, the value and the fix."""

from __future__ import annotations

import pytest

from workbench.config.run import METHODS, RunConfig
from workbench.config.section import is_section
from workbench.errors import ConfigError


def test_words_become_one_name():
    assert RunConfig(name=" my first  run ").name == "my-first-run"
    assert RunConfig(name="Zoë's run: GSM8K (2)").name == "Zoe-s-run-GSM8K-2"
    with pytest.raises(ConfigError, match="name: use 1 to 80 letters"):
        RunConfig.parse({"name": "  "})


def test_defaults_round_trip_through_yaml():
    config = RunConfig()
    assert RunConfig.from_yaml(config.to_yaml()) == config


def test_a_full_configuration_round_trips():
    config = RunConfig.parse(
        {
            "name": "mine",
            "policy": "Qwen/Qwen2.5-0.5B-Instruct",
            "pattern": {"regex": r"\n{2,}", "kind": "ends"},
            "rewards": [
                {"name": "mine", "kind": "step", "weight": 2, "code": "def mine(prompt, step, **c):\n    return 1\n"}
            ],
            "credit": {"scheme": "step", "clip": 2.0},
            "training": {"lora": {"r": 4, "alpha": 8}, "beta": 0.1, "loss_type": "dr_grpo"},
        }
    )
    again = RunConfig.from_yaml(config.to_yaml())
    assert again == config
    assert again.grpo.rewards[0].code.endswith("return 1\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"training": {"learning_rate": -1}},
            r"optimiser.learning_rate: out of range, which is above 0 and at most 1 \(got -1\)",
        ),
        (
            {"training": {"learning_rate": float("nan")}},
            r"optimiser.learning_rate: out of range, which is above 0 and at most 1 \(got nan\)",
        ),
        ({"training": {"lora": {"r": 0}}}, "policy.lora.r: out of range, which is at least 1 and at most 1024"),
        (
            {"training": {"beta": float("inf")}},
            r"method.beta: out of range, which is at least 0 and at most 1000 \(got inf\)",
        ),
        (
            {"sampling": {"temperature": "hot"}},
            r"method.sampling.temperature: a number is wanted \(got 'hot'\)",
        ),
        (
            {"sampling": {"temperature": 1e-300}},  # whose loss is not a number, with the learning rate to blame
            r"method.sampling.temperature: out of range, which is at least 0.001 and at most 10 \(got 1e-300\)",
        ),
        (
            {"sampling": {"top_k": 10**20}},
            "method.sampling.top_k: out of range, which is at least 0 and at most 1,000,000",
        ),
        (
            {"training": {"warmup_steps": 10**24}},
            "optimiser.warmup_steps: out of range, which is at least 0 and at most",
        ),
        (
            {"rewards": [{"name": "a", "weight": 1e9}]},
            r"method.rewards.0.weight: out of range, which is at least -1000 and at most 1000 \(got 1000000000.0\)",
        ),
        ({"rewards": [{"name": "a", "weight": float("nan")}]}, r"method.rewards.0.weight: .*\(got nan\)"),
        ({"rewards": [{"name": "a", "weight": float("-inf")}]}, r"method.rewards.0.weight: .*\(got -inf\)"),
        ({"training": {"lerning_rate": 1}}, "training.lerning_rate: there is no such field"),
        (
            {"sampling": {"num_generations": 1}},
            "method.sampling.num_generations: out of range, which is at least 2 and at most 64",
        ),
        ({"training": {"ranks": 5}}, r"run.ranks: a batch of 48 completions .* does not divide over 5 ranks"),
        (
            {"training": {"prompts_per_step": 8, "micro_batch_size": 7}},
            "run.micro_batch_size: 7 does not divide the 64 completions of a rank's batch; try 8",
        ),
        (
            {"training": {"num_iterations": 4, "save_every": 6}},
            "run.save_every: 6 falls inside a generation of 4 iterations; the nearest that does not is 8",
        ),
        ({"training": {"sync_ref_model": True}}, "no reference policy to move while beta is 0; set beta"),
        ({"training": {"loss_type": "cispo"}}, "None would cap cispo's ratio below 1 and scale every gradient down"),
        (
            {"training": {"sync_ref_model": True, "beta": 0.1, "lora": {}}},
            "an adapter's reference is the policy without it; turn one off",
        ),
        ({"adapter": "mine", "training": {"lora": {}}}, "the policy has the adapter 'mine' already"),
        (
            {
                "rewards": [{"name": "v", "monte_carlo": {"continuations": 2, "progress": True}}],
                "training": {"ranks": 4},
            },
            "6 prompts on 4 ranks split a group, and 'v' needs its whole group on one; make it a multiple of 4",
        ),
        ({"rewards": []}, "give at least one reward function"),
        (
            {"rewards": [{"name": "a", "kind": "outcome"}]},
            "'process' needs a step reward .* so nothing would be learnt",
        ),
        ({"rewards": [{"name": "a"}], "credit": {"scheme": "outcome"}}, "'outcome' needs an outcome reward"),
        ({"rewards": [{"name": "a"}], "credit": {"outcome_weight": 0.5}}, "0.5 weighs an outcome reward and there is"),
        ({"rewards": [{"name": "a"}, {"name": "a"}]}, "'a' is given twice"),
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
        ({"training": {"loss_type": "vespo"}}, "method.loss_type: choose one of grpo, bnpo"),
        ({"pattern": {"kind": "middle"}}, "method.pattern.kind: choose one of starts, ends, is, turns"),
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
            "rewards": [{"name": "mine", "code": f"def mine(prompt, step, **c):\n    return len('{secret}')\n"}],
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
