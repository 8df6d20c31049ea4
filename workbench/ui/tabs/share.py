"""What Inspect gives away: a link, files, notebook code, and the copy of its state that the browser tab keeps."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import gradio as gr
from pydantic import validate_call

from workbench.errors import WorkbenchError, redact
from workbench.ui.handlers.example import first_group
from workbench.ui.handlers.group_export import EXPORTS, stem
from workbench.ui.handlers.group_export import export as export_as
from workbench.ui.handlers.notebook import inspect_code
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import dump, link_of
from workbench.ui.tabs.common import PRIVATE, drawn, note, served
from workbench.ui.tabs.form import read
from workbench.ui.tabs.widgets import Form

READ_KEPT = """(...values) => {
  let kept = "";
  try { kept = sessionStorage.getItem("workbench-inspect") ?? ""; } catch { /* no storage: nothing was kept */ }
  return [kept, ...values.slice(1)];
}"""
"""Puts what the browser tab kept in place of the first input."""


def build_share(services: Services) -> SimpleNamespace:
    @validate_call
    def keep(tab: str) -> str | None:
        credit = services.credit(tab)
        if credit is None:
            return None
        group = credit.scored.group
        return "" if group == first_group() else services.groups.keep(group).stem

    @validate_call
    def export(tab: str, kind: str) -> dict[str, Any] | None:
        credit = services.credit(tab)
        if credit is None:
            return None
        if kind not in EXPORTS:
            return {"name": stem(credit)}
        return asdict(export_as(credit, kind, other=services.credit(tab, second=True)))

    problem = note("restore-note")
    with gr.Row(elem_id="share", elem_classes=["fields"]):
        drawn("share-tools", "tools", server_functions=served([keep, export]))
        notebook = gr.Button("Notebook code", elem_id="notebook", min_width=0, elem_classes=["small"])
    code = drawn("notebook-code", "code")
    memory = drawn("kept", "keep")
    return SimpleNamespace(kept=memory, notebook=notebook, code=code, problem=problem)


def wire_share(form: Form, services: Services) -> None:
    def code(*held: Any) -> str:
        draft = read(*held)
        try:
            assert draft.group is not None
            return json.dumps({"code": inspect_code(draft, services.groups.keep(draft.group))})
        except WorkbenchError as error:
            return json.dumps({"problem": redact(f"There is no code for this yet: {error}")})

    form.share.notebook.click(code, form.inputs, form.share.code, queue=False, **PRIVATE)


def kept_value(services: Services, draft: PageState, **marks: Any) -> str:
    """The draft for the browser tab to keep, and the link to what is on screen."""
    group = draft.group
    try:
        saved = "" if group is None or group == first_group() else services.groups.keep_recent(group)
    except WorkbenchError:  # a full disk must not keep anybody from scoring; the link goes without the group
        saved = ""
    return json.dumps({"page": dump(draft, saved), "link": link_of(draft, saved), **marks})
