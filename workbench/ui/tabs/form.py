"""The draft of a browser tab and the page's widgets.

Each field's event sets its own part of the draft, which is held on the server (``draft.Tab``); a draft that an event
changes otherwise sets the widgets that differ.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

import gradio as gr

from workbench.credit import SCHEMES
from workbench.ui.handlers.credit import visible_fields
from workbench.ui.handlers.draft import COMPARE, CREDIT, RUN, TASK, Draft, Tab, credit_paths
from workbench.ui.handlers.example import columns_text, pattern_label, preset_of
from workbench.ui.handlers.rewards import listed
from workbench.ui.handlers.run_fields import FIRST, run_fields, task_fields
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.task_rows import preview
from workbench.ui.tabs.common import note_value
from workbench.ui.tabs.widgets import CreditWidgets, Form

Updates = dict[Any, Any]
"""What an event sets, by widget; the others stay."""


def changes(widget: Any) -> Any:
    """The event of a widget that somebody set; a text that is pasted tells of itself by ``change`` alone."""
    return widget.input if isinstance(widget, gr.Checkbox | gr.Dropdown) else widget.change


def packed_run(draft: Draft) -> str:
    """The value of Train's form: what its fields show, by path."""
    return _told("run", draft, RUN)


def packed_task(draft: Draft) -> str:
    """The value of the form that says how the task's rows are read."""
    return _told("task", draft, TASK)


def _told(name: str, draft: Draft, paths: Iterable[str]) -> str:
    """The values of a form that a script draws. ``told`` tells this one from any other: Gradio may give the script
    again what the form was told before, and that is not to replace what somebody has chosen since."""
    values = draft.values()
    form = {name: {path: values[path] for path in paths}, "told": secrets.token_hex(8)}
    return json.dumps(form, separators=(",", ":"), ensure_ascii=False)


def read(tab: Tab) -> Draft:
    """The draft that a tab holds by now."""
    return tab.draft


def read_form(tab: Tab, form: str) -> bool:
    """Set what a form that a script draws holds, and say whether anything of it is news."""
    (values,) = (values for name, values in json.loads(form).items() if name != "told")
    return tab.change(lambda draft: draft.with_values(values))


def shown(form: Form, before: Draft, after: Draft, *, whole: bool = False, undo: str = "") -> Updates:
    """What to set so that the page shows ``after`` where it shows ``before``; a field that stays is not touched.

    The tab holds ``after`` then, with what was typed since ``before``. ``whole`` sets the forms that scripts draw, too.
    ``undo`` says what was replaced or removed, beside a button that brings ``before`` back.
    """
    assert before.tab is not None
    before.tab.put(before, after)
    old, new = before.values(), after.values()
    differ = {path for path, value in new.items() if value != old[path]}
    updates: Updates = {widget: gr.update(value=new[path]) for path, widget in form.bound.items() if path in differ}
    for prefix, widgets in ((CREDIT, form.credit), (COMPARE, form.compare)):
        paths = credit_paths(prefix)
        if not differ.isdisjoint(paths):
            updates |= _credit_shown(widgets, [new[path] for path in paths])
    if listed(before.rows) != listed(after.rows):
        updates[form.rewards.listed] = listed(after.rows)
    if (after.regex, after.kind) != (before.regex, before.kind):
        updates[form.preset] = preset_of(after.regex, after.kind)
    if after.kind != before.kind:
        regex = "method.pattern.regex"
        updates[form.bound[regex]] = gr.update(value=new[regex], label=pattern_label(after.kind))
    if after.task != before.task:
        updates[form.task] = after.task
    if after.index != before.index:
        updates[form.example] = after.index
    if whole or not differ.isdisjoint(RUN):
        updates[form.run] = packed_run(after)
    if whole or not differ.isdisjoint(TASK):
        updates[form.task_rows] = packed_task(after)
    if whole or after.task != before.task or not differ.isdisjoint(TASK):
        updates[form.task_preview] = preview(after)
    if undo:
        updates |= form.undo.values(before, note_value(Note(undo, level="info"), action="Undo"))
    return updates | {form.columns: note_value(columns_text(after.columns))}


def form_note_value(form: Form, note: Note | None, method: str = FIRST) -> str:
    """A note on the whole form, which marks the fields whose paths its lines begin with.

    ``method`` is the one chosen, whose own settings go by its name on the page.
    """
    paths = [] if note is None else [line.partition(":")[0] for line in note.text.splitlines()]
    ids = {path: widget.elem_id for path, widget in form.bound.items()}
    ids |= {path: field.elem_id for path, field in {**run_fields(), **task_fields()}.items()}
    ids |= {path.replace(f"{method}.", "method.", 1): ids[path] for path in ids if path.startswith(f"{method}.")}
    return note_value(note, fields=[ids[path] for path in paths if path in ids])


def _credit_shown(widgets: CreditWidgets, values: list[Any]) -> Updates:
    scheme, *options = values
    fields = zip(widgets.fields, options, visible_fields(scheme), strict=True)
    updates: Updates = {field: gr.update(value=value, visible=visible) for field, value, visible in fields}
    return updates | {
        widgets.before: scheme,
        widgets.scheme: scheme,
        widgets.options: gr.update(visible=scheme in SCHEMES),
    }
