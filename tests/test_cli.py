"""The command line: flags made from the configuration, plain messages for errors, and --json that programs can read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fake_run
from tests.configs import config_of
from tests.stored_runs import config_of as config_of_run
from workbench import runs
from workbench.cli import main
from workbench.cli import runs as run_commands
from workbench.errors import ConfigError
from workbench.rundir import RunDir
from workbench.runs import launch, list_runs
from workbench.schema import Group, Rollout
from workbench.training.methods import RunConfig


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose runs do at once what their task names, and are no processes."""

    def spawn(run: RunDir, module: str, **how: bool) -> None:
        {"finish": fake_run.finish, "crash": crash, "go_on": go_on}[config_of_run(run).task.name](run)
        if run.status().final:
            run.note(pid=None)  # nobody waits for this process to end

    monkeypatch.setattr(launch, "spawn", spawn)
    monkeypatch.setattr(launch, "check_config", lambda config: config)
    monkeypatch.setattr("workbench.cli.arguments.fill_from_task", lambda data: None)
    return tmp_path


def crash(run: RunDir) -> None:
    run.set_status("crashed", "killed by signal 9")


def go_on(run: RunDir) -> None:
    run.append_metrics({"step": 1})
    run.set_status("running")


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


# -- flags ----------------------------------------------------------------------------------------------------------


def test_a_task_brings_a_configuration_of_python_what_it_brings_the_command_line() -> None:
    given = {"task": "gsm8k", "method": {"pattern": {"regex": r"\n\n", "kind": "ends"}}}
    config = runs.resolve(RunConfig(**given))
    flags = ("--task", "gsm8k", "--method.pattern.regex", r"\n\n", "--method.pattern.kind", "ends")
    assert config == runs.resolve(config) == config_of(*flags)
    assert [reward.name for reward in config.grpo.rewards] == ["sums_hold", "answer_correctness"]
    assert (config.grpo.pattern.regex, config.grpo.sampling.max_completion_length) == (r"\n\n", 256)


def test_a_file_is_changed_by_flags(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        RunConfig(seed=4, method={"credit": {"clip": 2.0}}, run={"steps": 9}, policy={"lora": {"alpha": 3}}).to_yaml()
    )
    config = config_of("--config", str(file), "--policy.lora.r", "2", "--method.credit.clip", "null")
    assert (config.seed, config.run.steps, config.grpo.credit.clip) == (4, 9, None)
    assert (config.policy.lora.r, config.policy.lora.alpha) == (2, 3)
    file.write_text("")
    assert config_of("--config", str(file)) == RunConfig()


def test_rewards_by_name_and_by_file(tmp_path: Path) -> None:
    """A function of TRL is named with its colon, and a file says its kind itself."""
    file, other = tmp_path / "short.py", tmp_path / "brief.py"
    file.write_text("def short(prompt, step, **columns):\n    return 1.0\n")
    other.write_text("def brief(prompts, completions, **columns):\n    return [1.0] * len(prompts)\n")
    config = config_of(
        *("--reward", "trl:think_format_reward:outcome:0.5", "--reward", "step_correctness:step:0.5"),
        *("--reward", "answer_correctness", "--reward-file", str(file), "--reward-file", str(other)),
    )
    assert [(reward.name, reward.kind, reward.weight) for reward in config.grpo.rewards] == [
        ("trl:think_format_reward", "outcome", 0.5),
        ("step_correctness", "step", 0.5),
        ("answer_correctness", "outcome", 1.0),
        ("short", "step", 1.0),
        ("brief", "outcome", 1.0),
    ]
    assert config.grpo.rewards[3].code == file.read_text()


FIVE = """from helpers_beside import scale

def extract(text):
    return text

def format_reward(completions, **k):
    return [scale] * len(completions)

def len_reward(completions, **k):
    return [float(len(c)) for c in completions]
"""


def test_a_function_of_a_file_of_several_is_named_after_two_colons(tmp_path: Path) -> None:
    file = tmp_path / "open-r1-style-rewards.py"
    file.write_text(FIVE)
    with pytest.raises(ConfigError, match=f"{file}::format_reward"):
        config_of("--reward-file", str(file))
    with pytest.raises(ConfigError, match="format_reward, len_reward"):
        config_of("--reward-file", f"{file}::nothing")
    config = config_of(
        *("--reward-file", f"{file}::len_reward", "--reward-file", f"{file}::format_reward:outcome:0.5"),
        *("--reward-file", f"{file}::extract:outcome:2", "--method.credit.scheme", "outcome"),
    )
    assert [(reward.name, reward.kind, reward.weight) for reward in config.grpo.rewards] == [
        ("len_reward", "outcome", 1.0),
        ("format_reward", "outcome", 0.5),
        ("extract", "outcome", 2.0),
    ]
    assert config.grpo.rewards[0].folder is None
    (tmp_path / "helpers_beside.py").write_text("scale = 1.0\n")
    config = config_of("--reward-file", f"{file}::len_reward", "--method.credit.scheme", "outcome")
    assert config.grpo.rewards[0].folder == str(tmp_path)


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("def helper(a):\n    pass\n\ndef tags(completions, **k):\n    pass\n", ("tags", "outcome")),
        ("def tags(prompt, step_text):\n    pass\n", ("mine", "step")),
        ("def mine(prompt, step, **k):\n    pass\n\ndef other(prompt, step, **k):\n    pass\n", ("mine", "step")),
        ("class A:\n    def forward(self, p, s):\n        return 1\n\nmodel = A()\n", ("mine", "step")),
    ],
)
def test_the_reward_of_a_file_is_the_only_one_it_can_be(tmp_path: Path, code: str, reward: tuple[str, str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)
    (given,) = config_of("--reward-file", str(file), "--method.credit.scheme", SCHEME_OF[reward[1]]).grpo.rewards
    assert (given.name, given.kind) == reward


SCHEME_OF = {"step": "process", "outcome": "outcome"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ndef mine(prompt, step, **columns)\n    return 1\n", "at line 2"),
        ("x = 1\n", "no function"),
        ("def a(x):\n    pass\n\ndef b(y):\n    pass\n", r"mine\.py::a"),
    ],
)
def test_a_file_without_a_reward_is_refused_before_the_scheme_is(tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)
    with pytest.raises(ConfigError, match=message):
        config_of("--reward-file", str(file), "--method.credit.scheme", "outcome")


MIN = ("--method.credit.scheme", "min", "--method.credit.options")
LENGTH = ("--reward", "step_correctness", "--reward", "length_target", "--reward-option")


def test_options_of_a_scheme_and_of_a_built_in_reward_are_set_by_a_flag() -> None:
    assert config_of(*MIN, "signed=true,temperature=2").grpo.credit.options == {"signed": True, "temperature": 2.0}
    rewards = config_of(*LENGTH, "length_target.target_length=80").grpo.rewards
    assert [reward.options for reward in rewards] == [{}, {"target_length": 80}]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--run.steps", "many"), r"run\.steps: .*many"),
        (("--optimiser.learning_rate", "nan"), r"optimiser\.learning_rate: "),
        (("--optimiser.learning_rate", "-1"), r"optimiser\.learning_rate: .*-1"),
        (("--name", "../../x"), "name: "),
        (("--run.ranks", "5"), r"run\.ranks: .*48"),
        (("--reward", "magic"), "magic"),
        (("--reward", "tag_format:both"), r"rewards\.0\.kind"),
        (("--reward-file", "/no/such.py"), r"file /no/such\.py"),
        (("--config", "/no/such.yaml"), r"--config /no/such\.yaml"),
        ((*MIN, "signed=maybe"), "signed"),
        ((*MIN, "temperature=far"), "temperature"),
        ((*LENGTH, "length_target.target_lenth=80"), "length_target.target_lenth=80"),
        ((*LENGTH, "length_target.target_length=far"), "length_target.target_length=far"),
        ((*LENGTH, "x.y=1"), "x.y=1"),
    ],
)
def test_a_value_that_does_not_fit_is_named(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*argv)


@pytest.mark.parametrize(
    ("argv", "nearest"),
    [
        (("train", "--lr", "1e-4"), "--optimiser.learning_rate"),
        (("train", "--max_steps=3"), "--run.steps"),
        (("train", "--warmup-ratio", "0.1"), "--optimiser.warmup_ratio"),
        (("train", "--worspace", "x"), "--workspace"),
        (("train", "--method.ppo_epochs", "4"), "--method.num_iterations"),
        (("train", "--method", "ppo", "--method.vf_coef", "1"), "--method.value_coef"),
        (("train", "--method=ppo", "--method.kl_penalty", "kl"), "--method.kl_coef"),
        (("train", "--method.init_kl_coef", "0.1"), "--method.beta"),
    ],
)
def test_a_flag_that_is_not_there_is_answered_with_the_nearest(
    argv: tuple[str, ...], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert f"did you mean {nearest}" in capsys.readouterr().err.replace("'", "")


# -- the program ----------------------------------------------------------------------------------------------------


def test_errors_are_one_message_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", "nothing", "--workspace", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: there is no run 'nothing'")
    assert main(["train", "--task", "/no/such.jsonl"]) == 2
    assert "error: no task or file called" in capsys.readouterr().err
    for wrong in (["magic"], [], ["compare", "--seeds", "0"], ["train", "--train.steps", "3"]):
        assert main(wrong) == 2


def test_it_runs_as_a_module_and_loads_nothing_heavy() -> None:
    code = (
        "import runpy, sys; sys.argv = ['workbench', 'runs', '--json']\n"
        "try: runpy.run_module('workbench', run_name='__main__')\n"
        "except SystemExit: print({'torch', 'gradio', 'pandas', 'transformers'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("}\nset()\n")


def test_help_names_the_commands_and_a_commands_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "iterative" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "Optimiser steps. (default: 84)" in " ".join(capsys.readouterr().out.split())


# -- runs -----------------------------------------------------------------------------------------------------------


def test_train_follows_the_run_to_its_end(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["train", "--workspace", str(workspace), "--task", "finish", "--name", "a", "--run.steps", "3"]
    assert main([*argv, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["name"], result["state"], result["metrics"]["accuracy"]) == ("a", "finished", 0.8)
    assert result["config"]["run"]["steps"] == 3
    assert "a  step 3/3  reward 0.500  accuracy 0.800" in err.splitlines()[-1]
    assert main(argv) == 0
    assert capsys.readouterr().out == "a-2: finished\n"


def test_a_broken_run_is_resumed_and_tells_from_where(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resume(run: runs.Run, **how: object) -> runs.Run:
        run.dir.set_status("finished", "6 steps", resumed_from=2, warnings=("skipped checkpoint-4",))
        return run

    at = ["--workspace", str(workspace)]
    assert main(["train", *at, "--task", "crash", "--name", "a"]) == 1
    assert "crashed, killed by signal 9" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(runs.Run, "resume", resume)
        assert main(["resume", "a", *at, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["resumed_from"] == 2
    assert "warning: skipped checkpoint-4" in err
    assert main(["resume", "a", *at]) == 2
    assert "is finished (6 steps)" in capsys.readouterr().err


def test_an_interrupt_stops_the_run(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_commands, "progress", interrupt)
    assert main(["train", "--workspace", str(workspace), "--task", "go_on", "--name", "a"]) == 130
    assert runs.open_run("a", workspace).status().state == "stopped"
    assert capsys.readouterr().err.endswith("interrupted\n")


def test_a_detached_run_is_listed_shown_and_stopped(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--workspace", str(workspace), "--json"]
    assert main(["train", *at, "--task", "go_on", "--name", "a", "--detach"]) == 0
    assert answer(capsys)["name"] == "a"
    assert main(["runs", *at]) == 0
    (listed,) = answer(capsys)["runs"]
    assert (listed["name"], listed["state"], listed["scheme"]) == ("a", "running", "process")
    for argv in (["runs", "stop", "a", *at], ["runs", "show", "a", *at]):
        assert main(argv) == 0
        assert answer(capsys)["state"] == "stopped"
    assert main(["runs", "stop", "a", *at]) == 2
    assert "already stopped" in capsys.readouterr().err


def test_compare_prints_a_row_a_run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        *("compare", "--workspace", str(workspace), "--task", "finish"),
        *("--schemes", "outcome, process", "--seeds", "1"),
    ]
    assert main([*argv, "--json"]) == 0
    cost = {"seed": 0, "base_accuracy": 0.3, "seconds": 4.5, "rollouts": 192}
    assert answer(capsys)["rows"] == [
        {"scheme": "outcome", "final_accuracy": 0.6, "rollouts_to_65": None} | cost,
        {"scheme": "process", "final_accuracy": 0.8, "rollouts_to_65": 128} | cost,
    ]
    assert main(argv) == 0
    assert {run.name for run in list_runs(workspace)} == {
        f"{name}-{scheme}-0" for name in ("compare", "compare-2") for scheme in ("outcome", "process")
    }
    out, err = capsys.readouterr()
    assert "--name compare-2" in err
    firsts = [line.split()[:2] for line in out.splitlines()[1:]]
    assert firsts == [["outcome", "0"], ["process", "0"], ["outcome", "mean"], ["process", "mean"]]
    assert "mean (1 of 1 reached 65 %)" in out.splitlines()[4]


# -- groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def group_file(tmp_path: Path) -> Path:
    """Two answers to 7 + 5, one token a character, the second one wrong."""
    texts = "Step 1: 7 + 5 = 12\nAnswer: 12", "Step 1: 7 + 5 = 13\nAnswer: 13"
    group = Group(
        "Start with 7, add 5.",
        tuple(Rollout((*map(ord, text), 0), (*text, "<end>"), finished=True) for text in texts),
        {"start": 7, "operations": [["+", 5]], "answer": "12"},
        "tiny",
    )
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group.to_json()))
    return file


def test_score_a_stored_group(group_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["score", "--group", str(group_file), "--html", str(tmp_path / "map.html")]
    assert main([*argv, "--json"]) == 0
    result = answer(capsys)
    right, wrong = result["rollouts"]
    assert [step["text"] for step in right["steps"]] == ["Step 1: 7 + 5 = 12\n", "Answer: 12"]
    assert [step["scores"]["step_correctness"] for step in wrong["steps"]] == [0.0, 1.0]  # blamed once
    # Rewards 1, 1, 0, 1: mean 3/4, std 1/2, so r̃ = 0.5 and -1.5 (but for the 1e-4). A is the sum over steps to come.
    assert [step["advantage"] for step in right["steps"]] == pytest.approx([1.0, 0.5], abs=1e-3)
    assert [step["advantage"] for step in wrong["steps"]] == pytest.approx([-1.0, 0.5], abs=1e-3)
    assert len(right["advantages"]) == len(right["token_ids"])
    assert (right["outcome"], wrong["outcome"]) == (1.0, 0.0)
    assert "<html" in (tmp_path / "map.html").read_text().lower()
    assert main(["score", "--group", str(group_file), "--html", str(tmp_path / "no" / "map.html"), "--json"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out) == result  # what was computed is not lost
    assert "No such file or directory" in told.err


def test_sample_and_score_the_embedded_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--method.sampling.num_generations", "2", "--method.sampling.max_completion_length", "6", "--seed", "3"]
    assert main(["sample", *small, "--index", "5", "--json"]) == 0
    text = capsys.readouterr().out
    assert Group.from_json(json.loads(text)).sampling["seed"] == 3
    (tmp_path / "group.json").write_text(text)
    assert main(["score", "--group", str(tmp_path / "group.json"), "--json"]) == 0
    assert len(answer(capsys)["rollouts"]) == 2


@pytest.mark.parametrize("command", ["sample", "score", "step-values"])
@pytest.mark.parametrize("flags", [["--index", "-1"], ["--index", "100000"], ["--text", ""]])
def test_what_is_sampled_is_looked_at_before_the_policy_is_loaded(
    command: str, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.policies.load.load_policy", lambda *_, **how: pytest.fail("loaded"))
    assert main([command, *flags]) == 2
    assert flags[0] in capsys.readouterr().err
