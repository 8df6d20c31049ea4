"""The form that adds a reward model to the list, and changes the settings of one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from workbench.ui.handlers import models as handlers
from workbench.ui.handlers.reward_rows import row_of
from workbench.ui.handlers.rewards import free_place
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value, start_and_cancel
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.widgets import Form, ModelWidgets

ADD, CHANGE = "Add", "Load and change"
CLOSED = -1
"""The place of a form that changes no row."""


def build_model_status(services: Services) -> None:
    """What reward models and judges are at, with a button that cancels judges."""

    def model_status(request: Any) -> str:
        return handlers.model_status(services)

    def cancel_judges(request: Any) -> bool:
        return handlers.cancel_judges(services)

    drawn("model-status", "modelStatus", server_functions=[model_status, cancel_judges])


def build_models() -> ModelWidgets:
    """The widgets, folded away until somebody wants them."""
    with gr.Accordion("Add a reward model …", open=False, elem_id="add-model", elem_classes=["fold"]) as panel:
        path = gr.Textbox(
            "", label="Folder, Hub id or run:NAME", placeholder="Qwen/Qwen2.5-Math-PRM-7B", max_lines=1,
            elem_id="model-path", elem_classes=["mono"],
        )  # fmt: skip
        form = _choice("Format", handlers.FORMAT_CHOICES, "model-format")
        with gr.Row(elem_classes=["fields"]):
            reduce = _choice("Used as", handlers.REDUCE_CHOICES, "model-reduce")
            weight = gr.Number(1.0, label="Weight", step=0.1, elem_id="model-weight", min_width=0)
        trust = gr.Checkbox(
            False, label="Run its repository's own code, with my rights", elem_id="model-trust", min_width=0
        )
        with gr.Row(elem_classes=["slot-foot"]):
            add = gr.Button(ADD, elem_id="model-add", elem_classes=["small"], min_width=0)
            cancel = gr.Button("Cancel", elem_id="model-cancel", elem_classes=["small"], min_width=0, interactive=False)
        said = note("model-note")
    return ModelWidgets(
        panel, path, form, reduce, weight, trust, add, cancel, said, gr.State(CLOSED), gr.State(None)
    )  # fmt: skip


def _choice(label: str, choices: tuple[tuple[str, str], ...], elem_id: str) -> gr.Dropdown:
    return gr.Dropdown(list(choices), value="", label=label, elem_id=elem_id, filterable=False, min_width=0)


def model_shown(widgets: ModelWidgets, form: handlers.ModelForm | None) -> Updates:
    """What to set so that the form shows a row's settings, or is the empty one that adds a row."""
    if form is None:
        values: list[Any] = ["", "", "", 1.0, False, CLOSED]
    else:
        values = [form.path, form.form, form.reduce, form.weight, form.trust, form.place]
    label, panel = (ADD, gr.update(open=False)) if form is None else (CHANGE, gr.update(open=True))
    return dict(zip(widgets.fields, values, strict=True)) | {widgets.panel: panel, widgets.add: label}


def wire_models(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    """Load what the form says, with progress and cancel; it becomes a row once it is there."""
    part = form.rewards.models
    running = [part.loaded, part.note, part.add, part.cancel]

    def load(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        (path, format, reduce, weight, trust, place), held = values[: len(part.fields)], values[len(part.fields) :]
        model_form = handlers.ModelForm(path or "", format or "", reduce or "", weight, bool(trust), place)
        for view in handlers.load_model(model_form, read(*held).rows, services, request.session_hash or ""):
            busy = start_and_cancel(view.running)
            yield [view.reward and (view.reward, place), note_value(view.note), *busy]

    def adopt(loaded: tuple[Any, int] | None, *held: Any) -> Any:
        if loaded is None:
            return gr.skip()
        reward, target = loaded
        draft = read(*held)
        there = target != CLOSED and draft.rows[target] is not None  # it may have been removed meanwhile
        place = target if there else free_place(draft.rows)
        if place is None:
            return gr.skip()
        changed = shown(form, draft, draft.with_row(place, row_of(reward)))
        return changed | model_shown(part, None) | {part.loaded: None}

    loaded = part.add.click(
        load, [*part.fields, *form.inputs], running, concurrency_limit=4, concurrency_id="models", **PRIVATE
    )
    adopted = [part.loaded, part.panel, *part.fields, part.add, *form.outputs]
    then_score(loaded.then(adopt, [part.loaded, *form.inputs], adopted, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        handlers.cancel_load(services, request.session_hash or "")

    part.cancel.click(stop, None, None, queue=False, **PRIVATE)
