"""Parts that the tabs share: elements that draw a JSON value, forms drawn from the configuration's sections, the page's
state.

A value reaches an element as one JSON string and is drawn by the page's scripts into text nodes; templates are
constant, so that no data is ever evaluated or parsed as markup.

The browser's fields own their values. Each field is built once, a script keeps what it is set to, and every event sends
that; what replaces values sets exactly those. The server keeps a tab's group and what it sent last (``Tab``). Inspect
gives away a link, files, notebook code, and the copy of its state that the browser tab keeps.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from inspect import isgeneratorfunction
from itertools import groupby
from types import SimpleNamespace
from typing import Any, get_origin

import gradio as gr
from pydantic import validate_call

from workbench.config import Leaf
from workbench.errors import WorkbenchError
from workbench.rewards.judges import Judges
from workbench.steps import NUMBERS
from workbench.ui.handlers import rewards, scoring, session, sharing
from workbench.ui.handlers.example import columns_text, first_group, preset_of, preview
from workbench.ui.handlers.fields import (
    COMPARE,
    CREDIT,
    DATA,
    KIND,
    METHOD,
    REGEX,
    RUN_SCHEME,
    SPECIAL,
    Part,
    choices_of,
    elem_id,
    help_of,
    is_used,
    label_of,
    may_be_empty,
    method_field,
    option_leaf,
    options_of,
    show_value,
)
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.views import export as exporting

ASSETS = "workbench-assets"
"""Where the page's own scripts and style sheets are served."""
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
"""Given to every event: not part of the public API, and no overlay while it runs. Where there is none to show, the page
need not tell every output of every event so far that it runs."""
SCRIPT = "workbench.js"
HEAD = f'<script src="{ASSETS}/{SCRIPT}"></script>'


def element(
    elem_id: str,
    script: str,
    value: str = "",
    *,
    classes: Sequence[str] = (),
    server_functions: list[Callable[..., Any]] | None = None,
    visible: bool = True,
    constant: Any = None,
    **props: str,
) -> gr.HTML:
    """An element whose JSON value ``script`` draws: an export of ``workbench.js`` that takes Gradio's handles.

    ``constant`` is given to it once and holds nothing that anybody typed; ``props`` change beside its value.
    """
    given = "" if constant is None else f", {json.dumps(constant)}"
    return gr.HTML(
        value,
        elem_id=elem_id,
        elem_classes=list(classes),
        html_template='<div class="drawn"></div>',
        js_on_load=f"Workbench.{script}({{ element, props, watch, server, trigger }}{given});",
        head=HEAD,
        apply_default_css=False,
        server_functions=server_functions,
        visible=visible,
        **props,
    )


def bind(functions: Iterable[Callable[..., Any]], *given: Any) -> list[Any]:
    """Return what an element's script may ask: ``functions``, whose first arguments are ``given``, and the others the
    entries of what is asked. These come from a browser: the functions check them.

    Gradio gives these no session, so the script names its own ``tab``, as the page was told when it opened
    (``share_value``).
    """

    def with_given(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: dict[str, Any]) -> Any:
            return function(*given, **request)

        call.__name__ = function.__name__
        return call

    return [with_given(function) for function in functions]


def facts_value(rows: Sequence[tuple[str, str]], kind: str = "") -> str:
    """The value of an element that ``facts`` draws; ``kind`` says what they are about to scripts that ask."""
    return json.dumps({"rows": rows, "kind": kind}) if rows else ""


def note(elem_id: str, *, value: str = "", classes: Sequence[str] = ()) -> gr.HTML:
    """A message beside a control."""
    return element(elem_id, "note", value, classes=["note", *classes])


def note_value(
    value: scoring.Note | str | None,
    *,
    editor: str | None = None,
    fields: Sequence[str] = (),
    action: str | None = None,
) -> str:
    """``editor`` is the elem_id of the code editor whose line a note points at, ``fields`` those of fields to mark;
    ``action`` the label of a button behind it, which is the element's event ``apply``."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        value = scoring.Note(value, level="plain")
    return json.dumps(value.to_json() | {"editor": editor, "fields": list(fields), "action": action})


def table(elem_id: str, name: str, headings: Mapping[str, bool], *, picks: bool = False) -> gr.HTML:
    """Rows of texts, as ``table_value`` packs them; ``headings`` says of which columns are numbers.

    Where a row can be picked, that is the element's event ``apply`` with the row and its first text, its name; the
    element's ``chosen`` is the one that is marked.
    """
    titles = [{"title": title, "numeric": numeric} for title, numeric in headings.items()]
    return element(elem_id, "table", constant={"name": name, "picks": picks, "headings": titles}, chosen="-1")


def table_value(rows: Sequence[Sequence[str]]) -> str:
    """The value of a ``table``; one without rows is not there."""
    return json.dumps(rows) if rows else ""


def row_of_event(event: gr.EventData, rows: int) -> int | None:
    """Return the row of a ``table`` that an event names, if there is one."""
    row = event._data.get("row")
    return row if isinstance(row, int) and 0 <= row < rows else None


def start_and_cancel(running: bool | None) -> list[Any]:
    """Return updates of a button that starts a work, and of the one that cancels it; None leaves both as they are."""
    states = (not running, running)
    return [gr.skip() if running is None else gr.update(interactive=state) for state in states]


def wire_cancel(button: gr.Button, works: session.Works, judges: Judges | None = None) -> None:
    """Let a button cancel what its tab is at among ``works``, and what ``judges`` are asked meanwhile."""

    def stop(request: gr.Request) -> None:
        if works.cancel(request.session_hash or "") and judges is not None:
            judges.cancel()

    button.click(stop, None, None, queue=False, **PRIVATE)


def heading(text: str) -> None:
    gr.HTML(f"<h2>{text}</h2>", elem_classes=["heading"], apply_default_css=False)


class Form(SimpleNamespace):
    """The draft and the page's widgets by name; those of a part of the page are a namespace of their own.

    ``draft`` holds the ``Tab``, ``first`` is what it opens with. ``bound`` has the fields of the configuration by path,
    each built once, ``leaves`` what they are; ``sent`` is what was changed in them, and ``replaced`` the number of what
    the page was last told to set; ``methods`` are the columns of what only a method has, ``schemes`` those of
    the options of the page's scheme and of the second.
    ``task_preview`` shows the first rows of the task, beside the fields that say how they are read; they are folded
    away in ``task_fold``, which is in ``more``.

    ``rewards`` is the list of rewards, whose value is in ``rows``, and the ``code`` of the one in the editor;
    ``estimates`` are the step values that rows of it have, by their keys.

    What was replaced or removed last is said in ``undo_notes``, beside each tab's buttons, with one that brings it
    back.
    """

    @property
    def outputs(self) -> list[Any]:
        """Return what ``form.show_draft`` may set."""
        example = [self.task, self.example, self.columns, self.preset, self.task_preview]
        columns = [*self.methods.values(), *self.schemes.values()]
        return [
            *example,
            *self.bound.values(),
            *columns,
            self.train.start,
            self.rewards.rows,
            self.replaced,
            *self.undo_notes,
        ]

    def options(self, prefix: str) -> list[str]:
        """The paths of the options of the page's scheme, or of the second."""
        return [path for path in self.bound if path.startswith(f"{prefix}.") and not path.endswith(".scheme")]


LAST: dict[str, Any] = {"queue": False, "trigger_mode": "always_last", **PRIVATE}
"""Of an event of which only the newest of several that wait is asked."""
Updates = dict[Any, Any]
"""What an event sets, by widget; the others stay."""
Answer = Callable[[gr.Request, Tab, PageState], Updates]
"""What a change of a field does: of the request, the tab, and the draft before it."""


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_fields(form: Form, parts: Iterable[Part], more: Callable[[str], dict[str, Any]] = lambda path: {}) -> Any:
    """Build the fields of a form once, showing the page as it opens. ``more`` is what a widget has beside its leaf.

    Return what the last part is folded away in.
    """
    for title, part in parts:
        if not part:
            continue
        with gr.Accordion(title, open=False, elem_classes=["fold"]) if title else nullcontext() as fold:
            with gr.Row(elem_classes=["fields", "drawn-fields"]):
                for leaf in part:
                    value = form.first.value(leaf.name)
                    if value is None and leaf.name.startswith((f"{CREDIT}.", f"{COMPARE}.")):
                        value = leaf.default  # of an option that the scheme lacks
                    form.bound[leaf.name] = widget(leaf, value, **more(leaf.name))
                    form.leaves[leaf.name] = leaf
    return fold


def on_change(form: Form, paths: Iterable[str], what: str, answer: Answer, outputs: Iterable[Any]) -> None:
    """Have a change of any of these fields answered: the latest wins.

    ``what`` names what is answered (``Tab.answered``): a draft that was answered already is not again. Each section has
    an event of its own, as Gradio looks up all that an event listens to.
    """

    def answer_change(request: gr.Request, tab: Tab) -> Any:
        before = tab.answered.get(what, form.first)
        return gr.skip() if before == tab.draft else answer(request, tab, before)

    for _, own in groupby(sorted(paths), key=lambda path: path.rpartition(".")[0]):
        names = list(own)
        fields = [form.bound[path] for path in names]
        keep = f"(...values) => Workbench.changed({json.dumps(names)}, values)"
        gr.on([changes(field) for field in fields], None, fields, None, js=keep, **PRIVATE)
        gr.on(
            [changes(field) for field in fields],
            **sending(form, answer_change, press=False),
            outputs=list(dict.fromkeys(outputs)),
            **LAST,
        )


def sending(form: Form, function: Callable[..., Any], *more: Any, press: bool = True) -> dict[str, Any]:
    """Have an event send what was changed in fields before ``function`` reads the tab.

    It is given the request, the tab, and what ``more`` widgets hold. The ``press`` of a button sends the list of
    rewards, too, and what was typed just before.
    """
    lists, changes = (
        ([form.rewards.rows], "await Workbench.changesAtPress()") if press else ([], "Workbench.allChanges()")
    )
    own = {KIND, METHOD, f"{CREDIT}.scheme", f"{COMPARE}.scheme"}  # set by their own events, which others follow

    def take(tab: Tab, sent: str, given: Sequence[Any]) -> Sequence[Any]:
        told = json.loads(sent)
        paths = (form.bound.keys() & told["changes"].keys()) - own
        tab.set_all({path: told["changes"][path] for path in paths}, told["replaced"])
        for listed in given[: len(lists)]:
            tab.set_rewards(json.loads(listed), form.estimates)
        return given[len(lists) :]

    def answered(request: gr.Request, tab: Tab, sent: str, *given: Any) -> Any:
        return function(request, tab, *take(tab, sent, given))

    def streamed(request: gr.Request, tab: Tab, sent: str, *given: Any) -> Iterator[Any]:
        yield from function(request, tab, *take(tab, sent, given))

    return {
        "fn": streamed if isgeneratorfunction(function) else answered,
        "inputs": [form.draft, form.sent, *lists, *more],
        "js": f"async (tab, _, ...given) => [tab, {changes}, ...given]",
    }


def scheme_view(form: Form, prefix: str, draft: PageState) -> Updates:
    """Show the fields of a scheme's options, with its defaults and what they mean to it, and hide the others."""
    section = draft.credit if prefix == CREDIT else draft.compare
    options = {} if section is None else options_of(section["scheme"])
    updates: Updates = {form.schemes[prefix]: gr.update(visible=section is not None)}
    for path in form.options(prefix):
        name = path.rpartition(".")[2]
        if name in options:
            updates[form.bound[path]] = gr.update(
                visible=True, value=draft.value(path), info=help_of(option_leaf(prefix, options[name])) or None
            )
        else:
            updates[form.bound[path]] = gr.update(visible=False)
    return updates


def method_view(form: Form, method: str) -> Updates:
    """Return what is there of a method: its own fields, and those of all that mean something to it."""
    about = help_of(method_field(method))
    updates: Updates = {column: gr.update(visible=name == method) for name, column in form.methods.items()}
    updates |= {form.bound[path]: gr.update(visible=is_used(path, method)) for path in (*DATA, RUN_SCHEME)}
    return updates | {form.bound[METHOD]: gr.update(info=about), form.train.start: start_label(method)}


def start_label(method: str) -> str:
    return f"Start {method.upper()} run"


def widget(leaf: Leaf, value: Any, **more: Any) -> Any:
    """The widget of a field: what its section says of it, and what ``SPECIAL`` and the caller do."""
    common: dict[str, Any] = {"label": label_of(leaf), "info": help_of(leaf) or None, "elem_id": elem_id(leaf.name)}
    common |= {"min_width": 0, "interactive": True, **SPECIAL.get(leaf.name, {}), **more}
    choices, value = common.pop("choices", None) or choices_of(leaf), show_value(leaf, value)
    if leaf.kind is bool:
        return gr.Checkbox(bool(value), **{"elem_classes": ["inline"], **common})
    if choices or "allow_custom_value" in common:
        several, free = get_origin(leaf.kind) is list, common.get("allow_custom_value", False)
        return gr.Dropdown(choices, value=value, multiselect=several, filterable=free, **common)
    if may_be_empty(leaf):
        return gr.Textbox(value, **{"lines": 1, "max_lines": 1, "placeholder": "none", **common})
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


def replaces(form: Form, event: Any, change: Callable[..., PageState | None], *, undo: str = "") -> None:
    """Have an event show the draft that ``change`` makes, None for none, and its group scored.

    ``change`` is given the draft before, the session's name and the event's data.
    """

    def replaced(request: gr.Request, data: gr.EventData, tab: Tab) -> Any:
        before = tab.draft
        after = change(before, request.session_hash or "", data._data or {})
        return gr.skip() if after is None else show_draft(form, tab, before, after, undo=undo)

    form.then_score(event(replaced, form.draft, form.outputs, queue=False, **PRIVATE))


def show_draft(
    form: Form, tab: Tab, before: PageState, after: PageState, *, undo: str = "", typed: str = ""
) -> Updates:
    """Return what to set so that the page shows ``after`` where it shows ``before``; a field that stays is not touched.

    The tab holds ``after`` then; what was typed since ``before`` comes with the next event. ``undo`` says what was
    replaced or removed, beside a button that brings ``before`` back; ``typed`` is a field that the page leaves as it is
    where somebody typed into it meanwhile.
    """
    changed = [path for path in form.bound if before.value(path) != after.value(path)]
    updates: Updates = {form.replaced: str(tab.hold(before, after, [path for path in changed if path != typed]))}
    for path in changed:
        updates[form.bound[path]] = gr.update(value=show_value(form.leaves[path], after.value(path)))
    if before.credit != after.credit:
        updates |= scheme_view(form, CREDIT, after)
    if before.compare != after.compare:
        updates |= scheme_view(form, COMPARE, after)
    if before.method != after.method:
        updates |= method_view(form, after.method)
        updates[form.bound[METHOD]]["value"] = after.method
    if rewards.list_value(before) != rewards.list_value(after):
        told, draft = tab.rewards_told, tab.draft  # in this order: the draft has what was told
        updates[form.rewards.rows] = rewards.list_value(draft, told)
    if (after.regex, after.kind) != (before.regex, before.kind):
        updates[form.preset] = preset_of(after.regex, after.kind)
    if after.kind != before.kind:
        updates[form.bound[REGEX]] = gr.update(
            value=after.regex, label="Numbers of the kind" if after.kind in NUMBERS else "Regular expression"
        )
    if after.index != before.index:
        updates[form.example] = after.index
    if after.task != before.task:
        updates[form.task] = after.task
    if after.tree["task"] != before.tree["task"]:
        updates[form.task_preview] = preview(after)
    if undo:
        tab.undo = before
        updates |= dict.fromkeys(form.undo_notes, note_value(scoring.Note(undo, level="info"), action="Undo"))
    return updates | {form.columns: note_value(columns_text(after.columns))}


def form_note_value(note: scoring.Note | None) -> str:
    """A note on the whole form, which marks the fields whose paths its lines begin with."""
    paths = [] if note is None else [line.partition(":")[0] for line in note.text.splitlines()]
    return note_value(note, fields=[elem_id(path) for path in paths if re.fullmatch(r"[\w.]+", path)])


# ── what Inspect gives away ──────────────────────────────────────────────────────────────────────────────────────────

READ_KEPT = """(...values) => {
  let kept = "";
  try { kept = sessionStorage.getItem("workbench-inspect") ?? ""; } catch { /* no storage: nothing was kept */ }
  return [kept, ...values.slice(1)];
}"""
"""Puts what the browser tab kept in place of the first input."""


def build_share(services: session.Services) -> SimpleNamespace:
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
        other = services.credit(tab, second=True)
        is_file = kind in exporting.EXPORTS  # or a picture, which the script makes
        return asdict(exporting.export(credit, kind, other=other)) if is_file else {"name": exporting.stem(credit)}

    problem = note("restore-note")
    with gr.Row(elem_id="share", elem_classes=["fields"]):
        element("share-tools", "tools", server_functions=bind([keep, export]))
        notebook = gr.Button("Notebook code", elem_id="notebook", min_width=0, elem_classes=["small"])
    return SimpleNamespace(
        kept=element("kept", "keep"), notebook=notebook, code=element("notebook-code", "code"), problem=problem
    )


def wire_share(form: Form, services: session.Services) -> None:
    def code(request: gr.Request, tab: Tab) -> str:
        draft, group = tab.draft, tab.draft.group
        assert group is not None
        return sharing.as_code(lambda: sharing.inspect_code(draft, services.groups.keep(group)))

    form.share.notebook.click(**sending(form, code), outputs=form.share.code, queue=False, **PRIVATE)


def share_value(services: session.Services, draft: PageState, **marks: Any) -> str:
    """Return the draft for the browser tab to keep, and the link to what is on screen."""
    group = draft.group
    try:
        saved = "" if group is None or group == first_group() else services.groups.keep_recent(group)
    except WorkbenchError:  # a full disk must not keep anybody from scoring; the link goes without the group
        saved = ""
    return json.dumps({"page": sharing.dump(draft, saved), "link": sharing.link_of(draft, saved), **marks})
