"""The list of rewards, and the editor of the one that was chosen, in the main column in place of the cards.

Both are drawn anew where the list changes, or another row is chosen, and at no other time: what somebody types in a
row or in the editor is collected by the page itself in ``edits``, by the row's key, whose one event changes the draft.
No event sets these fields. What rewards returned is one message, ``said``, that the page's script puts under
each row and beside the code.

Forms stand in the editor's place for a reward model, a judge, a belief, step values by sampling and a file. Each adds a
row or changes one. A model is loaded, an endpoint asked and values estimated before there is a row; by then the draft
may have changed, so that what came of it is put into the draft by an event of its own.

Rewards are tried by exploit probes and in the clinic, in panels above the group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.config import Leaf
from workbench.errors import ConfigError
from workbench.rewards.source import saved_rewards
from workbench.rewards.watch import CallTimes
from workbench.ui.handlers import reward_forms as forms
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.checks import pair, probe_demo, probe_setup
from workbench.ui.handlers.page_state import PageState, RewardRow, Tab
from workbench.ui.handlers.scoring import Note, ScoringView, View, message
from workbench.ui.handlers.session import Services, Works
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    drawn,
    facts_value,
    field,
    heading,
    hidden,
    note,
    note_value,
    read,
    served,
    shown,
    start_and_cancel,
    widget,
    wire_cancel,
)

FOLLOW = "(listed, editing) => Workbench.followRow(listed, editing)"
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

    at_once = {"queue": False, "show_progress": "hidden"}
    with rewards.rows:
        gr.render([form.draft], [rewards.listed.change], **at_once)(draw_rows)
    with rewards.editor:
        gr.render([form.draft, rewards.editing], [rewards.editing.change], **at_once)(draw_editor)
    rewards.listed.change(None, [rewards.listed, rewards.editing], None, js=FOLLOW, **PRIVATE)

    def add(choice: str, *held: Any) -> Any:
        if not choice:  # the list has gone back to its heading
            return {}
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
    # Gradio tells of a "select" by the mouse, and not of one by Enter.
    rewards.add.change(add, [rewards.add, *form.inputs], outputs, **ONCE)

    def remove(key: str, *held: Any) -> Any:
        before = read(*held)
        row = before.row(key)
        if row is None:
            return gr.skip()
        after = before.but(rows=tuple(other for other in before.rows if other is not row))
        return shown(form, before, after, undo=f"Removed {row.name}")

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
    switch.input(None, [rewards.edits, switch], rewards.edits, js=_edited(row.key, "on"), **PRIVATE)
    weight.input(None, [rewards.edits, weight], rewards.edits, js=_edited(row.key, "weight"), **PRIVATE)
    edit.click(None, None, rewards.editing, js=f"() => Workbench.editRow({key})", **PRIVATE)
    remove.click(None, None, rewards.removing, js=f"() => {key}", **PRIVATE)


def _edited(key: str, field: str) -> str:
    return f"(edits, value) => Workbench.edited(edits, {json.dumps(key)}, {json.dumps(field)}, value)"


def _editor(form: Form, services: Services, editing: str, row: RewardRow | None) -> None:
    rewards = form.rewards
    with gr.Column(elem_id="reward-editor", min_width=0):
        with gr.Row(elem_id="editor-head"):
            if row is None:
                heading(handlers.FORM_LABELS[editing].removesuffix(" …"))
            else:
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
                    wrap_lines=True,
                    buttons=[],
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
    placeholder = "e.g. 0:1, 60:0 fades out over 60 steps"
    weights = field("reward-schedule", str, "Weight schedule (optional)", row.schedule, placeholder=placeholder)

    def schedule(text: str, *held: Any) -> Updates:
        before = read(*held)
        now = before.row(row.key)
        if now is None or (text or "").strip() == now.schedule:
            return {said: gr.skip()}
        try:
            after = before.with_row(now.with_schedule(text or ""), row.key)
        except ConfigError as error:
            return {said: note_value(Note(str(error)))}
        return shown(form, before, after, undo=f"Changed the weight schedule of {row.name}")

    ends = [weights.submit, weights.blur]
    gr.on(ends, schedule, [weights, *form.inputs], [said, *form.outputs], trigger_mode="multiple", **ONCE)


def said_values(services: Services, tab: str, draft: PageState, view: ScoringView, editing: str) -> tuple[Any, str]:
    """Values for ``watch``, which stays where nothing could be scored, and for ``said``."""
    watched = None
    if view.credit is not None:
        services.call_times[tab] = times = services.call_times.get(tab) or CallTimes()
        watched = handlers.watch_group(draft, view.credit.scored, times)
    said = json.dumps(handlers.rewards_said(draft, view, watched, editing))
    return gr.skip() if watched is None else message(**handlers.watch_payload(watched)), said


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
    wire_cancel(cancel, services.estimating)


def _field(part: str, leaf: Leaf, value: Any) -> Any:
    """The widget of a setting of a part; a text's help stands in it while it is empty."""
    special = forms.SPECIAL.get(f"{part}.{leaf.name}", {})
    more: dict[str, Any] = {"elem_id": f"{part}-{leaf.name.replace('_', '-')}", "info": None}
    if leaf.kind is int:
        more |= {"precision": 0}
    elif leaf.kind is str and "choices" not in special:
        more |= {"placeholder": leaf.help}
    return widget(leaf, value, **{**more, **special})


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
        after = handlers.add_file(before, text or "", services.workspace)
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

    def place(made: RewardRow | None, progress: bool, in_run: bool, *now: Any) -> Any:
        """The page with a row of values, and why a run cannot use them although it was asked to."""
        before = read(*now)
        after, problem = forms.with_values_row(before, made, progress, in_run)
        new = forms.values_row(after.rows)
        if new is None:
            return gr.skip()
        updates = shown(form, before, after) | {form.rewards.editing: new.key, estimated: None}
        return updates if problem is None else updates | {form.rewards.add_note: note_value(problem)}

    outputs = [estimated, form.rewards.editing, form.rewards.add_note, *form.outputs]
    chosen = [estimated, progress, in_run, *form.inputs]
    event.then(lambda made, *rest: place(made, *rest) if made else gr.skip(), chosen, outputs, queue=False, **PRIVATE)
    gr.on([progress.input, in_run.input], place, chosen, outputs, queue=False, **PRIVATE)
    wire_cancel(cancel, services.estimating)

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


FORMS: dict[str, Callable[..., None]] = {
    handlers.MODEL: partial(build_part_form, part="model"),
    handlers.JUDGE: partial(build_part_form, part="judge"),
    handlers.BELIEF: partial(build_part_form, part="belief"),
    handlers.VALUES: build_values_form,
    handlers.FILE: build_file_form,
}
"""What the editor shows in place of code, by what it would add."""


def build_probes(services: Services) -> SimpleNamespace:
    """A folded panel above the group: buttons, and what each edit gains."""
    with gr.Accordion("Exploit probes: would a cheating answer earn more?", open=False, elem_id="probes"):
        with gr.Row(elem_classes=["fields"]):
            go = gr.Button("Probe this group", elem_id="probe", min_width=0)
            cancel = gr.Button("Cancel", elem_id="probe-cancel", min_width=0, interactive=False)
            demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0)
        said = note("probe-note")
        table = drawn("probe-table", "probes", server_functions=served([pair], services))
    return SimpleNamespace(go=go, cancel=cancel, demo=demo, note=said, findings=table)


def wire_probes(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    wire_findings(form.probes, form, services, probe_setup, services.probing)

    def demo(tab: Tab) -> Updates:
        draft = read(tab)
        loaded, said = probe_demo(draft)
        return shown(form, draft, loaded, undo=said.text)

    then_score(form.probes.demo.click(demo, form.inputs, form.outputs, queue=False, **PRIVATE))


def build_clinic() -> SimpleNamespace:
    """A folded panel above the group: a button that tries the rewards, its cancel, and what they get wrong."""
    with gr.Accordion("Reward clinic: what do the rewards get wrong?", open=False, elem_id="clinic"):
        with gr.Row(elem_classes=["fields"]):
            go = gr.Button("Try the rewards", elem_id="clinic-go", min_width=0)
            cancel = gr.Button("Cancel", elem_id="clinic-cancel", min_width=0, interactive=False)
        said = note("clinic-note")
        findings = drawn("clinic-table", "clinic")
    return SimpleNamespace(go=go, cancel=cancel, note=said, findings=findings)


def wire_findings(
    widgets: SimpleNamespace,
    form: Form,
    services: Services,
    look: Callable[[PageState, Services, str], Iterator[View]],
    works: Works,
) -> None:
    """Let the button ``look``, and cancel it among ``works``."""

    def run(request: gr.Request, *held: Any) -> Iterator[list[Any]]:
        for view in look(read(*held), services, request.session_hash or ""):
            yield [view.drawing, note_value(view.note), *start_and_cancel(view.running)]

    outputs = [widgets.findings, widgets.note, widgets.go, widgets.cancel]
    widgets.go.click(run, form.inputs, outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
    wire_cancel(widgets.cancel, works, services.judges)
