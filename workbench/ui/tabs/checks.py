"""Widgets of the exploit probes (on Inspect) and of pre-flight (on Train), and what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from workbench.credit import SCHEMES
from workbench.ui.handlers import checks as handlers
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value, start_and_cancel

ReadScoring = Callable[[Session, Any], Any]


def build_probes() -> dict[str, Any]:
    """A folded panel above the group: a button, which schemes, and the table of gains."""
    with gr.Accordion("Exploit probes: what would an edit without content earn?", open=False, elem_id="probes"):
        with gr.Row(elem_classes=["fields"]):
            schemes = gr.Dropdown(
                list(SCHEMES), value=[], multiselect=True, label="Schemes (all, if none is chosen)",
                elem_id="probe-schemes", min_width=0,
            )  # fmt: skip
            go = gr.Button("Probe this group", elem_id="probe", min_width=0)
            demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0)
        said = note("probe-note")
        table = drawn("probe-table", "WorkbenchChecks.probes")
    return {"probe_schemes": schemes, "probe": go, "probe_demo": demo, "probe_note": said, "probe_table": table}


def wire_probe(
    go: gr.Button, schemes: gr.Dropdown, said: gr.HTML, table: gr.HTML, services: Services,
    session: gr.State, inputs: list[Any], read: ReadScoring,
) -> None:  # fmt: skip
    def run(request: gr.Request, session: Session, chosen: list[str], *values: Any) -> list[Any]:
        worker = services.reward_worker(request.session_hash or "")
        view = handlers.probe_setup(session, read(session, values), chosen or [], worker, services.models)
        return [view.drawing, note_value(view.note)]

    go.click(run, [session, schemes, *inputs], [table, said], concurrency_limit=2, **PRIVATE)


def build_preflight() -> dict[str, Any]:
    """Above Start: a button that samples a few groups, its cancel, and what they show."""
    with gr.Row(elem_classes=["fields"]):
        go = gr.Button(f"Pre-flight ({handlers.PREFLIGHT_PROMPTS} prompts)", elem_id="preflight", min_width=0)
        cancel = gr.Button("Cancel", elem_id="preflight-cancel", min_width=0, interactive=False)
    said = note("preflight-note")
    found = drawn("preflight-findings", "WorkbenchChecks.findings")
    return {"go": go, "cancel": cancel, "note": said, "findings": found}


def wire_preflight(
    widgets: dict[str, Any], services: Services, inputs: list[Any], read: Callable[[Session, Any], tuple[Any, Any]]
) -> None:
    """``inputs`` begin with the session; ``read`` makes the scoring and the sampling form of the rest."""

    def run(request: gr.Request, session: Session, *values: Any) -> Iterator[list[Any]]:
        scoring, sampling = read(session, values)
        for view in handlers.run_preflight(session, scoring, sampling, services, request.session_hash or ""):
            buttons = start_and_cancel(view.running)
            yield [view.drawing, note_value(view.note), *buttons]

    def stop(request: gr.Request) -> None:
        services.preflight.cancel(request.session_hash or "")

    outputs = [widgets["findings"], widgets["note"], widgets["go"], widgets["cancel"]]
    widgets["go"].click(run, inputs, outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
    widgets["cancel"].click(stop, None, None, queue=False, **PRIVATE)
