"""Plain-text tables and numbers for a terminal. What a model wrote is shown so that it cannot steer the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as they need to be; numbers to the right, text to the left, ``None`` as a dash."""
    lines = [list(headers), *([cell_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [all(not isinstance(row[i], str) for row in rows) for i in range(len(headers))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def visible(text: str, *, one_line: bool = False) -> str:
    """``text`` with control, format and unpaired characters written out, so that none acts on the terminal."""
    shown = "".join(char if char in "\n\t" or not _acts(char) else f"<U+{ord(char):04X}>" for char in text)
    return shown.replace("\n", "↵").replace("\t", "→") if one_line else shown


def _acts(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def cell_text(value: Any) -> str:
    """A dash for ``None``, three digits of a float."""
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
