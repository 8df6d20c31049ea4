"""Descriptions as text for a terminal. What a model wrote is shown so that it cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.display.blocks import Block, Cell, Drawing, Line, Section, Table, Text, Title, shown_in
from workbench.display.tables import table, visible


def draw(blocks: Sequence[Block]) -> str:
    """A block a line or more, with empty lines around sections."""
    shown = list(shown_in("terminal", blocks))
    gap = "\n\n" if any(isinstance(block, Section) for block in shown) else "\n"
    return gap.join(filter(None, map(_block, shown)))


def _block(block: Block) -> str:
    match block:
        case Line(text, "note"):
            return f"note: {visible(text)}"
        case Title(text) | Line(text) | Text(text) | Drawing(_, text):
            return visible(text)
        case Section(title, blocks):
            return f"— {visible(title)}\n{draw(blocks)}"
        case Table(headers, rows):
            lines = [[_cell(value) for value in row] for row in rows]
            shown = table([_cell(name) for name in headers], lines) if lines or not block.empty else block.empty
            return shown if any(headers) or block.empty else shown.partition("\n")[2]
    raise TypeError(f"{type(block).__name__} is no block of a terminal")


def _cell(value: Any) -> Any:
    value = value.value if isinstance(value, Cell) else value
    return visible(value, one_line=True) if isinstance(value, str) else value
