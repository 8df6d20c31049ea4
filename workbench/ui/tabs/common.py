"""Widgets the tabs share: the page's own scripts, and small HTML elements that draw a JSON value as text.

A value reaches an element as one JSON string and is drawn by ``page.js`` into text nodes; templates are constant, so
that no data is ever evaluated or parsed as markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.ui.handlers.scoring import Note
from workbench.ui.payloads import FactsPayload

ASSETS = "workbench-assets"
"""Where the page's own scripts and style sheets are served."""
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
"""Given to every event: not part of the public API, and no overlay while it runs. Where there is none to show, the page
need not tell every output of every event so far that it runs."""
SCRIPT = "workbench.js"
HEAD = f'<script src="{ASSETS}/{SCRIPT}"></script>'


def drawn(
    elem_id: str,
    script: str,
    value: str = "",
    *,
    classes: Sequence[str] = (),
    server_functions: list[Callable[..., Any]] | None = None,
    visible: bool = True,
    constant: Mapping[str, Any] | None = None,
    head: bool = True,
    **props: str,
) -> gr.HTML:
    """An element whose JSON value ``script`` draws: an export of ``workbench.js`` that takes Gradio's handles.

    ``constant`` is given to it once and holds nothing that anybody typed; ``props`` change beside its value. What is
    drawn when the page is there, in ``gr.render``, brings no ``head``: it would run the page's scripts again.
    """
    given = "" if constant is None else f", {json.dumps(constant)}"
    return gr.HTML(
        value,
        elem_id=elem_id,
        elem_classes=list(classes),
        html_template='<div class="drawn"></div>',
        js_on_load=f"Workbench.{script}({{ element, props, watch, server, trigger }}{given});",
        head=HEAD if head else None,
        apply_default_css=False,
        server_functions=server_functions,
        visible=visible,
        **props,
    )


def served(functions: Iterable[Callable[..., Any]], *given: Any) -> list[Any]:
    """Return what an element's script may ask: ``functions``, whose first arguments are ``given``, and the others the
    entries of what is asked. These come from a browser: the functions check them.

    Gradio gives these no session, so the script names its own ``tab``, as the page was told when it opened
    (``share.kept_value``).
    """

    def asked_of(function: Callable[..., Any]) -> Callable[..., Any]:
        def asked(request: dict[str, Any]) -> Any:
            return function(*given, **request)

        asked.__name__ = function.__name__
        return asked

    return [asked_of(function) for function in functions]


def facts_value(rows: Sequence[tuple[str, str]], kind: str = "") -> str:
    """The value of an element that ``facts`` draws; ``kind`` says what they are about to scripts that ask."""
    return json.dumps(FactsPayload(rows=rows, kind=kind)) if rows else ""


def hidden(value: str = "") -> gr.Textbox:
    """A text that nobody sees: one event changes it, and its change is another."""
    return gr.Textbox(value, visible=False, max_lines=1)


def note(elem_id: str, *, classes: Sequence[str] = (), head: bool = True) -> gr.HTML:
    """A message beside a control, empty at first."""
    return drawn(elem_id, "note", classes=["note", *classes], head=head)


def note_value(
    value: Note | str | None, *, editor: str | None = None, fields: Sequence[str] = (), action: str | None = None
) -> str:
    """``editor`` is the elem_id of the code editor whose line a note points at, ``fields`` those of fields to mark;
    ``action`` the label of a button behind it, which is the element's event ``apply``."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        value = Note(value, level="plain")
    return json.dumps(value.to_json() | {"editor": editor, "fields": list(fields), "action": action})


def table(
    elem_id: str,
    name: str,
    headings: Mapping[str, bool],
    *,
    picks: bool = False,
    rows: Sequence[Sequence[str]] = (),
) -> gr.HTML:
    """Rows of texts, as ``table_value`` packs them; ``headings`` says of which columns are numbers.

    Where a row can be picked, that is the element's event ``apply`` with the row and its first text, its name; the
    element's ``chosen`` is the one that is marked.
    """
    titles = [{"title": title, "numeric": numeric} for title, numeric in headings.items()]
    spec = {"name": name, "picks": picks, "headings": titles}
    return drawn(elem_id, "table", table_value(rows), constant=spec, chosen="0" if rows and picks else "-1")


def table_value(rows: Sequence[Sequence[str]]) -> str:
    """The value of a ``table``; one without rows is not there."""
    return json.dumps(rows) if rows else ""


def picked_row(event: gr.EventData, rows: int) -> int | None:
    """The row of a ``table`` that an event names, if there is such a one."""
    row = event._data.get("row")
    return row if isinstance(row, int) and 0 <= row < rows else None


def start_and_cancel(running: bool | None) -> list[Any]:
    """What becomes of a button that starts a work, and of the one that cancels it; None leaves both as they are."""
    if running is None:
        return [gr.skip(), gr.skip()]
    return [gr.update(interactive=not running), gr.update(interactive=running)]


def heading(text: str) -> None:
    gr.HTML(f"<h2>{text}</h2>", elem_classes=["heading"], apply_default_css=False)
