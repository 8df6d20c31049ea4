"""The list of rewards, and the editor of the one that was chosen, in the main column in place of the cards.

Both are drawn anew where the list changes, or another row is chosen, and at no other time: what somebody types in a
row or in the editor is collected by the page itself in ``edits``, by the row's key, whose one event changes the draft.
No event sets these fields. What rewards returned is one message, ``said``, that the page's script puts under
each row and beside the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.scoring import Note, ScoringView, message
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, hidden, note, note_value
from workbench.ui.tabs.form import Updates, field, read, shown
from workbench.ui.tabs.reward_forms import build_file_form, build_part_form, build_values_form
from workbench.ui.tabs.widgets import Form

FORMS: dict[str, Callable[..., None]] = {
    handlers.MODEL: partial(build_part_form, part="model"),
    handlers.JUDGE: partial(build_part_form, part="judge"),
    handlers.BELIEF: partial(build_part_form, part="belief"),
    handlers.VALUES: build_values_form,
    handlers.FILE: build_file_form,
}
"""What the editor shows in place of code, by what it would add."""
FOLLOW = "(listed) => Workbench.followRow(listed)"
"""Closes the editor if its row has gone, or shows the row that has taken its place."""
ONCE: dict[str, Any] = {"queue": False, **PRIVATE}


def build_reward_list() -> SimpleNamespace:
    """Make the place of the rows, and what adds one."""
    with gr.Column(elem_id="reward-list", min_width=0) as rows:
        pass
    choices = [("Add a reward …", ""), *handlers.reward_choices()]
    return SimpleNamespace(
        rows=rows,
        add=field("add-reward", str, "Add a reward", "", choices=choices, show_label=False),
        said=drawn("rewards-said", "rewardsSaid"),
        add_note=note("add-note"),
        watch=drawn("watch", "watch", classes=["watch"]),
        listed=hidden(),
        editing=hidden(),
        removing=hidden(),
        edits=hidden("{}"),
    )


def wire_rewards(form: Form, services: Services) -> None:
    """Draw the rows and the editor, and wire what adds, removes and edits a row; a list that changes is scored."""
    rewards = form.rewards

    def draw_rows(tab: Tab) -> None:
        for place, row in enumerate(read(tab).rows):
            _row(rewards, place, row)

    def draw_editor(tab: Tab, editing: str) -> None:
        row = read(tab).row(editing)
        if row is not None or editing in FORMS:
            _editor(form, services, editing, row)

    with rewards.rows:
        gr.render([form.draft], [rewards.listed.change], show_progress="hidden")(draw_rows)
    with rewards.editor:
        gr.render([form.draft, rewards.editing], [rewards.editing.change], show_progress="hidden")(draw_editor)
    rewards.listed.change(None, rewards.listed, None, js=FOLLOW, **PRIVATE)

    def add(event: gr.SelectData, *held: Any) -> Any:
        choice = str(event.value)
        if choice in FORMS:
            return {rewards.add: "", rewards.add_note: "", rewards.editing: choice}
        before = read(*held)
        after = handlers.add_reward(before, choice)
        if isinstance(after, Note):
            return {rewards.add: "", rewards.add_note: note_value(after)}
        updates = shown(form, before, after) | {rewards.add: "", rewards.add_note: ""}
        if choice in handlers.TEMPLATES:  # what is to be written is there to write in
            updates[rewards.editing] = after.rows[-1].key
        return updates

    outputs = [rewards.add, rewards.add_note, rewards.editing, *form.outputs]
    rewards.add.select(add, form.inputs, outputs, **ONCE)

    def remove(key: str, *held: Any) -> Any:
        before = read(*held)
        row = before.row(key)
        if row is None:
            return gr.skip()
        after = before.but(rows=tuple(other for other in before.rows if other is not row))
        return shown(form, before, after, undo=f"{row.name} is removed")

    rewards.removing.change(remove, [rewards.removing, *form.inputs], form.outputs, trigger_mode="multiple", **ONCE)


def _row(rewards: SimpleNamespace, place: int, row: RewardRow) -> None:
    key, asks = json.dumps(row.key), row.model is not None or row.judge is not None
    with gr.Column(elem_classes=["slot", "asks" if asks else "computes"], elem_id=f"reward-{place}", min_width=0):
        with gr.Row(elem_classes=["slot-head"]):
            shown_as = {"elem_classes": ["inline", row.kind]}
            switch = field(f"reward-on-{place}", bool, handlers.row_label(row), row.on, **shown_as)
            weighted = {"step": 0.1, "interactive": not row.is_scheduled}
            weight = field(f"reward-weight-{place}", float, "Weight", row.weight, **weighted)
            edit = gr.Button("Edit", elem_id=f"reward-edit-{place}", elem_classes=["small"], min_width=0)
            remove = gr.Button("×", elem_id=f"reward-remove-{place}", elem_classes=["small"], min_width=0)
        drawn(f"reward-note-{place}", "rewardSaid", classes=["note"], constant={"key": row.key}, head=False)
    switch.change(None, [rewards.edits, switch], rewards.edits, js=_edited(row.key, "on"), **PRIVATE)
    weight.change(None, [rewards.edits, weight], rewards.edits, js=_edited(row.key, "weight"), **PRIVATE)
    edit.click(None, None, rewards.editing, js=f"() => {key}", **PRIVATE)
    remove.click(None, None, rewards.removing, js=f"() => {key}", **PRIVATE)


def _edited(key: str, field: str) -> str:
    return f"(edits, value) => Workbench.edited(edits, {json.dumps(key)}, {json.dumps(field)}, value)"


def _editor(form: Form, services: Services, editing: str, row: RewardRow | None) -> None:
    rewards = form.rewards
    with gr.Column(elem_id="reward-editor", min_width=0):
        with gr.Row(elem_id="editor-head"):
            drawn("editor-said", "rewardSentence", classes=["note"], constant={"key": editing}, head=False)
            if row is not None and row.has_editor:
                templates = [(label, choice) for choice, (label, *_) in handlers.TEMPLATES.items()]
                choices = [("Start from a template …", ""), *templates]
                template = field("editor-template", str, "Template", "", choices=choices, show_label=False)
                undo = gr.Button("Undo edits", elem_id="editor-undo", elem_classes=["small"], min_width=0)
                save = gr.Button("Save to file", elem_id="editor-save", elem_classes=["small"], min_width=0)
            done = gr.Button("Done", variant="primary", elem_id="editor-done", min_width=0)
        done.click(None, None, rewards.editing, js="() => ''", **PRIVATE)
        saved = note("editor-saved", head=False)
        if row is None or not row.has_editor:
            kind = editing if row is None else _form_of(row)
            FORMS[kind](form, services, row)
        else:
            with gr.Row(elem_id="editor-body"):
                code = gr.Code(
                    row.code,
                    language="python",
                    label="Code",
                    show_label=False,
                    elem_id="reward-code",
                    interactive=True,
                    lines=22,
                    max_lines=36,
                    min_width=0,
                )
                drawn("editor-results", "rewardResults", constant={"key": row.key}, head=False)
            code.change(None, [rewards.edits, code], rewards.edits, js=_edited(row.key, "code"), **PRIVATE)
            buttons = {"template": template, "undo": undo, "save": save, "saved": saved}
            _wire_code(form, services, row, buttons, code)
        if row is not None:
            _schedule(form, row, saved)


def _form_of(row: RewardRow) -> str:
    if row.belief is not None:
        return handlers.BELIEF
    return handlers.MODEL if row.model is not None else handlers.JUDGE if row.judge is not None else handlers.VALUES


def _wire_code(form: Form, services: Services, row: RewardRow, widgets: dict[str, Any], code: gr.Code) -> None:
    templates = {choice: code.format(name=row.name) for choice, (_, _, _, code) in handlers.TEMPLATES.items()}
    widgets["template"].input(lambda choice: templates.get(choice, gr.skip()), widgets["template"], code, **ONCE)
    widgets["undo"].click(lambda: row.code, None, code, **ONCE)

    widgets["save"].click(
        lambda tab: note_value(handlers.save_row(services.workspace, read(tab).row(row.key))),
        form.inputs,
        widgets["saved"],
        **ONCE,
    )
    code.input(lambda: "", None, widgets["saved"], **ONCE)


def _schedule(form: Form, row: RewardRow, said: gr.HTML) -> None:
    """Make the field of the weights by step of training, read once it is written: a half typed one says nothing."""
    placeholder = "none; 0:1,60:0 falls from 1 to 0 in 60 steps"
    weights = field("reward-schedule", str, "Weight by step of training", row.schedule, placeholder=placeholder)

    def schedule(text: str, *held: Any) -> Updates:
        before = read(*held)
        now = before.row(row.key)
        if now is None or (text or "").strip() == now.schedule:
            return {said: gr.skip()}
        try:
            after = before.with_row(now.with_schedule(text or ""), row.key)
        except ConfigError as error:
            return {said: note_value(Note(str(error)))}
        return shown(form, before, after, undo=f"{row.name}: its weight by step of training was changed")

    ends = [weights.submit, weights.blur]
    gr.on(ends, schedule, [weights, *form.inputs], [said, *form.outputs], trigger_mode="multiple", **ONCE)


def said_values(services: Services, tab: str, draft: PageState, view: ScoringView, editing: str) -> tuple[Any, str]:
    """Values for ``watch``, which stays where nothing could be scored, and for ``said``."""
    watched = None
    if view.credit is not None:
        watched = handlers.watch_group(draft, view.credit.scored, services.call_times(tab))
    said = json.dumps(handlers.rewards_said(draft, view, watched, editing))
    return gr.skip() if watched is None else message(**handlers.watch_payload(watched)), said
