"""The form that adds a reward model to the list, and changes the settings of one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from workbench.ui.handlers import models as handlers
from workbench.ui.handlers.rewards import free_place
from workbench.ui.handlers.scoring import SlotValues
from workbench.ui.handlers.session import RewardSlot, Services, Session
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value, start_and_cancel

if TYPE_CHECKING:
    from workbench.ui.tabs.rewards import RewardList

ADD, CHANGE = "Add", "Load and change"
CLOSED = -1
"""The place of a form that changes no row."""


@dataclass(frozen=True)
class ModelPart:
    """``place`` is the row that the form changes, or CLOSED; ``held`` is what was loaded and is not a row yet."""

    panel: gr.Accordion
    path: gr.Textbox
    form: gr.Dropdown
    reduce: gr.Dropdown
    weight: gr.Number
    trust: gr.Checkbox
    add: gr.Button
    cancel: gr.Button
    note: gr.HTML
    place: gr.State
    held: gr.State

    @property
    def fields(self) -> list[Any]:
        return [self.path, self.form, self.reduce, self.weight, self.trust, self.place]

    @property
    def shown(self) -> list[Any]:
        """What to set to ``showing(form)``."""
        return [self.panel, *self.fields, self.add]


def build_models(services: Services) -> ModelPart:
    """The widgets, folded away until somebody wants them."""

    def model_status(request: Any) -> str:
        return handlers.model_status(services)

    drawn("model-status", "WorkbenchRewards.modelStatus", server_functions=[model_status])
    with gr.Accordion("Add a reward model …", open=False, elem_id="add-model", elem_classes=["fold"]) as panel:
        path = gr.Textbox(
            "", label="Folder or Hub id", placeholder="Qwen/Qwen2.5-Math-PRM-7B", max_lines=1, elem_id="model-path",
            elem_classes=["mono"],
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
    return ModelPart(
        panel, path, form, reduce, weight, trust, add, cancel, said, gr.State(CLOSED), gr.State(None)
    )  # fmt: skip


def _choice(label: str, choices: tuple[tuple[str, str], ...], elem_id: str) -> gr.Dropdown:
    return gr.Dropdown(list(choices), value="", label=label, elem_id=elem_id, filterable=False, min_width=0)


def showing(form: handlers.ModelForm | None) -> list[Any]:
    """Values for ``ModelPart.shown``: a row's settings, or the empty form that adds one."""
    if form is None:
        return [gr.update(open=False), "", "", "", 1.0, False, CLOSED, ADD]
    return [gr.update(open=True), form.path, form.form, form.reduce, form.weight, form.trust, form.place, CHANGE]


def wire_models(rewards: RewardList, session: gr.State, services: Services, then_score: Callable[[Any], None]) -> None:
    """Load what the form says, with progress and cancel; it becomes a row once it is there."""
    part = rewards.models
    running = [part.held, part.note, part.add, part.cancel]

    def load(request: gr.Request, session: Session, *values: Any) -> Iterator[list[Any]]:
        path, form, reduce, weight, trust, place, rows = values
        wanted = handlers.ModelForm(path or "", form or "", reduce or "", weight, bool(trust), place)
        slots = rewards.read(session, rows)
        for view in handlers.load_model(wanted, slots, services, request.session_hash or ""):
            busy = start_and_cancel(view.running)
            yield [view.reward and (view.reward, place), note_value(view.note), *busy]

    def adopt(session: Session, held: tuple[Any, int] | None, rows: list[Any]) -> list[Any]:
        if held is None:
            return [gr.skip()] * len(adopted)
        reward, wanted = held
        slots = rewards.read(session, rows)
        there = wanted != CLOSED and slots[wanted].slot is not None  # it may have been removed meanwhile
        place = wanted if there else free_place(slots)
        if place is None:
            return [gr.skip()] * len(adopted)
        slot = RewardSlot(reward.name, reward.kind, given=reward)
        new = SlotValues(slot, True, reward.weight, "")
        kept = tuple(slot if i == place else one for i, one in enumerate(session.slots))
        return [replace(session, slots=kept), None, *showing(None), *rewards.placed(place, new)]

    loaded = part.add.click(
        load, [session, *part.fields, *rewards.inputs], running, concurrency_limit=4, concurrency_id="models", **PRIVATE
    )
    adopted = [session, part.held, *part.shown, *rewards.outputs]
    then_score(loaded.then(adopt, [session, part.held, *rewards.inputs], adopted, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        handlers.cancel_load(services, request.session_hash or "")

    part.cancel.click(stop, None, None, queue=False, **PRIVATE)
