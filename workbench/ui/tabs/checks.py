"""Widgets of the exploit probes and the clinic (on Inspect) and of pre-flight (on Train), and what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.ui.handlers import checks as handlers
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.scoring import View
from workbench.ui.handlers.session import Services, Works
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    drawn,
    note,
    note_value,
    read,
    served,
    shown,
    start_and_cancel,
)


def build_probes(services: Services) -> SimpleNamespace:
    """A folded panel above the group: buttons, and what each edit gains."""
    with gr.Accordion("Exploit probes: would a cheating answer earn more?", open=False, elem_id="probes"):
        with gr.Row(elem_classes=["fields"]):
            go = gr.Button("Probe this group", elem_id="probe", min_width=0)
            cancel = gr.Button("Cancel", elem_id="probe-cancel", min_width=0, interactive=False)
            demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0)
        said = note("probe-note")
        table = drawn("probe-table", "probes", server_functions=served([handlers.pair], services))
    return SimpleNamespace(go=go, cancel=cancel, demo=demo, note=said, findings=table)


def wire_probes(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    wire_findings(form.probes, form, services, handlers.probe_setup, services.probing)

    def demo(tab: Tab) -> Updates:
        draft = read(tab)
        loaded, said = handlers.probe_demo(draft)
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

    def stop(request: gr.Request) -> None:
        if works.cancel(request.session_hash or ""):
            services.judges.cancel()

    outputs = [widgets.findings, widgets.note, widgets.go, widgets.cancel]
    widgets.go.click(run, form.inputs, outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
    widgets.cancel.click(stop, None, None, queue=False, **PRIVATE)
