"""A row's values as plain JSON, whatever a parser made of them, or a fault that names the row and the column.

This module does not know what the columns mean, nor which file a row is of.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Deepest nesting of a value."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TEXTS = frozenset({"prompt", "question", "problem", "completion", "chosen", "rejected"})


@dataclass(frozen=True)
class Row:
    """One row's columns. ``where`` is how messages call it: ``line 3`` of JSONL, ``row 3`` of all else.

    ``mended`` says that its texts held unpaired surrogates, which no tokenizer and no UTF-8 file takes: each is U+FFFD.
    ``unset`` says that it held NaN, which is None in ``values``. A row that cannot be read has no values and says why
    in ``fault``; one that an import leaves out with a note has that note in ``left_out``.
    """

    where: str
    values: dict[str, Any]
    mended: bool = False
    unset: bool = False
    fault: str = ""
    left_out: str = ""


def row_of(source: str, where: str, values: Any) -> Row:
    """Return a row of JSON values; one that is no object or holds infinity has a ``fault`` that names the source."""
    if not isinstance(values, dict):
        shown = json.dumps(values, default=str)[:60]
        return Row(where, {}, fault=f"{source} {where}: every row must be an object with named columns; found {shown}")
    try:
        plain = {_mended(name): _plain(name, value, 1) for name, value in values.items()}
        return Row(where, plain, mended=_any_of(values, _is_surrogate), unset=_any_of(values, _is_nan))
    except ValueError as error:
        return Row(where, {}, fault=f"{source} {where}: {error}")


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
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _is_surrogate(value: Any) -> bool:
    return isinstance(value, str) and not value.isascii() and _SURROGATE.search(value) is not None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _any_of(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether a text or number anywhere in ``value`` is such a one."""
    if isinstance(value, dict):
        return any(_any_of(item, holds) for pair in value.items() for item in pair)
    return any(_any_of(item, holds) for item in value) if isinstance(value, list) else holds(value)


def _too_deep(column: str) -> NoReturn:
    raise ValueError(f"{column!r} is nested too deeply; the limit is {MAX_DEPTH} levels")
