"""The part of Inspect that says how a task's rows are read, and shows the first ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError
from workbench.ui.handlers import task_rows as handlers
from workbench.ui.handlers.draft import Draft, Tab
from workbench.ui.handlers.run_fields import task_fields
from workbench.ui.tabs.common import PRIVATE, drawn
from workbench.ui.tabs.form import Updates, packed_task, read, read_form, shown
from workbench.ui.tabs.run_form import spec_of
from workbench.ui.tabs.widgets import Form


def build_task_rows(first: Draft) -> dict[str, Any]:
    """The form of the fields, and the rows; folded away until somebody wants them."""
    with gr.Accordion(
        "Rows: columns, filter, split", open=False, elem_id="task-reading", elem_classes=["fold"]
    ) as fold:
        fields = drawn("task-form", "runForm", packed_task(first), constant=spec_of("task", task_fields().values()))
        rows = drawn("task-preview", "taskRows", handlers.preview(first), classes=["note"])
    return {"task_rows": fields, "task_preview": rows, "task_fold": fold}


def wire_task_rows(form: Form, then_score: Callable[[Any], None]) -> None:
    def read_again(name: str, tab: Tab, typed: str) -> Updates:
        """The rows of the task that is typed, which may be one that could not be read without this."""
        before = read(tab)
        if not read_form(tab, typed):
            return {form.task_preview: gr.skip()}
        draft = tab.draft
        try:
            after = handlers.read_as(draft, name, before)
        except WorkbenchError as error:
            return {form.task_preview: handlers.refused(error)}
        if after is None:
            return {form.task_preview: handlers.preview(draft)}
        return shown(form, draft, after) | {form.task_preview: handlers.preview(after)}

    changed = form.task_rows.change(
        read_again,
        [form.task, form.draft, form.task_rows],
        form.outputs,
        concurrency_limit=None,
        trigger_mode="always_last",
        **PRIVATE,
    )
    then_score(changed)
