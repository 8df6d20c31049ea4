"""The list of reward functions: rows that are there or not, each with a switch, a weight and a code editor.

Rows are widgets made once and shown when used, because an editor that is built anew loses its cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from workbench.ui.handlers import inspect as handlers
from workbench.ui.handlers.scoring import Note, SlotValues
from workbench.ui.handlers.session import SLOTS, RewardSlot, Session
from workbench.ui.tabs.common import PRIVATE, note, note_value

PER_SLOT = 3  # widgets of a row that are read: switch, weight, code


@dataclass(frozen=True)
class RewardRow:
    holder: gr.Column
    switch: gr.Checkbox
    weight: gr.Number
    code: gr.Code
    note: gr.HTML
    remove: gr.Button


@dataclass(frozen=True)
class RewardList:
    rows: tuple[RewardRow, ...]
    add: gr.Dropdown
    add_note: gr.HTML

    @property
    def inputs(self) -> list[Any]:
        return [widget for row in self.rows for widget in (row.switch, row.weight, row.code)]

    @property
    def outputs(self) -> list[Any]:
        return [widget for row in self.rows for widget in (row.holder, row.switch, row.weight, row.code)]

    @property
    def notes(self) -> list[gr.HTML]:
        return [row.note for row in self.rows]

    @property
    def switches(self) -> list[gr.Checkbox]:
        return [row.switch for row in self.rows]

    def values(self, slots: Sequence[SlotValues]) -> list[Any]:
        """What to set ``outputs`` to, so that the rows show ``slots``."""
        return [value for i, values in enumerate(slots) for value in self.row_values(i, values)]

    def row_values(self, i: int, values: SlotValues) -> list[Any]:
        if values.slot is None:
            return [gr.update(visible=False), gr.skip(), gr.skip(), gr.update(value="")]
        label = f"{values.slot.name}  ·  {values.slot.kind}"
        return [
            gr.update(visible=True),
            gr.update(value=values.on, label=label),
            values.weight,
            gr.update(value=values.code),
        ]

    def wire(self, session: gr.State, then_score: Callable[[Any], None]) -> None:
        """Adding and removing; a row that goes changes no value, so ``then_score`` is told to score after both."""

        def add(session: Session, choice: str | None, *values: Any) -> list[Any]:
            skipped = [gr.skip()] * (4 * SLOTS)
            if not choice:
                return [gr.skip(), gr.skip(), gr.skip(), *skipped]
            slots = list(read_slots(session.slots, values))
            added = handlers.add_reward(slots, choice)
            if added is None:
                reason = (
                    f"{choice} is in the list already." if None in session.slots else f"{SLOTS} functions are the most."
                )
                return [gr.skip(), "", note_value(Note(reason, level="info")), *skipped]
            place, new = added
            kept = tuple(new.slot if i == place else slot for i, slot in enumerate(session.slots))
            skipped[4 * place : 4 * place + 4] = self.row_values(place, new)
            return [replace(session, slots=kept), "", "", *skipped]

        changed = [session, self.add, self.add_note, *self.outputs]
        added = self.add.input(add, [session, self.add, *self.inputs], changed, queue=False, **PRIVATE)
        then_score(added)
        for i, row in enumerate(self.rows):
            removed = row.remove.click(_remover(i), session, [session, row.holder, row.note], queue=False, **PRIVATE)
            then_score(removed)


def _remover(i: int) -> Any:
    def remove(session: Session) -> list[Any]:
        slots = tuple(None if place == i else slot for place, slot in enumerate(session.slots))
        return [replace(session, slots=slots), gr.update(visible=False), ""]

    return remove


def read_slots(slots: Sequence[RewardSlot | None], values: Sequence[Any]) -> tuple[SlotValues, ...]:
    """The rows that ``RewardList.inputs`` hold."""
    rows = [values[i : i + PER_SLOT] for i in range(0, len(values), PER_SLOT)]
    return tuple(
        SlotValues(slot, bool(on), weight, code or "") for slot, (on, weight, code) in zip(slots, rows, strict=True)
    )


def build_reward_list(slots: Sequence[RewardSlot | None]) -> RewardList:
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
    return RewardList(rows, add, note("add-note"))


def _row(i: int, slot: RewardSlot | None) -> RewardRow:
    values = handlers.builtin_slot(slot.name) if slot is not None else handlers.EMPTY_SLOT
    label = f"{slot.name}  ·  {slot.kind}" if slot is not None else ""
    with gr.Column(visible=slot is not None, elem_id=f"reward-{i}", elem_classes=["slot"], min_width=0) as holder:
        with gr.Row(elem_classes=["slot-head"]):
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
        row_note = note(f"reward-note-{i}")
    return RewardRow(holder, switch, weight, code, row_note, remove)
