"""The parts that a value is described by, drawn as HTML for a notebook cell and as text for a terminal.

Every text, and most are a model's, is escaped, its control characters are written out, and a $ in it starts no formula.
Colours follow JupyterLab's theme, and stay in an exported file.
"""

from __future__ import annotations

import html
import json
import re
import secrets
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

STRONGEST = 2.0
"""The advantage (or value) that is drawn in the full colour."""
PLAIN = "mathjax_ignore tex2jax_ignore"
"""Classes under which MathJax leaves text alone, which JupyterLab and nbconvert's pages run over every output."""


@dataclass(frozen=True)
class Title:
    """A heading; ``state`` stands behind it."""

    text: str
    state: str = ""


@dataclass(frozen=True)
class Note:
    """A warning."""

    text: str


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
    """Rows of plain values and cells; ``totals`` is a last row. A terminal shows no line of empty headers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    totals: Sequence[Any] = ()


@dataclass(frozen=True)
class Drawing:
    """An object that makes its own HTML, and the parts that a terminal shows in its place."""

    draw: Callable[[], str]
    words: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Section:
    """Parts under a title; sections in a row stand beside each other in HTML."""

    title: str
    parts: tuple[Part, ...]


Part = str | Title | Note | Text | Table | Drawing | Section
"""A plain string is a paragraph."""


# ── HTML ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def card(*parts: str) -> str:
    return f"<style>{asset('cards.css')}</style><div class='wd {PLAIN}'>{''.join(parts)}</div>"


def draw_html(parts: Sequence[Part]) -> str:
    """Cards of the parts, with drawings between them."""
    return "".join(
        "".join(_html(part) for part in members) if drawings else card(_sections(list(members)))
        for drawings, members in groupby(parts, lambda part: isinstance(part, Drawing))
    )


def escape(text: str) -> str:
    """For HTML, with what acts on a reader's screen unseen (control characters, changes of direction) written out."""
    return html.escape(visible(text))


def _sections(parts: Sequence[Part]) -> str:
    return "".join(
        f'<div class="side">{"".join(map(_html, members))}</div>' if sections else "".join(map(_html, members))
        for sections, members in groupby(parts, lambda part: isinstance(part, Section))
    )


def _html(part: Part) -> str:
    match part:
        case str():
            return f"<p>{escape(part)}</p>" if part else ""
        case Title(text, state):
            pill = f' <span class="state">{escape(state)}</span>' if state else ""
            return f"<h4>{escape(text)}{pill}</h4>"
        case Note(text):
            return f'<p class="note">{escape(text)}</p>'
        case Text(text):
            return f"<pre>{escape(text)}</pre>"
        case Drawing(draw):
            return draw()
        case Section(title, inner):
            return f"<div><h4>{escape(title)}</h4>{_sections(inner)}</div>"
        case Table():
            return _html_table(part)


def _html_table(table: Table) -> str:
    """Numbers to the right with three digits."""
    rows = [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in table.rows]
    columns = [[row[i].value for row in rows] for i in range(len(table.headers))]
    right = [bool(rows) and all(v == "" or isinstance(v, int | float | None) for v in values) for values in columns]
    sides = [' class="number"' if to_right else "" for to_right in right]
    head = "".join(f"<th{side}>{escape(name)}</th>" for name, side in zip(table.headers, sides, strict=True))
    body = "".join(f"<tr>{''.join(map(_html_cell, row, right))}</tr>" for row in rows)
    foot = f'<tr class="total">{"".join(map(_html_cell, table.totals, right))}</tr>' if table.totals else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{foot}</tbody></table>"


def _html_cell(value: Any, right: bool) -> str:
    cell = value if isinstance(value, Cell) else Cell(value)
    side = "" if not cell.shade else "above" if cell.shade > 0 else "below"
    strength = f' style="--s:{min(abs(cell.shade) / STRONGEST, 1):.2f}"' if cell.shade else ""
    classes = " ".join(filter(None, [cell.kind or "number" * (right and cell.value != ""), side]))
    return f'<td class="{classes}"{strength}>{escape(cell.rich or cell_text(cell.value))}</td>'


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_text(parts: Sequence[Part]) -> str:
    """Return a part a line or more, with empty lines around sections."""
    gap = "\n\n" if any(isinstance(part, Section) for part in parts) else "\n"
    return gap.join(filter(None, map(_text, parts)))


def _text(part: Part) -> str:
    match part:
        case str():
            return visible(part)
        case Text(text):
            return visible(text)
        case Title(text, state):
            return visible(f"{text}: {state}" if state else text)
        case Note(text):
            return f"note: {visible(text)}"
        case Drawing(_, words):
            return draw_text(words)
        case Section(title, inner):
            return f"— {visible(title)}\n{draw_text(inner)}"
        case Table(headers, rows, totals):
            lines = [[_text_cell(value) for value in row] for row in (*rows, *([totals] if totals else []))]
            shown = table([_text_cell(name) for name in headers], lines)
            return shown if any(headers) else shown.partition("\n")[2]


def _text_cell(value: Any) -> Any:
    value = value.value if isinstance(value, Cell) else value
    return visible(value, one_line=True) if isinstance(value, str) else value


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
    acts = ("Cc", "Cf", "Cs", "Zl", "Zp")
    shown = "".join(
        f"<U+{ord(char):04X}>" if char not in "\n\t" and unicodedata.category(char) in acts else char for char in text
    )
    return shown.replace("\n", "↵").replace("\t", "→") if one_line else shown


def cell_text(value: Any) -> str:
    """Return a dash for ``None``, three digits of a float."""
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


# ── a drawing as HTML that holds everything it needs: for a notebook's output, and as a document of its own ──────────

FOLDER = Path(__file__).resolve().parent


def fragment(kind: str, entry: str, call: str, payload: Any, *, style: str, words: str = "") -> str:
    """An element of class ``kind``, the payload beside it, and the script of module ``entry`` that draws it.

    ``call`` is what is called of the module's exports, with places for the ``{element}`` and the payload's ``{text}``;
    ``words`` stand there for whoever runs no scripts.
    """
    name = f"workbench-{kind}-{secrets.token_hex(4)}"
    element, text = f"document.getElementById('{name}')", f"document.getElementById('{name}-data').textContent"
    return (
        f"<style>{asset(style)}</style>"
        f'<div id="{name}" class="{kind} mathjax_ignore tex2jax_ignore" data-theme="auto">{escape(words)}</div>'
        f'<script type="application/json" id="{name}-data">{to_json(payload)}</script>'
        f"<script>{bundle(FOLDER / entry)}.{call.format(element=element, text=text)};</script>"
    )


def page(body: str, *, title: str, kind: str) -> str:
    """A whole HTML document, which its own content policy keeps from asking the network for anything."""
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_typefaces()}</style></head>"
        f'<body class="{kind}-page">{body}</body></html>\n'
    )


@cache
def _typefaces() -> str:
    """The style sheet of the page's typefaces, with their files in it."""
    return re.sub(
        r'"(\S+\.woff2)"',
        lambda match: f"data:font/woff2;base64,{b64encode((FOLDER / 'fonts' / match[1]).read_bytes()).decode()}",
        asset("fonts.css"),
    )


@cache
def asset(name: str) -> str:
    """The text of one of the drawings' style sheets."""
    return (FOLDER / name).read_text(encoding="utf-8")


def to_json(payload: Any) -> str:
    """Compact JSON that is safe inside a ``<script>`` element: no ``<`` survives unescaped."""
    return json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


IMPORT = re.compile(r'^(import|export) \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
DECLARATION = re.compile(r"^export (?=(?:async )?(?:function\*?|const|class) (\w+))", re.MULTILINE)
NAMES = re.compile(r"^export \{([^}]*)\};\n", re.MULTILINE)


@cache
def bundle(entry: Path) -> str:
    """A JavaScript expression whose value is an object of what ``entry`` exports.

    Each module runs once, in a scope of its own, after those it imports: ours import each other in no circle.
    """
    modules: dict[Path, str] = {}
    _collect(entry.resolve(), modules)
    body = "".join(modules.values())
    return f'(() => {{\n"use strict";\n{body}return module{len(modules) - 1};\n}})()'


def _collect(path: Path, modules: dict[Path, str]) -> None:
    """Adds a module and what it imports to ``modules``, in the order in which they have to run."""
    if path in modules:
        return
    source = path.read_text(encoding="utf-8")
    for match in IMPORT.finditer(source):
        _collect((path.parent / match[3]).resolve(), modules)
    places = {module: i for i, module in enumerate(modules)}
    imports, exports = [], DECLARATION.findall(source)
    for kind, names, target in IMPORT.findall(source):
        place = f"module{places[(path.parent / target).resolve()]}"
        if kind == "import":
            renamed = [old if old == new else f"{old}: {new}" for old, new in _names(names)]
            imports.append(f"const {{ {', '.join(renamed)} }} = {place};\n")
        else:
            exports += [f"{new}: {place}.{old}" for old, new in _names(names)]
    exports += [f"{new}: {old}" for names in NAMES.findall(source) for old, new in _names(names)]
    code = NAMES.sub("", DECLARATION.sub("", IMPORT.sub("", source)))
    modules[path] = (
        f"const module{len(places)} = (() => {{\n{''.join(imports)}{code}return {{ {', '.join(exports)} }};\n}})();\n"
    )


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Yield the two names of each ``a as b``; a name alone is both."""
    for name in text.split(","):
        old, _, new = name.strip().partition(" as ")
        if old:
            yield old, new or old
