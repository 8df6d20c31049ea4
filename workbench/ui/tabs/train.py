"""The Train tab: settings and Start on the left, the run that is watched on the right.

The right side is one element that follows a run by itself (``train.js``), asking the functions given to it; no Gradio
event runs while it does, so that any number of pages may watch.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

import gradio as gr

from workbench.credit import LOSS_TYPES, SCHEMES
from workbench.figures.payloads import WhyPayload
from workbench.ui.handlers import run_follow, run_setup
from workbench.ui.handlers.draft import AS_INSPECT, RUN, Draft
from workbench.ui.handlers.example import first_draft
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.checks import build_preflight, wire_preflight
from workbench.ui.tabs.common import PRIVATE, drawn, facts_value, heading, note
from workbench.ui.tabs.form import form_note_value, read
from workbench.ui.tabs.widgets import Form, TrainWidgets


def build_train(services: Services) -> tuple[dict[str, Any], TrainWidgets]:
    """The fields of the draft by path, and the rest of the tab."""
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="train-controls", elem_classes=["controls"], scale=0, min_width=0):
            heading("From Inspect")
            inherited = drawn("inherited", "facts")
            heading("This run")
            fields = _fields()
            preflight = build_preflight()
            estimate = drawn("estimate", "facts")
            with gr.Column(elem_classes=["actions"], min_width=0):
                go = gr.Button("Start", variant="primary", elem_id="start", min_width=0)
                notebook = gr.Button("Notebook code", elem_id="train-notebook", min_width=0, elem_classes=["small"])
                start_note = note("start-note")
        with gr.Column(elem_id="live-column", scale=1, min_width=0):
            code = drawn("train-code", "code")
            live = drawn("live", "train", _live_value(None), server_functions=_server_functions(services))
    return fields, TrainWidgets(inherited, estimate, preflight, go, start_note, notebook, code, live)


def _fields() -> dict[str, Any]:
    values = first_draft().values()

    def number(path: str, label: str, elem_id: str, **how: Any) -> None:
        fields[path] = gr.Number(values[path], label=label, elem_id=elem_id, min_width=0, **how)

    def choice(path: str, label: str, elem_id: str, choices: list[str]) -> None:
        fields[path] = gr.Dropdown(
            choices, value=values[path], label=label, elem_id=elem_id, filterable=False, min_width=0
        )

    fields: dict[str, Any] = {}
    with gr.Row(elem_classes=["fields"]):
        number("run.steps", "Steps", "steps", precision=0)
        number("method.prompts_per_step", "Prompts a step", "prompts-per-step", precision=0)
        number("seed", "Seed", "train-seed", precision=0)
    with gr.Row(elem_classes=["fields"]):
        number("optimiser.learning_rate", "Learning rate", "learning-rate", step=1e-5)
        number("method.beta", "KL weight β", "beta", step=0.01)
    with gr.Row(elem_classes=["fields"]):
        choice("page.run_scheme", "Credit scheme", "train-scheme", [AS_INSPECT, *SCHEMES])
        choice("method.loss_type", "Loss", "loss-type", list(LOSS_TYPES))
    fields["name"] = gr.Textbox("", label="Name", placeholder="from the date", elem_id="run-name", max_lines=1)
    return {path: fields[path] for path in RUN}


def wire_train(form: Form, widgets: TrainWidgets, services: Services) -> None:
    def start(*held: Any) -> list[Any]:
        run, problem = run_setup.start_run(read(*held), services)
        return [gr.skip(), form_note_value(form, problem)] if run is None else [_live_value(run), ""]

    widgets.start.click(start, form.inputs, [widgets.live, widgets.start_note], concurrency_limit=1, **PRIVATE)

    def as_code(*held: Any) -> str:
        return run_setup.notebook(read(*held), services)

    widgets.notebook.click(as_code, form.inputs, widgets.code, queue=False, **PRIVATE)
    wire_preflight(widgets.preflight, form, services)
    estimate = estimating(form, widgets, services)
    for path in ("run.steps", "method.prompts_per_step", "method.beta"):
        form.bound[path].change(**estimate, trigger_mode="always_last")
    widgets.live.end(**estimate)  # of the run that was watched


def estimating(form: Form, widgets: TrainWidgets, services: Services) -> dict[str, Any]:
    """The event that says what the run would take."""

    def estimate(*held: Any) -> str:
        return facts_value(run_setup.estimated(read(*held), services))

    return {"fn": estimate, "inputs": form.inputs, "outputs": widgets.estimate, "queue": False, **PRIVATE}


def refreshing(form: Form, widgets: TrainWidgets) -> dict[str, Any]:
    """The event that says what is taken over from Inspect."""

    def refresh(*held: Any) -> str:
        return inherited_value(read(*held))

    return {"fn": refresh, "inputs": form.inputs, "outputs": widgets.inherited, "queue": False, **PRIVATE}


def inherited_value(draft: Draft) -> str:
    return facts_value(run_setup.inherited(draft))


def _live_value(run: str | None) -> str:
    """What the live element needs: the run to show, and a token of its start ("" for none).

    The page outlives the app: were starts counted, the first one after a restart would look like one it has seen.
    """
    return json.dumps({"run": run, "start": "" if run is None else secrets.token_hex(8)})


def _server_functions(services: Services) -> list[Any]:
    """What ``train.js`` may ask. Arguments come from the browser and are not trusted."""
    workspace = services.workspace

    def runs(request: Any) -> list[dict[str, Any]]:
        return run_follow.runs_table(workspace)

    def poll(request: dict[str, Any]) -> run_follow.News | run_follow.Failed:
        cursor, after, after_watched = (int(request.get(name, -1)) for name in ("cursor", "after", "after_watched"))
        return run_follow.poll(workspace, str(request["run"]), cursor, after, after_watched)

    def describe(request: dict[str, Any]) -> run_follow.Described | run_follow.Failed:
        return run_follow.describe(workspace, str(request["run"]))

    def rollouts(request: dict[str, Any]) -> run_follow.StoredGroup | run_follow.Failed:
        step, group = int(request["step"]), int(request["group"])
        return run_follow.rollouts(services, str(request["run"]), step, group, bool(request.get("watched")))

    def why(request: dict[str, Any]) -> WhyPayload | None:
        step, group, rollout, token = (int(request[name]) for name in ("step", "group", "rollout", "token"))
        watched = bool(request.get("watched"))
        return run_follow.why(workspace, str(request["run"]), step, group, rollout, token, watched=watched)

    def stop(request: dict[str, Any]) -> run_follow.Answer:
        return run_follow.stop(workspace, str(request["run"]))

    def resume(request: dict[str, Any]) -> run_follow.Answer:
        return run_follow.resume(workspace, str(request["run"]))

    return [runs, poll, describe, rollouts, why, stop, resume]
