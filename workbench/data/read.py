"""A data file, a folder or a data set of the Hub → its rows as plain JSON values, each with its place.

JSON lines, JSON (a list of objects, or an object that holds one), CSV, Parquet and Arrow are told apart by how they
begin, CSV by its name; each may be compressed by gzip. What a folder holds is told by the names of its files, as
``datasets`` does it, and what ``save_to_disk`` wrote is loaded by ``datasets``. A row that cannot be read has a
``fault`` in place of values. What the columns mean is not known here.
"""

import csv
import gzip
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from workbench.assets import GSM8K
from workbench.errors import TaskError, cut, did_you_mean, quote
from workbench.places import hub_problem, local_path

T = TypeVar("T")
SHIPPED = {"gsm8k": GSM8K / "model-solutions-300.jsonl"}
"""Data that comes with the workbench, by the name it can be loaded under."""
MAX_BYTES = 256 * 2**20
"""Largest file, and largest sum of a folder's."""
MAX_NAMES = 50_000
"""Most files and folders that are looked through for those with rows."""
MAX_DEPTH = 64
"""Deepest nesting of a value."""
EVERY = "*"
"""In place of a split: all data files of a folder."""
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
"""Names of data files end in these, or in these and ``.gz``."""
_BATCH = 256  # rows of a table that are Python's at a time


@dataclass(frozen=True)
class Row:
    """One row's columns. ``where`` is how messages call it: ``line 3`` of a text file, ``row 3`` of all else.

    ``changed`` says what was: ``SURROGATES``, which no tokenizer and no UTF-8 file takes, and ``NAN``, which is None in
    ``values``. A row that cannot be read has no values and says why in ``fault``; one that an import leaves out with a
    note has that note in ``left_out``.
    """

    where: str
    values: dict[str, Any]
    changed: frozenset[str] = frozenset()
    fault: str = ""
    left_out: str = ""


class Lazy(Sequence[T]):
    """Items made when they are asked for, the same index always giving the same one."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"item {index} of {self._count}; indices run from 0 to {self._count - 1}")
        return self._make(index % self._count)


def is_of_a_run(file: Path) -> bool:
    """Return whether it is the rollouts that a run of this workbench stored."""
    import pyarrow.parquet as pq

    try:
        return b"groups" in (pq.read_schema(file).metadata or {})
    except (OSError, ValueError):  # no file, or no Parquet
        return False


def resolve(path: str | Path) -> Path:
    """Return the file that a path or a name of shipped data stands for."""
    if isinstance(path, str) and path in SHIPPED:
        return SHIPPED[path]
    return local_path(str(path)) or Path(path)


def read_rows(path: str | Path, split: str | None = None, *, max_bytes: int = MAX_BYTES) -> list[Row]:
    """Return the rows of a file, or of a folder's files of one split (``train``, or the first), one after the other.

    Raises TaskError for what is missing, empty, over the limit, of no known format, or broken at a line, and for a
    split that a folder does not have; a file has none.
    """
    rows = list(rows_and_faults(resolve(path), split, max_bytes=max_bytes))
    if fault := next((row.fault for row in rows if row.fault), None):
        raise TaskError(fault)
    return rows


def rows_and_faults(path: Path, split: str | None = None, *, max_bytes: int = MAX_BYTES) -> Iterator[Row]:
    """Yield what ``read_rows`` returns, and in their places the rows that cannot be read. Raises TaskError as it."""
    if not os.path.isdir(path):
        if split not in (None, EVERY):
            raise TaskError(f"{path.name} is one file, which has no split {split!r}; leave the split out")
        yield from _rows_of_file(path, max_bytes)
        return
    splits = _splits_of(path, part=split != EVERY)
    if split is None:
        split = _trained_on(splits)
    if split != EVERY and split not in splits:
        raise TaskError(
            f"{path.name} has no split {split!r}{did_you_mean(split, splits)}; its splits are {', '.join(splits)}"
        )
    sources: Sequence[_Source] = [source for name, held in splits.items() if split in (EVERY, name) for source in held]
    files = [source for source in sources if isinstance(source, Path)]
    if split == EVERY and files:
        samples = [file for file in files if file.name.startswith("samples_")]  # beside lm-eval's table of results
        sources = files = sorted(samples or files, key=_in_order)
    total = sum(file.stat().st_size for file in files)
    if total > max_bytes:
        raise TaskError(f"{path.name} holds {total:,} bytes of rows, over the limit of {max_bytes:,}; split it")
    for source in sources:
        if not isinstance(source, Path):
            yield from (row_of(path.name, f"row {n}", values) for n, values in enumerate(source, start=1))
            continue
        name = str(source.relative_to(path))
        if split == EVERY and "annotations" in source.relative_to(path).parts[:-1]:  # of a prime-rl run
            yield Row(name, {}, left_out=f"{name} is passed by: it annotates other rows and has no completions")
            continue
        for row in _rows_of_file(source, max_bytes):
            yield replace(row, where=f"{name} {row.where}")


def row_of(source: str, where: str, values: Any) -> Row:
    """Return a row of JSON values; one that is no object has a ``fault`` that names the source."""
    seen: set[str] = set()
    try:
        if not isinstance(values, dict):
            found = quote(values, 60)
            raise ValueError(f"every row must be an object with named columns; found {found}")
        plain = {_mended(name, seen): _plain(name, value, seen, 1) for name, value in values.items()}
    except ValueError as error:
        return Row(where, {}, fault=f"{source} {where}: {error}")
    return Row(where, plain, frozenset(seen))


# --- values ----------------------------------------------------------------------------------------------------------

NAN = "with NaN, which is taken for no number: a reward of NaN is unscored"
SURROGATES = "with unpaired surrogates, each replaced by U+FFFD"
"""What notes say of rows."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def _plain(column: str, value: Any, seen: set[str], depth: int) -> Any:
    """Return a JSON value, whatever Parquet or JSON made of it. Adds to ``seen`` what was changed."""
    if isinstance(value, str):
        return _mended(value, seen)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        seen.add(NAN)
        return None
    if depth > MAX_DEPTH:
        raise ValueError(f"{column!r} is nested too deeply; the limit is {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {_mended(str(name), seen): _plain(column, item, seen, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(column, item, seen, depth + 1) for item in value]
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return f"<{len(value):,} bytes>"
    return float(value) if isinstance(value, Decimal) and value.is_finite() else str(value)  # a date


def _mended(text: str, seen: set[str]) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    seen.add(SURROGATES)
    return _SURROGATE.sub("\ufffd", text)


# --- files -----------------------------------------------------------------------------------------------------------


def _rows_of_file(path: Path, max_bytes: int) -> Iterator[Row]:
    """Yield a file's rows. Raises TaskError for one in which no row can be read."""
    fault = f"{path.name} has no rows; give it at least one"
    empty = True
    try:
        if (size := path.stat().st_size) > max_bytes:
            raise TaskError(f"{path.name} has {size:,} bytes, over the limit of {max_bytes:,}; split it")
        with path.open("rb") as stream:
            is_packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            for row in _parsed_rows(path.name, io.BytesIO(gzip.decompress(stream.read())) if is_packed else stream):
                if empty and row.fault:
                    fault = row.fault
                empty = empty and bool(row.fault)
                yield row
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:  # pyarrow's are of these, too
        raise TaskError(f"{cut(path.name, 300)} cannot be read: {_reason(error)}") from error
    if empty:
        raise TaskError(fault)


def _parsed_rows(name: str, stream: IO[bytes]) -> Iterator[Row]:
    """Return the rows of the format that a stream begins as."""
    start = stream.read(64)
    stream.seek(0)
    if start.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
        return _table_rows(name, stream, start)
    if start.startswith(b"\xef\xbb\xbf"):
        start = start[3:]
        stream.seek(3)
    if name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        return _csv_rows(name, stream)
    if (first := start.lstrip()[:1]) not in (b"{", b"[", b""):
        raise TaskError(f"{name} is no data file: use .csv, .tsv, JSON, JSONL, Parquet or Arrow")
    if first == b"[" or name.lower().removesuffix(".gz").endswith(".json"):
        return _json_rows(name, stream)
    return _json_lines(name, stream)


def _table_rows(name: str, stream: IO[bytes], start: bytes) -> Iterator[Row]:
    """Yield the rows of Parquet, or of Arrow: a file, or a stream as ``datasets`` writes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if start.startswith(b"PAR1"):
        batches = pq.ParquetFile(stream).iter_batches(batch_size=_BATCH)
    elif start.startswith(b"ARROW1"):
        arrow = pa.ipc.open_file(stream)
        batches = (arrow.get_batch(i) for i in range(arrow.num_record_batches))
    else:
        batches = pa.ipc.open_stream(stream)
    parts = (batch.slice(first, _BATCH) for batch in batches for first in range(0, batch.num_rows, _BATCH))
    rows = (values for part in parts for values in part.to_pylist())
    yield from (row_of(name, f"row {number}", values) for number, values in enumerate(rows, start=1))


# --- JSON ------------------------------------------------------------------------------------------------------------


_NOT_JSON = (json.JSONDecodeError, UnicodeDecodeError)


def _json_rows(name: str, stream: IO[bytes]) -> Iterator[Row]:
    """Yield the rows of a list, of the one list of objects that an object holds, or of lines; or it is one row."""
    text = stream.read()
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        yield from _json_lines(name, io.BytesIO(text))
        return
    if isinstance(document, dict):
        is_row = b"\n" not in text.strip() or "rollouts" in document  # a line is one, as a group of ours is
        lists = [
            value
            for value in document.values()
            if isinstance(value, list) and value and all(isinstance(item, dict) for item in value) and not is_row
        ]
        if len(lists) > 1:
            raise TaskError(f"{name} holds {len(lists)} lists of objects; give a list of rows alone, or JSONL")
        document = lists[0] if lists else [document]
    yield from (row_of(name, f"row {number}", values) for number, values in enumerate(document, start=1))


def _json_lines(name: str, stream: IO[bytes]) -> Iterator[Row]:
    """Yield a row a line. A last line that stops in its middle, with no line end, is still being written."""
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            yield row_of(name, where, json.loads(line.decode()))
        except (ValueError, RecursionError) as error:
            is_torn = line.lstrip().startswith(b"{") and not line.endswith(b"\n") and isinstance(error, _NOT_JSON)
            note = f"{where}, the last one, is left out: it is not whole (is the file still being written?)"
            yield Row(where, {}, fault=f"{name} {where}: {_reason(error)}", left_out=note if is_torn else "")


def _reason(error: Exception) -> str:
    """Say what is wrong with a file, or with a line of it."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8; save the file as UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at column {error.colno})"
    if isinstance(error, RecursionError):
        return f"nested too deeply; the limit is {MAX_DEPTH} levels"
    return cut(str(getattr(error, "strerror", None) or error) or type(error).__name__, 300)


# --- CSV -------------------------------------------------------------------------------------------------------------

_AS_TEXT = re.compile(
    r"prompt|question|problem|instruction|input|output|completion|response|chosen|rejected|answer|solution|.*text", re.I
)
_WORDS = {
    **dict.fromkeys(("nan", "none", "null", "na", "n/a", "inf", "-inf", "infinity"), math.nan),
    "": None,
    "true": True,
    "false": False,
}


def _csv_rows(name: str, stream: IO[bytes]) -> Iterator[Row]:
    """Yield rows of the columns that the first line names; they are parted by commas, semicolons or tabs.

    CSV has no types: a column is JSON (numbers, true, lists) if all its cells are, else text, and so are prompts and
    answers whatever they look like. An empty cell is None, as NaN, null or NA is in a column that is not text.
    """
    text = stream.read().decode()
    header = text.partition("\n")[0]
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise TaskError(f"{name} line {reader.line_num}: not CSV ({error}); check the quotes") from error
    names = [cell.strip() for cell in lines[0][1]] if lines else []
    if twice := [column for column in names if names.count(column) > 1]:
        raise TaskError(f"{name} line 1: the column {twice[0]!r} is there twice; keep one")
    whole = []
    for number, cells in lines[1:]:
        if len(cells) == len(names):
            whole.append((number, cells))
            continue
        fault = f"{name} line {number}: {len(cells)} cells, and the first line names {len(names)} columns"
        yield Row(f"line {number}", {}, fault=fault)
    columns: list[Sequence[Any]] = []
    for i, column in enumerate(names):
        columns.append([cells[i] or None for _, cells in whole])
        with suppress(ValueError, RecursionError):
            if not _AS_TEXT.fullmatch(column):
                columns[i] = [_value(cells[i]) for _, cells in whole]
    for (number, _), values in zip(whole, zip(*columns, strict=True), strict=False):
        yield row_of(name, f"line {number}", dict(zip(names, values, strict=True)))


def _value(cell: str) -> Any:
    """Return a cell as JSON has it. Raises ValueError for text."""
    word = cell.lower()
    if word in _WORDS:
        return _WORDS[word]
    if word.startswith('"'):
        raise ValueError("text in quotes")
    return json.loads(cell)


# --- folders ---------------------------------------------------------------------------------------------------------

_KEYWORDS = {  # words in a file's or folder's name that say its split, as in ``datasets.data_files``
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_HELD_OUT = ("test", "validation")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\b.*")
_IGNORED = {"dataset_info.json", "dataset_infos.json", "metadata.json", "config.json"}
_Source = Path | Sequence[Mapping[str, Any]]


def find_held_out(path: Path, split: str | None) -> str | None:
    """Return the split that is held out where ``split`` is trained on; None where there is none. Raises TaskError."""
    if not os.path.isdir(path):
        return None
    splits = _splits_of(path)
    return next((name for name in _HELD_OUT if name in splits and name != (split or _trained_on(splits))), None)


def _trained_on(splits: Mapping[str, Any]) -> str:
    return "train" if "train" in splits else next(iter(splits))


def _splits_of(folder: Path, *, part: bool = True) -> Mapping[str, Sequence[_Source]]:
    """Return split → its files in order, or the one data set that ``save_to_disk`` wrote.

    Raises TaskError, also for the files of several data sets if they are to be parted.
    """
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):  # ``save_to_disk`` wrote it
        from datasets import Dataset, load_from_disk

        saved = load_from_disk(str(folder))
        return {"train": [saved]} if isinstance(saved, Dataset) else {name: [part] for name, part in saved.items()}
    found = list(islice(folder.rglob("*"), MAX_NAMES + 1))
    files = [
        file
        for file in found
        if file.name.lower().removesuffix(".gz").endswith(SUFFIXES)
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        and file.name not in _IGNORED
        and not file.name.endswith(".provenance.json")
        and file.is_file()
    ]
    files.sort(key=_in_order)
    if len(found) > MAX_NAMES:
        raise TaskError(f"{folder} holds more than {MAX_NAMES:,} files and folders; give one of its folders")
    if not files:
        raise TaskError(f"{folder.name} is a folder without rows; it needs a file that ends in {', '.join(SUFFIXES)}")
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(split_of(file.relative_to(folder)) or "", []).append(file)
    unnamed = splits.pop("", [])
    if unnamed and "train" not in splits:
        splits = {"train": unnamed, **splits}
    for split, members in splits.items() if part else ():
        names = [file.name for file in members]
        if twice := [file for file in members if names.count(file.name) > 1]:  # as configurations of a data set have
            holders = ", ".join(str(file.parent.relative_to(folder)) for file in twice if file.name == twice[0].name)
            holders = cut(holders, 300)
            raise TaskError(
                f"{folder.name} holds several data sets: {twice[0].name} of the split {split!r} is in {holders}; give "
                "one of these folders"
            )
    return splits


def split_of(path: Path) -> str | None:
    """Return the split that a path within a folder names; None where it names none."""
    if shard := _SHARD.fullmatch(path.name):
        return shard[1]
    for name in (*reversed(path.parts[:-1]), path.name):
        words = re.split(r"[-._ 0-9]+", name.lower())
        split = next((split for split, known in _KEYWORDS.items() if any(word in words for word in known)), None)
        if split is not None:
            return split
    return None


def _in_order(path: Path) -> list[tuple[bool, int, str]]:
    """Sort as a person counts: ``2.jsonl`` before ``10.jsonl``."""
    parts = re.split(r"(\d+)", str(path))
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


# --- the Hub ---------------------------------------------------------------------------------------------------------

HUB = "hub:"
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?")


def parts_of(name: str) -> tuple[str, str | None, str | None]:
    """Return repository, config and revision of a data set's name. Raises TaskError for a name of another form."""
    match = _NAME.fullmatch(name.removeprefix(HUB))
    if match is None or ".." in name:
        raise TaskError(
            f"{quote(name)} names no data set of the Hub; the form is hub:OWNER/NAME, hub:OWNER/NAME/CONFIG, and "
            "@REVISION behind either"
        )
    return match["repository"], match["config"], match["revision"]


def hub_rows(
    name: str, split: str | None = None, held_out: str | None = None
) -> tuple[Sequence[Row], Sequence[Row] | None]:
    """Return a split of a data set (``train``, or the first), and what it holds out (``test`` or ``validation``).

    ``datasets`` finds, downloads and keeps them, and reads a row when it is asked for. Without a config that is
    ``default``, ``main``, or the first there is. Data of that name in the current folder goes before the Hub's.

    Raises:
        TaskError: for a name of another form, a split that is not there, and whatever keeps ``datasets`` from loading.
    """
    repository, config, revision = parts_of(name)
    from huggingface_hub import constants

    certain = not constants.HF_HUB_OFFLINE  # if it is set, ``datasets`` looks into its own cache alone
    if local_path(repository) is None and (problem := hub_problem(repository, kind="dataset", certain=certain)):
        raise TaskError(f"{name}: {problem}")
    from datasets import get_dataset_config_names, load_dataset

    try:
        if config is None:
            known = get_dataset_config_names(repository, revision=revision)
            config = next((name for name in ("default", "main") if name in known), known[0])
        splits = load_dataset(repository, config, revision=revision)
    except Exception as error:  # names, network, rights and formats each fail in their own way
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(
            f"{name}: the data set cannot be loaded ({first[:300]}); check its name and the network, or log in with "
            "hf auth login"
        ) from error
    for asked in (split, held_out):
        if asked is not None and asked not in splits:
            raise TaskError(
                f"{name} has no split {asked!r}{did_you_mean(asked, splits)}; its splits are {', '.join(splits)}"
            )
    train = split or _trained_on(splits)
    held_out = held_out or next((name for name in _HELD_OUT if name in splits and name != train), None)

    def rows(split: str, what: str) -> Sequence[Row]:
        return Lazy(len(splits[split]), lambda i: row_of(name, f"{what} row {i + 1}", splits[split][i]))

    return rows(train, "training"), None if held_out is None else rows(held_out, "held-out")
