"""What somebody's file holds, and which of its columns is what."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.data import read_groups
from workbench.data.opening import look_at, recognise_advantages
from workbench.errors import TaskError

ASK = {"role": "user", "content": "3 trays of 402?"}
SAID = {"role": "assistant", "content": "1206"}
TRACE = {"task": {"data": {}}, "nodes": [{"parent": None, "sampled": True, "message": SAID}]}
TRL = {"step": 3, "prompt": "3 trays of 402?", "completion": "1206", "accuracy": 1.0, "advantage": 0.7}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("row", "holds", "columns", "mapping"),
    [
        ({"problem": "1 + 1?", "answer": "2"}, "problems", {"prompt": "problem", "answer": "answer"}, {}),
        (
            {"Problem Text": "1 + 1?", "gold_value": 2, "level": 3},
            "problems",
            {"prompt": "Problem Text", "answer": "gold_value"},
            {"prompt": "Problem Text", "answer": "gold_value"},
        ),
        (
            {"Question": "1 + 1?", "meta": {"groundTruth": "2"}},
            "problems",
            {"prompt": "Question", "answer": "meta.groundTruth"},
            {"prompt": "Question", "answer": "meta.groundTruth"},
        ),
        (
            {"query": "1 + 1?", "model_response": "2", "points": 1, "label": "2"},
            "rollouts",
            {"prompt": "query", "completion": "model_response", "answer": "label", "reward": "points"},
            {"prompt": "query", "completion": "model_response", "answer": "label", "reward": "points"},
        ),
        (
            {"prompt": [ASK], "reward_model": {"ground_truth": {"numbers": [1], "target": 1}}},
            "problems",
            {"prompt": "prompt"},
            {},
        ),
        (
            {"question": "1 + 1?", "model_answer": "3", "extracted_answer": "3", "gold_answer": "2", "answer_id": "7"},
            "problems",
            {"prompt": "question", "answer": "gold_answer"},
            {"answer": "gold_answer"},
        ),
        (
            {"problem": "1 + 1?", "solution": "One more than 1.", "final_answer": "2", "answer_type": "Numerical"},
            "problems",
            {"prompt": "problem", "answer": "final_answer"},
            {"answer": "final_answer"},
        ),
        ({"problem": "1 + 1?", "solution": "One more than 1. " * 20}, "problems", {"prompt": "problem"}, {}),
        ({"problem": "1 + 1?", "gold_answer": "2", "target": "3"}, "problems", {"prompt": "problem"}, {}),  # asked
        (
            {"question": "1 + 1?", "reply": "2", "score_a": 1, "score_b": 0},
            "rollouts",
            {"prompt": "question", "completion": "reply"},
            {"prompt": "question", "completion": "reply"},
        ),
        ({"prompt": "1 + 1?", "completion": "2"}, "problems", {"prompt": "prompt"}, {}),  # of a prompt each: to learn
        ({"instruction": "add", "input": "1 and 1", "output": "2"}, "problems", {}, {}),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "problems", {"prompt": "prompt"}, {}),
        (
            {"prompt": "1 + 1?", "completion": "2", "reward": 0.5},
            "rollouts",
            {"prompt": "prompt", "completion": "completion", "reward": "reward"},
            {},
        ),
        ({"problem": "1 + 1?", "steps": ["2"], "label": -1}, "rollouts", {}, {}),
        (TRL, "rollouts", {}, {}),
        (TRACE, "rollouts", {}, {}),
    ],
)
def test_what_a_file_holds_is_found_out_from_its_columns(
    tmp_path: Path, row: dict[str, Any], holds: str, columns: dict[str, str], mapping: dict[str, str]
) -> None:
    look = look_at(write(tmp_path, row))
    assert (look.holds, look.columns, look.mapping, look.missing) == (holds, columns, mapping, None)


@pytest.mark.parametrize("row", [{"prompt": "1 + 1?", "completion": "2"}, {"messages": [ASK, SAID]}])
def test_several_answers_to_one_prompt_are_rollouts(tmp_path: Path, row: dict[str, Any]) -> None:
    assert look_at(write(tmp_path, row)).holds == "problems"
    assert look_at(write(tmp_path, row, row)).holds == "rollouts"


def test_a_column_that_nothing_tells_is_asked_for_and_what_is_chosen_goes_before_a_guess(tmp_path: Path) -> None:
    file = write(tmp_path, {"text": "1 + 1?", "said": "2", "target": "3", "n": 1})
    look = look_at(file)
    assert (look.missing, look.names, look.columns) == ("prompt", ("text", "said", "target", "n"), {})
    asked = look_at(file, {"prompt": "text"})
    assert (asked.holds, asked.missing, asked.columns["answer"]) == ("problems", None, "target")
    told = look_at(file, {"prompt": "text", "completion": "said", "answer": ""})
    assert (told.holds, told.columns) == ("rollouts", {"prompt": "text", "completion": "said"})
    with pytest.raises(TaskError, match=r"rows\.jsonl line 1 has no 'texts'; did you mean 'text'"):
        look_at(file, {"prompt": "texts"})


def test_bad_rows_are_passed_over_and_a_file_of_nothing_else_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, TRL)
    file.write_text('{"prompt": \n' + file.read_text())
    assert look_at(file).holds == "rollouts"
    file.write_text('{"prompt": \n')
    with pytest.raises(TaskError, match="line 1"):
        look_at(file)


@pytest.mark.parametrize(
    ("logged", "said", "within"),
    [
        # rewards 1, 0, 0: mean 1/3, std 0.57735
        ([1.1545, -0.5773, -0.5773], "`outcome` ÷ std", 5e-4),
        ([2 / 3, -1 / 3, -1 / 3], "`outcome`, not ÷ std", 1e-7),
        ([1.0, -0.5, -0.5], "`outcome`, each against the others (RLOO)", 1e-7),
        ([1.0, -1.0, -1.0], None, 0),
    ],
)
def test_the_files_own_advantages_are_told_from_its_rewards(
    tmp_path: Path, logged: list[float], said: str | None, within: float
) -> None:
    rows = [
        {**TRL, "completion": str(n), "accuracy": float(n == 0), "advantage": advantage}
        for n, advantage in enumerate(logged)
    ]
    found = recognise_advantages(read_groups(write(tmp_path, *rows), tokenizer="words").groups)
    assert (found and found.said) == said
    assert found is None or found.within <= within
