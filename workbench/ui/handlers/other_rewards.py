"""The second side's rewards on Inspect: the rows of the list with other switches, weights and options, as text.

A line is about one row: its name and ``off``, or its weight and options: ``length_target 0.5 target_length=80``. Rows
that no line names are as they are in the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import ConfigError, RewardError, cut, did_you_mean
from workbench.rewards import find_builtin
from workbench.ui.handlers.reward_rows import RewardRow

Rows = Sequence[RewardRow | None]
LONGEST = 2_000
"""Characters of the text."""


def rows_of_other(rows: Rows, text: str) -> tuple[RewardRow | None, ...]:
    """The list as the second side has it. Raises ConfigError naming the line that does not fit."""
    if len(text) > LONGEST:
        raise ConfigError(f"other rewards: the text has {len(text):,} characters; the limit is {LONGEST:,}")
    changed = list(rows)
    for line in filter(None, map(str.strip, text.splitlines())):
        place, rest = _row(rows, line)
        row = changed[place]
        assert row is not None
        changed[place] = _changed(row, rest.split(), line)
    return tuple(changed)


def _row(rows: Rows, line: str) -> tuple[int, str]:
    """Which row a line is about, the longest name first, and what it says of it."""
    names = {row.name: place for place, row in enumerate(rows) if row is not None}
    for name in sorted(names, key=len, reverse=True):
        if line == name or (line.startswith(name) and line[len(name)].isspace()):
            return names[name], line[len(name) :]
    guess = did_you_mean(line.split()[0], names)
    raise ConfigError(f"other rewards: {cut(line, 80)!r} names no row of the list{guess}; begin with one of its names")


def _changed(row: RewardRow, words: Sequence[str], line: str) -> RewardRow:
    if not words:
        raise ConfigError(f"other rewards: {cut(line, 80)!r} changes nothing; give a weight, an option or off")
    if list(words) == ["off"]:
        return replace(row, on=False)
    fields: Mapping[str, Any] = row.fields
    for word in words:
        name, is_option, value = word.partition("=")
        if is_option:
            fields = {**fields, "options": {**fields.get("options", {}), name: _option(row, name, value, line)}}
        else:
            others = {key: held for key, held in fields.items() if key != "schedule"}
            fields = {**others, "weight": _number(word, line)}
    return replace(row, fields=fields, on=True)


def _option(row: RewardRow, name: str, value: str, line: str) -> Any:
    if not row.is_builtin:
        raise ConfigError(f"other rewards: {cut(line, 80)!r}: options are of built-in functions; give a weight or off")
    try:
        return find_builtin(row.name).option_of_text(name, value)
    except RewardError as error:
        raise ConfigError(f"other rewards: {cut(line, 80)!r}: {error}") from error


def _number(word: str, line: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ConfigError(
            f"other rewards: {cut(line, 80)!r}: {cut(word, 40)!r} is no weight; write a number, off, or OPTION=VALUE"
        ) from None
