"""The panel that estimates Monte-Carlo values of the group on screen, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from workbench.ui.handlers import step_values as handlers
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value, start_and_cancel
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.widgets import Form, ValuesWidgets


def build_values() -> ValuesWidgets:
    """The widgets, folded away until somebody wants them."""
    outcomes = handlers.outcome_choices(())
    with gr.Accordion("Step values by sampling …", open=False, elem_id="step-values", elem_classes=["fold"]) as panel:
        with gr.Row(elem_classes=["fields"]):
            k = gr.Number(8, label="Continuations, k", precision=0, elem_id="values-k", min_width=0)
            outcome = gr.Dropdown(
                outcomes, value="answer_correctness", label="Outcome reward", elem_id="values-outcome",
                filterable=False, min_width=0,
            )  # fmt: skip
        with gr.Row(elem_classes=["slot-foot"]):
            go = gr.Button("Estimate step values", elem_id="values-estimate", elem_classes=["small"], min_width=0)
            cancel = gr.Button(
                "Cancel", elem_id="values-cancel", elem_classes=["small"], min_width=0, interactive=False
            )
        said = note("values-note")
        progress = gr.Checkbox(
            False, label="Score a step by progress: its value less the one before", elem_id="values-progress"
        )
        in_run = gr.Checkbox(False, label="Use in the run, estimated anew at each step", elem_id="values-in-run")
        with gr.Row(elem_classes=["fields"]):
            form = gr.Dropdown(
                list(handlers.LABEL_CHOICES), value="trl", label="Labels as", elem_id="labels-form",
                filterable=False, min_width=0,
            )  # fmt: skip
            good = gr.Dropdown(
                list(handlers.ESTIMATION_CHOICES), value="hard", label="A step is good if", elem_id="labels-good",
                filterable=False, min_width=0,
            )  # fmt: skip
            save = gr.Button("Save labels", elem_id="labels-save", elem_classes=["small"], min_width=0)
        label_note = note("labels-note")
        file = drawn("labels-file", "saveFile")
    return ValuesWidgets(
        panel, k, outcome, progress, in_run, go, cancel, said, form, good, save, label_note, file, gr.State(None)
    )  # fmt: skip


def wire_values(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    _wire_estimating(form, services, then_score)
    _wire_choices(form, then_score)
    _wire_labels(form, services)


def _wire_estimating(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    part = form.rewards.values

    def run(request: gr.Request, k: float | None, outcome: str, *held: Any) -> Iterator[list[Any]]:
        for view in handlers.estimate(read(*held), k, outcome or "", services, request.session_hash or ""):
            yield [view.row, note_value(view.note), *start_and_cancel(view.running)]

    def adopt(estimated: Any, progress: bool, in_run: bool, *held: Any) -> Any:
        if estimated is None:
            return gr.skip()
        draft = read(*held)
        placed = handlers.place_row(draft.rows, estimated, progress, in_run)
        if isinstance(placed, Note):
            return {part.estimated: None, part.note: note_value(placed)}
        return _placed(form, draft, placed, in_run) | {part.estimated: None}

    estimated = part.estimate.click(
        run,
        [part.k, part.outcome, *form.inputs],
        [part.estimated, part.note, part.estimate, part.cancel],
        concurrency_limit=4,
        concurrency_id="sampling",
        **PRIVATE,
    )
    adopted = [part.estimated, part.note, part.in_run, *form.outputs]
    inputs = [part.estimated, part.progress, part.in_run, *form.inputs]
    then_score(estimated.then(adopt, inputs, adopted, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        services.estimating.cancel(request.session_hash or "")

    part.cancel.click(stop, None, None, queue=False, **PRIVATE)

    def choices(chosen: str, *held: Any) -> Any:
        listed = handlers.outcome_choices(read(*held).rows)
        same = any(value == chosen for _, value in listed)
        return gr.update(choices=listed, value=chosen if same else listed[0][1])

    opened = [part.panel.expand, part.outcome.focus]
    gr.on(opened, choices, [part.outcome, *form.inputs], part.outcome, queue=False, **PRIVATE)


def _placed(form: Form, draft: Draft, placed: tuple[int, RewardRow], in_run: bool) -> Updates:
    """The page with a row of values, and why a run cannot use them although it was asked to."""
    place, row = placed
    part = form.rewards.values
    problem = handlers.run_note(row, in_run)
    updates = shown(form, draft, draft.with_row(place, row)) | {part.in_run: row.in_run}
    return updates if problem is None else updates | {part.note: note_value(problem)}


def _wire_choices(form: Form, then_score: Callable[[Any], None]) -> None:
    part = form.rewards.values

    def change(progress: bool, in_run: bool, *held: Any) -> Any:
        draft = read(*held)
        changed = handlers.change_row(draft.rows, progress, in_run)
        return gr.skip() if changed is None else _placed(form, draft, changed, in_run)

    inputs = [part.progress, part.in_run, *form.inputs]
    outputs = [part.note, part.in_run, *form.outputs]
    then_score(gr.on([part.progress.input, part.in_run.input], change, inputs, outputs, queue=False, **PRIVATE))


def _wire_labels(form: Form, services: Services) -> None:
    part = form.rewards.values

    def save(request: gr.Request, format: str, good: str, *held: Any) -> list[Any]:
        rows = read(*held).rows
        file, said = handlers.labels_file(rows, format, good, services, request.session_hash or "")
        return [file, note_value(said)]

    inputs = [part.label_form, part.estimation, *form.inputs]
    part.save.click(save, inputs, [part.file, part.label_note], queue=False, **PRIVATE)
