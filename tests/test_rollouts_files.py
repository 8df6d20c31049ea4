"""Damaged and hostile data files: each is refused with its place, or the news that it crashed the parser."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.errors import TaskError
from workbench.rollouts import load as loading
from workbench.rollouts import load_groups, read_groups
from workbench.rollouts.files import read_rows
from workbench.rollouts.groups import read_drafts

GOOD = b'{"prompt": "1 + 1 =", "completion": "2"}\n'
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + b'{"prompt": "caf\xe9"}\n', r"data\.jsonl line 2: byte 15 is not UTF-8; save the file as UTF-8"),
        (
            GOOD + GOOD + b'{"prompt": "1 +',
            r"line 3: not JSON \(Unterminated string .*\); the file seems to be cut off",
        ),
        (GOOD + b'{"prompt": 1,}\n', r"line 2: not JSON \(.* at column 1[34]\)$"),
        (b"", r"data\.jsonl has no rows; give it at least one"),
        (b"\n \n", r"data\.jsonl has no rows"),
        (b"[]", r"data\.jsonl has no rows"),
        (GOOD + b'{"prompt": "a", "prompt": "b"}', r"line 2: the key 'prompt' is there twice; keep one"),
        (
            GOOD + b'{"prompt": "a", "completion": 7}',
            r"line 2: 'completion' must be text or a list of messages, not int",
        ),
        (GOOD + b'{"prompt": 3, "completion": "x"}', r"line 2: 'prompt' is of type int; it must be text or a list"),
        (GOOD + b'{"completion": "x"}', r"line 2: 'prompt' is missing"),
        (b'{"completion": "x"}', r"line 1: the columns 'completion' are no known format: there is no 'prompt'"),
        (b'{"prompt": "x"}', r"line 1: there are no completions \(columns prompt\); give each row a 'completion'"),
        (GOOD + b"7\n", r"line 2: every row must be an object with named columns; found 7"),
        (GOOD + b'{"prompt": "a", "completion": "x", "deep": ' + DEEP + b"}", r"line 2: nested too deeply; the limit"),
        (
            GOOD + b'{"prompt": "a", "completion": "x", "deep": ' + b"[" * 65 + b"]" * 65 + b"}",
            r"line 2: 'deep' is nested too deeply; the limit is 64 levels",
        ),
        (DEEP, r"the whole file: nested too deeply"),
        (b"PK\x03\x04\xff a zip archive", r"data\.jsonl is not Parquet or JSONL but another binary file"),
        (b"\xff\xfe{\x00", r"data\.jsonl is not Parquet or JSONL but another binary file"),
        (b"tElLnObOdY", r"^data\.jsonl is not .* but another text file; a JSONL file begins with {[^Y]*$"),
        (b"PAR1 and nothing more", r"data\.jsonl is a damaged Parquet file \(.*\); write it again"),
        (GOOD + b'{"prompt": "a", "completion": "x", "reward": Infinity}', r"line 2: Infinity is no number"),
        (GOOD + b'{"prompt": "a", "completion": "x", "reward": 1e999}', r"line 2: 'reward' is infinite"),
        (GOOD + b'{"prompt": "a", "completion": "x", "reward": "good"}', r"line 2: 'reward' must be a number or null"),
        (GOOD + b'{"prompt": "a", "completion": "x", "n": ' + b"9" * 5000 + b"}", r"line 2: Exceeds the limit"),
    ],
)
def test_a_bad_file_is_refused_at_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(content)
    with pytest.raises(TaskError, match=message):
        read_drafts(read_rows(file), file.name)


def test_errors_of_the_parser_arrive_from_its_process_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(GOOD + b'{"prompt": "a", "completion": "x", "deep": ' + DEEP + b"}")
    with pytest.raises(TaskError, match=r"^data\.jsonl line 2: nested too deeply; the limit is 64 levels$"):
        load_groups(file)


def test_a_file_over_the_size_limit_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    file.write_bytes(GOOD * 100)
    with pytest.raises(TaskError, match=r"large\.jsonl has 4,100 bytes, over the size limit of 4,000; split it"):
        read_groups(file, max_bytes=4000)


def test_a_parquet_file_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "bomb.parquet"
    text = "a" * 1_000_000
    pq.write_table(pa.table({"prompt": [text], "completion": [text]}), file, compression="zstd", use_dictionary=False)
    assert file.stat().st_size < 10_000
    with pytest.raises(TaskError, match=r"bomb\.parquet unpacks to [\d,]+ bytes, over the size limit of 40,000"):
        read_groups(file, max_bytes=10_000)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nothing\.jsonl: No such file or directory; give a JSONL or Parquet file"):
        load_groups(tmp_path / "nothing.jsonl")
    with pytest.raises(TaskError, match=r"is a folder without rows; it needs a file that ends in \.jsonl"):
        load_groups(tmp_path)


def test_a_parser_that_crashes_is_an_error_and_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(GOOD)
    monkeypatch.setattr(loading, "MODULE", "tests.crashing_parser")
    with pytest.raises(TaskError, match=r"data\.jsonl: the parser crashed \(parser died of signal 11 \(SIGSEGV\)\)"):
        load_groups(file)


def test_a_parser_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(GOOD)
    monkeypatch.setattr(loading, "MODULE", "tests.crashing_parser")
    monkeypatch.setattr(loading, "SILENCE_SECONDS", 0.1)
    with pytest.raises(TaskError, match=r"data\.jsonl: the parser was stopped after 0\.1 s of silence"):
        load_groups(file, format="hang")


def test_a_column_in_which_types_are_mixed_is_refused_by_row_in_parquet_too(tmp_path: Path) -> None:
    file = tmp_path / "mixed.parquet"
    pq.write_table(pa.table({"prompt": ["a", "b"], "completion": ["x", None]}), file)
    with pytest.raises(TaskError, match=r"mixed\.parquet row 2: 'completion' is missing"):
        load_groups(file)


def test_what_parquet_has_as_bytes_or_decimals_is_text_and_numbers(tmp_path: Path) -> None:
    file = tmp_path / "typed.parquet"
    columns = {"prompt": ["é".encode()], "completion": [b"b"], "reward": [Decimal("0.5")], "image": [b"\x89PNG"]}
    pq.write_table(pa.table(columns), file)
    [group] = load_groups(file)
    assert (group.prompt, group.rollouts[0].text) == ("é", "b")
    assert (group.rollouts[0].columns["reward"], group.columns["image"]) == (0.5, "<4 bytes>")
    pq.write_table(pa.table({**columns, "prompt": [b"a\xff"]}), file)
    with pytest.raises(TaskError, match=r"row 1: 'prompt' holds 2 bytes that are no UTF-8 text; write it as text"):
        load_groups(file)


def test_what_only_looks_odd_is_read(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    rows = [
        {"prompt": "a", "completion": "one\u2028row \u202e \x00 中文 🙂", "score": float("nan")},
        {"prompt": "a", "completion": "half \ud83d pair"},
    ]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(map(json.dumps, rows)).encode() + b"\r\n")
    [group], facts = (found := read_groups(file)).groups, found.facts
    assert [rollout.text for rollout in group.rollouts] == ["one\u2028row \u202e \x00 中文 🙂", "half \ufffd pair"]
    assert group.rollouts[0].columns["score"] is None
    assert "1 row with unpaired surrogates, each replaced by U+FFFD" in facts.notes
    assert "1 row with NaN, which is taken for no number: a reward of NaN is unscored" in facts.notes


def test_a_json_array_is_read_by_row(tmp_path: Path) -> None:
    file = tmp_path / "array.json"
    file.write_text('[{"prompt": "a", "completion": "x"},\n {"prompt": "a", "completion": "y"}]')
    assert [rollout.text for rollout in load_groups(file)[0].rollouts] == ["x", "y"]
    assert [row.where for row in read_rows(file)] == ["row 1", "row 2"]
