"""Events that restore the page after a reload, follow a link, and make notebook code."""

from __future__ import annotations

import json
from typing import Any

from workbench.errors import WorkbenchError, redact
from workbench.ui.handlers.example import is_first_group
from workbench.ui.handlers.notebook import inspect_code
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import dump, link_of
from workbench.ui.tabs.common import PRIVATE
from workbench.ui.tabs.form import read
from workbench.ui.tabs.widgets import Form, ShareWidgets

READ_KEPT = """(...values) => {
  let kept = "";
  try { kept = sessionStorage.getItem("workbench-inspect") ?? ""; } catch { /* no storage: nothing was kept */ }
  return [kept, ...values.slice(1)];
}"""
"""Puts what the browser tab kept in place of the first input."""


def wire_share(widgets: ShareWidgets, form: Form, services: Services) -> None:
    def code(*held: Any) -> str:
        draft = read(*held)
        try:
            assert draft.group is not None
            return json.dumps({"code": inspect_code(draft, services.groups.keep(draft.group))})
        except WorkbenchError as error:
            return json.dumps({"problem": redact(f"There is no code for this yet: {error}")})

    widgets.notebook.click(code, form.inputs, widgets.code, queue=False, **PRIVATE)


def kept_value(services: Services, draft: PageState, **marks: Any) -> str:
    """The draft for the browser tab to keep, and the link to what is on screen."""
    group = draft.group
    try:
        saved = "" if group is None or is_first_group(group) else services.groups.keep_recent(group)
    except WorkbenchError:  # a full disk must not keep anybody from scoring; the link goes without the group
        saved = ""
    return json.dumps({"page": dump(draft, saved), "link": link_of(draft, saved), **marks})
