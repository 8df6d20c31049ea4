"""Source code of rewards: functions saved in the workspace, and what code defines without being run."""

from pathlib import Path

import pytest

from workbench.errors import RewardCodeError
from workbench.rewards.source import LARGEST, kind_in, reward_functions, save_reward, saved_rewards

STEP = "def mine(prompt, step, **columns):\n    return 1.0\n"
OTHER = STEP.replace("1.0", "2.0")
OUTCOME = "def whole(prompts, completions, **columns):\n    return [1.0] * len(prompts)\n"


def test_a_function_is_a_file_of_its_name(tmp_path: Path) -> None:
    assert save_reward(tmp_path, "mine", STEP) == tmp_path / "rewards" / "mine.py"
    save_reward(tmp_path, "mine", OTHER)
    save_reward(tmp_path, "whole", OUTCOME)
    (tmp_path / "rewards" / "by_hand.py").write_text(OUTCOME)
    (tmp_path / "rewards" / "notes.txt").write_text("x")
    assert saved_rewards(tmp_path) == ["by_hand", "mine", "whole"]
    assert (tmp_path / "rewards" / "mine.py").read_text() == OTHER
    for code in (" \n", "#" * (LARGEST + 1)):
        with pytest.raises(RewardCodeError, match="bytes"):
            save_reward(tmp_path, "mine", code)


@pytest.mark.parametrize("name", ["", "../../x", "a/b", "a.b", "1a", "x" * 81, ".deleted", "nul\0", "é"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RewardCodeError, match="cannot be a saved reward's name"):
        save_reward(tmp_path, name, STEP)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (STEP, "step"),
        (OUTCOME, "outcome"),
        ("def f(prompts, completions, steps, **c): ...", "step"),
        ("def f(prompts, completions, *, step=1, **c): ...", "outcome"),
        ("def _help(step): ...\ndef f(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef reward(completions, **c): ...", "outcome"),
        ("def a(step): ...\ndef b(completions, **c): ...", None),
        ("class A:\n    def __call__(self, completions, **c): ...\nreward = A()", "outcome"),
        ("x = 1", None),
        ("def f(", None),
    ],
)
def test_a_functions_kind_is_read_from_its_parameters(code: str, kind: str | None) -> None:
    assert kind_in(code, "mine") == kind


def test_the_reward_functions_among_a_recipes_are_found() -> None:
    code = "def extract(text): ...\ndef right(prompts, completions, answer, **kwargs): ...\ndef count(text): ...\n"
    code += "def tags(completions, **kwargs): ...\ndef one(prompt, step, **c): ...\ndef closed(completions): ...\n"
    assert reward_functions(code) == ["right", "tags", "one"]
