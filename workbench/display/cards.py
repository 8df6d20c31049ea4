"""Descriptions as HTML for a notebook cell: small tables beside the figures' own drawings.

Every text, and most are a model's, is escaped, its control characters are written out, and a $ in it starts no formula.
Colours follow JupyterLab's theme, and stay in an exported file.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from workbench.display.blocks import Block, Cell, Drawing, Line, Section, Table, Text, Title, shown_in
from workbench.display.tables import cell_text, visible

STRONGEST = 2.0
"""The advantage (or value) that is drawn in the full colour."""
PLAIN = "mathjax_ignore tex2jax_ignore"
"""Classes under which MathJax leaves text alone, which JupyterLab and nbconvert's pages run over every output."""


@cache
def style() -> str:
    return (Path(__file__).parent / "cards.css").read_text(encoding="utf-8")


def card(*parts: str) -> str:
    return f'<style>{style()}</style><div class="wd {PLAIN}">{"".join(parts)}</div>'


def draw(blocks: Sequence[Block]) -> str:
    """Cards of the blocks, with drawings between them."""
    return "".join(
        "".join(block.draw() for block in members if isinstance(block, Drawing)) if drawings else card(_blocks(members))
        for drawings, members in groupby(shown_in("notebook", blocks), lambda block: isinstance(block, Drawing))
    )


def escape(text: str) -> str:
    """For HTML, with what acts on a reader's screen unseen (control characters, changes of direction) written out."""
    return html.escape(visible(text))


def _blocks(blocks: Iterable[Block]) -> str:
    parts = []
    for sections, members in groupby(blocks, lambda block: isinstance(block, Section)):
        drawn = "".join(map(_block, members))
        parts.append(f'<div class="side">{drawn}</div>' if sections else drawn)
    return "".join(parts)


def _block(block: Block) -> str:
    match block:
        case Title(text, state):
            pill = f' <span class="state">{escape(state)}</span>' if state else ""
            return f"<h4>{escape(text)}{pill}</h4>"
        case Line(text, kind):
            return f"<p{_class(kind)}>{escape(text)}</p>"
        case Text(text):
            return f"<pre>{escape(text)}</pre>"
        case Section(title, blocks):
            return f"<div><h4>{escape(title)}</h4>{_blocks(shown_in('notebook', blocks))}</div>"
        case Table():
            return _table(block)
    raise TypeError(f"{type(block).__name__} is no block of a card")


def _table(table: Table) -> str:
    """Numbers to the right with three digits."""
    rows = [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in table.rows]
    right = [bool(rows) and all(_is_number(row[i].value) for row in rows) for i in range(len(table.headers))]
    head = "".join(
        f"<th{_class('number' * r)}>{escape(name)}</th>" for name, r in zip(table.headers, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, right))}</tr>" for row in rows)
    foot = f'<tr class="total">{"".join(map(_cell, table.totals, right))}</tr>' if table.totals else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{foot}</tbody></table>"


def _is_number(value: Any) -> bool:
    return value == "" or isinstance(value, int | float | None)


def _cell(value: Any, right: bool) -> str:
    cell = value if isinstance(value, Cell) else Cell(value)
    side = "" if not cell.shade else "above" if cell.shade > 0 else "below"
    strength = f' style="--s:{min(abs(cell.shade) / STRONGEST, 1):.2f}"' if cell.shade else ""
    classes = " ".join(filter(None, [cell.kind or "number" * (right and cell.value != ""), side]))
    return f'<td class="{classes}"{strength}>{escape(cell.rich or cell_text(cell.value))}</td>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
