"""How rows of other layouts become a task's: columns, template, filter, limits, splits and draws."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from workbench.config import TaskSection
from workbench.data import load_rows, load_task, read_rows, tasks
from workbench.data.formats import recognise
from workbench.data.kinds import select_rows
from workbench.data.read import Row
from workbench.errors import ConfigError, TaskError
from workbench.runs.check import checked
from workbench.training.methods import RunConfig

USER, ASSISTANT = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [USER],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 0},
}


def put(file: Path, rows: list[dict[str, Any]]) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"question": f"{n} + 1?", "answer": n + 1, "level": n % 5} for n in range(count)]


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "layout", "columns"),
    [
        (VERL, "verl", {"prompt": [USER], "answer": "2"}),
        (
            {"instruction": "Add.", "input": "1, 1", "output": "2"},
            "alpaca",
            {"prompt": "Add.\n\n1, 1", "completion": "2"},
        ),
        ({"instruction": "Add.", "input": "", "output": "2"}, "alpaca", {"prompt": "Add.", "completion": "2"}),
        (
            {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}], "system": "Add."},
            "sharegpt",
            {"messages": [{"role": "system", "content": "Add."}, USER, ASSISTANT]},
        ),
        ({"conversations": [{"from": "human", "value": "1 + 1?"}]}, "sharegpt", {"prompt": [USER]}),
        ({"conversations": [USER, ASSISTANT]}, "sharegpt", {"messages": [USER, ASSISTANT]}),
        ({"messages": [USER], "answer": "2"}, "messages", {"prompt": [USER], "answer": "2"}),
        ({"input": "1 + 1?", "label": "2"}, "input", {"prompt": "1 + 1?"}),
        ({"input": "1 + 1?", "output": "2", "score": 1.0}, "input", {"prompt": "1 + 1?", "completion": "2"}),
        (
            {"question": "1 + 1?", "options": ["A)1", "B)2"], "rationale": "Add.", "correct": "B"},
            "choices",
            {"prompt": "1 + 1?\nA)1\nB)2", "answer": "B"},
        ),
        (
            {"question": "1 + 1?", "options": "A) $1$ B) $2$", "Answer": "B"},
            "choices",
            {"prompt": "1 + 1?\nA) $1$ B) $2$", "answer": "B"},
        ),
        (
            {"question": "1 + 1?", "choices": ["one", "two"], "answer": 1},
            "choices",
            {"prompt": "1 + 1?\nA. one\nB. two", "answer": "B"},
        ),
        (
            {"question": "1 + 1?", "choices": {"text": ["one", "two"], "label": ["1", "2"]}, "answerKey": "2"},
            "choices",
            {"prompt": "1 + 1?\n1. one\n2. two", "answer": "2"},
        ),
        (
            {"question": "1 + 1?", "options": {"A": "one", "B": "two"}, "answer": "two"},
            "choices",
            {"prompt": "1 + 1?\nA. one\nB. two", "answer": "B"},
        ),
        (
            {"question": "1 + 1? A. one B. two", "options": ["A. one", "B. two"]},
            "choices",
            {"prompt": "1 + 1? A. one B. two"},
        ),
        ({"question": "1 + 1?", "options": [1, 2], "answer": "2"}, "", {"answer": "2"}),
        ({"messages": [USER, ASSISTANT]}, "", {"messages": [USER, ASSISTANT]}),  # TRL's own columns stay as they are
        ({"prompt": "a", "chosen": "b", "rejected": "c", "input": "d"}, "", {"prompt": "a"}),
        ({"conversations": [{"from": "nobody", "value": "x"}], "prompt": "a"}, "", {"prompt": "a"}),
    ],
)
def test_layouts_are_recognised(row: dict[str, Any], layout: str, columns: dict[str, Any]) -> None:
    name, made = recognise(row)
    assert name == layout
    assert {column: made[column] for column in columns} == columns
    assert {column: made[column] for column in row if column not in columns} == {
        column: value for column, value in row.items() if column not in columns
    }


# ── columns and template ─────────────────────────────────────────────────────────────────────────────────────────


def test_columns_are_taken_from_objects_and_lists_and_the_template_writes_the_prompt(tmp_path: Path) -> None:
    row = {"meta": {"q": {"text": "1 + 1?"}}, "messages": [USER], "truth": [5, 2], "a.b": "dotted"}
    task = load_task(
        put(tmp_path / "rows.jsonl", [row] * 2),
        columns={"prompt": "meta.q.text", "answer": "truth.-1", "first": "messages.0.content", "dotted": "a.b"},
        prompt_template=r"{{Q}} {meta.q.text} {truth} {meta.q.text:.3}\nAnswer:",
    )
    assert task[0].prompt == "{Q} 1 + 1? [5, 2] 1 +\nAnswer:"
    assert {name: task[0].columns[name] for name in ("answer", "first", "dotted")} == {
        "answer": "2",
        "first": "1 + 1?",
        "dotted": "dotted",
    }
    assert (task.kind, task.can_check) == ("prompts", True)  # the column 'messages' is not what is asked


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"columns": {"prompt": "qestion"}},
            r"task\.columns: line 1 has no 'qestion'; did you mean 'question'\?",
        ),
        ({"columns": {"answer": "answer.x"}}, r"task\.columns: line 1 has no 'answer\.x'"),
        ({"prompt_template": "{qestion}"}, r"task\.prompt_template: line 1 has no 'qestion'; did you mean 'question'"),
        ({"filter": "levle > 1"}, r"task\.filter: no row has the column 'levle'; did you mean 'level'\?"),
        ({"filter": "level > 9"}, r"task\.filter: none of the 20 rows of .* is left; allow more"),
        ({"max_prompt_characters": 3}, r"task\.max_prompt_characters: none of the 20 rows"),
        ({"held_out_rows": 20}, r"task\.held_out_rows: 20 leaves none of 20 rows to train on; lower it"),
        ({"split": "test"}, r"rows\.jsonl is one file, which has no split 'test'; leave the split out"),
        ({"held_out_split": "test"}, r"rows\.jsonl is one file, which has no split 'test'; leave the split out"),
    ],
)
def test_what_rows_do_not_have_is_named(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_task(put(tmp_path / "rows.jsonl", numbered(20)), **how)


# ── which rows ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("level >= 3 and subject in ['algebra', 'number theory']", {"level": "3", "subject": "number theory"}, True),
        ("level >= 3 and subject in ['algebra']", {"level": 2, "subject": "algebra"}, False),
        ("level > 3", {"level": None}, False),
        ("meta.level == 3", {"meta": {"level": 3.0}}, True),
        ("ok == True", {"ok": True}, True),
        ("name.isnull()", {"name": None}, True),
        ("text.str.contains('12')", {"text": "x0123"}, True),
        ("date < '2024-05'", {"date": "2023-12-01"}, True),
        ("n not in [1, 2]", {"n": 3}, True),
        ("level >= 3 or level < 1", {"level": 0}, True),
    ],
)
def test_filters_hold_as_worked_by_hand(text: str, values: dict[str, Any], holds: bool) -> None:
    indices, skipped = select_rows([Row("row 1", values)], TaskSection(filter=text))
    assert (list(indices), skipped["filter"]) == (([0], 0) if holds else ([], 1))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("level >", "character"),
        ("__import__('os').system('x') == 1", "cannot be called"),
        ("name.to_csv('x')", "name.to_csv"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_when_rows_are_read(text: str, named: str) -> None:
    assert RunConfig.parse({"task": {"filter": text}}).task.filter == text  # a run of another version opens
    with pytest.raises(TaskError, match=f"task.filter: .*{named}"):
        select_rows([Row("row 1", {})], TaskSection(filter=text))
    with pytest.raises(TaskError, match=r"task\.filter "):  # whose values the operator does not take
        select_rows([Row("row 1", {"level": "Level 5"})], TaskSection(filter="level > 3"))


def test_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [*numbered(20), {"question": "long " * 50, "answer": 1, "level": 3}]
    task = load_task(put(tmp_path / "rows.jsonl", rows), filter="level in [3, 4]", max_prompt_characters=100)
    # Levels 3 and 4 are two of each five of the twenty, of which the last tenth (one) is held out; the long row has 3.
    assert (len(task), len(task.held_out), task.skipped) == (7, 1, {"filter": 12, "max_prompt_characters": 1})
    assert [example.prompt for example in task.examples][:3] == ["3 + 1?", "4 + 1?", "8 + 1?"]


def test_rows_are_drawn_by_a_seed_and_held_out_rows_are_no_training_rows(tmp_path: Path) -> None:
    file = put(tmp_path / "rows.jsonl", numbered(100))
    task = load_task(file, rows=10, held_out_rows=20)
    order = random.Random("rows/0").sample(range(100), 100)
    assert [example.prompt for example in task.examples] == [f"{n} + 1?" for n in order[:10]]
    assert [example.prompt for example in task.held_out] == [f"{n} + 1?" for n in order[80:]]
    assert load_task(file, rows=10, held_out_rows=20).examples == task.examples
    assert load_task(file, rows=10, held_out_rows=20, sample_seed=1).examples != task.examples
    first = load_task(file, rows=10, held_out_rows=20, sample_seed=None)
    assert [example.prompt for example in first.examples] == [f"{n} + 1?" for n in range(10)]
    assert first.held_out[0].prompt == "80 + 1?"
    assert len(load_task(file, rows=1000)) == 90  # as many as there are


def test_splits_of_a_folder_are_trained_on_and_held_out(tmp_path: Path) -> None:
    rows = numbered(12)
    for split, part in (("train", rows[:6]), ("test", rows[6:9]), ("dev", rows[9:])):
        put(tmp_path / "set" / f"{split}.jsonl", part)
    folder = str(tmp_path / "set")
    task = load_task(folder)
    assert [[row.prompt[0] for row in part] for part in (task.examples, task.held_out)] == [[*"012345"], [*"678"]]
    other = load_task(folder, split="test", held_out_split="validation")
    assert [len(other), len(other.held_out), other[0].prompt] == [3, 3, "6 + 1?"]
    drawn = load_task(folder, rows=2, held_out_rows=1)
    assert (len(drawn), len(drawn.held_out)) == (2, 1)


def test_an_embedded_task_is_drawn_from_but_not_mapped() -> None:
    task, whole = load_task("gsm8k", rows=5, held_out_rows=2), load_task("gsm8k")
    assert (len(task), len(task.held_out)) == (5, 2)
    assert list(task.examples) == [whole[i] for i in random.Random("rows/0").sample(range(1500), 5)]
    chain = load_task("chain-arithmetic", rows=3, sample_seed=None)
    assert chain.rows("pairs")[2] == load_task("chain-arithmetic").rows("pairs")[2]
    with pytest.raises(TaskError, match=r"task\.columns: the embedded task 'gsm8k' has its own columns and splits"):
        load_task("gsm8k", columns={"prompt": "question"})


def test_rows_beyond_those_that_a_run_takes_are_used_too(tmp_path: Path) -> None:
    task = load_task(put(tmp_path / "rows.jsonl", numbered(3000)))
    some = task.some("prompts", 1000, seed=0)
    numbers = [int(example.prompt.split()[0]) for example in some]
    assert (len(set(numbers)), numbers) == (1000, sorted(numbers))
    assert max(numbers) > 2600  # of 2,700; the first thousand alone would be below 1,000
    assert task.some("prompts", 1000, seed=1)[0:50] != some[0:50]
    assert task.some("prompts", 5000, seed=0) is task.examples
    embedded = load_task("gsm8k")
    assert list(embedded.some("prompts", 3, seed=4)) == [embedded[i] for i in range(3)]


def test_a_run_that_rows_do_not_fit_is_refused_by_field_and_reads_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path / "rows.jsonl", [{"q": f"{n} + 1?", "a": n + 1} for n in range(20)])
    read: list[Any] = []
    monkeypatch.setattr(tasks, "read_rows", lambda *how: read.append(how) or read_rows(*how))
    rewards = {"rewards": [{"name": "answer_correctness", "kind": "outcome"}], "credit": {"scheme": "outcome"}}
    task = {"name": file, "columns": {"prompt": "q", "answer": "a"}}
    checked(RunConfig.parse({"task": task, "method": rewards}))
    assert len(read) == 1
    with pytest.raises(TaskError, match=r"^task\.columns: line 1 has no 'b'"):
        checked(RunConfig.parse({"task": task | {"columns": {"prompt": "q", "answer": "b"}}, "method": rewards}))
    with pytest.raises(TaskError, match=r"^task\.data_columns: line 1 has no 'good'"):
        load_rows(TaskSection(name="gsm8k", data=file, data_columns={"chosen": "good"}))


# ── the section ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_columns_may_be_written_as_text_and_come_back_from_yaml() -> None:
    config = RunConfig.parse(
        {"task": {"name": "gsm8k", "columns": "prompt=question, answer=reward_model.ground_truth"}}
    )
    assert config.task.columns == {"prompt": "question", "answer": "reward_model.ground_truth"}
    assert RunConfig.from_yaml(config.to_yaml()) == config
    assert config.task.reads() == ["columns"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"columns": "question"}, "task.columns: write name=value"),
        ({"rows": 0}, "task.rows: must be at least 1"),
    ],
)
def test_a_section_that_means_nothing_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        RunConfig.parse({"task": {"name": "gsm8k", **fields}})
