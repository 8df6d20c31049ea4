"""The form that adds a judge to the list of rewards, and changes the settings of one that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import gradio as gr

from workbench.config import Leaf
from workbench.ui.handlers import judges as handlers
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.rewards import free_place
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, note, note_value
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.widgets import Form, JudgeWidgets

ADD, CHANGE = "Add", "Change"
CLOSED = -1
"""The place of a form that changes no row."""


def build_judges() -> JudgeWidgets:
    """The widgets, folded away until somebody wants them."""
    with gr.Accordion("Add a judge …", open=False, elem_id="add-judge", elem_classes=["fold"]) as panel:
        first = {name: _field(handlers.LEAVES[name]) for name in handlers.FIRST}
        kind = gr.Dropdown(
            list(handlers.KINDS), value="step", label="Scores", elem_id="judge-kind", filterable=False, min_width=0
        )
        with gr.Accordion("More", open=False, elem_classes=["fold"]):
            rest = [leaf for name, leaf in handlers.LEAVES.items() if name not in first]
            others: dict[str, Any] = {}
            for start in range(0, len(rest), 2):
                with gr.Row(elem_classes=["fields"]):
                    others |= {leaf.name: _field(leaf) for leaf in rest[start : start + 2]}
        with gr.Row(elem_classes=["slot-foot"]):
            add = gr.Button(ADD, elem_id="judge-add", elem_classes=["small"], min_width=0)
        said = note("judge-note")
    fields = first | others
    return JudgeWidgets(
        panel, {name: fields[name] for name in handlers.LEAVES}, kind, add, said, gr.State(CLOSED), gr.State(None)
    )


def _field(leaf: Leaf) -> Any:
    """The widget of a setting, made of what its section says of it."""
    value, elem_id = handlers.NEW[leaf.name], f"judge-{leaf.name.replace('_', '-')}"
    if leaf.kind is bool:
        return gr.Checkbox(value, label=leaf.label, elem_id=elem_id, min_width=0)
    if leaf.kind in (int, float):
        precision = 0 if leaf.kind is int else None
        return gr.Number(value, label=leaf.label, elem_id=elem_id, precision=precision, min_width=0)
    assert not get_args(leaf.kind), leaf.name
    lines = 4 if leaf.name == "rubric" else 1
    return gr.Textbox(
        value or "", label=leaf.label, placeholder=leaf.help, lines=lines, max_lines=12 if lines > 1 else 1,
        elem_id=elem_id, elem_classes=[] if lines > 1 else ["mono"],
    )  # fmt: skip


def judge_shown(widgets: JudgeWidgets, row: RewardRow | None, place: int = CLOSED) -> Updates:
    """What to set so that the form shows a row's settings, or is the empty one that adds a row."""
    values = handlers.form_values(row)
    updates: Updates = {widget: values[name] for name, widget in widgets.fields.items()}
    label, panel = (ADD, gr.update(open=False)) if row is None else (CHANGE, gr.update(open=True))
    kind = "step" if row is None else row.kind
    return updates | {widgets.kind: kind, widgets.place: place, widgets.panel: panel, widgets.add: label}


def wire_judges(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    """Look whether the endpoint is there; then the judge becomes a row."""
    part = form.rewards.judges
    names = list(part.fields)

    def check(kind: str, place: int, *values: Any) -> list[Any]:
        given, held = dict(zip(names, values, strict=False)), values[len(names) :]
        added = handlers.add_judge(given, kind, read(*held).rows, place, services)
        return [None, note_value(added)] if isinstance(added, Note) else [(added, place), ""]

    def adopt(checked: tuple[RewardRow, int] | None, *held: Any) -> Any:
        if checked is None:
            return gr.skip()
        row, target = checked
        draft = read(*held)
        there = target != CLOSED and draft.rows[target] is not None  # it may have been removed meanwhile
        place = target if there else free_place(draft.rows)
        if place is None:
            return gr.skip()
        return shown(form, draft, draft.with_row(place, row)) | judge_shown(part, None) | {part.checked: None}

    asked = [part.kind, part.place, *part.fields.values(), *form.inputs]
    checked = part.add.click(
        check, asked, [part.checked, part.note], concurrency_limit=4, concurrency_id="judges", **PRIVATE
    )
    adopted = [part.checked, *part.outputs, *form.outputs]
    then_score(checked.then(adopt, [part.checked, *form.inputs], adopted, queue=False, **PRIVATE))
