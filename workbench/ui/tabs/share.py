"""Widgets that share Inspect: a link, files, notebook code, and the browser tab's own copy of the controls."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.ui.handlers.example import is_first_group
from workbench.ui.handlers.group_export import EXPORTS, export, stem
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import drawn, note, tab_of
from workbench.ui.tabs.widgets import ShareWidgets


def build_share(services: Services) -> ShareWidgets:
    def keep(payload: Any) -> str | None:
        credit = services.credit(tab_of(payload))
        if credit is None:
            return None
        group = credit.scored.group
        return "" if is_first_group(group) else services.groups.keep(group).stem

    def make_export(payload: Any) -> dict[str, Any] | None:
        tab = tab_of(payload)
        credit = services.credit(tab)
        if credit is None:
            return None
        kind = payload.get("kind")
        if kind not in EXPORTS:
            return {"name": stem(credit)}
        return export(credit, kind, other=services.credit(tab, second=True)).to_json()

    make_export.__name__ = "export"
    problem = note("restore-note")
    with gr.Row(elem_id="share", elem_classes=["fields"]):
        drawn("share-tools", "tools", server_functions=[keep, make_export])
        notebook = gr.Button("Notebook code", elem_id="notebook", min_width=0, elem_classes=["small"])
    code = drawn("notebook-code", "code")
    memory = drawn("kept", "keep")
    return ShareWidgets(memory, notebook, code, problem)
