"""Tables as CSV in which no text, header or cell, is taken for a formula by a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.views.curves import Chart

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that starts with one of these is a formula to a spreadsheet."""


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[Any]], newline: str = "\r\n") -> str:
    """The table as CSV; text that a spreadsheet would calculate gets a leading apostrophe, numbers stay as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=newline)
    writer.writerow(map(_cell, headers))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def chart_csv(chart: Chart) -> str:
    """A row an x and a column a line, empty where a line has no value."""
    columns = chart.columns()
    rows = (
        [x, *(values.get(x) for _, values in columns)] for x in sorted({x for _, values in columns for x in values})
    )
    written = ([None if value is None else _short(value) for value in row] for row in rows)
    return csv_text([chart.x_label or "x", *(name for name, _ in columns)], written, "\n")


def _short(value: float) -> float:
    """With seven digits, and whole numbers without a point."""
    return int(value) if float(value).is_integer() else float(f"{value:.7g}")


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
