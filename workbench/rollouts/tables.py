"""Tables → rows: Parquet, Arrow (as ``datasets`` saves it) and CSV, from their bytes.

CSV has no types: a column whose cells all are numbers, true and false, or JSON is read as that, any other as text, and
so are prompts, completions and answers whatever they look like. An empty cell is None, and so is NaN, None, null or NA
in a column that is not text.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from workbench.errors import TaskError
from workbench.rollouts.values import Row, row_of

_NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|inf(inity)?)", re.I)
_NO_NUMBER = re.compile(r"[-+]?nan|none|null|na|n/a", re.I)
_AS_TEXT = re.compile(
    r"prompt|question|problem|instruction|input|output|completion|response|chosen|rejected|answer|solution|.*text", re.I
)
_BATCH = 256


def parquet_rows(name: str, data: bytes, max_unpacked: int) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with _readable(name, "Parquet"), pq.ParquetFile(io.BytesIO(data)) as file:
        groups = range(file.metadata.num_row_groups)
        unpacked = sum(file.metadata.row_group(i).total_byte_size for i in groups)
        if unpacked > max_unpacked:
            raise TaskError(f"{name} unpacks to {unpacked:,} bytes, over the size limit of {max_unpacked:,}; split it")
        yield from _batch_rows(name, file.iter_batches(batch_size=_BATCH))


def arrow_rows(name: str, data: bytes) -> Iterator[Row]:
    """Of an Arrow file, or a stream as ``datasets`` writes it."""
    import pyarrow as pa

    with _readable(name, "Arrow"):
        if data[:6] == b"ARROW1":
            with pa.ipc.open_file(io.BytesIO(data)) as file:
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
                yield from _batch_rows(name, batches)
        else:
            with pa.ipc.open_stream(io.BytesIO(data)) as stream:
                yield from _batch_rows(name, stream)


@contextmanager
def _readable(name: str, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(f"{name} is a damaged {kind} file ({first[:200]}); write it again") from error


def _batch_rows(name: str, batches: Any) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH):
            for values in batch.slice(start, _BATCH).to_pylist():
                number += 1
                yield row_of(name, f"row {number}", values)


# --- CSV -----------------------------------------------------------------------------------------------------------


def csv_rows(name: str, data: bytes) -> Iterator[Row]:
    """The first line names the columns; they are parted by commas, semicolons or tabs, whichever it has most of."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TaskError(f"{name} line {line}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    header = text.partition("\n")[0]
    before = csv.field_size_limit(max(len(text), csv.field_size_limit()))  # of the whole process
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise TaskError(f"{name} line {reader.line_num}: not CSV ({error}); check the quotes") from error
    finally:
        csv.field_size_limit(before)
    if not lines:
        return
    names = [cell.strip() for cell in lines[0][1]]
    if twice := [column for column in names if names.count(column) > 1]:
        raise TaskError(f"{name} line 1: the column {twice[0]!r} is there twice; keep one")
    for number, cells in lines[1:]:
        if len(cells) != len(names):
            fault = f"{name} line {number}: {len(cells)} cells, and the first line names {len(names)} columns"
            yield Row(f"line {number}", {}, fault=fault)
    rows = [(number, cells) for number, cells in lines[1:] if len(cells) == len(names)]
    columns = [_column(column, [cells[i] for _, cells in rows]) for i, column in enumerate(names)]
    for row, (number, _) in enumerate(rows):
        yield row_of(name, f"line {number}", {column: columns[i][row] for i, column in enumerate(names)})


def _column(name: str, cells: Sequence[str]) -> Sequence[Any]:
    filled = {cell for cell in cells if cell and not _NO_NUMBER.fullmatch(cell)}
    if not _AS_TEXT.fullmatch(name):
        for fits, read in _TYPES:
            if all(map(fits, filled)):
                return [read(cell) if cell in filled else math.nan if cell else None for cell in cells]
    return [cell or None for cell in cells]


def _is_json(cell: str) -> bool:
    try:
        return isinstance(json.loads(cell), list | dict)
    except (ValueError, RecursionError):
        return False


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


_TYPES: Sequence[tuple[Callable[[str], Any], Callable[[str], Any]]] = (
    (_NUMBER.fullmatch, _number),
    (lambda cell: cell.lower() in ("true", "false"), lambda cell: cell.lower() == "true"),
    (_is_json, json.loads),
)
"""What all filled cells of a column may be, and how one is read."""
