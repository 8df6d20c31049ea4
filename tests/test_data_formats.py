"""Rows of CSV, JSON, gzip, Arrow and folders: what is read, which split it is of, and what is refused."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.errors import TaskError
from workbench.rollouts import folders, load, read_rows
from workbench.rollouts.files import read_rows as parsed
from workbench.rollouts.folders import EVERY, HELD_OUT, held_out_of, split_of, splits_of
from workbench.sandbox.child import Child

ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "a, b\nand c?", "answer": "3"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = b'question,answer\n1 + 1?,2\n"a, b\nand c?",3\n'


def packed(content: bytes) -> bytes:
    """By gzip, without the time, so that tests are called the same in every process."""
    return gzip.compress(content, mtime=0)


def values(path: Path, **how: Any) -> list[dict[str, Any]]:
    return [row.values for row in parsed(path, **how)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", LINES),
        ("rows.jsonl.gz", packed(LINES[:40]) + packed(LINES[40:])),  # two members
        ("rows.json", json.dumps(ROWS, indent=1).encode()),
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


def test_arrow_and_parquet_are_read_packed_or_not(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as stream:
        stream.write_table(table)
    with pa.ipc.new_file(tmp_path / "file.arrow", table.schema) as file:
        file.write_table(table)
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "rows.parquet.gz").write_bytes(packed((tmp_path / "rows.parquet").read_bytes()))
    for name in ("stream.arrow", "file.arrow", "rows.parquet", "rows.parquet.gz"):
        assert values(tmp_path / name) == ROWS, name
    (tmp_path / "torn.arrow").write_bytes((tmp_path / "file.arrow").read_bytes()[:100])
    with pytest.raises(TaskError, match=r"torn\.arrow is a damaged Arrow file"):
        values(tmp_path / "torn.arrow")


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
    assert [row.where for row in parsed(file)] == ["line 2", "line 3"]
    assert csv.field_size_limit() == 131_072  # of the whole process, as it was


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"q,a\n1,2,3\n", r"a\.csv line 2: 3 cells, and the first line names 2 columns"),
        ("a.csv", b"q,q\n1,2\n", r"a\.csv line 1: the column 'q' is there twice; keep one"),
        ("a.csv", b'q,a\n"1,2\n', r"a\.csv line 2: not CSV \(unexpected end of data\); check the quotes"),
        ("a.csv", b"q,a\n1,caf\xe9\n", r"a\.csv line 2: byte 9 is not UTF-8"),
        ("a.csv", b"q,a\n", r"a\.csv has no rows"),
        ("a.gz", packed(LINES)[:30], r"a\.gz is cut off: its last gzip member has no end"),
        ("a.gz", b"\x1f\x8b\x08\x00 nothing packed", r"a\.gz is a damaged gzip file"),
        ("a.json", b'{"a": [{"x": 1}],\n "b": [{"x": 1}]}', r"a\.json holds 2 lists of objects; give a list of rows"),
    ],
)
def test_a_bad_file_is_refused_at_its_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError, match=message):
        values(tmp_path / name)


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "bomb.jsonl.gz").write_bytes(packed(b" " * 10_000_000))
    with pytest.raises(TaskError, match=r"bomb\.jsonl\.gz unpacks to more than 80,000 bytes, the size limit; split it"):
        values(tmp_path / "bomb.jsonl.gz", max_bytes=20_000)


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


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"prompt": name}) + "\n")
    return folder


def test_a_folder_is_read_by_split_in_a_persons_order(tmp_path: Path) -> None:
    put(tmp_path, "10.jsonl", "9.jsonl", "test/a.jsonl", ".hidden/b.jsonl", "_old/c.jsonl", "dataset_infos.json")
    (tmp_path / "README.md").write_text("no rows")
    assert {split: [file.name for file in files] for split, files in splits_of(tmp_path).items()} == {
        "train": ["9.jsonl", "10.jsonl"],
        "test": ["a.jsonl"],
    }
    assert [row.where for row in parsed(tmp_path)] == ["9.jsonl line 1", "10.jsonl line 1"]
    assert [row.where for row in parsed(tmp_path, split="test")] == ["test/a.jsonl line 1"]
    assert len(list(parsed(tmp_path, split=EVERY))) == 3
    assert (held_out_of(tmp_path, None), held_out_of(tmp_path, "test")) == ("test", None)
    with pytest.raises(TaskError, match=r"has no split 'tset'; did you mean 'test'\?; its splits are train, test"):
        list(parsed(tmp_path, split="tset"))


def test_folders_that_cannot_be_meant_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskError, match=r"is a folder without rows; it needs a file that ends in \.jsonl"):
        list(parsed(tmp_path))
    put(tmp_path, "main/train.jsonl", "socratic/train.jsonl")
    message = r"holds several data sets: train\.jsonl of the split 'train' is in main, socratic; give one of these"
    with pytest.raises(TaskError, match=message):
        list(parsed(tmp_path))
    with pytest.raises(TaskError, match=r"holds [\d,]+ bytes of rows, over the size limit of 10"):
        list(parsed(tmp_path / "main", max_bytes=10))
    with pytest.raises(TaskError, match=r"train\.jsonl is one file, which has no split 'test'; leave the split out"):
        list(parsed(tmp_path / "main" / "train.jsonl", split="test"))
    monkeypatch.setattr(folders, "MAX_NAMES", 4)  # which it holds
    assert len(splits_of(tmp_path, part=False)[""]) == 2
    (tmp_path / "notes.txt").touch()
    with pytest.raises(TaskError, match=r"holds more than 4 files and folders; give one of its folders"):
        list(parsed(tmp_path))


def saved(folder: Path, rows: list[dict[str, Any]], file: str = "data-00000-of-00001.arrow") -> None:
    """A folder as ``Dataset.save_to_disk`` writes it, which names ``file`` as its only one."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file}]}))
    (folder / "dataset_info.json").write_text("{}")


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_list(ROWS)
    DatasetDict({"train": rows, "test": rows.select([1])}).save_to_disk(str(tmp_path / "both"))
    rows.save_to_disk(str(tmp_path / "one"), num_shards=2)
    assert values(tmp_path / "both") == values(tmp_path / "one") == ROWS
    assert values(tmp_path / "both", split=held_out_of(tmp_path / "both", None)) == ROWS[1:]


def test_a_saved_data_set_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "bad", ROWS, file="../secret.arrow")
    with pytest.raises(TaskError, match=r"names '\.\./secret\.arrow', which is no file of its folder"):
        values(tmp_path / "bad")
    saved(tmp_path / "torn", ROWS, file="gone.arrow")
    with pytest.raises(TaskError, match=r"torn: gone\.arrow is missing, which state\.json names; save the data set"):
        values(tmp_path / "torn")


# ── the process that reads ───────────────────────────────────────────────────────────────────────────────────────


def test_one_process_reads_both_splits_and_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "train.jsonl", "test.jsonl")
    started = []
    monkeypatch.setattr(load, "_PARSERS", load._Parsers())
    monkeypatch.setattr(load, "Child", lambda *how, **more: started.append(how) or Child(*how, **more))
    train, test, nothing = load.read_splits(tmp_path, ["", HELD_OUT, "test"])
    assert [[row.values["prompt"] for row in rows] for rows in (train, test, nothing)] == [
        ["train.jsonl"],
        ["test.jsonl"],
        ["test.jsonl"],
    ]
    assert len(read_rows(tmp_path / "test.jsonl")) == 1
    with pytest.raises(TaskError):  # an error that it tells is no reason to end it
        read_rows(tmp_path / "gone.jsonl")
    monkeypatch.chdir(tmp_path)
    assert len(started) == 1
    assert read_rows("test.jsonl")[0].values == {"prompt": "test.jsonl"}
    assert len(started) == 2  # relative names mean something else there
