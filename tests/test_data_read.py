"""Rows of JSON, CSV, Parquet, Arrow, gzip and folders: what is read and refused, and what somebody's file holds."""

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.imported import put
from workbench.data import read_groups, read_rows
from workbench.data.formats import look_at
from workbench.data.logs import recognise_advantages
from workbench.data.read import find_held_out, split_of
from workbench.errors import TaskError

ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "a, b\nand c?", "answer": "3"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = b'question,answer\n1 + 1?,2\n"a, b\nand c?",3\n'
GOOD = b'{"prompt": "1 + 1 =", "completion": "2"}\n'
DEEP = b"[" * 100_000 + b"]" * 100_000


def packed(content: bytes) -> bytes:
    """By gzip, without the time, so that tests are called the same in every process."""
    return gzip.compress(content, mtime=0)


def values(path: Path, *how: Any) -> list[dict[str, Any]]:
    return [row.values for row in read_rows(path, *how)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", LINES),
        ("rows.jsonl.gz", packed(LINES[:40]) + packed(LINES[40:])),  # two members
        ("rows.json", json.dumps(ROWS, indent=1).encode()),
        ("rows.json", LINES),
        ("rows.json", json.dumps({"version": 1, "data": ROWS}, indent=1).encode()),
        ("rows.csv", b"\xef\xbb\xbf" + CSV.replace(b"\n1", b"\r\n1")),
        ("rows.csv.gz", packed(CSV)),
        ("rows.tsv", b'question\tanswer\n1 + 1?\t2\n"a, b\nand c?"\t3\n'),
        ("rows.csv", b'question;answer\n1 + 1?;2\n"a, b\nand c?";3\n'),
    ],
)
def test_the_same_rows_are_read_of_every_text_format(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert values(tmp_path / name) == ROWS


def test_a_line_of_json_is_one_row_whatever_lists_it_holds(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}
    (tmp_path / "row.json").write_text(json.dumps(row) + "\n")
    assert values(tmp_path / "row.json") == [row]


def test_arrow_and_parquet_are_read_packed_or_not(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    for name, opened in (("stream.arrow", pa.ipc.new_stream), ("file.arrow", pa.ipc.new_file)):
        with opened(tmp_path / name, table.schema) as sink:
            sink.write_table(table)
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "rows.parquet.gz").write_bytes(packed((tmp_path / "rows.parquet").read_bytes()))
    for file in tmp_path.iterdir():
        assert values(file) == ROWS, file.name


def test_columns_of_csv_have_the_types_that_all_their_cells_fit(tmp_path: Path) -> None:
    file = tmp_path / "typed.csv"
    file.write_text(
        "prompt,reward,n,right,messages,mixed,answer\n"
        '12,0.5,3,true,"[{""role"": ""user"", ""content"": ""a""}]",7,007\n'
        "13,,-4,False,[],x,1.50\n"
    )
    assert values(file) == [
        {"prompt": "12", "reward": 0.5, "n": 3, "right": True, "mixed": "7", "answer": "007"}
        | {"messages": [{"role": "user", "content": "a"}]},
        {"prompt": "13", "reward": None, "n": -4, "right": False, "mixed": "x", "answer": "1.50", "messages": []},
    ]
    assert [row.where for row in read_rows(file)] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("name", "content", "place", "value"),
    [
        ("a.jsonl", GOOD + b'{"prompt": "caf\xe9"}\n', "line 2", "byte 15 is not UTF-8"),
        ("a.jsonl", GOOD + GOOD + b'{"prompt": "1 +', "line 3", "not JSON"),
        ("a.jsonl", GOOD + b'{"prompt": 1,}\n', "line 2", "not JSON"),
        ("a.jsonl", GOOD + b"7\n", "line 2", "found 7"),
        ("a.jsonl", GOOD + b'{"prompt": "a", "deep": ' + DEEP + b"}", "line 2", "nested too deeply"),
        ("a.jsonl", GOOD + b'{"deep": ' + b"[" * 65 + b"]" * 65 + b"}", "line 2", "'deep' is nested too deeply"),
        ("a.jsonl", GOOD + b'{"n": ' + b"9" * 5000 + b"}", "line 2", "limit"),
        ("a.jsonl", b"", "a.jsonl", "no rows"),
        ("a.jsonl", b"\n \n", "a.jsonl", "no rows"),
        ("a.jsonl", b"[]", "a.jsonl", "no rows"),
        ("a.jsonl", DEEP, "a.jsonl", "nested too deeply"),
        ("a.jsonl", b"PK\x03\x04\xff a zip archive", "a.jsonl", "Parquet"),
        ("a.jsonl", b"\xff\xfe{\x00", "a.jsonl", "Parquet"),
        ("a.jsonl", b"PAR1 and nothing more", "a.jsonl", "Parquet"),
        ("a.csv", b"q,a\n1,2,3\n", "line 2", "3 cells"),
        ("a.csv", b"q,q\n1,2\n", "line 1", "'q' is there twice"),
        ("a.csv", b'q,a\n"1,2\n', "line 2", "not CSV"),
        ("a.csv", b"q,a\n1,caf\xe9\n", "a.csv", "byte 9 is not UTF-8"),
        ("a.csv", b"q,a\n", "a.csv", "no rows"),
        ("a.gz", packed(LINES)[:30], "a.gz", "end-of-stream"),
        ("a.gz", b"\x1f\x8b\x08\x00 nothing packed", "a.gz", "invalid"),
        ("a.json", b'{"a": [{"x": 1}],\n "b": [{"x": 1}]}', "a.json", "2 lists of objects"),
        ("a.arrow", b"ARROW1 and nothing more", "a.arrow", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_at_its_place(tmp_path: Path, name: str, content: bytes, place: str, value: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError) as refused:
        read_rows(tmp_path / name)
    assert str(refused.value).startswith(name)
    assert place in str(refused.value)
    assert value in str(refused.value)


def test_what_parquet_has_as_bytes_or_decimals_is_text_and_numbers(tmp_path: Path) -> None:
    columns = {"prompt": ["é".encode()], "reward": [Decimal("0.5")], "n": [math.inf], "image": [b"\x89PNG"]}
    pq.write_table(pa.table(columns), tmp_path / "typed.parquet")
    assert values(tmp_path / "typed.parquet") == [{"prompt": "é", "reward": 0.5, "n": None, "image": "<4 bytes>"}]


# ── folders ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train_sft-00000-of-00002.parquet", "train_sft"),
        ("train.jsonl", "train"),
        ("my-test-rows.jsonl", "test"),
        ("dev/rows.csv", "validation"),
        ("train/eval.json", "train"),  # the folder's name goes before the file's
        ("rows.jsonl", None),
        ("latest.jsonl", None),  # no word of its own
    ],
)
def test_names_say_the_split_as_they_do_to_datasets(path: str, split: str | None) -> None:
    assert split_of(Path(path)) == split


def test_a_folder_is_read_by_split_in_a_persons_order(tmp_path: Path) -> None:
    for name in ("10.jsonl", "9.jsonl", "test/a.jsonl", ".hidden/b.jsonl", "_old/c.jsonl", "dataset_infos.json"):
        put(tmp_path / name, {"prompt": name})
    (tmp_path / "README.md").write_text("no rows")
    assert [row.where for row in read_rows(tmp_path)] == ["9.jsonl line 1", "10.jsonl line 1"]
    assert [row.where for row in read_rows(tmp_path, "test")] == ["test/a.jsonl line 1"]
    assert (find_held_out(tmp_path, None), find_held_out(tmp_path, "test")) == ("test", None)
    with pytest.raises(TaskError, match=r"'tset'.*'test'"):
        read_rows(tmp_path, "tset")


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_list(ROWS)
    DatasetDict({"train": rows, "test": rows.select([1])}).save_to_disk(str(tmp_path / "both"))
    rows.save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert values(tmp_path / "both") == values(tmp_path / "one") == ROWS
    assert values(tmp_path / "both", find_held_out(tmp_path / "both", None)) == ROWS[1:]


# ── what somebody's file holds, and which of its columns is what ─────────────────────────────────────────────────────


ASK = {"role": "user", "content": "3 trays of 402?"}
SAID = {"role": "assistant", "content": "1206"}
TRACE = {"task": {"data": {}}, "nodes": [{"parent": None, "sampled": True, "message": SAID}]}
TRL = {"step": 3, "prompt": "3 trays of 402?", "completion": "1206", "accuracy": 1.0, "advantage": 0.7}


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
    look = look_at(put(tmp_path / "rows.jsonl", row))
    assert (look.holds, look.columns, look.mapping, look.missing) == (holds, columns, mapping, None)


@pytest.mark.parametrize("row", [{"prompt": "1 + 1?", "completion": "2"}, {"messages": [ASK, SAID]}])
def test_several_answers_to_one_prompt_are_rollouts(tmp_path: Path, row: dict[str, Any]) -> None:
    assert look_at(put(tmp_path / "rows.jsonl", row)).holds == "problems"
    assert look_at(put(tmp_path / "rows.jsonl", row, row)).holds == "rollouts"


def test_a_column_that_nothing_tells_is_asked_for_and_what_is_chosen_goes_before_a_guess(tmp_path: Path) -> None:
    file = put(tmp_path / "rows.jsonl", {"text": "1 + 1?", "said": "2", "target": "3", "n": 1})
    look = look_at(file)
    assert (look.missing, look.names, look.columns) == ("prompt", ("text", "said", "target", "n"), {})
    asked = look_at(file, {"prompt": "text"})
    assert (asked.holds, asked.missing, asked.columns["answer"]) == ("problems", None, "target")
    told = look_at(file, {"prompt": "text", "completion": "said", "answer": ""})
    assert (told.holds, told.columns) == ("rollouts", {"prompt": "text", "completion": "said"})
    with pytest.raises(TaskError, match=r"'texts'.*'text'"):
        look_at(file, {"prompt": "texts"})


def test_bad_rows_are_passed_over_and_a_file_of_nothing_else_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path / "rows.jsonl", TRL)
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
    found = recognise_advantages(read_groups(put(tmp_path / "rows.jsonl", *rows), tokenizer="words").groups)
    assert (found and found.said) == said
    assert found is None or found.within <= within
