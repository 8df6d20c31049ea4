"""The Runs and Train tabs, each with an element that a script draws, which asks the functions given to it.

Buttons on both use a run that is over on another tab: its policy, its reward model, its settings. On Train there are
settings and Start on the left, the run that is watched on the right. Its element follows a run by itself
(``train.js``); no Gradio event runs while it does, so that any number of pages may watch.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import page_state, reward_forms, run_follow, scoring, session, sharing
from workbench.ui.handlers import runs as handlers
from workbench.ui.handlers.fields import DATA, FIRST, METHOD, RUN_SCHEME, is_used, method_field, method_form, run_form
from workbench.ui.tabs.form import (
    LAST,
    PRIVATE,
    Form,
    Updates,
    bind,
    build_fields,
    element,
    facts_value,
    form_note_value,
    heading,
    method_view,
    note,
    note_value,
    on_change,
    sending,
    share_value,
    show_draft,
    start_label,
)

RUNS_ASKED = (
    handlers.table,
    handlers.overlay,
    handlers.curve,
    handlers.say_of,
    handlers.remove,
    handlers.undelete,
    run_follow.resume,
    run_follow.stop,
)
"""What ``runs.js`` asks of the workspace; of the services, ``side_by_side``."""


def build_runs(services: session.Services) -> gr.HTML:
    value = json.dumps(handlers.RunsValue(downloads=FOLDER, most=handlers.COMPARED_RUNS))
    asked = [*bind(RUNS_ASKED, services.workspace), *bind([run_follow.side_by_side], services)]
    return element("runs", "runs", value, server_functions=asked)


def wire_run_actions(
    form: Form,
    tabs: gr.Tabs,
    elements: Sequence[gr.HTML],
    services: session.Services,
) -> None:
    """One event of all ``elements``; its data names the run by what is wanted of it: reward, policy or settings."""
    said, start_note = form.rewards.add_note, form.train.start_note

    def reward(
        draft: page_state.PageState, name: str, workspace: Path
    ) -> tuple[page_state.PageState, scoring.Note | None]:
        return draft.with_row(reward_forms.run_as_reward(draft.rows, name, workspace)), None

    actions: dict[str, tuple[Callable[..., tuple[page_state.PageState, scoring.Note | None]], str, gr.HTML]] = {
        "reward": (reward, "inspect", said),
        "policy": (handlers.inspect_policy, "inspect", form.sample_note),
        "settings": (handlers.use_settings, "train", start_note),
        "change": (handlers.use_settings, "train", start_note),
        "onward": (handlers.train_on, "train", start_note),
    }

    def act(event: gr.EventData, held: page_state.Tab) -> Any:
        wanted, name = next(iter(event._data.items()), ("", ""))
        if wanted not in actions:
            return gr.skip()
        action, tab, note = actions[wanted]
        draft, shows = held.draft, {tabs: gr.Tabs(selected=tab)}
        try:
            after, about = action(draft, str(name), services.workspace)
        except WorkbenchError as error:
            return shows | {note: note_value(scoring.Note(str(error)))}
        sampled = {form.sample_now: secrets.token_hex(8)} if wanted == "policy" else {}
        return (
            show_draft(form, held, draft, after, undo="" if about is None else about.text)
            | {note: ""}
            | sampled
            | shows
        )

    outputs = [tabs, said, form.sample_note, start_note, form.sample_now, *form.outputs]
    form.then_score(
        gr.on([element.apply for element in elements], act, form.draft, outputs, concurrency_limit=None, **PRIVATE)
    )


TRAIN_ASKED = (
    run_follow.runs_table,
    run_follow.poll,
    run_follow.curve,
    run_follow.describe,
    run_follow.why,
    run_follow.problems,
    run_follow.all_rollouts,
    run_follow.stop,
    run_follow.resume,
    run_follow.start_now,
)
"""What ``train.js`` asks of the workspace; of the services, ``rollouts``."""


def build_train(form: Form, services: session.Services) -> None:
    """The form of the run, and the rest of the tab."""
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="train-controls", elem_classes=["controls"], scale=0, min_width=0):
            heading("From Inspect")
            inherited = element("inherited", "facts")
            heading("Next run")
            element("find-setting", "settings")
            _build_run(form)
            with gr.Accordion("As YAML", open=False, elem_id="yaml", elem_classes=["fold"]) as yaml:
                text = gr.Code(
                    language="yaml", show_label=False, elem_id="yaml-code", interactive=True, max_lines=30, buttons=[]
                )
                take_over = gr.Button("Take over this text", elem_id="yaml-take", min_width=0, elem_classes=["small"])
            rows = note("rows-found")
            with gr.Column(elem_classes=["actions"], min_width=0):
                estimate = element("estimate", "facts")
                with gr.Row(elem_classes=["fields"]):
                    go = gr.Button(start_label(form.first.method), variant="primary", elem_id="start", min_width=0)
                    form.check = gr.Button("Check this setup", elem_id="check", min_width=0)
                notebook = gr.Button("Notebook code", elem_id="train-notebook", min_width=0, elem_classes=["small"])
                form.undo_notes.append(note("train-undo-note", classes=["undo"]))
                start_note = note("start-note")
        with gr.Column(elem_id="live-column", scale=1, min_width=0):
            code = element("train-code", "code")
            asked = [
                *bind((*TRAIN_ASKED, *scoring.LABELLING), services.workspace),
                *bind([run_follow.rollouts], services),
            ]
            live = element(
                "live",
                "train",
                _live_value(None, pressed=False),
                server_functions=asked,
                charts=handlers.planned_charts(form.first),
            )
    form.train = SimpleNamespace(
        inherited=inherited,
        rows=rows,
        estimate=estimate,
        yaml=SimpleNamespace(fold=yaml, text=text, take_over=take_over),
        start=go,
        start_note=start_note,
        notebook=notebook,
        code=code,
        live=live,
    )


def _build_run(form: Form) -> None:
    """The fields of a run: those of all methods, each method's own in a column, and the rest."""
    method = form.first.method
    used = {path: {"visible": is_used(path, method)} for path in (*DATA, RUN_SCHEME)}
    before, after = run_form()
    build_fields(form, [("", [method_field(method)]), *before], lambda path: used.get(path, {}))
    for name in METHODS:
        with gr.Column(visible=name == method, min_width=0) as form.methods[name]:
            fold = build_fields(form, method_form(name))
        if name == FIRST:
            with fold, gr.Column(elem_id="engine-asked", min_width=0):
                ask = gr.Button("Test the connection", elem_id="engine-ask", min_width=0, elem_classes=["small"])
                form.engine = SimpleNamespace(ask=ask, note=note("engine-note"))
    build_fields(form, after)


def wire_train(form: Form, services: session.Services, shows: Sequence[Any]) -> None:
    """``shows`` are the events after which the tab may be looked at."""
    widgets, kept = form.train, form.share.kept

    def start(request: gr.Request, tab: page_state.Tab) -> list[Any]:
        draft = tab.draft
        run, problem = handlers.start_run(draft, services)
        return [_live_value(run), form_note_value(problem), share_value(services, draft)]

    outputs = [widgets.live, widgets.start_note, kept]
    widgets.start.click(**sending(form, start), outputs=outputs, concurrency_limit=1, **PRIVATE)

    code = sending(form, lambda request, tab: handlers.notebook(tab.draft, services))
    widgets.notebook.click(**code, outputs=widgets.code, queue=False, **PRIVATE)

    asks = sending(form, lambda request, tab: form_note_value(handlers.ask_engine(tab.draft)))
    form.engine.ask.click(**asks, outputs=form.engine.note, **PRIVATE)

    def describe(request: gr.Request, tab: page_state.Tab) -> Updates:
        """Say what the run takes over from Inspect, what it trains on, and what it would take or what keeps it."""
        is_last = tab.asks("run")  # first: whatever is the last has then read the newest
        draft = tab.answered["run"] = tab.draft
        updates = {
            widgets.inherited: facts_value(handlers.inherited(draft)),
            widgets.rows: note_value(handlers.rows_found(draft)),
            widgets.estimate: facts_value(handlers.estimated(draft, services, tab.watched)),
            widgets.live: gr.update(charts=handlers.planned_charts(draft)),
            form.check: gr.update(visible=handlers.samples(draft)),
        }
        return updates if is_last() else {}

    # The end of the run that was watched tells its pace.
    outputs = [widgets.inherited, widgets.rows, widgets.estimate, widgets.live, form.check]
    gr.on([*shows, widgets.live.end], describe, form.draft, outputs, **LAST)

    def watch(request: gr.Request, event: gr.EventData, tab: page_state.Tab) -> Updates:
        tab.watched = str(event._data.get("run") or "")
        return describe(request, tab)

    widgets.live.select(watch, form.draft, outputs, **LAST)

    _wire_yaml(form)

    def answer(request: gr.Request, tab: page_state.Tab, before: page_state.PageState) -> Updates:
        # The note is of what Start was refused for before.
        return {**describe(request, tab), kept: share_value(services, tab.draft), widgets.start_note: ""}

    answered = [*outputs, kept, widgets.start_note]
    on_change(form, [path for path in form.bound if path not in (METHOD, *form.inspected)], "run", answer, answered)

    def choose(request: gr.Request, tab: page_state.Tab, method: str) -> Any:
        before = tab.draft
        is_news = tab.choose(METHOD, method)
        return answer(request, tab, before) | method_view(form, method) if is_news else gr.skip()

    shown_by = [
        widgets.start,
        *form.methods.values(),
        *(form.bound[path] for path in (METHOD, *DATA, RUN_SCHEME)),
    ]
    form.bound[METHOD].input(choose, [form.draft, form.bound[METHOD]], [*answered, *shown_by], **LAST)


def _wire_yaml(form: Form) -> None:
    """The run that Start would start as a text that can be edited, and taken over by the form."""
    yaml = form.train.yaml

    def write_yaml(request: gr.Request, tab: page_state.Tab) -> Updates:
        try:
            return {yaml.text: tab.draft.config().to_yaml()}
        except WorkbenchError as error:
            return {form.train.start_note: form_note_value(scoring.Note(str(error)))}

    def take_yaml(tab: page_state.Tab, text: str) -> Updates:
        draft = tab.draft
        try:
            after, said = sharing.take_over(draft, "the text", RunConfig.from_yaml(text))
        except WorkbenchError as error:
            return {form.train.start_note: form_note_value(scoring.Note(str(error)))}
        return show_draft(form, tab, draft, after, undo=said.text) | {form.train.start_note: ""}

    yaml.fold.expand(**sending(form, write_yaml), outputs=[yaml.text, form.train.start_note], queue=False, **PRIVATE)
    form.then_score(
        yaml.take_over.click(
            take_yaml, [form.draft, yaml.text], [form.train.start_note, *form.outputs], queue=False, **PRIVATE
        )
    )


def _live_value(run: str | None, *, pressed: bool = True) -> str:
    return json.dumps(run_follow.LiveValue(run=run, start=secrets.token_hex(8) if pressed else "", downloads=FOLDER))
