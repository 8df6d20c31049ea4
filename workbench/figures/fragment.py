"""A drawing as HTML that holds everything it needs: for a notebook's output, and as a document of its own."""

from __future__ import annotations

import json
import secrets
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from workbench.figures.modules import bundle

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
