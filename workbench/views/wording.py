"""Sentences in Markdown, and how numbers and names are said in them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from workbench.schema import two_places, whole_percent

NAMED = 4
"""Rollouts and steps that are named; more are counted."""
FIRST, NOISE = 5, 4.0
"""A measure "went from … to …" where its last values lie this many standard deviations from its first ones."""

_LINK = re.compile(r"\[([^\]]*)\]\(([a-z]+(?::[^)\s]*)?)\)")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SAME = 0.005
"""Two values that read the same with two decimals."""


@dataclass(frozen=True)
class Sentence:
    """A sentence or two in Markdown. Links say what a number is of: ``rollout:3,7``, ``step:7.2``, ``filter:right``."""

    markdown: str

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """The text in pieces, each with what it points at, if anything."""
        parts, at = list[tuple[str, str | None]](), 0
        for link in _LINK.finditer(self.markdown):
            parts += [(self.markdown[at : link.start()], None), (link[1], link[2])]
            at = link.end()
        return [part for part in (*parts, (self.markdown[at:], None)) if part[0]]

    def __str__(self) -> str:
        """The text alone."""
        return _LINK.sub(r"\1", self.markdown).replace("**", "")


def course(name: str, values: Sequence[float], share: bool = False) -> str:
    """Say where a measure went, by the means of its first and last values: "entropy fell from 0.9 to 0.3".

    "" for one that stayed within the noise of its first values, or has too few.
    """
    if len(values) < 2 * FIRST:
        return ""
    first, last = fmean(values[:FIRST]), fmean(values[-FIRST:])
    before, after = quantity(first, share), quantity(last, share)
    if abs(last - first) <= NOISE * stdev(values[:FIRST]) or before == after:
        return ""
    return f"{name} {'rose' if last > first else 'fell'} from {before} to {after}"


def quantity(value: float, share: bool = False) -> str:
    """A number with two significant figures, a share in per cent."""
    return percent(value) if share else f"{value:{',.0f' if abs(value) >= 100 else '.2g'}}".replace("-", "−")


def signed(value: float) -> str:
    """An advantage with two decimals, as on the cards, so that parts add up to the value."""
    if abs(value) < SAME:
        return "0"
    return f"{'+' if value > 0 else ''}{two_places(value)}"


def sentence(*texts: str) -> Sentence:
    """Return what is not empty, each with its first letter large, also inside a link; a name in code stays as it is."""
    return Sentence(" ".join(re.sub(r"^\[?\w", lambda first: first[0].upper(), text) for text in texts if text))


def is_same(values: Sequence[float]) -> bool:
    return not values or max(values) - min(values) < SAME


def value_range(values: Sequence[float]) -> str:
    """From the lowest to the highest; one number where they read the same."""
    return " to ".join(dict.fromkeys((quantity(min(values)), quantity(max(values)))))


def drop_none(rows: Iterable[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row if value is not None]


def percent(share: float) -> str:
    finer = 0 < share < 0.095 or 0.995 <= share < 1
    return f"{100 * share:.1f} %" if finer else f"{whole_percent(share)} %"


def number(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}"


def join_words(items: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def names(noun: str, ids: Sequence[int], of: int | None = None) -> str:
    """Rollouts or steps by their numbers, a run of them by its ends, more than ``NAMED`` counted.

    Rollouts are links (``rollout:7``), and steps ``of`` a rollout are (``step:7.2``).
    """
    at = "" if of is None else f"{of + 1}."
    links = [f"{i + 1}" if noun == "step" and not at else f"[{i + 1}]({noun}:{at}{i + 1})" for i in ids]
    plural = noun + "s" * (len(ids) > 1)
    if len(ids) > 2 and ids[-1] - ids[0] == len(ids) - 1:
        return f"{plural} {links[0]} to {links[-1]}"
    if len(ids) > NAMED:
        links = [*links[: NAMED - 1], f"{number(len(ids) - NAMED + 1)} others"]
    return f"{plural} {join_words(links)}"
