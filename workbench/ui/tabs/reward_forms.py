"""The forms in the editor's place: a reward model, a judge, step values by sampling. Each adds a row or changes one.

A model is loaded, an endpoint asked and values estimated before there is a row; by then the draft may have changed, so
that what came of it is put into the draft by an event of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import gradio as gr

from workbench.config import Leaf
from workbench.rewards.source import saved_rewards
from workbench.ui.handlers import reward_forms as forms
from workbench.ui.handlers import rewards
from workbench.ui.handlers.reward_rows import RewardRow
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, facts_value, note, note_value, served, start_and_cancel
from workbench.ui.tabs.form import Updates, field, read, shown, widget
from workbench.ui.tabs.widgets import Form

SMALL: dict[str, Any] = {"elem_classes": ["small"], "min_width": 0}


def build_model_status(services: Services) -> None:
    """What reward models and judges are at, with a button that cancels judges."""

    def model_status() -> str:
        return ", ".join(filter(None, (services.models.busy, services.judges.busy)))

    def cancel_judges() -> bool:
        return services.judges.cancel()

    drawn("model-status", "modelStatus", server_functions=served([model_status, cancel_judges]))


def build_part_form(form: Form, services: Services, row: RewardRow | None, *, part: str) -> None:
    """A form of a part of a reward's configuration; a reward model is loaded and a judge reached before it is a row."""
    leaves, held = forms.form_leaves(part), forms.form_values(part, row)

    def fields_of(layout: Sequence[Sequence[str]]) -> dict[str, Any]:
        drawn_fields: dict[str, Any] = {}
        for names in layout:
            with gr.Row(elem_classes=["fields"]) if len(names) > 1 else nullcontext():
                drawn_fields |= {name: _field(part, leaves[name], held[name]) for name in names}
        return drawn_fields

    fields = fields_of(forms.LAYOUT[part])
    if part in forms.FOLDED:
        with gr.Accordion("More", open=False, elem_classes=["fold"]):
            fields |= fields_of(forms.FOLDED[part])
    loads = part == "model"
    with gr.Row(elem_classes=["slot-foot"]):
        change = "Load and change" if loads else "Change"
        add = gr.Button(change if row else "Add", elem_id=f"{part}-add", **SMALL)
        cancel = gr.Button("Cancel", elem_id=f"{part}-cancel", interactive=False, visible=loads, **SMALL)
    said, made, names = note(f"{part}-note", head=False), gr.State(None), list(fields)

    def make(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        given, now = dict(zip(names, values, strict=False)), read(*values[len(names) :])
        for view in forms.add_row(part, given, now.rows, row.key if row else "", services, request.session_hash or ""):
            yield [view.made, note_value(view.note), *start_and_cancel(view.running)]

    event = add.click(
        make, [*fields.values(), *form.inputs], [made, said, add, cancel],
        concurrency_limit=4, concurrency_id=part, **PRIVATE,
    )  # fmt: skip

    def adopt(new: RewardRow | None, *now: Any) -> Any:
        """Put the row that was made into the list, and close the form."""
        if new is None:
            return gr.skip()
        draft = read(*now)
        return shown(form, draft, draft.with_row(new, row.key if row else "")) | {made: None, form.rewards.editing: ""}

    outputs = [made, form.rewards.editing, *form.outputs]
    event.then(adopt, [made, *form.inputs], outputs, queue=False, **PRIVATE)
    _wire_cancel(cancel, services)


def _wire_cancel(cancel: gr.Button, services: Services) -> None:
    def stop(request: gr.Request) -> None:
        services.estimating.cancel(request.session_hash or "")

    cancel.click(stop, None, None, queue=False, **PRIVATE)


def _field(part: str, leaf: Leaf, value: Any) -> Any:
    """The widget of a setting of a part; a text's help stands in it while it is empty."""
    more: dict[str, Any] = {"elem_id": f"{part}-{leaf.name.replace('_', '-')}", "info": None}
    if leaf.kind is int:
        more |= {"precision": 0}
    elif leaf.kind is str:
        more |= {"placeholder": leaf.help}
    return widget(leaf, value, **{**more, **forms.SPECIAL.get(f"{part}.{leaf.name}", {})})


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_file_form(form: Form, services: Services, row: RewardRow | None) -> None:
    """Choose a function that was saved in the workspace, or give the path of a file."""
    saved = saved_rewards(services.workspace)
    with gr.Row(elem_classes=["fields"]):
        label, choices = "Saved function, or a file's path: FILE.py or FILE.py::NAME", {"choices": saved}
        file = field("saved-choice", str, label, saved[0] if saved else "", allow_custom_value=True, **choices)
        add = gr.Button("Add", elem_id="saved-load", **SMALL)
    said = note("saved-note", head=False)

    def load(text: str | None, *now: Any) -> Updates:
        before = read(*now)
        after = rewards.add_file(before, text or "", services.workspace)
        if isinstance(after, Note):
            return {said: note_value(after)}
        return shown(form, before, after) | {form.rewards.editing: ""}

    outputs = [said, form.rewards.editing, *form.outputs]
    add.click(load, [file, *form.inputs], outputs, queue=False, **PRIVATE)


# ── step values ──────────────────────────────────────────────────────────────────────────────────────────────────


def build_values_form(form: Form, services: Services, row: RewardRow | None) -> None:
    """Estimate Monte-Carlo values of the group on screen; they are a row, and labels to take away."""
    how = None if row is None else row.monte_carlo
    if row is not None:
        drawn("values-facts", "facts", facts_value(forms.values_facts(row), "values"), head=False)
    with gr.Row(elem_classes=["fields"]):
        k = field("values-k", int, "Continuations, k", how.continuations if how else 8, precision=0)
        usual = how.outcome if how else "answer_correctness"
        outcome = field("values-outcome", str, "Outcome reward", usual, choices=forms.outcome_choices(()))
    label = "Score a step by progress: its value less the one before"
    progress = field("values-progress", bool, label, how and how.progress, **forms.PLAIN)
    label = "Use in the run, estimated anew at each step"
    in_run = field("values-in-run", bool, label, row and row.in_run, **forms.PLAIN)
    with gr.Row(elem_classes=["slot-foot"]):
        go = gr.Button("Estimate step values", elem_id="values-estimate", **SMALL)
        cancel = gr.Button("Cancel", elem_id="values-cancel", interactive=False, **SMALL)
    said, estimated = note("values-note", head=False), gr.State(None)

    def run(request: gr.Request, k: float | None, outcome: str, *now: Any) -> Iterator[list[Any]]:
        for view in forms.estimate(read(*now), k, outcome or "", services, request.session_hash or ""):
            yield [view.made, note_value(view.note), *start_and_cancel(view.running)]

    event = go.click(
        run, [k, outcome, *form.inputs], [estimated, said, go, cancel],
        concurrency_limit=4, concurrency_id="sampling", **PRIVATE,
    )  # fmt: skip

    def placed(before: Any, after: Any, asked: bool) -> Updates:
        """The page with a row of values, and why a run cannot use them although it was asked to."""
        new = forms.values_row(after.rows)
        updates = shown(form, before, after) | {form.rewards.editing: new.key if new else "", estimated: None}
        problem = forms.run_note(new, asked)
        return updates if problem is None else updates | {form.rewards.add_note: note_value(problem)}

    def adopt(made: Any, progress: bool, in_run: bool, *now: Any) -> Any:
        if made is None:
            return gr.skip()
        before = read(*now)
        return placed(before, forms.with_values_row(before, made, progress, in_run), in_run)

    def change(progress: bool, in_run: bool, *now: Any) -> Any:
        before = read(*now)
        after = forms.change_row(before, progress, in_run)
        return gr.skip() if after is before else placed(before, after, in_run)

    outputs = [estimated, form.rewards.editing, form.rewards.add_note, *form.outputs]
    chosen = [progress, in_run, *form.inputs]
    event.then(adopt, [estimated, *chosen], outputs, queue=False, **PRIVATE)
    gr.on([progress.input, in_run.input], change, chosen, outputs, queue=False, **PRIVATE)

    _wire_cancel(cancel, services)

    def choices(chosen: str, *now: Any) -> Any:
        listed = forms.outcome_choices(read(*now).rows)
        same = any(value == chosen for _, value in listed)
        return gr.update(choices=listed, value=chosen if same else listed[0][1])

    outcome.focus(choices, [outcome, *form.inputs], outcome, queue=False, **PRIVATE)
    _labels(form, services)


def _labels(form: Form, services: Services) -> None:
    """Make what saves the estimated steps as labels to train on."""
    with gr.Row(elem_classes=["fields"]):
        layout = field("labels-form", str, "Labels as", "trl", choices=forms.LABEL_CHOICES)
        good = field("labels-good", str, "A step is good if", "hard", choices=forms.ESTIMATION_CHOICES)
        save = gr.Button("Save labels", elem_id="labels-save", **SMALL)
    said, file = note("labels-note", head=False), drawn("labels-file", "saveFile", head=False)

    def write(request: gr.Request, layout: str, good: str, *now: Any) -> list[Any]:
        text, note = forms.labels_file(read(*now).rows, layout, good, services, request.session_hash or "")
        return [text, note_value(note)]

    save.click(write, [layout, good, *form.inputs], [file, said], queue=False, **PRIVATE)
