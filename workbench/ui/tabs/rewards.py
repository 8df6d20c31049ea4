"""The list of reward functions: rows that are there or not, each with a switch, a weight and a code editor.

A row that is a reward model, a judge or Monte-Carlo values shows what it consists of in the editor's place. Rows are
widgets made once and shown when used, because an editor that is built anew loses its cursor. Below them, the forms that
add models, judges and values, the functions saved in the workspace, and what the functions of the list give and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.rewards.source import saved_rewards
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.draft import Draft, Tab, row_paths
from workbench.ui.handlers.models import form_of
from workbench.ui.handlers.reward_rows import SLOTS, RewardRow
from workbench.ui.handlers.scoring import Note, ScoringView, unused_notes
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.judges import build_judges, judge_shown
from workbench.ui.tabs.models import build_models, model_shown
from workbench.ui.tabs.step_values import build_values
from workbench.ui.tabs.widgets import Form, RewardWidgets, RowWidgets, SavedWidgets

OPEN = gr.update(open=True)
ANY_ROW: dict[str, Any] = {"queue": False, "trigger_mode": "multiple", **PRIVATE}
"""Of an event that all rows share: one row's button is heard while the answer to another row's is on its way."""


def wire_rewards(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    """Adding, removing, saving. A row that goes changes no value, so ``then_score`` is told to score after both."""
    _wire_adding(form, then_score)
    _wire_rows(form, services, then_score)
    _wire_saved(form, services, then_score)


def _wire_adding(form: Form, then_score: Callable[[Any], None]) -> None:
    rewards = form.rewards
    panels = {
        handlers.MODEL: rewards.models.panel,
        handlers.JUDGE: rewards.judges.panel,
        handlers.VALUES: rewards.values.panel,
        handlers.SAVED: rewards.saved.panel,
    }

    def add(choice: str | None, *held: Any) -> Any:
        if not choice:
            return gr.skip()
        if choice in panels:
            return {rewards.add: "", rewards.add_note: "", **dict.fromkeys((rewards.more, panels[choice]), OPEN)}
        draft = read(*held)
        added = handlers.add_reward(draft.rows, choice)
        if added is None:
            listed = f"{choice} is in the list already."
            reason = listed if None in draft.rows else f"{SLOTS} functions are the most."
            return {rewards.add: "", rewards.add_note: note_value(Note(reason, level="info"))}
        place, row = added
        updates = shown(form, draft, draft.with_row(place, row)) | {rewards.add: "", rewards.add_note: ""}
        if choice in handlers.TEMPLATES:  # what is to be written is there to write in
            updates[rewards.rows[place].holder] = gr.update(visible=True, elem_classes=["slot", "open"])
        return updates

    outputs = [rewards.add, rewards.add_note, rewards.more, *panels.values(), *form.outputs]
    then_score(rewards.add.change(add, [rewards.add, *form.inputs], outputs, queue=False, **PRIVATE))


def _wire_rows(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    """One event for what any row's button does: Gradio's page holds every event against every widget as it opens."""
    rows, models, saved = form.rewards.rows, form.rewards.models, form.rewards.saved

    places = {widget.elem_id: place for place, row in enumerate(rows) for widget in vars(row).values()}

    def place_of(event: gr.EventData) -> int:
        """Where the row stands whose widget was used. A widget that an event has set is another object."""
        return places[event.target.elem_id]

    def remove(event: gr.EventData, *held: Any) -> Updates:
        draft, place = read(*held), place_of(event)
        removed = draft.rows[place]
        said = "" if removed is None else f"{removed.name} is removed"
        return shown(form, draft, draft.with_row(place, None), undo=said) | {rows[place].note: ""}

    outputs = [*form.rewards.notes, *form.outputs]
    removes = [row.remove.click for row in rows]
    then_score(gr.on(removes, remove, form.inputs, outputs, **ANY_ROW))

    def change(event: gr.EventData, *held: Any) -> Updates:
        """A model's or judge's settings come into the form that added it; Monte-Carlo values have their own panel."""
        place = place_of(event)
        row, more = read(*held).rows[place], {form.rewards.more: OPEN}
        if row is not None and row.judge is not None:
            return more | judge_shown(form.rewards.judges, row, place)
        settings = form_of(row, place)
        values = {form.rewards.values.panel: OPEN}
        return more | (values if settings is None else model_shown(models, settings))

    judges = form.rewards.judges.outputs
    changed = [form.rewards.more, models.panel, *models.fields, models.add, *judges, form.rewards.values.panel]
    gr.on([row.change.click for row in rows], change, form.inputs, changed, **ANY_ROW)

    def save(event: gr.EventData, *held: Any) -> Updates:
        place = place_of(event)
        said = handlers.save_row(services.workspace, read(*held).rows[place])
        choices = gr.update(choices=saved_rewards(services.workspace))
        return {rows[place].saved: note_value(said), saved.choice: choices}

    told = [row.saved for row in rows]
    gr.on([row.save.click for row in rows], save, form.inputs, [*told, saved.choice], **ANY_ROW)

    outputs = [*told, *form.outputs]

    def schedule(event: gr.EventData, *held: Any) -> Updates:
        """Read once it is written: a half typed one says nothing."""
        place = place_of(event)
        text, draft = (held[place] or "").strip(), read(*held[len(rows) :])
        before, note = draft.rows[place], rows[place].saved
        if before is None or text == before.schedule:
            return {note: gr.skip()}
        try:
            after = before.with_schedule(text)
        except ConfigError as error:
            return {note: note_value(Note(str(error)))}
        said = f"{before.name}: its weight by step of training was changed"
        return shown(form, draft, draft.with_row(place, after), undo=said) | {note: ""}

    ends = [end for row in rows for end in (row.schedule.submit, row.schedule.blur)]
    written = [*(row.schedule for row in rows), *form.inputs]
    then_score(gr.on(ends, schedule, written, outputs, **ANY_ROW))

    for place, row in enumerate(rows):
        _wire_label(form, place, row)


def _wire_label(form: Form, place: int, row: RowWidgets) -> None:
    """A switch is labelled with what its function is called and scores, which its code may have changed."""

    def edited(tab: Tab, *values: Any) -> list[Any]:
        """Of the row alone: its code changes at every key."""
        row = read(tab).with_values(dict(zip(row_paths(place), values, strict=True))).rows[place]
        if row is None:
            return ["", gr.skip()]
        return ["", gr.update(label=handlers.row_label(row), elem_classes=handlers.row_classes(row))]

    alone = [form.draft, row.switch, row.weight, row.code]
    row.code.change(edited, alone, [row.saved, row.switch], queue=False, trigger_mode="always_last", **PRIVATE)


def _wire_saved(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    saved = form.rewards.saved

    def refresh() -> Any:
        return gr.update(choices=saved_rewards(services.workspace))

    def load(choice: str | None, *held: Any) -> Updates:
        draft = read(*held)
        loaded = handlers.load_choice(services.workspace, draft.rows, choice)
        if isinstance(loaded, Note):
            return {saved.note: note_value(loaded)}
        return shown(form, draft, draft.with_row(*loaded)) | {saved.note: ""}

    saved.panel.expand(refresh, None, saved.choice, queue=False, **PRIVATE)
    outputs = [saved.note, *form.outputs]
    then_score(saved.load.click(load, [saved.choice, *form.inputs], outputs, queue=False, **PRIVATE))


def watched(services: Services, tab: str, draft: Draft, view: ScoringView) -> tuple[Any, list[Any]]:
    """Values for ``watch`` and for each row's note: what was scored, or what is wrong with a function.

    The note of a row that is not there stays as it is: to set a widget takes Gradio's page time at every key.
    """
    drawing: Any = gr.skip()
    notes = [note_value(wrong, editor=f"reward-code-{i}") for i, wrong in enumerate(view.rows)]
    if view.credit is not None:
        seen = handlers.watch_group(draft, view.credit.scored, services.call_times(tab))
        gave = handlers.row_notes(draft.rows, seen, unused_notes(view), view.credit.scored)
        drawing = handlers.watch_message(seen)
        notes = [note_value(wrong or said) for wrong, said in zip(view.rows, gave, strict=True)]
    return drawing, [gr.skip() if row is None else said for row, said in zip(draft.rows, notes, strict=True)]


def build_reward_list(rows: Sequence[RewardRow | None]) -> dict[str, Any]:
    """The rows, and what adds one."""
    listed = tuple(_row(place, row) for place, row in enumerate(rows))
    add = gr.Dropdown(
        [("Add a reward function …", ""), *handlers.reward_choices()],
        value="",
        label="Add a reward function",
        show_label=False,
        filterable=False,
        elem_id="add-reward",
        min_width=0,
    )
    return {"rows": listed, "add": add, "add_note": note("add-note")}


def build_reward_sources() -> dict[str, Any]:
    """Forms that make rewards of models, judges and sampling, the saved functions, and what all functions gave."""
    return {
        "models": build_models(),
        "judges": build_judges(),
        "values": build_values(),
        "saved": _saved_panel(),
        "watch": drawn("watch", "watch", classes=["watch"]),
    }


def bound_rows(rewards: RewardWidgets) -> dict[str, Any]:
    """The widgets of all rows by their paths in the draft."""
    bound: dict[str, Any] = {}
    for place, row in enumerate(rewards.rows):
        bound |= zip(row_paths(place), (row.switch, row.weight, row.code), strict=True)
    return bound


def _saved_panel() -> SavedWidgets:
    with gr.Accordion("Saved functions", open=False, elem_id="saved-rewards", elem_classes=["fold"]) as panel:
        choice = gr.Dropdown([], value=None, label="Name", elem_id="saved-choice", min_width=0)
        with gr.Row(elem_classes=["slot-foot"]):
            load = gr.Button("load", elem_id="saved-load", elem_classes=["small"], min_width=0)
        said = note("saved-note")
    return SavedWidgets(panel, choice, load, said)


def _row(i: int, row: RewardRow | None) -> RowWidgets:
    on, weight, code = (True, 1.0, "") if row is None else (row.on, row.weight, row.code)
    with gr.Column(visible=row is not None, elem_id=f"reward-{i}", elem_classes=["slot"], min_width=0) as holder:
        with gr.Row(elem_classes=["slot-head"]):
            label, classes = handlers.row_label(row), handlers.row_classes(row)
            switch = gr.Checkbox(on, label=label, elem_id=f"reward-on-{i}", min_width=0, elem_classes=classes)
            weighs = gr.Number(weight, label="Weight", step=0.1, elem_id=f"reward-weight-{i}", min_width=0)
            gr.Button("edit", elem_id=f"reward-edit-{i}", elem_classes=["slot-edit", "small"], min_width=0)
            remove = gr.Button("×", elem_id=f"reward-remove-{i}", elem_classes=["small", "slot-remove"], min_width=0)
        editor = gr.Code(
            code,
            language="python",
            label="Code",
            show_label=False,
            elem_id=f"reward-code-{i}",
            elem_classes=["slot-code"],
            interactive=True,
            lines=3,
            max_lines=18,
        )
        with gr.Row(elem_classes=["slot-given"]):
            facts = drawn(f"reward-facts-{i}", "facts")
            change = gr.Button("change", elem_id=f"reward-change-{i}", elem_classes=["small"], min_width=0)
        row_note = note(f"reward-note-{i}")
        schedule = gr.Textbox(
            "" if row is None else row.schedule,
            label="Weight by step of training",
            placeholder="none; 0:1,60:0 falls from 1 to 0 in 60 steps",
            max_lines=1,
            elem_id=f"reward-schedule-{i}",
            elem_classes=["slot-schedule"],
            min_width=0,
        )
        with gr.Row(elem_classes=["slot-foot", "slot-save"]):
            save = gr.Button("save", elem_id=f"reward-save-{i}", elem_classes=["small", "save"], min_width=0)
            saved = note(f"reward-saved-{i}")
    return RowWidgets(holder, switch, weighs, schedule, editor, facts, change, row_note, remove, save, saved)
