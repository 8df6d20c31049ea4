"""A data file or folder of any origin → its rows as plain JSON values, or an error that names the line and the fault.

JSONL (one object a line), JSON (a list of objects, or an object that holds one), CSV, Parquet and Arrow, each as it is
or compressed by gzip, are told apart by how they begin, CSV by its name. A folder is read file by file
(``rollouts.folders``). This module does not know what the columns mean. What it reads may be damaged or hostile and
some of it goes through native code, so it runs in a child process (``rollouts.child``); call ``rollouts.read_rows``
instead.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import TaskError, cut
from workbench.rollouts.folders import ANNOTATIONS, EVERY, files_of, is_folder
from workbench.rollouts.tables import arrow_rows, csv_rows, parquet_rows
from workbench.rollouts.values import MAX_DEPTH, Row, row_of

MAX_BYTES = 256 * 2**20
"""Largest file, and largest sum of a folder's; what is compressed may be four times that when unpacked."""
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def read_rows(path: Path, max_bytes: int = MAX_BYTES, split: str | None = None) -> Iterator[Row]:
    """Yield the rows of a file, or of a folder's files of one split (``train``, or the first), one after the other.

    NaN is ``None``. Raises TaskError for what is missing, empty, over the limit, of no format that is known, or broken
    at a line, and for a split that a folder does not have; a file has none.
    """
    for row in rows_and_faults(path, max_bytes, split):
        if row.fault:
            raise TaskError(row.fault)
        yield row


def rows_and_faults(path: Path, max_bytes: int = MAX_BYTES, split: str | None = None) -> Iterator[Row]:
    """Yield what ``read_rows`` does, and in their places the rows that cannot be read, each with its ``fault``.

    Raises TaskError where none can be, and for the other reasons of ``read_rows``.
    """
    if not is_folder(path):
        if split not in (None, EVERY):
            raise TaskError(f"{path.name} is one file, which has no split {split!r}; leave the split out")
        yield from _rows_of_file(path, max_bytes)
        return
    files = files_of(path, split)
    total = sum(file.stat().st_size for file in files)
    if total > max_bytes:
        raise TaskError(f"{path.name} holds {total:,} bytes of rows, over the size limit of {max_bytes:,}; split it")
    for file in files:
        name = str(file.relative_to(path))
        if split == EVERY and ANNOTATIONS in file.relative_to(path).parts[:-1]:
            yield Row(name, {}, left_out=f"{name} is passed by: it annotates other rows and has no completions")
            continue
        for row in _rows_of_file(file, max_bytes):
            yield replace(row, where=f"{name} {row.where}")


def _rows_of_file(path: Path, max_bytes: int) -> Iterator[Row]:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise TaskError(f"{path.name} is not a file; give a JSONL or Parquet file")
        if size > max_bytes:
            raise TaskError(f"{path.name} has {size:,} bytes, over the size limit of {max_bytes:,}; split it")
        with path.open("rb") as stream:
            start = stream.read(2)
            data = _unpacked(path, stream, 4 * max_bytes) if start == _GZIP else start + stream.read()
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise TaskError(f"{cut(str(path), 300)}: {reason}; give a JSONL or Parquet file that can be read") from error
    fault = f"{path.name} has no rows; give it at least one"
    empty = True
    for row in _parsed_rows(path, data, max_bytes):
        if empty and row.fault:
            fault = row.fault
        empty = empty and bool(row.fault)
        yield row
    if empty:
        raise TaskError(fault)


def _unpacked(path: Path, stream: Any, most: int) -> bytes:
    stream.seek(0)
    parts, total, whole = [], 0, False
    try:
        unpacker = zlib.decompressobj(wbits=31)
        while packed := stream.read(_CHUNK):
            while packed:
                part = unpacker.decompress(packed, most - total + 1)
                parts.append(part)
                if (total := total + len(part)) > most:
                    raise TaskError(f"{path.name} unpacks to more than {most:,} bytes, the size limit; split it")
                packed, whole = unpacker.unconsumed_tail, unpacker.eof
                if whole:  # another member may follow
                    packed, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise TaskError(f"{path.name} is a damaged gzip file ({error}); compress it again") from error
    if not whole:
        raise TaskError(f"{path.name} is cut off: its last gzip member has no end; copy or compress it again")
    return b"".join(parts)


def _parsed_rows(path: Path, data: bytes, max_bytes: int) -> Iterator[Row]:
    if data[:4] == b"PAR1":
        return parquet_rows(path.name, data, 4 * max_bytes)
    if data[:6] == b"ARROW1" or data[:4] == b"\xff\xff\xff\xff":
        return arrow_rows(path.name, data)
    text = data.removeprefix(_BOM)
    if path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        return csv_rows(path.name, text)
    match text[:64].lstrip()[:1]:
        case b"{" | b"":
            return _json_lines(path, text)
        case b"[":
            return _json_list(path, _parsed(path, "the whole file", text))
    kind = "text" if data[:64].isascii() and b"\0" not in data[:64] else "binary"  # what it says may be a secret
    raise TaskError(
        f"{path.name} is not Parquet or JSONL but another {kind} file; a JSONL file begins with {{ and a Parquet file "
        "with PAR1, and the name of a CSV file ends in .csv or .tsv"
    )


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json_lines(path: Path, data: bytes) -> Iterator[Row]:
    lines = data.split(b"\n")  # at line feeds only: U+2028 may stand inside a text
    if path.name.lower().removesuffix(".gz").endswith(".json") and not _is_json(lines[0]):
        return _json_list(path, _only_list(path, _parsed(path, "the whole file", data)))
    return (_line(path, number, line, len(lines)) for number, line in enumerate(lines, start=1) if line.strip())


def _line(path: Path, number: int, line: bytes, last: int) -> Row:
    """Return a line's row. One that stops in its middle, with no line end, is still being written."""
    where = f"line {number}"
    try:
        return row_of(path.name, where, _parsed(path, where, line))
    except TaskError as error:
        torn = number == last and line.lstrip().startswith(b"{") and _stops(line)
        note = f"{where}, the last one, is left out: it is not whole (is the file still being written?)" if torn else ""
        return Row(where, {}, fault=str(error), left_out=note)


def _stops(line: bytes) -> bool:
    """Whether a line is no JSON, rather than JSON of something that cannot be used."""
    try:
        json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _json_list(path: Path, rows: list[Any]) -> Iterator[Row]:
    return (row_of(path.name, f"row {number}", values) for number, values in enumerate(rows, start=1))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _only_list(path: Path, document: Any) -> list[Any]:
    """The one list of objects that a document over several lines holds, ``{"data": […]}`` say; or it is one row."""
    lists = [value for value in document.values() if isinstance(value, list) and value and _are_objects(value)]
    if len(lists) > 1:
        raise TaskError(f"{path.name} holds {len(lists)} lists of objects; give a list of rows alone, or JSONL")
    return lists[0] if lists else [document]


def _are_objects(values: list[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _parsed(path: Path, where: str, data: bytes) -> Any:
    try:
        return json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name} {where}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        torn = error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())
        cut = "; the file seems to be cut off there" if torn else ""
        raise TaskError(f"{path.name} {where}: not JSON ({error.msg} at column {error.colno}){cut}") from error
    except RecursionError as error:
        raise TaskError(f"{path.name} {where}: nested too deeply; the limit is {MAX_DEPTH} levels") from error
    except ValueError as error:  # ours, and numbers too long for Python
        raise TaskError(f"{path.name} {where}: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    columns = dict(pairs)
    if len(columns) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice; keep one")
    return columns


def _constant(name: str) -> float:
    if name != "NaN":
        raise ValueError(f"{name} is no number that can be used; write null where there is none")
    return math.nan
