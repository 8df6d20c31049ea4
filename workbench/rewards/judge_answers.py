"""What a judge's answer says, read leniently: JSON in prose or fences, cut short, or with keys of its own choosing."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.schema.numbers import counted

_THOUGHT = re.compile(r"(?s)\A.*</think(?:ing)?>")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_BARE = re.compile(r"(?i)\bscore\b\W{0,6}(-?\d+(?:\.\d+)?)|\A\s*(-?\d+(?:\.\d+)?)\s*\Z")
_SCORE = ("score", "rating", "grade", "value")
_REASON = ("reason", "explanation", "rationale", "comment", "feedback")
_QUOTE = ("quote", "span", "evidence")
_NUMBER = ("step", "number", "index", "id")
_TRIES = 200  # brackets that begin no JSON
_LONGEST = 1000  # characters of a reason or quote


class UnreadableError(Exception):
    """An answer without the scores that were asked for; says why, to follow "the judge's answer"."""


@dataclass(frozen=True)
class Verdict:
    """A score, None where the judge gave none, with its reason and the words that it quoted."""

    score: float | None
    reason: str = ""
    quote: str = ""


def read_whole(text: str, lowest: float, highest: float) -> Verdict:
    """The verdict on a whole completion. Raises UnreadableError."""
    for value in reversed(list(_values(text))):
        entry = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(entry, Mapping) and any(key in entry for key in _SCORE):
            break
    else:
        found = _BARE.search(_THOUGHT.sub("", text))
        if found is None:
            raise UnreadableError("has no JSON with a score in it")
        entry = {"score": found[1] or found[2]}
    verdict = _verdict(entry, lowest, highest)
    if verdict.score is None and verdict.reason.startswith(_OUTSIDE):
        raise UnreadableError(verdict.reason)
    return verdict


def read_steps(text: str, count: int, lowest: float, highest: float) -> list[Verdict]:
    """A verdict a step, without a score for those that the answer leaves out. Raises UnreadableError for no score."""
    values = list(_values(text))
    entries = next(filter(None, (_entries(value, count) for value in reversed(values))), None)
    if entries is None or (len(values) > 1 and len(entries) == 1 < count):
        loose = [value for value in values if isinstance(value, Mapping) and _number(value) is not None]
        entries = _by_step(loose, count) or entries  # objects of a list that was cut short, or never one
    if not entries:
        raise UnreadableError(f"has no JSON with the scores of {counted(count, 'step')} in it")
    verdicts = [_verdict(entries[k], lowest, highest) if k in entries else Verdict(None) for k in range(count)]
    outside = [verdict.reason for verdict in verdicts if verdict.reason.startswith(_OUTSIDE)]
    if len(outside) == len(entries):
        raise UnreadableError(outside[0])
    return verdicts


def _values(text: str) -> Iterator[Any]:
    """The JSON objects and lists in a text, outermost ones, in order."""
    text = _THOUGHT.sub("", text)
    decoder = json.JSONDecoder(strict=False)  # line breaks in strings
    repaired = _TRAILING_COMMA.sub(r"\1", text)
    place = failed = 0
    while failed < _TRIES and (opened := re.compile(r"[{\[]").search(repaired, place)) is not None:
        try:
            value, place = decoder.raw_decode(repaired, opened.start())
            yield value
        except (json.JSONDecodeError, RecursionError):
            place, failed = opened.start() + 1, failed + 1
    if "'" in text and (found := re.search(r"(?s)[{\[].*[}\]]", text)):  # Python's own notation
        try:
            yield ast.literal_eval(found[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return


def _entries(value: Any, count: int) -> dict[int, Any]:
    """Entries by step, from 0, of the forms an answer may have; none where it has none of them."""
    if isinstance(value, Mapping):
        lists = [part for part in value.values() if isinstance(part, list) and part]
        if lists and (entries := _entries(lists[0], count)):
            return entries
        numbered = {str(key).removeprefix("step").strip(" _"): part for key, part in value.items()}
        if numbered and all(key.isdecimal() and len(key) < 6 for key in numbered):
            return {int(key) - 1: part for key, part in numbered.items() if 0 < int(key) <= count}
        return _by_step([value], count) if any(key in value for key in _SCORE) else {}
    if not isinstance(value, list):
        return {}
    if all(isinstance(part, Mapping) for part in value):
        return _by_step(value, count)
    plain = all(part is None or isinstance(part, int | float) for part in value)
    return dict(enumerate(value)) if plain and len(value) == count else {}


def _by_step(entries: Sequence[Mapping[str, Any]], count: int) -> dict[int, Any]:
    """Objects by the step that each names, or by their place where none does and there is one for each step."""
    if not any(key in entry for entry in entries for key in _SCORE):
        return {}
    numbers = [_number(entry) for entry in entries]
    if all(number is None for number in numbers):
        return dict(enumerate(entries)) if len(entries) == count else {}
    first = 0 if 0 in numbers and count not in numbers else 1
    return {
        number - first: entry
        for number, entry in zip(numbers, entries, strict=True)
        if number is not None and 0 <= number - first < count
    }


def _number(entry: Mapping[str, Any]) -> int | None:
    named = re.search(r"\d{1,5}", str(next((entry[key] for key in _NUMBER if key in entry), "")))
    return int(named[0]) if named else None


_OUTSIDE = "gives the score "


def _verdict(entry: Any, lowest: float, highest: float) -> Verdict:
    of = entry if isinstance(entry, Mapping) else {"score": entry}
    value = next((of[key] for key in _SCORE if key in of), None)
    if isinstance(value, bool):
        value = highest if value else lowest
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    said = (next((of[key] for key in keys if isinstance(of.get(key), str)), "") for keys in (_REASON, _QUOTE))
    reason, quote = (text[:_LONGEST].strip() for text in said)
    if not isinstance(value, int | float):
        return Verdict(None, reason, quote)
    if not (math.isfinite(value) and lowest <= value <= highest):
        return Verdict(None, f"{_OUTSIDE}{value:g}, which is not from {lowest:g} to {highest:g}", quote)
    return Verdict(float(value), reason, quote)
