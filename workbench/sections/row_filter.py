"""Filters of rows: ``level >= 3 and subject in [algebra, geometry]``. Conditions on columns; nothing is evaluated.

A condition is a column, an operator and a value: a number, true, false, null, a word, a text in quotes, or a list of
these in brackets. What of a row a column's name stands for is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<sign>==|!=|<=|>=|=|<|>)|(?P<mark>[\[\],])|(?P<word>[^\s\[\],=<>!"']+))"""
)
_WORDS = {"true": True, "false": False, "null": None, "none": None}
LONGEST = 10_000
"""Characters of a filter."""


@dataclass(frozen=True)
class Condition:
    column: str
    operator: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Whether a row's value fulfils it; one that cannot be compared does not."""
        return OPERATORS[self.operator](value, self.value)


def parse_filter(text: str) -> tuple[Condition, ...]:
    """The conditions, all of which must hold. Raises ValueError saying what was read and what is wanted."""
    if len(text) > LONGEST:
        raise ValueError(f"the filter has {len(text):,} characters; the limit is {LONGEST:,}")
    tokens = _tokens(text)
    conditions = []
    while True:
        conditions.append(_condition(tokens))
        if not tokens:
            return tuple(conditions)
        kind, word = tokens.pop(0)
        if (kind, word) != ("word", "and"):
            raise ValueError(f"{word!r} is where 'and' or the end is wanted; conditions are joined by 'and'")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[at:].strip()[:20]!r} cannot be read; close the quotes, write != for unequal")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _condition(tokens: list[tuple[str, str]]) -> Condition:
    kind, column = _next(tokens, "a column")
    if kind not in ("word", "text"):
        raise ValueError(f"{column!r} is where a column's name is wanted")
    kind, operator = _next(tokens, f"an operator behind {column!r}")
    if operator == "not":
        kind, second = _next(tokens, "'in' behind 'not'")
        operator = f"not {second}"
    operator = "==" if operator == "=" else operator
    if operator not in OPERATORS or kind == "text":
        raise ValueError(f"{operator!r} is no operator; there are {', '.join(OPERATORS)}")
    value = _value(tokens, operator)
    if operator.endswith("in") and not isinstance(value, list):
        raise ValueError(f"{operator!r} wants a list in brackets, [a, b]")
    if not operator.endswith("in") and isinstance(value, list):
        raise ValueError(f"{operator!r} wants one value, and a list stands behind it; write in")
    return Condition(column.strip("\"'"), operator, value)


def _value(tokens: list[tuple[str, str]], operator: str) -> Any:
    kind, word = _next(tokens, f"a value behind {operator!r}")
    if (kind, word) != ("mark", "["):
        return _literal(kind, word)
    values: list[Any] = []
    while (token := _next(tokens, "']' at the end of a list")) != ("mark", "]"):
        if token != ("mark", ","):
            values.append(_literal(*token))
    return values


def _literal(kind: str, word: str) -> Any:
    if kind == "text":
        return word[1:-1]
    if kind != "word":
        raise ValueError(f"{word!r} is where a value is wanted")
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    number = _number(word)
    return word if number is None else number


def _next(tokens: list[tuple[str, str]], wanted: str) -> tuple[str, str]:
    if not tokens:
        raise ValueError(f"the filter ends where {wanted} is wanted")
    return tokens.pop(0)


# --- comparisons ---------------------------------------------------------------------------------------------------


def _number(value: Any) -> float | None:
    """A number, or a text that is one; None for all else, also for true, false and what is endless."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) != float("inf") and number == number else None


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return _number(value) == wanted
    return bool(value == wanted and isinstance(value, bool) == isinstance(wanted, bool))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(value: Any, wanted: Any) -> bool:
        if isinstance(wanted, float):
            number = _number(value)
            return number is not None and compare(number, wanted)
        return isinstance(value, str) and isinstance(wanted, str) and compare(value, wanted)

    return holds


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(_equal(item, wanted) for item in value)
    text = f"{wanted:g}" if isinstance(wanted, float) else str(wanted)
    return isinstance(value, str) and text in value


OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda value, wanted: not _equal(value, wanted),
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "in": lambda value, wanted: any(_equal(value, item) for item in wanted),
    "not in": lambda value, wanted: not any(_equal(value, item) for item in wanted),
    "contains": _contains,
}
"""Operator → whether it holds between a row's value and the filter's."""
