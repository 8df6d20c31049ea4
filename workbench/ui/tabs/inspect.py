"""The Inspect tab's widgets: controls on the left, the group on the right. ``inspect_events`` says what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from workbench.data import TASKS
from workbench.steps import PRESETS
from workbench.ui.handlers import example as handlers
from workbench.ui.handlers.credit import scheme_form
from workbench.ui.handlers.fields import (
    COMPARE,
    CREDIT,
    KIND,
    REFERENCE,
    REGEX,
    TEXT,
    isolation_form,
    pattern_form,
    sampling_form,
    task_form,
)
from workbench.ui.handlers.hand_labels import labelling
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.presets import HEADINGS as PRESET_HEADINGS
from workbench.ui.handlers.reward_forms import policy_choices
from workbench.ui.handlers.scoring import TRUST_MODEL, explain_token, scheme_note
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.task_rows import preview as task_preview
from workbench.ui.tabs.checks import build_probes
from workbench.ui.tabs.common import drawn, heading, note, note_value, tab_of, table
from workbench.ui.tabs.config_import import build_import
from workbench.ui.tabs.form import DrawnForm
from workbench.ui.tabs.opening import build_door
from workbench.ui.tabs.reward_forms import build_model_status
from workbench.ui.tabs.rewards import build_reward_list
from workbench.ui.tabs.share import build_share
from workbench.ui.tabs.widgets import InspectWidgets, RewardWidgets
from workbench.views.payloads import WhyPayload

KINDS = [
    ("starts a step", "starts"),
    ("ends a step", "ends"),
    ("is a step", "is"),
    ("every turn", "turns"),
    ("improbable tokens", "surprise"),
    ("uncertain tokens", "entropy"),
    ("every n tokens", "tokens"),
]


def build_inspect(services: Services) -> tuple[dict[str, Any], InspectWidgets]:
    """The widgets, showing the page as it opens: those of the form, but for Train's fields, and the rest."""
    first = handlers.first_draft()
    tab = gr.State(Tab(first))
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="controls", scale=0, min_width=0):
            door = build_door()
            task, steps = _example_widgets(first), _step_widgets(first)
            pattern = DrawnForm(tab, lambda draft: pattern_form())
            said = {"pattern_note": note("pattern-note")}
            said["presets"] = table("preset-table", "presets on this group", PRESET_HEADINGS, picks=True)
            heading("Rewards")
            rewards = build_reward_list()
            build_model_status(services)
            said["isolation"] = note("isolation-note")
            heading("Credit")
            credit = DrawnForm(tab, lambda draft: scheme_form(CREDIT, draft.credit), [f"{CREDIT}.scheme"])
            value = note_value(scheme_note(first.credit))
            said["formula"] = drawn("formula", "note", value, classes=["note", "one-line"])
            compare = DrawnForm(tab, lambda draft: scheme_form(COMPARE, draft.compare), [f"{COMPARE}.scheme"])
            said["credit_note"] = note("credit-note")
            heading("Sampling")
            sampling = DrawnForm(tab, lambda draft: sampling_form(), more=_policies(services))
            drawn("trust-model", "note", note_value(TRUST_MODEL), classes=["note"])
            isolation = DrawnForm(tab, lambda draft: isolation_form())
            with gr.Accordion("More", open=False, elem_id="more", elem_classes=["fold"]) as more:
                config_import = build_import()
                with gr.Accordion(
                    "Rows: columns, filter, split", open=False, elem_id="task-reading", elem_classes=["fold"]
                ) as fold:
                    task_rows = DrawnForm(tab, lambda draft: task_form())
                    preview = drawn("task-preview", "taskRows", task_preview(first), classes=["note"])
                start_over = gr.Button("Start over", elem_id="start-over", elem_classes=["small"], min_width=0)
            actions = _actions()
        with gr.Column(elem_id="view", scale=1, min_width=0):
            drawn("title", "title")
            share = build_share(services)
            strip = drawn("preflight-strip", "strip")
            probes = build_probes(services)
            drawing = drawn("drawing", "inspect", server_functions=[_why(services), *labelling(services)])
            with gr.Column(elem_id="editor", min_width=0) as editor:
                pass
    bound = {TEXT: task.pop("prompt"), REGEX: steps.pop("regex"), KIND: steps.pop("kind")}
    fields = {name: task.pop(name) for name in ("task", "example", "columns")} | steps
    fields |= {
        "draft": tab, "bound": bound, "rewards": RewardWidgets(**rewards, editor=editor), "pattern": pattern,
        "credit": credit, "compare": compare, "sampling": sampling, "isolation": isolation, "task_rows": task_rows,
        "task_preview": preview, "task_fold": fold, "more": more,
    }  # fmt: skip
    widgets = InspectWidgets(
        **task, **said, **actions, strip=strip, drawing=drawing, probes=probes,
        door=door, config_import=config_import, share=share, start_over=start_over,
    )  # fmt: skip
    return fields, widgets


def _example_widgets(first: PageState) -> dict[str, Any]:
    heading("Task")
    with gr.Row(elem_classes=["fields", "example-row"]):
        task = gr.Dropdown(
            list(TASKS),
            value=first.task,
            allow_custom_value=True,
            label="Task: built-in, file or hub:dataset",
            elem_id="task",
            min_width=0,
        )
        example = gr.Number(first.index, label="Example", precision=0, elem_id="example", min_width=0)
        previous = gr.Button("‹", elem_id="example-previous", min_width=0, elem_classes=["small"])
        following = gr.Button("›", elem_id="example-next", min_width=0, elem_classes=["small"])
        chance = gr.Button("random", elem_id="example-random", min_width=0, elem_classes=["small"])
    prompt = gr.Textbox(
        first.text,
        label="Prompt",
        lines=2,
        max_lines=12,
        elem_id="prompt",
        elem_classes=["mono"],
    )
    columns = drawn("columns", "note", note_value(handlers.columns_text(first.columns)), classes=["note", "one-line"])
    return {
        "task": task,
        "example": example,
        "previous": previous,
        "following": following,
        "chance": chance,
        "prompt": prompt,
        "columns": columns,
    }


def _step_widgets(first: PageState) -> dict[str, Any]:
    heading("Steps")
    with gr.Row(elem_classes=["fields"]):
        preset = gr.Dropdown(
            [*PRESETS, handlers.CUSTOM],
            value=handlers.preset_of(first.regex, first.kind),
            label="Preset",
            elem_id="preset",
            filterable=False,
            min_width=0,
        )
        kind = gr.Dropdown(KINDS, value=first.kind, label="Each match", elem_id="kind", filterable=False, min_width=0)
    regex = gr.Textbox(
        first.regex,
        label="Regular expression",
        lines=2,  # of a fixed height for Gradio, which would lay the page out at every key; the style sheet sizes it
        max_lines=2,
        elem_id="regex",
        elem_classes=["mono"],
    )
    return {"preset": preset, "kind": kind, "regex": regex}


def _policies(services: Services) -> Callable[[str], dict[str, Any]]:
    """What the fields that name a policy offer: those that came along, and those of the workspace's runs."""

    def choices(path: str) -> dict[str, Any]:
        if path not in ("policy.path", REFERENCE):
            return {}
        names = policy_choices(services.workspace)
        return {"choices": names if path != REFERENCE else [("none", ""), *((name, name) for name in names)]}

    return choices


def _actions() -> dict[str, Any]:
    """What is always in sight below the controls."""
    with gr.Column(elem_id="actions", min_width=0):
        undo_note = note("undo-note", classes=["undo"])
        with gr.Row(elem_classes=["fields"]):
            sample = gr.Button("Sample & score", variant="primary", elem_id="sample", min_width=0)
            cancel = gr.Button("Cancel", elem_id="cancel", min_width=0, interactive=False)
            train = gr.Button("Open in Train", elem_id="train-on-this", min_width=0)
        said = note("sample-note")
    return {"sample": sample, "cancel": cancel, "train": train, "sample_note": said, "undo_note": undo_note}


def _why(services: Services) -> Any:
    def why(payload: dict[str, Any]) -> WhyPayload | None:
        credit = services.credit(tab_of(payload), second=payload.get("which") == "b")
        return explain_token(credit, payload.get("rollout"), payload.get("token"))

    return why
