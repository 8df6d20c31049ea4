"""Columns of a row by name, and columns made of others: ``answer=reward_model.ground_truth``.

A dot leads into an object, or by a number into a list (``messages.0.content``, -1 for the last); a column that is
called so as it stands goes first. Nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import TaskError, cut, did_you_mean

_MISSING = object()
_TEXTS = {"prompt", "completion", "chosen", "rejected"}
_DEPTH = 4
"""Levels whose names a message lists."""


def has(values: Mapping[str, Any], name: str) -> bool:
    return _at(values, name) is not _MISSING


def value_at(values: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value that a dotted name leads to, ``default`` where it leads nowhere."""
    found = _at(values, name)
    return default if found is _MISSING else found


def columns_of(where: str, values: Mapping[str, Any], columns: Mapping[str, str], field: str) -> dict[str, Any]:
    """Each column of ``columns`` with what its source holds in a row.

    Raises TaskError naming ``field``, the row and the nearest name, where a source leads nowhere.
    """
    made = {}
    for name, source in columns.items():
        value = _at(values, source)
        if value is _MISSING:
            names = names_of(values)
            raise TaskError(
                f"{field}: {where} has no {source!r}{did_you_mean(source, names)}; it has {cut(', '.join(names), 300)}"
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)  # of a CSV file, say
        made[name] = str(value) if name in _TEXTS and is_number else value
    return made


def names_of(values: Mapping[str, Any], prefix: str = "", depth: int = 1) -> list[str]:
    """The dotted names of a row's values, those in objects too."""
    names = []
    for name, value in values.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict) and depth < _DEPTH:
            names += names_of(value, f"{prefix}{name}.", depth + 1)
    return names


def _at(values: Any, name: str) -> Any:
    if isinstance(values, Mapping):
        if name in values:
            return values[name]
        first, dot, rest = name.partition(".")
        return _at(values[first], rest) if dot and first in values else _MISSING
    if isinstance(values, list):
        first, dot, rest = name.partition(".")
        if not first.removeprefix("-").isdecimal() or not -len(values) <= int(first) < len(values):
            return _MISSING
        return _at(values[int(first)], rest) if dot else values[int(first)]
    return _MISSING
