"""Forms drawn from the configuration's sections by Gradio's own widgets, and what an event that changes a draft sets.

What a tab holds is on the server (``draft.Tab``). Each field's one event sets its own part of it; a form is drawn anew
only where the draft changed otherwise, and then keeps the fields whose values stayed, with what is being typed there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, get_origin

import gradio as gr

from workbench.config import Leaf
from workbench.steps import NUMBERS
from workbench.ui.handlers.example import columns_text, preset_of, preview
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
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.rewards import listed
from workbench.ui.handlers.scoring import Note
from workbench.ui.tabs.common import PRIVATE, hidden, note_value
from workbench.ui.tabs.widgets import Form

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
    if listed(before.rows) != listed(after.rows):
        updates[form.rewards.listed] = listed(after.rows)
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
