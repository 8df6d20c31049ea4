"""The reward clinic: hand-made faults are named, right rewards pass, the recipes' known faults are found."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from workbench.checks.clinic import FAMILIES, STRATEGIES, ClinicReport, check_rewards, clinic_rows, write_row
from workbench.cli import main
from workbench.rewards import RewardConfig, Sandbox
from workbench.rewards.builtin import BUILTINS

RECIPE = Path(__file__).parent / "data" / "recipe_rewards.py"


def test_each_family_has_rows_of_right_and_wrong_answers_with_a_public_thread() -> None:
    rows = clinic_rows()
    assert {(row.family, row.right) for row in rows} == set(product(FAMILIES, (True, False)))
    assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", row.thread) for row in rows)
    assert write_row("[open]a[close][from][wrong][to-]", "tags", "1209") == (
        "<reasoning>\na\n</reasoning>\n<answer>\n2310\n</answer>"
    )


def test_the_step_reward_of_the_embedded_task_is_tried_too() -> None:
    def begins(prompt, step, start, operations, **columns):
        return float("= 10" in step)

    (right, wrong) = check_rewards(["step_correctness", begins]).rewards
    assert (right.tried, right.findings) == (7, ())
    assert len(wrong.findings) == 2


# ── hand-made faults ─────────────────────────────────────────────────────────────────────────────────────────────


def no_dotall(completions, **columns):
    pattern = r"<reasoning>\n.*\n</reasoning>\n<answer>\n.*\n</answer>\s*"
    return [float(bool(re.fullmatch(pattern, text))) for text in completions]


def no_comma(completions, answer, **columns):
    found = [re.search(r"#### ([-+]?\d+)", text) for text in completions]
    return [float(match is not None and match[1] == right) for match, right in zip(found, answer, strict=True)]


def last_number(completions, answer, log_extra, **columns):
    numbers = [re.findall(r"-?\d+", text) for text in completions]
    log_extra("extracted_answer", [found[-1] if found else None for found in numbers])
    return [float(found[-1:] == [right]) for found, right in zip(numbers, answer, strict=True)]


def contains(completions, answer, **columns):
    return [float(right in text) for text, right in zip(completions, answer, strict=True)]


def constant(completions, **columns):
    return [1.0] * len(completions)


def wrong_sign(completions, answer, **columns):
    return [float(not text.endswith(f"#### {right}")) for text, right in zip(completions, answer, strict=True)]


CALLS = Counter[str]()


def stateful(completions, answer, **columns):
    CALLS["all"] += 1
    return [CALLS["all"] + float(right in text) for text, right in zip(completions, answer, strict=True)]


def by_neighbours(completions, answer, **columns):
    right = [float(text.endswith(f"#### {one}")) for text, one in zip(completions, answer, strict=True)]
    return [score - sum(right) / len(right) for score in right]


def fails_on_empty(completions, answer, **columns):
    return [float(text.split()[-1] == right) for text, right in zip(completions, answer, strict=True)]


@pytest.mark.parametrize(
    ("reward", "name", "word"),
    [
        (no_dotall, "format", "re.DOTALL"),
        (no_comma, "numbers", "take commas out"),
        (last_number, "extraction", "it took '.*' for the answer.*not the last number"),
        (contains, "extraction", "not the whole text"),
        (constant, "constant", ""),
        (wrong_sign, "wrong sign", "turn its sign"),
        (stateful, "state", "keep nothing"),
        (by_neighbours, "order", "by itself"),
        (fails_on_empty, "output", ""),
    ],
)
def test_a_hand_made_fault_is_named(reward, name, word) -> None:
    (report,) = check_rewards([reward]).rewards
    named = [finding for finding in report.findings if finding.name == name and finding.level != "ok"]
    assert any(re.search(word, finding.text) for finding in named), report.findings


def test_a_reward_over_its_deadline_is_called_that_and_nothing_else(
    worker: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not called again: each call would take as long."""
    config = RewardConfig(name="endless", kind="outcome", code="def endless(completions, **c):\n    while True: pass\n")
    monkeypatch.setattr(worker, "deadline", 0.5)
    (report,) = check_rewards([config], worker=worker).rewards
    assert [(finding.name, finding.level) for finding in report.findings] == [("not tried", "stop")]
    assert "0.5 s" in report.findings[0].meaning
    assert set(report.scores.values()) == {None}


def test_right_rewards_pass_as_the_built_in_ones_are() -> None:
    for name in BUILTINS:
        if not name.startswith("trl:"):
            report = check_rewards([name])
            assert report.level == "ok", report


# ── the recipes ──────────────────────────────────────────────────────────────────────────────────────────────────


def recipe(*names: str) -> ClinicReport:
    code = RECIPE.read_text(encoding="utf-8")
    return check_rewards([RewardConfig(name=name, kind="outcome", code=code) for name in names])


def test_the_gsm8k_recipes_known_faults_are_found() -> None:
    names = ["correctness", "int", "strict_format", "soft_format", "xmlcount"]
    report = recipe(*(f"{name}_reward_func" for name in names))
    by_name = dict(zip(names, report.rewards, strict=True))
    assert [one.looks_at for one in report.rewards] == ["answer", *["format"] * 4]
    advice = {name: [f.advice for f in one.findings if f.level != "ok"] for name, one in by_name.items()}
    assert sum("re.DOTALL" in text for text in advice["strict_format"]) == 3
    assert sum("re.DOTALL" in text for text in advice["soft_format"]) == 4
    assert sum("count each tag" in text for text in advice["soft_format"]) == 2
    assert len(advice["xmlcount"]) == 1  # the whole text is charged for where no line break follows the last tag
    assert any("thousands comma" in f.meaning for f in by_name["correctness"].findings)
    # 2 + 0.5 + 0.5 + 0 (its tags want no line break) + 0.5, and without the right answer's 2 and the integer's 0.5
    assert (report.totals["perfect"], report.totals["near miss"], report.totals["format only"]) == (3.5, 1.5, 1.0)
    assert [f.name for f in report.together if f.level == "stop"] == ["no common form"]


def test_open_r1s_two_rewards_share_no_form_and_one_rewards_a_gold_that_cannot_be_read() -> None:
    report = recipe("accuracy_reward", "format_reward")
    assert [one.forms for one in report.rewards] == [("think_box", "boxed"), ("think_answer",)]
    assert "no common form" in [f.name for f in report.together]
    assert any("the right answer of the data cannot be read" in f.meaning for f in report.rewards[0].findings)
    assert any("begin" in f.meaning and f.name == "template" for f in report.rewards[1].findings)


def test_weights_are_seen_in_the_sum() -> None:
    config = RewardConfig(name="gsm8k_answer", kind="outcome", weight=-1)
    report = check_rewards([config, RewardConfig(name="length_target", kind="outcome", weight=0)])
    assert {(f.name, f.level) for f in report.together} >= {("wrong sign", "stop"), ("zero weight", "ok")}
    assert [report.totals[name] for name in STRATEGIES] == [-1, -1, -1, 0, 0, 0, 0]


def test_a_reward_that_no_row_fits_is_not_called_right() -> None:
    def elsewhere(completions, column_of_another_file, **columns):
        return [1.0 for _ in completions]

    report = check_rewards([elsewhere, "answer_correctness"])
    assert [(one.tried > 0, bool(one.findings)) for one in report.rewards] == [(False, True), (True, False)]
    assert re.search("answer_correctness: no fault.*elsewhere could not", report.headline)


def test_ci_fails_with_a_junit_report_and_passes_for_a_right_reward(tmp_path, capsys) -> None:
    path = tmp_path / "report.xml"
    faulty = ["check-reward", "--clinic", f"{RECIPE}::strict_format_reward_func", "--ci", "--report", str(path)]
    assert main(faulty) == 1
    suites = ET.parse(path).getroot()
    assert [suite.get("name") for suite in suites] == ["strict_format_reward_func", "together"]
    assert int(suites[0].get("failures") or 0) == len(suites[0].findall("testcase/failure")) == 4
    assert main(["check-reward", "--clinic", "gsm8k_answer", "--ci"]) == 0
    assert "gsm8k_answer looks at the answer" in capsys.readouterr().out
