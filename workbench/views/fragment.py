"""A drawing as HTML that holds everything it needs: for a notebook's output, and as a document of its own."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


def fragment(kind: str, entry: str, call: str, payload: Any, *, style: str, words: str = "") -> str:
    """An element of class ``kind``, the payload beside it, and the script of module ``entry`` that draws it.

    ``call`` is what is called of the module's exports, with places for the ``{element}`` and the payload's ``{text}``;
    ``words`` stand there for whoever runs no scripts.
    """
    name = f"workbench-{kind}-{secrets.token_hex(4)}"
    element, text = f"document.getElementById('{name}')", f"document.getElementById('{name}-data').textContent"
    called = call.format(element=element, text=text)
    return (
        f"<style>{asset(style)}</style>"
        f'<div id="{name}" class="{kind} mathjax_ignore tex2jax_ignore" data-theme="auto">{escape(words)}</div>'
        f'<script type="application/json" id="{name}-data">{to_json(payload)}</script>'
        f"<script>{bundle(FOLDER / entry)}.{called};</script>"
    )


def page(body: str, *, title: str, kind: str) -> str:
    """A whole HTML document, which its own content policy keeps from asking the network for anything."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title></head>"
        f'<body class="{kind}-page">{body}</body></html>\n'
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
UNKNOWN = re.compile(r"^(?:import|export)\b.*|</script|<!--", re.MULTILINE | re.IGNORECASE)


@cache
def bundle(entry: Path) -> str:
    """A JavaScript expression whose value is an object of what ``entry`` exports.

    Each module runs once, in a scope of its own, after those it imports. Raises ValueError for modules that import each
    other, and for forms of ``import`` and ``export`` that no module of ours uses.
    """
    modules: dict[Path, str] = {}
    _collect(entry.resolve(), modules, ())
    body = "".join(modules.values())
    return f'(() => {{\n"use strict";\n{body}return module{len(modules) - 1};\n}})()'


def _collect(path: Path, modules: dict[Path, str], importing: tuple[Path, ...]) -> None:
    """Adds a module and what it imports to ``modules``, in the order in which they have to run."""
    if path in importing:
        circle = " → ".join(module.name for module in (*importing[importing.index(path) :], path))
        raise ValueError(f"modules import each other: {circle}; move what both need into a third")
    if path in modules:
        return
    source = path.read_text(encoding="utf-8")
    for match in IMPORT.finditer(source):
        _collect((path.parent / match[3]).resolve(), modules, (*importing, path))
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
    if unknown := UNKNOWN.search(code):
        raise ValueError(f"{path.name}: {unknown[0]!r} cannot be put into a classic script")
    modules[path] = (
        f"const module{len(places)} = (() => {{\n{''.join(imports)}{code}return {{ {', '.join(exports)} }};\n}})();\n"
    )


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Yield the two names of each ``a as b``; a name alone is both."""
    for name in text.split(","):
        old, _, new = name.strip().partition(" as ")
        if old:
            yield old, new or old
