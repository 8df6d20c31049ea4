"""``preflight`` and ``probe`` from the shell, on groups from files so that nothing is sampled."""

import json

import pytest

from workbench.assets import FIRST_GROUP
from workbench.checks import split_step_demo
from workbench.cli import main


def test_probe_prints_its_table_and_its_rows(capsys, tmp_path):
    assert main(["probe", "--demo", "--schemes", "process,outcome"]) == 0
    shown = capsys.readouterr().out
    assert "+1.95*" in shown
    file = tmp_path / "group.json"
    file.write_text(json.dumps(split_step_demo()[0].to_json()))
    rewards = ["--reward", "length_and_mistake", "--method.pattern.regex", r"\n", "--method.pattern.kind", "ends"]
    assert main(["probe", "--group", str(file), "--schemes", "sum", *rewards, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    padded = next(row for row in rows if row["edit"] == "pad with filler")
    assert padded["pays_for_no_content"]  # 0.01 a character pays for filler, in whatever scheme sums it


def test_preflight_says_what_to_look_at_and_fails_where_nothing_would_be_learnt(capsys, tmp_path):
    report = tmp_path / "found.json"
    assert main(["preflight", "--group", str(FIRST_GROUP), "--json", "--report", str(report)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads(report.read_text())
    assert data["level"] == "ok"
    assert {"steps per answer", "truncated", "groups without spread"} <= {one["name"] for one in data["findings"]}
    # None of them begins with a <think> block.
    alike = ["--reward", "think_format", "--method.credit.scheme", "outcome", "--json"]
    assert main(["preflight", "--group", str(FIRST_GROUP), *alike]) == 1
    assert json.loads(capsys.readouterr().out)["level"] == "stop"


@pytest.mark.parametrize("command", ["preflight", "probe", "score", "check-reward"])
def test_every_command_has_the_configurations_deadline(capsys, tmp_path, command):
    file = tmp_path / "slow.py"
    file.write_text("import time\ntime.sleep(1)\ndef slow(completions, **_):\n    time.sleep(30)\n")
    flags = ["--group", str(FIRST_GROUP), "--method.credit.scheme", "outcome", "--method.reward_deadline", "0.5"]
    if command == "check-reward":
        flags = ["gsm8k", "--limit", "2", "--method.reward_deadline", "0.5"]
    assert main([command, *flags, "--reward-file", f"{file}:outcome"]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert "deadline of 0.5 s at line 4" in said
    assert "method.reward_deadline" in said


@pytest.mark.training
def test_preflight_samples_when_no_group_is_given(capsys):
    flags = ["--prompts", "2", "--method.sampling.num_generations", "2", "--method.sampling.max_completion_length", "8"]
    assert main(["preflight", *flags, "--json"]) in (0, 1)
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["truncated"]["value"] == "100%"
