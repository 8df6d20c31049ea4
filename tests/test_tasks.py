"""The embedded tasks and their teacher; tasks of files and of the Hub; how rows of other layouts become a task's."""

import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from datasets import Dataset

import workbench as wb
from tests.imported import put
from workbench.config import TaskSection
from workbench.data import chain_arithmetic, load_rows, load_task, preview_of, read_rows, tasks
from workbench.data.formats import recognise
from workbench.data.read import Row
from workbench.data.tasks import select_rows
from workbench.errors import TaskError, WorkbenchError
from workbench.rewards import score_group
from workbench.runs.check import check_config
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.methods import RunConfig
from workbench.views.heatmap import credit_payload


def test_a_chain_is_worked_as_its_prompt_says():
    chain = chain_arithmetic.Chain(7, (("add", 5), ("multiply by", 2), ("subtract", 4)))
    assert chain.prompt() == "Start with 7, add 5, multiply by 2, subtract 4.\n"
    assert chain.values == (12, 24, 20)
    answer = "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nStep 3: 24 - 4 = 20"
    assert chain_arithmetic.render(chain, chain.values) == f"{answer}\nAnswer: 20"
    tags = chain_arithmetic.render(chain, chain.values, "tags")
    assert tags == f"<reasoning>\n{answer}\n</reasoning>\n<answer>20</answer>"


@pytest.mark.parametrize("held_out", [False, True])
def test_problems_stay_in_range_and_are_the_same_each_time(held_out):
    for index in range(100):
        example = chain_arithmetic.example(index, held_out=held_out)
        assert example == chain_arithmetic.example(index, held_out=held_out)
        value, operations = example.columns["start"], example.columns["operations"]
        assert 4 <= len(operations) <= 8
        for symbol, operand in operations:
            value = {"+": value + int(operand), "-": value - int(operand), "*": value * int(operand)}[symbol]
            assert 0 <= value <= 99
            assert 2 <= int(operand) <= 9
        assert example.columns["answer"] == str(value)


def test_training_and_held_out_prompts_are_disjoint():
    train = {chain_arithmetic.example(i).prompt for i in range(500)}
    assert train.isdisjoint(chain_arithmetic.example(i, held_out=True).prompt for i in range(500))


@pytest.mark.parametrize("name", ["chain-arithmetic", "chain-arithmetic-tags"])
def test_an_embedded_task_checks_its_own_answers(name):
    task = load_task(name)
    row = task[3]
    style = "<answer>{}</answer>" if name.endswith("tags") else "Answer: {}"
    assert task.answer_is_right(style.format(row.columns["answer"]), row.columns)
    assert not task.answer_is_right(style.format("100"), row.columns)
    assert (len(task), len(task.held_out)) == (100_000, 1_000)


def test_gsm8k_comes_along_with_its_own_answers_right():
    task = load_task("gsm8k")
    assert (len(task), len(task.held_out)) == (1500, 300)
    columns = task[0].columns
    assert (columns.keys(), task[0].prompt) == ({"question", "answer", "solution"}, columns["question"])
    assert (columns["answer"], columns["solution"][-8:]) == ("72", "\n#### 72")
    assert task.answer_is_right("48 + 24 is\n#### 72.00", columns)
    assert not task.answer_is_right("#### 27", columns)
    for example in [*task.examples, *task.held_out]:
        assert task.answer_is_right(example.columns["solution"], example.columns)


ASKED = [{"role": "user", "content": "2?"}]


@pytest.mark.parametrize(
    ("rows", "held_out", "can_check"),
    [
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": ASKED, "answer": 4}], [(ASKED, "4")], True),
        ([{"prompt": "1 + 1 =", "answer": 2}], [], True),  # the only row is not measured on
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": "2 + 2 =", "answer": None}], [("2 + 2 =", None)], False),
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": "2 + 2 ="}], [("2 + 2 =", None)], False),
    ],
)
def test_a_file_is_a_task_whose_last_rows_are_held_out(tmp_path, rows, held_out, can_check):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)))
    task = load_task(str(file))
    assert [(row.prompt, row.columns) for row in task.examples] == [("1 + 1 =", {"answer": "2"})]
    assert [(row.prompt, row.columns.get("answer")) for row in task.held_out] == held_out
    assert task.can_check == can_check
    assert [reward.name for reward in task.rewards] == ["sums_hold", "answer_correctness"] * can_check
    assert (task.scheme, task.outcome_weight) == ("process", float(can_check))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Puts rows where data sets are taken from as from the Hub, which itself is out of reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return lambda file, rows: put(tmp_path / "owner" / "sums" / file, *rows)


def test_a_data_set_of_the_hub_is_a_task(hub):
    hub("train.jsonl", [{"prompt": f"{n} + 1 =", "answer": n + 1, "level": n / 2} for n in range(30)])
    task = load_task("hub:owner/sums")
    assert (task.name, len(task), len(task.held_out)) == ("hub:owner/sums", 27, 3)  # the last tenth
    assert (task[2].prompt, task[2].columns) == ("2 + 1 =", {"answer": "3", "level": 1.0})
    assert [example.prompt for example in task.held_out] == ["27 + 1 =", "28 + 1 =", "29 + 1 ="]


def test_answers_worked_as_gsm8ks_bring_its_rewards_and_the_split_of_the_hub_is_kept(hub):
    rows = [{"question": f"{n} + 1?", "answer": f"{n} + 1 = <<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"} for n in range(4)]
    hub("main/train.jsonl", rows)
    hub("main/test.jsonl", rows[:1])
    files = [{"split": split, "path": f"main/{split}.jsonl"} for split in ("train", "test")]
    card = json.dumps([{"config_name": "main", "data_files": files}])
    Path("owner/sums/README.md").write_text(f"---\nconfigs: {card}\n---\n")
    task, gsm8k = load_task("hub:owner/sums"), load_task("gsm8k")
    assert (task.pattern, task.rewards, task.checker) == (gsm8k.pattern, gsm8k.rewards, gsm8k.checker)
    assert (len(task), len(task.held_out), task[3].prompt) == (4, 1, "3 + 1?")
    # What the GSM8K recipe's own correctness function compares with is the result.
    assert task[3].columns == {"answer": "4", "solution": rows[3]["answer"]}


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch):
    repo_info = Mock(side_effect=TimeoutError)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", repo_info)
    with pytest.raises(TaskError, match="'owner/elsewhere'"):
        load_task("hub:owner/elsewhere")
    repo_info.assert_called_once()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "'nothing'.*chain-arithmetic"),
        ("hub:sums", "hub:OWNER/NAME"),
        ("hub:../sums", "hub:OWNER/NAME"),
        ("hub:owner/none", "hub:owner/none: "),
        ("hub:owner/sums/socratic", "'socratic'.*'default'"),
    ],
)
def test_a_data_set_that_is_not_there_is_said(hub, name, message):
    hub("train.jsonl", [{"prompt": "1 + 1 =", "answer": 2}])
    with pytest.raises(TaskError, match=message):
        load_task(name)


def test_rows_of_the_hub_are_mapped_filtered_and_drawn_by_split(hub):
    for split, first in (("train", 0), ("test", 30), ("validation", 60)):
        rows = [{"q": f"{n} + 1 =", "truth": {"value": n + 1}, "level": n % 3} for n in range(first, first + 30)]
        hub(f"{split}.jsonl", rows)
    how = {"columns": {"prompt": "q", "answer": "truth.value"}, "filter": "level == 2"}
    task = load_task("hub:owner/sums", **how, rows=4, held_out_split="validation")
    assert (len(task), len(task.held_out), task.skipped) == (4, 10, {"filter": 40})
    assert (task.held_out[0].prompt, task.held_out[0].columns["answer"]) == ("62 + 1 =", "63")
    assert all(int(example.prompt.split()[0]) % 3 == 2 for example in task.examples)
    with pytest.raises(TaskError, match=r"'tran'.*'train'"):
        load_task("hub:owner/sums", split="tran")


# ── columns, template, filter, limits, splits and draws ──────────────────────────────────────────────────────────────


USER, ASSISTANT = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [USER],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 0},
}


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"question": f"{n} + 1?", "answer": n + 1, "level": n % 5} for n in range(count)]


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "layout", "columns"),
    [
        (VERL, "verl-data", {"prompt": [USER], "answer": "2"}),
        (
            {"instruction": "Add.", "input": "1, 1", "output": "2"},
            "alpaca",
            {"prompt": "Add.\n\n1, 1", "completion": "2"},
        ),
        ({"instruction": "Add.", "input": "", "output": "2"}, "alpaca", {"prompt": "Add.", "completion": "2"}),
        (
            {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}], "system": "Add."},
            "messages",
            {"messages": [{"role": "system", "content": "Add."}, USER, ASSISTANT]},
        ),
        ({"conversations": [{"from": "human", "value": "1 + 1?"}]}, "messages", {"prompt": [USER]}),
        ({"conversations": [USER, ASSISTANT]}, "messages", {"messages": [USER, ASSISTANT]}),
        ({"messages": [USER], "answer": "2"}, "messages", {"prompt": [USER], "answer": "2"}),
        ({"input": "1 + 1?", "label": "2"}, "input", {"prompt": "1 + 1?"}),
        ({"input": "1 + 1?", "output": "2", "score": 1.0}, "verl", {"prompt": "1 + 1?", "completion": "2"}),
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
        ({"messages": [USER, ASSISTANT]}, "messages", {"messages": [USER, ASSISTANT]}),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "input": "d"}, "", {"prompt": "a"}),
        ({"conversations": [{"from": "nobody", "value": "x"}], "prompt": "a"}, "", {"prompt": "a"}),
    ],
)
def test_layouts_are_recognised(row: dict[str, Any], layout: str, columns: dict[str, Any]) -> None:
    found = recognise(row)
    [made] = found.task_rows("line 1", row)
    assert found.name == layout
    assert {column: made[column] for column in columns} == columns
    assert {column: made[column] for column in row if column not in columns} == {
        column: value for column, value in row.items() if column not in columns
    }


# ── columns and template ─────────────────────────────────────────────────────────────────────────────────────────


def test_columns_are_taken_from_objects_and_lists_and_the_template_writes_the_prompt(tmp_path: Path) -> None:
    row = {"meta": {"q": {"text": "1 + 1?"}}, "messages": [USER], "truth": [5, 2], "a.b": "dotted"}
    task = load_task(
        put(tmp_path / "rows.jsonl", *[row] * 2),
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
        ({"filter": "level > 9"}, r"task\.filter: "),
        ({"max_prompt_characters": 3}, r"task\.max_prompt_characters: "),
        ({"held_out_rows": 20}, r"task\.held_out_rows: 20"),
        ({"split": "test"}, r"rows\.jsonl .*'test'"),
        ({"held_out_split": "test"}, r"rows\.jsonl .*'test'"),
    ],
)
def test_what_rows_do_not_have_is_named(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_task(put(tmp_path / "rows.jsonl", *numbered(20)), **how)


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
        ("level > 3", "not fit"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused_when_rows_are_read(text: str, named: str) -> None:
    assert RunConfig.parse({"task": {"filter": text}}).task.filter == text  # a run of another version opens
    with pytest.raises(TaskError, match=rf"task\.filter.* {named}"):
        select_rows([Row("row 1", {"level": "Level 5"})], TaskSection(filter=text))


def test_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [*numbered(20), {"question": "long " * 50, "answer": 1, "level": 3}]
    task = load_task(put(tmp_path / "rows.jsonl", *rows), filter="level in [3, 4]", max_prompt_characters=100)
    # Levels 3 and 4 are two of each five of the twenty, of which the last tenth (one) is held out; the long row has 3.
    assert (len(task), len(task.held_out), task.skipped) == (7, 1, {"filter": 12, "max_prompt_characters": 1})
    assert [example.prompt for example in task.examples][:3] == ["3 + 1?", "4 + 1?", "8 + 1?"]


def test_rows_are_drawn_by_a_seed_and_held_out_rows_are_no_training_rows(tmp_path: Path) -> None:
    file = put(tmp_path / "rows.jsonl", *numbered(100))
    task = load_task(file, rows=10, held_out_rows=20)
    order = random.Random("rows/0").sample(range(100), 100)
    assert [example.prompt for example in task.examples] == [f"{n} + 1?" for n in order[:10]]
    assert [example.prompt for example in task.held_out] == [f"{n} + 1?" for n in order[80:]]
    assert load_task(file, rows=10, held_out_rows=20, sample_seed=1).examples != task.examples
    first = load_task(file, rows=10, held_out_rows=20, sample_seed=None)
    assert [example.prompt for example in first.examples] == [f"{n} + 1?" for n in range(10)]
    assert first.held_out[0].prompt == "80 + 1?"
    assert len(load_task(file, rows=1000)) == 90  # as many as there are


def test_splits_of_a_folder_are_trained_on_and_held_out(tmp_path: Path) -> None:
    rows = numbered(12)
    for split, part in (("train", rows[:6]), ("test", rows[6:9]), ("dev", rows[9:])):
        put(tmp_path / "set" / f"{split}.jsonl", *part)
    task = load_task(str(tmp_path / "set"))
    assert [[row.prompt[0] for row in part] for part in (task.examples, task.held_out)] == [[*"012345"], [*"678"]]
    other = load_task(str(tmp_path / "set"), split="test", held_out_split="validation")
    assert [len(other), len(other.held_out), other[0].prompt] == [3, 3, "6 + 1?"]


def test_an_embedded_task_is_drawn_from_but_not_mapped() -> None:
    task, whole = load_task("gsm8k", rows=5, held_out_rows=2), load_task("gsm8k")
    assert (len(task), len(task.held_out)) == (5, 2)
    assert list(task.examples) == [whole[i] for i in random.Random("rows/0").sample(range(1500), 5)]
    with pytest.raises(TaskError, match=r"task\.columns: .*'gsm8k'"):
        load_task("gsm8k", columns={"prompt": "question"})


def test_rows_beyond_those_that_a_run_takes_are_used_too(tmp_path: Path) -> None:
    task = load_task(put(tmp_path / "rows.jsonl", *numbered(300)))
    some = task.some("prompts", 100, seed=0)
    numbers = [int(example.prompt.split()[0]) for example in some]
    assert (len(set(numbers)), numbers) == (100, sorted(numbers))
    assert max(numbers) > 240  # of 270; the first hundred alone would be below 100
    assert task.some("prompts", 100, seed=1) != some
    assert task.some("prompts", 500, seed=0) is task.examples


def test_a_run_that_rows_do_not_fit_is_refused_by_field_and_reads_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path / "rows.jsonl", *[{"q": f"{n} + 1?", "a": n + 1} for n in range(20)])
    read: list[Any] = []
    monkeypatch.setattr(tasks, "read_rows", lambda *how: read.append(how) or read_rows(*how))
    rewards = {"rewards": [{"name": "answer_correctness", "kind": "outcome"}], "credit": {"scheme": "outcome"}}
    task = {"name": str(file), "columns": {"prompt": "q", "answer": "a"}}
    check_config(RunConfig.parse({"task": task, "method": rewards}))
    assert len(read) == 1
    with pytest.raises(TaskError, match=r"^task\.columns: .*'b'"):
        check_config(RunConfig.parse({"task": task | {"columns": {"prompt": "q", "answer": "b"}}, "method": rewards}))
    with pytest.raises(TaskError, match=r"^task\.data_columns: .*'good'"):
        load_rows(TaskSection(name="gsm8k", data=str(file), data_columns={"chosen": "good"}))


# ── the section ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_columns_may_be_written_as_text() -> None:
    task = TaskSection.parse({"name": "gsm8k", "columns": "prompt=question, answer=reward_model.ground_truth"})
    assert task.columns == {"prompt": "question", "answer": "reward_model.ground_truth"}


# ── right answers: which are compared, by which reader ───────────────────────────────────────────────────────────────


OWN = [{"problem": f"{n} trays of 402?", "answer": str(402 * n)} for n in range(1, 13)]
COUNTDOWN = {
    "data_source": "countdown",
    "prompt": [{"role": "user", "content": "Make 6 of 1, 2, 3."}],
    "reward_model": {"style": "rule", "ground_truth": {"numbers": [1, 2, 3], "target": 6}},
}


@pytest.mark.parametrize(
    "text", [r"so $3\cdot402=\boxed{1206}$", "The answer is 1206.", "**1206**", "Answer: 1206", "#### 1206"]
)
@pytest.mark.parametrize("checker", [None, "math_equality"])
def test_own_rows_are_right_in_any_form(text: str, checker: str | None) -> None:
    task = wb.load_task(OWN, checker=checker)
    assert task.check_answer(text, task[2].columns) == (True, "1206")
    assert task.check_answer(text.replace("1206", "1205"), task[2].columns) == (False, "1205")


def test_which_reader_checks_can_be_chosen() -> None:
    assert wb.load_task(OWN, checker="gsm8k_answer").check_answer("**402**", {"answer": "402"}) == (False, "")
    assert wb.load_task(OWN).check_answer("I do not know.", {"answer": "402"}) == (False, "")
    latex = wb.load_task([{"prompt": "p", "answer": r"\frac{x}{2}"}] * 2)
    assert (latex.checker, latex.rewards[0].name) == ("math_equality", "math_equality")
    assert latex.answer_is_right(r"\boxed{x/2}", latex[0].columns)


def test_any_of_a_list_of_golds_is_right() -> None:
    task = wb.load_task([{"prompt": "p", "answer": [5, "five"]}] * 3)
    assert task[0].columns["answer"] == ["5", "five"]
    rollouts = tuple(Rollout((1,), (f"Answer: {claim}",), finished=False) for claim in ("5.0", "Five", "6"))
    scored = score_group(Group("p", rollouts, task[0].columns), StepPattern(), task.rewards)
    assert scored.outcomes == [1.0, 1.0, 0.0]


def test_an_object_is_compared_with_no_text_and_that_is_said(tmp_path: Path) -> None:
    row = {**COUNTDOWN, "reward_model": {"ground_truth": {"cells": [1, 2, 3]}}}
    path = put(tmp_path / "grid.jsonl", *[row] * 12)
    task = wb.load_task(path)
    assert (task.can_check, task.rewards, task[0].columns["answer"]) == (False, (), {"cells": [1, 2, 3]})
    assert "a reward must be chosen" in preview_of(task)["said"]
    policy = {"prompt": {"apply_template": "never"}, "method": {"prompts_per_step": 2}}
    with pytest.raises(TaskError, match="choose a reward"):
        check_config(RunConfig.parse({"task": str(path), **policy}))


def test_a_target_with_numbers_is_judged_by_its_equation() -> None:
    task = wb.load_task([COUNTDOWN] * 12)
    assert (task.checker, [reward.name for reward in task.rewards]) == ("countdown_equation", ["countdown_equation"])
    assert task.answer_is_right("<answer>1 + 2 + 3</answer>", task[0].columns)
    assert not task.answer_is_right("<answer>6</answer>", task[0].columns)


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"gold_answer": "2", "model_answer": "3", "extracted_answer": "3"}, "2"),
        ({"solution": "One more than 1.", "final_answer": ["2"], "answer_type": "Numerical"}, ["2"]),
        ({"solution": "One more than 1, so \\boxed{2}"}, "One more than 1, so \\boxed{2}"),
        ({"label": 2}, "2"),
        ({"meta": {"ground_truth": 2}}, "2"),
        ({"gold_answer": "2", "target": "3"}, None),
        ({"extracted_answer": "3", "response": {"id": "r1"}}, None),
    ],
)
def test_the_right_answer_is_told_by_the_columns_names(row: dict[str, Any], gold: Any) -> None:
    task = wb.load_task([{"problem": "1 + 1?", **row}] * 2)
    assert (task[0].columns.get("answer"), task.can_check) == (gold, gold is not None)
    assert gold is None or task.answer_is_right(r"\boxed{2}", task[0].columns)
    none = wb.load_task([{"problem": "1 + 1?", **row}] * 2, columns={"answer": ""})
    assert (none[0].columns["answer"], none.can_check) == (None, False)


def test_completions_labelled_false_are_no_demonstrations() -> None:
    rows = [{"prompt": f"{n} + 1?", "completion": str(n + n % 2), "label": n % 2 == 1} for n in range(8)]
    task = wb.load_task(rows, held_out_rows=1, sample_seed=None)
    assert [row.prompt for row in task.rows("demonstrations")] == ["1 + 1?", "3 + 1?", "5 + 1?"]
    assert task.skipped == {"label": 4}
    with pytest.raises(TaskError, match="none of the 4"):
        wb.load_task(rows[::2])
    assert len(wb.load_task([{**row, "label": "2"} for row in rows])) == 7  # of another kind


def test_a_row_without_an_answer_is_named_and_no_other_tasks_reward_is_taken(tmp_path: Path) -> None:
    path = put(tmp_path / "mixed.jsonl", OWN[0], {"problem": "2?"}, *OWN)
    with pytest.raises(WorkbenchError, match=r"line 2 .*'answer'"):
        check_config(RunConfig.parse({"task": str(path), "method": {"prompts_per_step": 2}}))


@pytest.mark.parametrize("rows", [OWN, Dataset.from_list(OWN)])
def test_rows_in_memory_are_a_task(rows: Any) -> None:
    task = wb.load_task(rows, columns={"prompt": "problem"}, held_out_rows=2, sample_seed=None)
    assert (len(task), len(task.held_out), task[0].prompt) == (10, 2, "1 trays of 402?")


def test_what_was_extracted_stands_beside_the_score() -> None:
    rollouts = tuple(Rollout((1,), (text,), finished=False) for text in ("so \\boxed{5}", "no idea"))
    scored = score_group(Group("p", rollouts, {"answer": "5"}), StepPattern(), ["answer_correctness"])
    credit = wb.credit_group(scored, scheme="outcome")
    assert [row["extracted_answers"] for row in credit.to_json()["rollouts"]] == [
        {"answer_correctness": "5"},
        {"answer_correctness": ""},
    ]
    assert "read: 5" in credit_payload(credit)["rollouts"][0]["extracted"]
