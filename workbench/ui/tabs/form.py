"""What the tabs share: elements that draw a JSON value, forms drawn from the configuration's sections, the page's
state.

A value reaches an element as one JSON string and is drawn by the page's scripts into text nodes; templates are
constant, so that no data is ever evaluated or parsed as markup.

What a tab holds is on the server (``page_state.Tab``). Each field's one event sets its own part of it; a form is drawn
anew only where the draft changed otherwise, and then keeps the fields whose values stayed, with what is being typed
there. Inspect gives away a link, files, notebook code, and the copy of its state that the browser tab keeps.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, get_origin

import gradio as gr
from pydantic import validate_call

from workbench.config import Leaf
from workbench.errors import WorkbenchError, redact
from workbench.rewards.judges import Judges
from workbench.steps import NUMBERS
from workbench.ui.handlers.example import columns_text, first_group, preset_of, preview
from workbench.ui.handlers.fields import (
    METHOD,
    REGEX,
    SPECIAL,
    Part,
    choices_of,
    elem_id,
    every_leaf,
    help_of,
    label_of,
    paths_of,
)
from workbench.ui.handlers.fields import shown as shown_value
from workbench.ui.handlers.group_export import EXPORTS, stem
from workbench.ui.handlers.group_export import export as export_as
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.rewards import list_value
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services, Works
from workbench.ui.handlers.sharing import dump, inspect_code, link_of

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
    constant: Any = None,
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
    return json.dumps({"rows": rows, "kind": kind}) if rows else ""


def hidden(value: str = "") -> gr.Textbox:
    """A text that nobody sees: one event changes it, and its change is another."""
    return gr.Textbox(value, visible=False, max_lines=1)


def note(elem_id: str, *, value: str = "", classes: Sequence[str] = (), head: bool = True) -> gr.HTML:
    """A message beside a control."""
    return drawn(elem_id, "note", value, classes=["note", *classes], head=head)


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


def wire_cancel(button: gr.Button, works: Works, judges: Judges | None = None) -> None:
    """Let a button cancel what its tab is at among ``works``, and what ``judges`` are asked meanwhile."""

    def stop(request: gr.Request) -> None:
        if works.cancel(request.session_hash or "") and judges is not None:
            judges.cancel()

    button.click(stop, None, None, queue=False, **PRIVATE)


def heading(text: str) -> None:
    gr.HTML(f"<h2>{text}</h2>", elem_classes=["heading"], apply_default_css=False)


class Form(SimpleNamespace):
    """The draft and the page's widgets by name; those of a part of the page are a namespace of their own.

    ``draft`` holds the ``Tab``, ``bound`` has the fields that stand in the page as it is built, by path. Drawn forms
    (``form.DrawnForm``) are ``pattern``, ``credit``, ``compare``, ``sampling``, ``isolation``, ``run``, and
    ``task_rows``, which says how the task's rows are read, the first of which ``task_preview`` shows; they are folded
    away in ``task_fold``, which is in ``more``.

    ``rewards`` is the list of rewards, whose value is in ``rows``, and the ``code`` of the one in the editor.

    What was replaced or removed last is said in ``undo_notes``, beside each tab's buttons, with one that brings it
    back; ``undo_before`` is the draft before that.
    """

    @property
    def inputs(self) -> list[Any]:
        """What ``form.read`` takes."""
        return [self.draft]

    @property
    def forms(self) -> list[Any]:
        """Those that are drawn; all but the last two as the page opens."""
        return [self.pattern, self.credit, self.compare, self.sampling, self.isolation, self.task_rows, self.run]

    @property
    def outputs(self) -> list[Any]:
        """What ``form.shown`` may set."""
        example = [self.task, self.example, self.columns, self.preset, self.task_preview]
        versions = [part for form in self.forms for part in (form.version, form.news)]
        undo = [self.undo_before, *self.undo_notes]
        return [*example, *self.bound.values(), self.rewards.rows, *versions, *undo]

    def undo_values(self, before: Any, said: str) -> dict[Any, Any]:
        """What has the notes say what was replaced; ``said`` is their value."""
        return {self.undo_before: before} | dict.fromkeys(self.undo_notes, said)


LAST: dict[str, Any] = {"queue": False, "trigger_mode": "always_last", **PRIVATE}
"""Of an event of which only the newest of several that wait is asked."""
Updates = dict[Any, Any]
"""What an event sets, by widget; the others stay."""
Answer = Callable[[gr.Request, Tab, PageState], Updates]
"""What a change of a field does: of the request, the tab, and the draft before it."""


# ── a form ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DrawnForm:
    """A form where it stands in the page. ``draws`` says of a draft which fields it has; a change of one of those in
    ``redraws`` changes others. ``more`` says what a field's widget has beside what its section says.

    ``wire`` says what a change of a field does. The form is drawn where its fields are others than before; a value that
    is set otherwise than in its field is set alone, so that what is typed elsewhere stays.
    """

    def __init__(
        self,
        tab: gr.State,
        draws: Callable[[PageState], list[Part]],
        redraws: Iterable[str] = (),
        more: Callable[[str], dict[str, Any]] = lambda path: {},
    ) -> None:
        self.tab, self.draws, self.redraws, self.more = tab, draws, frozenset(redraws), more
        self.version, self.news = hidden(), hidden()
        self.answer: Answer = lambda request, tab, before: {}
        self.outputs: list[Any] = []
        gr.render([tab], [self.version.change], queue=False, show_progress="hidden")(self._draw)

    def wire(self, answer: Answer, outputs: Iterable[Any]) -> None:
        """Have ``answer`` answer each change of a field; ``outputs`` are what it may set."""
        self.answer, self.outputs = answer, list(dict.fromkeys(outputs))

    def opens(self, event: Any) -> None:
        """Draw the form at the first of these events."""

        def first(tab: Tab) -> Any:
            return gr.skip() if self in tab.drawn else secrets.token_hex(8)

        event(first, self.tab, self.version, **LAST)

    def tells(self, before: PageState, after: PageState, tab: Tab, *, but: str = "") -> Updates:
        """What has the form show another draft than before; nothing where it shows the same."""
        paths, now = (paths_of(self.draws(draft)) for draft in (before, after))
        if paths != now:
            return {self.version: secrets.token_hex(8)}
        return self.tells_of(tab, [path for path in now if path != but and before.value(path) != after.value(path)])

    def tells_of(self, tab: Tab, paths: Iterable[str]) -> Updates:
        """What has fields of the form show what the tab holds of them."""
        news = set(paths)
        if not news:
            return {}
        tab.news.setdefault(self, set()).update(news)
        return {self.news: secrets.token_hex(8)}

    def _draw(self, tab: Tab) -> None:
        draft = tab.draft
        tab.drawn.add(self)
        tab.news.pop(self, None)
        fields: dict[str, tuple[Leaf, Any]] = {}
        for place, (title, part) in enumerate(self.draws(draft)):
            if not part:
                continue
            folded = {"open": False, "elem_classes": ["fold"], "key": f"fold {title}"}
            with gr.Accordion(title, **folded) if title else nullcontext():
                with gr.Row(elem_classes=["fields", "drawn-fields"], key=f"row {place} {title}"):
                    fields |= {leaf.name: (leaf, self._field(leaf, draft.value(leaf.name))) for leaf in part}

        def refresh(tab: Tab) -> list[Any]:
            """Set the fields whose values were set otherwise."""
            news, draft = tab.news.pop(self, set()), tab.draft
            return [
                gr.update(value=shown_value(leaf, draft.value(path)), **self.more(path)) if path in news else gr.skip()
                for path, (leaf, _) in fields.items()
            ]

        self.news.change(
            refresh, [self.tab], [field for _, field in fields.values()], key=f"news {self.news._id}", **LAST
        )

    def _field(self, leaf: Leaf, value: Any) -> Any:
        redraws, field = leaf.name in self.redraws, widget(leaf, value, key=leaf.name, **self.more(leaf.name))

        def changed(request: gr.Request, tab: Tab, value: Any) -> Any:
            before = tab.draft
            if not tab.set(leaf.name, value):
                return gr.skip()
            updates = self.answer(request, tab, before)
            return updates | self.tells(before, tab.draft, tab, but=leaf.name) if redraws else updates

        outputs = [*self.outputs, self.version, self.news]
        changes(field)(changed, [self.tab, field], outputs, key=leaf.name, **LAST)
        return field


def widget(leaf: Leaf, value: Any, **more: Any) -> Any:
    """The widget of a field: what its section says of it, and what ``SPECIAL`` and the caller do."""
    common: dict[str, Any] = {"label": label_of(leaf), "info": help_of(leaf) or None, "elem_id": elem_id(leaf.name)}
    common |= {"min_width": 0, "interactive": True, **SPECIAL.get(leaf.name, {}), **more}
    choices, value = common.pop("choices", None) or choices_of(leaf), shown_value(leaf, value)
    if leaf.kind is bool:
        return gr.Checkbox(bool(value), **{"elem_classes": ["inline"], **common})
    if choices or "allow_custom_value" in common:
        several, free = get_origin(leaf.kind) is list, common.get("allow_custom_value", False)
        return gr.Dropdown(choices, value=value, multiselect=several, filterable=free, **common)
    if leaf.kind in (int, float):
        return gr.Number(value, **common)
    return gr.Textbox(value, **{"elem_classes": ["mono", "wide"], "lines": 1, "max_lines": 1, **common})


def field(name: str, kind: Any, label: str, value: Any, **more: Any) -> Any:
    """The widget of a field that no section has, ``name`` being its elem_id."""
    return widget(Leaf(name, kind, False, "", None, label), value, **{"elem_id": name, **more})


def changes(field: Any) -> Any:
    """The event of a widget that somebody set; a text that is pasted tells of itself by ``change`` alone."""
    return field.input if isinstance(field, gr.Checkbox | gr.Dropdown) else field.change


# ── the draft and the page ───────────────────────────────────────────────────────────────────────────────────────────


def read(tab: Tab) -> PageState:
    """The draft that a tab holds by now."""
    return tab.draft


def shown(form: Form, before: PageState, after: PageState, *, undo: str = "") -> Updates:
    """What to set so that the page shows ``after`` where it shows ``before``; a field that stays is not touched.

    The tab holds ``after`` then, with what was typed since ``before``. ``undo`` says what was replaced or removed,
    beside a button that brings ``before`` back.
    """
    tab = before.tab
    assert tab is not None
    tab.put(before, after)
    updates: Updates = {
        field: gr.update(value=after.value(path))
        for path, field in form.bound.items()
        if before.value(path) != after.value(path)
    }
    for drawn in form.forms:
        updates |= drawn.tells(before, after, tab)
    if list_value(before) != list_value(after):
        updates[form.rewards.rows] = list_value(tab.draft)
    if (after.regex, after.kind) != (before.regex, before.kind):
        updates[form.preset] = preset_of(after.regex, after.kind)
    if after.kind != before.kind:
        label = "Numbers of the kind" if after.kind in NUMBERS else "Regular expression"
        updates[form.bound[REGEX]] = gr.update(value=after.regex, label=label)
    if after.index != before.index:
        updates[form.example] = after.index
    if after.task != before.task:
        updates[form.task] = after.task
    if after.tree["task"] != before.tree["task"]:
        updates[form.task_preview] = preview(after)
    if undo:
        updates |= form.undo_values(before, note_value(Note(undo, level="info"), action="Undo"))
    return updates | {form.columns: note_value(columns_text(after.columns))}


def form_note_value(note: Note | None, method: str = "") -> str:
    """A note on the whole form, which marks the fields whose paths its lines begin with.

    ``method`` is the one chosen, whose own settings go by its name on the page.
    """
    paths = [] if note is None else [line.partition(":")[0] for line in note.text.splitlines()]
    section, own = "method.", {METHOD, *(leaf.name for leaf in every_leaf().values())}
    named = [p if p in own or not p.startswith(section) else f"{method}.{p.removeprefix(section)}" for p in paths]
    return note_value(note, fields=[elem_id(path) for path in named if re.fullmatch(r"[\w.]+", path)])


# ── what Inspect gives away ──────────────────────────────────────────────────────────────────────────────────────────

READ_KEPT = """(...values) => {
  let kept = "";
  try { kept = sessionStorage.getItem("workbench-inspect") ?? ""; } catch { /* no storage: nothing was kept */ }
  return [kept, ...values.slice(1)];
}"""
"""Puts what the browser tab kept in place of the first input."""


def build_share(services: Services) -> SimpleNamespace:
    @validate_call
    def keep(tab: str) -> str | None:
        credit = services.credit(tab)
        if credit is None:
            return None
        group = credit.scored.group
        return "" if group == first_group() else services.groups.keep(group).stem

    @validate_call
    def export(tab: str, kind: str) -> dict[str, Any] | None:
        credit = services.credit(tab)
        if credit is None:
            return None
        if kind not in EXPORTS:
            return {"name": stem(credit)}
        return asdict(export_as(credit, kind, other=services.credit(tab, second=True)))

    problem = note("restore-note")
    with gr.Row(elem_id="share", elem_classes=["fields"]):
        drawn("share-tools", "tools", server_functions=served([keep, export]))
        notebook = gr.Button("Notebook code", elem_id="notebook", min_width=0, elem_classes=["small"])
    code = drawn("notebook-code", "code")
    return SimpleNamespace(kept=drawn("kept", "keep"), notebook=notebook, code=code, problem=problem)


def wire_share(form: Form, services: Services) -> None:
    def code(*held: Any) -> str:
        draft = read(*held)
        try:
            assert draft.group is not None
            return json.dumps({"code": inspect_code(draft, services.groups.keep(draft.group))})
        except WorkbenchError as error:
            return json.dumps({"problem": redact(f"There is no code for this yet: {error}")})

    form.share.notebook.click(code, form.inputs, form.share.code, queue=False, **PRIVATE)


def kept_value(services: Services, draft: PageState, **marks: Any) -> str:
    """The draft for the browser tab to keep, and the link to what is on screen."""
    group = draft.group
    try:
        saved = "" if group is None or group == first_group() else services.groups.keep_recent(group)
    except WorkbenchError:  # a full disk must not keep anybody from scoring; the link goes without the group
        saved = ""
    return json.dumps({"page": dump(draft, saved), "link": link_of(draft, saved), **marks})
