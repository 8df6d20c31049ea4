"""Files, code, flags and whole runs of version 0.3.0, written by it, are read in today's layout."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml

from workbench.cli import make_parser
from workbench.cli.flags import read_config
from workbench.config import leaves
from workbench.config.migrate import MOVED, migrate
from workbench.config.run import RunConfig
from workbench.credit import SCHEMES, Normalise, Scheme
from workbench.credit.schemes.scheme import Range
from workbench.errors import ConfigError
from workbench.runs import list_runs, open_run
from workbench.steps import StepPattern
from workbench.training.methods.grpo import GRPOSection
from workbench.ui.handlers import credit as credit_form

FILES = Path(__file__).parent / "data" / "runs-0.3.0"


def stored(name: str) -> RunConfig:
    return RunConfig.from_yaml((FILES / f"{name}.yaml").read_text(encoding="utf-8"))


def test_the_default_run_is_todays_default_at_its_own_rate():
    assert stored("default") == RunConfig.parse(
        {"optimiser": {"learning_rate": 5e-4}, "run": {"steps": 60, "eval_every": 4}}
    )


def test_own_code_and_credit_options_are_read():
    config = stored("own-code")
    assert config.grpo.pattern == StepPattern(r"\n+", "ends")
    assert [(r.name, r.kind, r.weight, r.options) for r in config.grpo.rewards] == [
        ("short", "step", 0.5, {}),
        ("length_target", "outcome", 1.0, {"target_length": 80}),
    ]
    assert config.grpo.rewards[0].code.startswith("def short(")
    assert config.grpo.credit.keywords() == {
        "scheme": "first_error",
        "normalise": "leave_one_out",
        "scale": False,
        "gamma": 0.9,
        "outcome_weight": 0.5,
        "threshold": 0.25,
        "drop_duplicates": False,
        "each_reward": False,
    }
    assert (config.grpo.loss_type, config.grpo.beta, config.grpo.num_iterations) == ("dr_grpo", 0.04, 2)
    assert (config.run.save_every, config.grpo.on_reward_error) == (4, "unscored")
    assert (config.grpo.sampling.temperature, config.grpo.sampling.top_k) == (0.7, 40)


def test_models_adapters_and_trackers_are_read():
    config = stored("models")
    assert (config.policy.path, config.policy.trust_remote_code) == ("Qwen/Qwen2.5-0.5B-Instruct", True)
    assert (config.policy.lora.r, config.policy.lora.alpha) == (8, 16)
    assert (config.task.name, config.seed) == ("gsm8k", 7)
    assert config.grpo.rewards[0].model.path == "trl-lib/prm"
    assert config.grpo.rewards[1].monte_carlo.continuations == 4
    assert (config.optimiser.learning_rate, config.optimiser.gradient_checkpointing) == (1e-5, True)
    assert (config.run.micro_batch_size, config.run.ranks, config.run.report_to) == (8, 2, ["tensorboard"])


def as_far_as(before: Any, value: Any) -> Any:
    """The value without the fields that came since, which have their defaults."""
    if isinstance(before, dict):
        return {key: as_far_as(before[key], value[key]) for key in before}
    return [as_far_as(*both) for both in zip(before, value, strict=True)] if isinstance(before, list) else value


@pytest.mark.parametrize("name", ["default", "own-code", "models", "stored/run"])
def test_every_key_of_a_file_lands_in_one_place_with_its_value(name):
    before = yaml.safe_load((FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    after = RunConfig.parse(before).model_dump(mode="json")

    def leaf(data, path):
        for part in path.split("."):
            data = data[part]
        return data

    for old, value in before["training"].items():
        moved = leaf(after, MOVED[f"training.{old}"])
        assert {**moved, **value} == moved if isinstance(value, dict) else moved == value  # lora has got fields since
    for old in before.keys() & MOVED.keys():
        assert as_far_as(before[old], leaf(after, MOVED[old])) == before[old]
    assert RunConfig.from_yaml(RunConfig.parse(before).to_yaml()) == RunConfig.parse(before)


def test_every_field_that_moved_is_there():
    paths = {leaf.name for leaf in leaves(RunConfig)} | {f"method.{leaf.name}" for leaf in leaves(GRPOSection)}
    gone = [new for new in MOVED.values() if not any(path == new or path.startswith(f"{new}.") for path in paths)]
    assert gone == ["method.rewards"]  # a list of sections, which no single value sets


def test_a_stored_run_opens_and_is_listed(tmp_path):
    shutil.copytree(FILES / "stored", tmp_path / "runs" / "stored")
    (run,) = list_runs(tmp_path)
    assert run.status().state == "finished"
    summary = run.summary()
    assert (summary.task, summary.policy, summary.scheme, summary.seed) == ("chain-arithmetic", "tiny", "process", 3)
    assert [row["step"] for row in open_run("stored", tmp_path).metrics_rows()[0]] == [0, 1, 2, 3, 4]
    assert run.rollout_steps() == [4]
    (credit, _) = run.rollouts(4)
    assert len(credit.scored.group) == 2


def test_an_old_key_beside_its_new_name_must_say_the_same():
    assert RunConfig.parse({"training": {"steps": 4}, "run": {"steps": 4, "ranks": 2}}).run.ranks == 2
    with pytest.raises(ConfigError, match=r"training\.steps: 4 is given, and run\.steps is 3; give one of them"):
        RunConfig.parse({"training": {"steps": 4}, "run": {"steps": 3}})
    with pytest.raises(ConfigError, match=r"sampling\.top_p: 0\.5 is given, and method\.top_p|sampling\.top_p"):
        RunConfig.parse({"sampling": {"top_p": 0.5}, "method": {"sampling": {"top_p": 0.6}}})


def test_migration_leaves_what_it_was_given_alone():
    data = {"training": {"steps": 4}, "policy": "tiny", "adapter": "mine"}
    moved = migrate(data)
    assert data == {"training": {"steps": 4}, "policy": "tiny", "adapter": "mine"}
    assert moved == {"run": {"steps": 4}, "policy": {"path": "tiny", "adapter": "mine"}}
    assert migrate(moved) == moved


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"training": {"lerning_rate": 1}}, "training.lerning_rate: .*did you mean 'learning_rate'"),
        ({"optimiser": {"lerning_rate": 1}}, "optimiser.lerning_rate: .*did you mean 'learning_rate'"),
        ({"method": {"name": "grpo", "betta": 1}}, "method.betta: .*did you mean 'beta'"),
        ({"credit": {"scheme": "proces"}}, "unknown credit scheme 'proces'; did you mean 'process'"),
        ({"credit": {"scheme": "min", "options": {"temprature": 1}}}, "has no option 'temprature'.*'temperature'"),
        ({"training": 3}, "training: settings by name are wanted, and this is a int"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(data, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.parse(data)


def test_a_refused_configuration_is_a_value_error_too():
    with pytest.raises(ValueError, match=r"run\.steps"):
        RunConfig.parse({"run": {"steps": 0}})


# -- flags ----------------------------------------------------------------------------------------------------------


def flagged(*argv: str) -> RunConfig:
    return read_config(make_parser().parse_args(["train", *argv]))


def test_old_and_new_flags_set_the_same_fields():
    old = flagged(
        *("--training.steps", "4", "--sampling.temperature", "0.7", "--policy", "x", "--adapter", "y", "--seed", "2"),
        *("--training.beta", "0.1", "--credit.scheme", "first_error", "--credit.options", "threshold=0.25"),
    )
    new = flagged(
        *("--run.steps", "4", "--grpo.sampling.temperature", "0.7", "--policy", "x", "--policy.adapter", "y"),
        *("--seed", "2", "--method", "grpo", "--grpo.beta", "0.1", "--grpo.credit.scheme", "first_error"),
        *("--grpo.credit.options", "threshold=0.25"),
    )
    assert old == new
    assert (new.run.steps, new.policy.path, new.grpo.beta, new.grpo.credit.options) == (
        4,
        "x",
        0.1,
        {"threshold": 0.25},
    )


def test_two_flags_of_one_field_must_agree():
    assert flagged("--training.steps", "4", "--run.steps", "4").run.steps == 4
    with pytest.raises(ConfigError, match=r"--run\.steps 5 and --training\.steps 4 set the same field"):
        flagged("--training.steps", "4", "--run.steps", "5")


def test_an_old_flag_changes_a_new_file(tmp_path):
    file = tmp_path / "new.yaml"
    file.write_text(RunConfig.parse({"run": {"steps": 9}, "method": {"beta": 0.5}}).to_yaml())
    config = flagged("--config", str(file), "--training.steps", "3")
    assert (config.run.steps, config.grpo.beta) == (3, 0.5)


# -- options of any type ----------------------------------------------------------------------------------------------


def toy(
    batch: Any,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    far: Annotated[bool, "Look far"] = False,
    side: Annotated[Literal["left", "right"], "Which side"] = "left",
    depth: Annotated[float, Range("How deep", 0, 9)] = 1.0,
) -> Any:
    """Toy."""


@pytest.fixture
def toy_scheme(monkeypatch):
    monkeypatch.setitem(SCHEMES, "toy", Scheme("toy", formula="A = 0", reference="nowhere", compute=toy))


def test_switches_choices_and_numbers_of_a_scheme_work_in_yaml_flags_form_and_docs(toy_scheme, monkeypatch):
    options = {"far": True, "side": "right", "depth": 2.0}
    config = RunConfig.parse({"method": {"credit": {"scheme": "toy", "options": options}}})
    assert config.grpo.credit.options == options
    again = RunConfig.from_yaml(config.to_yaml())
    assert again.grpo.credit.options == options
    assert [type(value) for value in again.grpo.credit.options.values()] == [bool, str, float]
    text = flagged("--credit.scheme", "toy", "--credit.options", "far=true,side=right,depth=2")
    assert text.grpo.credit.options == options
    with pytest.raises(ConfigError, match="side is 'up'; choose one of left, right"):
        flagged("--credit.scheme", "toy", "--credit.options", "side=up")
    with pytest.raises(ConfigError, match="far is 'maybe'; use true or false"):
        flagged("--credit.scheme", "toy", "--credit.options", "far=maybe")
    kinds = {option.name: option.kind for option in SCHEMES["toy"].options}
    assert {name: kinds[name] for name in options} == {"far": "switch", "side": "choice", "depth": "number"}
    fields = {field.name: field.kind for field in credit_form._fields()}
    assert {name: fields[name] for name in options} == {name: kinds[name] for name in options}
    monkeypatch.setattr(credit_form, "FIELDS", credit_form._fields())
    shown = credit_form.shown_values({"scheme": "toy"}) | options
    section = credit_form.read_section(None, "toy", shown)
    assert section is not None
    assert credit_form.credit_config(section).options == options
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    page = importlib.import_module("registries").schemes()
    assert "| `far` | `False` | on or off | Look far |" in page
    assert "| `side` | `left` | `left`, `right` | Which side |" in page


def test_options_of_a_built_in_reward_are_set_by_a_flag():
    both = ("--reward", "step_correctness", "--reward", "length_target", "--reward-option")
    config = flagged(*both, "length_target.target_length=80")
    assert [reward.options for reward in config.grpo.rewards] == [{}, {"target_length": 80}]
    with pytest.raises(ConfigError, match="has no option 'target_lenth'; did you mean 'target_length'"):
        flagged(*both, "length_target.target_lenth=80")
    with pytest.raises(ConfigError, match="target_length is 'far'; its default is 50"):
        flagged(*both, "length_target.target_length=far")
    with pytest.raises(ConfigError, match="no reward 'x' in this run; its rewards are step_correctness"):
        flagged("--reward-option", "x.y=1")


def test_configuration_loads_neither_torch_nor_trl_nor_gradio():
    import subprocess

    heavy = "{'torch', 'transformers', 'trl', 'gradio', 'pandas', 'datasets'}"
    code = f"import sys, workbench, workbench.config; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
