"""The Inspect tab's widgets: controls on the left, the group on the right. ``inspect_events`` says what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from workbench.assets import EMBEDDED
from workbench.data import TASKS
from workbench.steps import PRESETS
from workbench.ui.handlers import example as handlers
from workbench.ui.handlers.credit import NONE
from workbench.ui.handlers.draft import COMPARE, CREDIT, ISOLATE, SAMPLING, Draft, Tab
from workbench.ui.handlers.presets import HEADINGS as PRESET_HEADINGS
from workbench.ui.handlers.scoring import TRUST_MODEL, explain_token, scheme_note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.checks import build_probes
from workbench.ui.tabs.common import drawn, heading, note, note_value, tab_of, table
from workbench.ui.tabs.config_import import build_import
from workbench.ui.tabs.credit import bound_credit, build_credit_form
from workbench.ui.tabs.hand_labels import labelling
from workbench.ui.tabs.opening import build_door
from workbench.ui.tabs.reward_forms import build_model_status
from workbench.ui.tabs.rewards import build_reward_list
from workbench.ui.tabs.share import build_share
from workbench.ui.tabs.task_rows import build_task_rows
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
WHOLE: dict[str, Any] = {"precision": 0}
NUMBERS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("method.sampling.num_generations", "Group size (G)", "generations", WHOLE),
    ("method.sampling.temperature", "Temperature", "temperature", {"step": 0.1}),
    ("method.sampling.max_completion_length", "Max tokens", "max-tokens", WHOLE),
    ("page.seed", "Seed", "seed", WHOLE),
)
"""Path, label, elem_id and how it is typed, of each number of the sampling form."""


def build_inspect(services: Services) -> tuple[dict[str, Any], InspectWidgets]:
    """The widgets, showing the page as it opens: those of the form, but for Train's fields, and the rest."""
    first = handlers.first_draft()
    fields: dict[str, Any] = {"draft": gr.State(Tab(first))}
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="controls", scale=0, min_width=0):
            door = build_door()
            task, steps = _example_widgets(first), _step_widgets(first)
            heading("Rewards")
            rewards = build_reward_list()
            build_model_status(services)
            isolation = note("isolation-note")
            credit, sampling = _credit_widgets(first), _sampling_widgets(first)
            drawn("trust-model", "note", note_value(TRUST_MODEL), classes=["note"])
            isolate = gr.Checkbox(
                first.isolates,
                label="Isolate reward code",
                elem_id="isolate",
                elem_classes=["inline"],
                min_width=0,
            )
            with gr.Accordion("More", open=False, elem_id="more", elem_classes=["fold"]) as more:
                config_import = build_import()
                fields |= {**build_task_rows(first), "more": more}
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
    fields["rewards"] = RewardWidgets(**rewards, editor=editor)
    fields |= {name: task.pop(name) for name in ("task", "example", "columns")}
    fields |= {"preset": steps.pop("preset"), "credit": credit.pop("credit"), "compare": credit.pop("compare")}
    bound = {
        "method.pattern.regex": steps.pop("regex"),
        "method.pattern.kind": steps.pop("kind"),
        "method.pattern.leave_out_thinking": steps.pop("thinking"),
        ISOLATE: isolate,
        **bound_credit(CREDIT, fields["credit"]),
        **bound_credit(COMPARE, fields["compare"]),
    }
    sampled = {"page.text": task.pop("prompt")} | {path: sampling.pop(path) for path in SAMPLING if path in sampling}
    fields["bound"] = bound | sampled
    widgets = InspectWidgets(
        **task, **steps, **credit, **actions, isolation=isolation, strip=strip, drawing=drawing, probes=probes,
        door=door, config_import=config_import, share=share, start_over=start_over,
    )  # fmt: skip
    return fields, widgets


def _example_widgets(first: Draft) -> dict[str, Any]:
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


def _step_widgets(first: Draft) -> dict[str, Any]:
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
    thinking = gr.Checkbox(
        first.values()["method.pattern.leave_out_thinking"],
        label="Leave <think> blocks out of steps and rewards",
        elem_id="leave-out-thinking",
        elem_classes=["inline"],
        min_width=0,
    )
    return {
        "preset": preset,
        "kind": kind,
        "regex": regex,
        "thinking": thinking,
        "pattern_note": note("pattern-note"),
        "presets": table("preset-table", "presets on this group", PRESET_HEADINGS, picks=True),
    }


def _credit_widgets(first: Draft) -> dict[str, Any]:
    heading("Credit")
    credit = build_credit_form(first.credit["scheme"])
    formula = drawn("formula", "note", note_value(scheme_note(first.credit)), classes=["note", "one-line"])
    compare = build_credit_form(NONE, prefix="b-", optional=True)
    said = note("credit-note")
    return {"credit": credit, "formula": formula, "compare": compare, "credit_note": said}


def _sampling_widgets(first: Draft) -> dict[str, Any]:
    heading("Sampling")
    values = first.values()
    policy = gr.Dropdown(
        list(EMBEDDED),
        value=values["policy.path"],
        allow_custom_value=True,
        label="Policy: name, Hub id, folder or run:NAME",
        elem_id="policy",
        min_width=0,
    )
    with gr.Row(elem_classes=["fields", "numbers"]):
        numbers = {
            path: gr.Number(values[path], label=label, elem_id=elem_id, min_width=0, **how)
            for path, label, elem_id, how in NUMBERS
        }
    reference = gr.Dropdown(
        [("none", ""), *EMBEDDED],
        value="",
        allow_custom_value=True,
        label="Reference policy, for the KL divergence from it",
        elem_id="reference",
        min_width=0,
    )
    chat = _chat_widgets(values)
    return {"policy.path": policy, **numbers, **chat, "page.reference": reference}


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


def _chat_widgets(values: Mapping[str, Any]) -> dict[str, Any]:
    """How the prompt is put to the policy, and what ends an answer; folded away."""
    with gr.Accordion("System message, template, stops …", open=False, elem_id="chat", elem_classes=["fold"]):
        system = gr.Textbox(
            values["prompt.system"], label="System message", lines=2, max_lines=8, elem_id="system", min_width=0
        )
        with gr.Row(elem_classes=["fields"]):
            apply = gr.Dropdown(
                [("for conversations", "auto"), ("always", "always"), ("never", "never")],
                value=values["prompt.apply_template"],
                label="Chat template",
                elem_id="apply-template",
                filterable=False,
                min_width=0,
            )
            kwargs = gr.Textbox(
                values["prompt.template_kwargs"],
                label="Its arguments",
                placeholder="enable_thinking=false",
                max_lines=1,
                elem_id="template-kwargs",
                elem_classes=["mono"],
                min_width=0,
            )
        stop = gr.Textbox(
            values["method.sampling.stop"],
            label="Stop strings, one per line",
            placeholder="</answer>",
            lines=2,
            max_lines=8,
            elem_id="stop-strings",
            elem_classes=["mono"],
            min_width=0,
        )
    return {
        "prompt.system": system,
        "prompt.apply_template": apply,
        "prompt.template_kwargs": kwargs,
        "method.sampling.stop": stop,
    }


def _why(services: Services) -> Any:
    def why(payload: dict[str, Any]) -> WhyPayload | None:
        credit = services.credit(tab_of(payload), second=payload.get("which") == "b")
        return explain_token(credit, payload.get("rollout"), payload.get("token"))

    return why
