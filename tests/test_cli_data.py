"""The commands about people's own data, as text and as JSON."""

import io
import json

import pytest

from workbench.cli import main


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def test_a_group_of_a_file_goes_on_to_score(capsys, monkeypatch):
    group = run(capsys, "rollouts", "gsm8k", "--tokenizer", "tiny", "--show", "0")
    monkeypatch.setattr("sys.stdin", io.StringIO(group))
    scored = json.loads(run(capsys, "score", "--group", "-", "--task", "gsm8k", "--json"))
    assert [one["outcome"] for one in scored["rollouts"]] == [0.0, 0.0, 0.0, 1.0]
    assert [len(one["steps"]) for one in scored["rollouts"]] == [3, 5, 4, 4]


def test_a_tasks_own_rewards_are_checked_unless_others_are_given(capsys):
    checks = json.loads(run(capsys, "check-reward", "gsm8k", "--limit", "20", "--json"))["checks"]
    assert [check["reward"] for check in checks] == ["sums_hold", "answer_correctness"]


def test_code_from_a_file_runs_in_the_worker_and_its_worst_are_listed(capsys, tmp_path):
    code = tmp_path / "long.py"
    code.write_text("def long(prompts, completions, **columns):\n    return [len(text) for text in completions]\n")
    argv = ["check-reward", "gsm8k", "--reward-file", f"{code}:outcome", "--limit", "10", "--threshold", "200"]
    text = run(capsys, *argv, "--worst", "2")
    assert "long against correct" in text
    assert text.splitlines()[-3].split() == ["group", "rollout", "step", "score", "labelled", "text"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rollouts", "nothing.jsonl"], "nothing.jsonl"),
        (["rollouts", "gsm8k", "--limit", "2", "--show", "2"], "--show 2: gsm8k has groups 0 to 1"),
        (["check-reward", "nothing.jsonl"], "give the reward to check with --reward NAME"),
        (["check-reward", "gsm8k", "--preset", "none"], "--preset none: choose one of step-n"),
        (["check-reward", "gsm8k", "--labels", "none"], "no completion has the column 'none'; there are"),
    ],
)
def test_what_cannot_be_done_is_one_message(capsys, argv, message):
    assert main(argv) == 2
    assert message in capsys.readouterr().err
