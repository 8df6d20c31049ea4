"""A data file of any origin → its rows as plain JSON values, or an error that names the line and what is wrong in it.

JSONL (one object a line), a JSON array of objects, and Parquet are told apart by how they begin. This module does not
know what the columns mean. What it reads may be damaged or hostile and some of it goes through native code, so it runs
in a child process (``rollouts.child``); call ``rollouts.read_rows`` instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from workbench.errors import TaskError, cut

MAX_BYTES = 256 * 2**20
"""Largest file; a Parquet file may be four times that when unpacked."""
MAX_DEPTH = 64
"""Deepest nesting of a value."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TEXTS = frozenset({"prompt", "question", "problem", "completion", "chosen", "rejected"})


@dataclass(frozen=True)
class Row:
    """One row's columns. ``where`` is how messages call it: ``line 3`` of JSONL, ``row 3`` of all else.

    ``mended`` says that its texts held unpaired surrogates, which no tokenizer and no UTF-8 file takes: each is U+FFFD.
    ``unset`` says that it held NaN, which is None in ``values``.
    """

    where: str
    values: dict[str, Any]
    mended: bool = False
    unset: bool = False


def read_rows(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Row]:
    """The file's rows, one after the other; NaN is ``None``.

    Raises TaskError for a file that is missing, empty, over the limit, neither JSON nor Parquet, or broken at a line.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise TaskError(f"{path.name} is not a file; give a JSONL or Parquet file")
        if size > max_bytes:
            raise TaskError(f"{path.name} has {size:,} bytes, over the size limit of {max_bytes:,}; split it")
        with path.open("rb") as stream:
            start = stream.read(64)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise TaskError(f"{cut(str(path), 300)}: {reason}; give a JSONL or Parquet file that can be read") from error
    if start[:4] == b"PAR1":
        rows = _parquet(path, 4 * max_bytes)
    elif start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b""):
        rows = _jsonl(path)
    elif start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        rows = _json_array(path)
    else:
        kind = "text" if start.isascii() and b"\0" not in start else "binary"  # what it says may be a secret
        raise TaskError(
            f"{path.name} is not Parquet or JSONL but another {kind} file; a JSONL file begins with {{ and a Parquet "
            "file with PAR1"
        )
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise TaskError(f"{path.name} has no rows; give it at least one")


# --- JSON ----------------------------------------------------------------------------------------------------------


def _jsonl(path: Path) -> Iterator[Row]:
    # Split at line feeds only: U+2028 may stand inside a text.
    for number, line in enumerate(_content(path).split(b"\n"), start=1):
        if line.strip():
            yield row_of(path.name, f"line {number}", _parsed(path, f"line {number}", line))


def _json_array(path: Path) -> Iterator[Row]:
    rows = _parsed(path, "the whole file", _content(path))
    for number, values in enumerate(rows, start=1):
        yield row_of(path.name, f"row {number}", values)


def _content(path: Path) -> bytes:
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf")


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


# --- Parquet -------------------------------------------------------------------------------------------------------


def _parquet(path: Path, max_unpacked: int) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            unpacked = sum(file.metadata.row_group(i).total_byte_size for i in groups)
            if unpacked > max_unpacked:
                raise TaskError(
                    f"{path.name} unpacks to {unpacked:,} bytes, over the size limit of {max_unpacked:,}; split it"
                )
            number = 0
            for batch in file.iter_batches(batch_size=256):
                for values in batch.to_pylist():
                    number += 1
                    yield row_of(path.name, f"row {number}", values)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(f"{path.name} is a damaged Parquet file ({first[:200]}); write it again") from error


# --- values --------------------------------------------------------------------------------------------------------


def row_of(source: str, where: str, values: Any) -> Row:
    """A row of JSON values alone. Raises TaskError, naming the source, for one that is no object or holds infinity."""
    if not isinstance(values, dict):
        shown = json.dumps(values, default=str)[:60]
        raise TaskError(f"{source} {where}: every row must be an object with named columns; found {shown}")
    try:
        plain = {_mended(name): _plain(name, value, 1) for name, value in values.items()}
        return Row(where, plain, mended=_any_of(values, _is_surrogate), unset=_any_of(values, _is_nan))
    except ValueError as error:
        raise TaskError(f"{source} {where}: {error}") from error


def _plain(column: str, value: Any, depth: int) -> Any:
    """A JSON value, whatever Parquet or JSON made of it."""
    if isinstance(value, str):
        return _mended(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"{column!r} is infinite; leave it empty where there is no number")
        return None if math.isnan(value) else value
    if depth > MAX_DEPTH:
        _too_deep(column)
    if isinstance(value, dict):
        return {_mended(str(name)): _plain(column, item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(column, item, depth + 1) for item in value]
    if isinstance(value, bytes):
        return _decoded(column, value)
    return float(value) if isinstance(value, Decimal) and value.is_finite() else str(value)  # a date


def _decoded(column: str, value: bytes) -> str:
    """Text that a Parquet file has as bytes; what they are, where they are none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not _CONTROL.search(text):
        return text
    if column in _TEXTS:
        raise ValueError(f"{column!r} holds {len(value):,} bytes that are no UTF-8 text; write it as text")
    return f"<{len(value):,} bytes>"


def _mended(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _is_surrogate(value: Any) -> bool:
    return isinstance(value, str) and _SURROGATE.search(value) is not None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _any_of(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether a text or number anywhere in ``value`` is such a one."""
    if isinstance(value, dict):
        return any(_any_of(item, holds) for pair in value.items() for item in pair)
    return any(_any_of(item, holds) for item in value) if isinstance(value, list) else holds(value)


def _too_deep(column: str) -> NoReturn:
    raise ValueError(f"{column!r} is nested too deeply; the limit is {MAX_DEPTH} levels")
