"""The Train tab: settings and Start on the left, the run that is watched on the right.

The right side is one element that follows a run by itself (``train.js``), asking the functions given to it; no Gradio
event runs while it does, so that any number of pages may watch.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import run_follow, run_setup
from workbench.ui.handlers.checks import PREFLIGHT_PROMPTS, run_preflight
from workbench.ui.handlers.fields import METHOD, run_form
from workbench.ui.handlers.hand_labels import LABELLING
from workbench.ui.handlers.page_state import Tab
from workbench.ui.handlers.run_rollouts import all_rollouts, problems, rollouts, why
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.checks import wire_findings
from workbench.ui.tabs.common import PRIVATE, drawn, facts_value, heading, note, note_value, served
from workbench.ui.tabs.form import LAST, DrawnForm, Updates, form_note_value, read
from workbench.ui.tabs.share import kept_value
from workbench.ui.tabs.widgets import Form

ASKED = (
    run_follow.runs_table,
    run_follow.poll,
    run_follow.curve,
    run_follow.describe,
    why,
    problems,
    all_rollouts,
    run_follow.stop,
    run_follow.resume,
    run_follow.start_now,
)
"""What ``train.js`` asks of the workspace; of the services, ``rollouts``."""


def build_train(form: Form, services: Services) -> None:
    """The form of the run, and the rest of the tab."""
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="train-controls", elem_classes=["controls"], scale=0, min_width=0):
            heading("From Inspect")
            inherited = drawn("inherited", "facts")
            heading("Next run")
            form.run = DrawnForm(form.draft, lambda draft: run_form(draft.method), [METHOD])
            rows = note("rows-found")
            with gr.Column(elem_classes=["actions"], min_width=0):
                estimate = drawn("estimate", "facts")
                with gr.Row(elem_classes=["fields"]):
                    go = gr.Button("Start", variant="primary", elem_id="start", min_width=0)
                    label = f"Pre-flight ({PREFLIGHT_PROMPTS} prompts)"
                    preflight = gr.Button(label, elem_id="preflight", min_width=0)
                    cancel = gr.Button("Cancel", elem_id="preflight-cancel", min_width=0, interactive=False)
                notebook = gr.Button("Notebook code", elem_id="train-notebook", min_width=0, elem_classes=["small"])
                form.undo_notes.append(note("train-undo-note", classes=["undo"]))
                start_note = note("start-note")
        with gr.Column(elem_id="live-column", scale=1, min_width=0):
            code = drawn("train-code", "code")
            said, findings = note("preflight-note"), drawn("preflight-findings", "findings")
            asked = [*served((*ASKED, *LABELLING), services.workspace), *served([rollouts], services)]
            live = drawn("live", "train", _live_value(None, pressed=False), server_functions=asked)
    form.train = SimpleNamespace(
        inherited=inherited,
        rows=rows,
        estimate=estimate,
        preflight=SimpleNamespace(go=preflight, cancel=cancel, note=said, findings=findings),
        start=go,
        start_note=start_note,
        notebook=notebook,
        code=code,
        live=live,
    )


def wire_train(form: Form, services: Services, shows: Sequence[Any]) -> None:
    """``shows`` are the events after which the tab may be looked at."""
    widgets, kept = form.train, form.share.kept

    def start(*held: Any) -> list[Any]:
        draft = read(*held)
        run, problem = run_setup.start_run(draft, services)
        findings = "" if run else gr.skip()  # the run takes their place
        return [_live_value(run), form_note_value(problem, draft.method), findings]

    outputs = [widgets.live, widgets.start_note, widgets.preflight.findings]
    widgets.start.click(start, form.inputs, outputs, concurrency_limit=1, **PRIVATE)

    widgets.notebook.click(
        lambda tab: run_setup.notebook(read(tab), services), form.inputs, widgets.code, queue=False, **PRIVATE
    )
    wire_findings(widgets.preflight, form, services, run_preflight, services.preflight)

    def describe(request: gr.Request, tab: Tab) -> Updates:
        """What the run takes over from Inspect, what it trains on, and what it would take or what keeps it from it."""
        draft, is_last = read(tab), tab.asks("run")
        checked = gr.update(visible=run_setup.samples(draft))
        updates = {
            widgets.inherited: facts_value(run_setup.inherited(draft)),
            widgets.rows: note_value(run_setup.rows_found(draft)),
            widgets.estimate: facts_value(run_setup.estimated(draft, services)),
            widgets.preflight.go: checked,
            widgets.preflight.cancel: checked,
        }
        return updates if is_last() else {}

    # The end of the run that was watched tells its pace.
    preflight = [widgets.preflight.go, widgets.preflight.cancel]
    outputs = [widgets.inherited, widgets.rows, widgets.estimate, *preflight]
    gr.on([*shows, widgets.live.end], describe, form.inputs, outputs, **LAST)
    form.run.wire(
        lambda request, tab, before: describe(request, tab) | {kept: kept_value(services, read(tab))}, [*outputs, kept]
    )
    form.run.opens(shows[-1])


def _live_value(run: str | None, *, pressed: bool = True) -> str:
    start = secrets.token_hex(8) if pressed else ""
    return json.dumps(run_follow.LiveValue(run=run, start=start, downloads=FOLDER))
