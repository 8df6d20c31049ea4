"""The list of reward functions: rows that are there or not, each with a switch, a weight and a code editor.

A row that is a reward model or Monte-Carlo values shows what it consists of in the editor's place. Rows are widgets
made once and shown when used, because an editor that is built anew loses its cursor. Below them, the forms that add
models and values, the functions saved in the workspace, and what the functions of the list give and cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.models import form_of
from workbench.ui.handlers.scoring import Note, ScoringForm, ScoringView, SlotValues
from workbench.ui.handlers.session import SLOTS, RewardSlot, Services, Session
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value
from workbench.ui.tabs.form import pack
from workbench.ui.tabs.models import ModelPart, build_models, showing
from workbench.ui.tabs.step_values import ValuesPart, build_values

PER_SLOT = 3  # widgets of a row that are read: switch, weight, code
SET_PER_SLOT = 5  # and that are set: those, whether the row is there, and what it is if it is no code


@dataclass(frozen=True)
class RewardRow:
    holder: gr.Column
    switch: gr.Checkbox
    weight: gr.Number
    code: gr.Code
    facts: gr.HTML
    change: gr.Button
    note: gr.HTML
    remove: gr.Button
    save: gr.Button
    saved: gr.HTML


@dataclass(frozen=True)
class SavedPanel:
    """The functions saved in the workspace. ``deleted`` holds what undoes the last deletion."""

    panel: gr.Accordion
    choice: gr.Dropdown
    load: gr.Button
    delete: gr.Button
    undo: gr.Button
    note: gr.HTML
    deleted: gr.State


@dataclass(frozen=True)
class RewardList:
    rows: tuple[RewardRow, ...]
    add: gr.Dropdown
    add_note: gr.HTML
    models: ModelPart
    values_part: ValuesPart
    saved: SavedPanel
    watch: gr.HTML
    form: gr.Textbox
    """Switch, weight and code of every row."""

    @property
    def inputs(self) -> list[Any]:
        return [self.form]

    @property
    def widgets(self) -> list[Any]:
        """Those whose values ``form`` holds."""
        return _read(self.rows)

    @property
    def outputs(self) -> list[Any]:
        return [widget for row in self.rows for widget in (row.holder, row.switch, row.weight, row.code, row.facts)]

    @property
    def notes(self) -> list[gr.HTML]:
        return [row.note for row in self.rows]

    @property
    def unchanged(self) -> list[Any]:
        """What to set ``outputs`` to, so that all rows stay."""
        return [gr.skip()] * (SET_PER_SLOT * SLOTS)

    def read(self, session: Session, values: Sequence[Any]) -> tuple[SlotValues, ...]:
        """The rows that ``form`` holds."""
        return read_slots(session.slots, values)

    def values(self, slots: Sequence[SlotValues]) -> list[Any]:
        """What to set ``outputs`` to, so that the rows show ``slots``."""
        return [value for values in slots for value in row_values(values)]

    def placed(self, place: int, values: SlotValues) -> list[Any]:
        """What to set ``outputs`` to, so that row ``place`` shows ``values`` and the others stay."""
        updates = self.unchanged
        updates[SET_PER_SLOT * place : SET_PER_SLOT * (place + 1)] = row_values(values)
        return updates

    def wire(self, session: gr.State, services: Services, then_score: Callable[[Any], None]) -> None:
        """Adding, removing, saving. A row that goes changes no value, so ``then_score`` is told to score after both."""
        self._wire_adding(session, then_score)
        for i, row in enumerate(self.rows):
            removed = row.remove.click(_remover(i), session, [session, row.holder, row.note], queue=False, **PRIVATE)
            then_score(removed)
            self._wire_saving(i, row, session, services)
            self._wire_change(i, row, session)
        self._wire_saved(session, services, then_score)

    def _wire_adding(self, session: gr.State, then_score: Callable[[Any], None]) -> None:
        nothing = self.unchanged

        def add(session: Session, choice: str | None, values: list[Any]) -> list[Any]:
            if not choice:
                return [gr.skip(), gr.skip(), gr.skip(), *nothing]
            added = handlers.add_reward(read_slots(session.slots, values), choice)
            if added is None:
                reason = (
                    f"{choice} is in the list already." if None in session.slots else f"{SLOTS} functions are the most."
                )
                return [gr.skip(), "", note_value(Note(reason, level="info")), *nothing]
            place, new = added
            updates = self.placed(place, new)
            if choice in handlers.TEMPLATES:  # what is to be written is there to write in
                updates[SET_PER_SLOT * place] = gr.update(visible=True, elem_classes=["slot", "open"])
            return [_with_slot(session, place, new.slot), "", "", *updates]

        changed = [session, self.add, self.add_note, *self.outputs]
        then_score(self.add.change(add, [session, self.add, *self.inputs], changed, queue=False, **PRIVATE))

    def _wire_change(self, i: int, row: RewardRow, session: gr.State) -> None:
        """A reward model's settings come into the form that added it; Monte-Carlo values have a panel of their own."""

        def change(session: Session, *values: Any) -> list[Any]:
            (one,) = read_slots([session.slots[i]], values)
            form = form_of(one, i)
            if form is None:
                return [*[gr.skip()] * len(self.models.shown), gr.update(open=True)]
            return [*showing(form), gr.skip()]

        read = [session, row.switch, row.weight, row.code]
        row.change.click(change, read, [*self.models.shown, self.values_part.panel], queue=False, **PRIVATE)

    def _wire_saving(self, i: int, row: RewardRow, session: gr.State, services: Services) -> None:
        def save(session: Session, *values: Any) -> list[Any]:
            (one,) = read_slots([session.slots[i]], values)
            said = handlers.save_slot(services.workspace, one)
            return [note_value(said), gr.update(choices=handlers.saved_choices(services.workspace))]

        read = [session, row.switch, row.weight, row.code]
        row.save.click(save, read, [row.saved, self.saved.choice], queue=False, **PRIVATE)

        def edited(session: Session, *values: Any) -> list[Any]:
            """A switch is labelled with what its function is called and scores, which its code may have changed."""
            (one,) = read_slots([session.slots[i]], values)
            return ["", gr.skip() if one.slot is None else gr.update(label=handlers.slot_label(one))]

        row.code.change(edited, read, [row.saved, row.switch], queue=False, trigger_mode="always_last", **PRIVATE)

    def _wire_saved(self, session: gr.State, services: Services, then_score: Callable[[Any], None]) -> None:
        saved, workspace = self.saved, services.workspace
        nothing = self.unchanged

        def refresh() -> Any:
            return gr.update(choices=handlers.saved_choices(workspace))

        def load(session: Session, choice: str | None, values: list[Any]) -> list[Any]:
            found = handlers.load_choice(workspace, read_slots(session.slots, values), choice)
            if isinstance(found, Note):
                return [gr.skip(), note_value(found), *nothing]
            place, new = found
            return [_with_slot(session, place, new.slot), "", *self.placed(place, new)]

        def delete(choice: str | None) -> list[Any]:
            token, said = handlers.delete_choice(workspace, choice)
            choices = handlers.saved_choices(workspace)
            kept = token or gr.skip()
            return [gr.update(choices=choices, value=None), kept, gr.update(visible=bool(token)), note_value(said)]

        def undo(token: str) -> list[Any]:
            said = handlers.undo_choice(workspace, token)
            return [refresh(), gr.update(visible=said.level == "error"), note_value(said)]

        saved.panel.expand(refresh, None, saved.choice, queue=False, **PRIVATE)
        loaded = [session, saved.note, *self.outputs]
        then_score(saved.load.click(load, [session, saved.choice, *self.inputs], loaded, queue=False, **PRIVATE))
        gone = [saved.choice, saved.deleted, saved.undo, saved.note]
        saved.delete.click(delete, saved.choice, gone, queue=False, **PRIVATE)
        saved.undo.click(undo, saved.deleted, [saved.choice, saved.undo, saved.note], queue=False, **PRIVATE)


def row_values(values: SlotValues) -> list[Any]:
    """What to set a row's ``outputs`` to."""
    if values.slot is None:
        return [gr.update(visible=False), gr.skip(), gr.skip(), gr.update(value=""), ""]
    return [
        gr.update(visible=True, elem_classes=["slot"]),
        gr.update(value=values.on, label=handlers.slot_label(values)),
        values.weight,
        gr.update(value=values.code),
        facts_value(values),
    ]


def facts_value(values: SlotValues) -> str:
    """What the row's script draws in place of an editor; "" for a row that has one."""
    facts = handlers.slot_facts(values)
    return json.dumps(facts) if facts else ""


def watched(services: Services, tab: str, form: ScoringForm, view: ScoringView) -> tuple[Any, list[Any]]:
    """Values for ``watch`` and for each row's note: what was scored, or what is wrong with a function.

    The note of a row that is not there stays as it is: to set a widget takes Gradio's page time at every key.
    """
    drawing: Any = gr.skip()
    notes = [note_value(one, editor=f"reward-code-{i}") for i, one in enumerate(view.slots)]
    if view.credit is not None:
        seen = handlers.watch_group(form, view.credit.scored, services.call_times(tab))
        gave = handlers.row_notes(form, seen)
        drawing = handlers.watch_message(seen)
        notes = [note_value(wrong or one) for wrong, one in zip(view.slots, gave, strict=True)]
    return drawing, [gr.skip() if row.slot is None else one for row, one in zip(form.slots, notes, strict=True)]


def _with_slot(session: Session, place: int, slot: RewardSlot | None) -> Session:
    return replace(session, slots=tuple(slot if i == place else one for i, one in enumerate(session.slots)))


def _remover(i: int) -> Any:
    def remove(session: Session) -> list[Any]:
        return [_with_slot(session, i, None), gr.update(visible=False), ""]

    return remove


def read_slots(slots: Sequence[RewardSlot | None], values: Sequence[Any]) -> tuple[SlotValues, ...]:
    """The rows that ``RewardList.form`` holds."""
    rows = [values[i : i + PER_SLOT] for i in range(0, len(values), PER_SLOT)]
    return tuple(
        SlotValues(slot, bool(on), weight, code or "") for slot, (on, weight, code) in zip(slots, rows, strict=True)
    )


def build_reward_list(slots: Sequence[RewardSlot | None], services: Services) -> RewardList:
    rows = tuple(_row(i, slot) for i, slot in enumerate(slots))
    add = gr.Dropdown(
        [("Add a reward function …", ""), *handlers.reward_choices()],
        value="",
        label="Add a reward function",
        show_label=False,
        filterable=False,
        elem_id="add-reward",
        min_width=0,
    )
    add_note = note("add-note")
    models, values = build_models(services), build_values()
    saved, watch = _saved_panel(), drawn("watch", "WorkbenchRewards.watch", classes=["watch"])
    return RewardList(rows, add, add_note, models, values, saved, watch, pack(_read(rows)))


def _read(rows: Sequence[RewardRow]) -> list[Any]:
    return [widget for row in rows for widget in (row.switch, row.weight, row.code)]


def _saved_panel() -> SavedPanel:
    with gr.Accordion("Saved functions", open=False, elem_id="saved-rewards", elem_classes=["fold"]) as panel:
        choice = gr.Dropdown([], value=None, label="Name and version", elem_id="saved-choice", min_width=0)
        with gr.Row(elem_classes=["slot-foot"]):
            load = gr.Button("load", elem_id="saved-load", elem_classes=["small"], min_width=0)
            delete = gr.Button("delete", elem_id="saved-delete", elem_classes=["small"], min_width=0)
            undo = gr.Button("undo", elem_id="saved-undo", elem_classes=["small"], min_width=0, visible=False)
        said = note("saved-note")
    return SavedPanel(panel, choice, load, delete, undo, said, gr.State(""))


def _row(i: int, slot: RewardSlot | None) -> RewardRow:
    values = handlers.builtin_slot(slot.name) if slot is not None else handlers.EMPTY_SLOT
    with gr.Column(visible=slot is not None, elem_id=f"reward-{i}", elem_classes=["slot"], min_width=0) as holder:
        with gr.Row(elem_classes=["slot-head"]):
            label = handlers.slot_label(values)
            switch = gr.Checkbox(values.on, label=label, elem_id=f"reward-on-{i}", min_width=0, elem_classes=["inline"])
            weight = gr.Number(values.weight, label="Weight", step=0.1, elem_id=f"reward-weight-{i}", min_width=0)
            gr.Button("edit", elem_id=f"reward-edit-{i}", elem_classes=["slot-edit", "small"], min_width=0)
            remove = gr.Button("×", elem_id=f"reward-remove-{i}", elem_classes=["small", "slot-remove"], min_width=0)
        code = gr.Code(
            values.code,
            language="python",
            label="Code",
            show_label=False,
            elem_id=f"reward-code-{i}",
            elem_classes=["slot-code"],
            lines=3,
            max_lines=18,
        )
        with gr.Row(elem_classes=["slot-given"]):
            facts = drawn(f"reward-facts-{i}", "WorkbenchPage.facts")
            change = gr.Button("change", elem_id=f"reward-change-{i}", elem_classes=["small"], min_width=0)
        row_note = note(f"reward-note-{i}")
        with gr.Row(elem_classes=["slot-foot", "slot-save"]):
            save = gr.Button("save", elem_id=f"reward-save-{i}", elem_classes=["small"], min_width=0)
            saved = note(f"reward-saved-{i}")
    return RewardRow(holder, switch, weight, code, facts, change, row_note, remove, save, saved)
