"""Blocks of a description: what is shown of an object, drawn as HTML by ``cards`` and as text by ``terminal``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Place = Literal["notebook", "terminal"]


@dataclass(frozen=True)
class Title:
    """A heading; ``state`` stands behind it."""

    text: str
    state: str = ""


@dataclass(frozen=True)
class Line:
    """A paragraph; ``kind`` "note" is a warning."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Text:
    """A text with its line breaks, such as a prompt."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A table cell. ``kind`` is a style class ("text" is monospaced), ``rich`` the words for HTML if they differ.

    A ``shade`` above 0 is blue and below orange.
    """

    value: Any
    kind: str = ""
    rich: str = ""
    shade: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of plain values and cells. ``totals`` is a last row in HTML, ``empty`` a terminal's words for no rows.

    A terminal shows no line of headers that are all empty.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    totals: Sequence[Any] = ()
    empty: str = ""


@dataclass(frozen=True)
class Drawing:
    """A drawing that makes its own HTML, and the words for a terminal."""

    draw: Callable[[], str]
    words: str = ""


@dataclass(frozen=True)
class Section:
    """Blocks under a title; sections in a row stand beside each other in HTML."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Only:
    """Blocks for one place."""

    place: Place
    blocks: tuple[Block, ...]


Block = Title | Line | Text | Table | Drawing | Section | Only


def in_notebook(*blocks: Block) -> Only:
    return Only("notebook", blocks)


def in_terminal(*blocks: Block) -> Only:
    return Only("terminal", blocks)


def shown_in(place: Place, blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks for ``place`` in order."""
    for block in blocks:
        if not isinstance(block, Only):
            yield block
        elif block.place == place:
            yield from shown_in(place, block.blocks)
