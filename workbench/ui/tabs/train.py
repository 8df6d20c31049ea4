"""The Train tab: settings and Start on the left, the run that is watched on the right.

The right side is one element that follows a run by itself (``train.js``), asking the functions given to it; no Gradio
event runs while it does, so that any number of pages may watch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import gradio as gr

from workbench.config import LossType, RunConfig
from workbench.credit import SCHEMES
from workbench.figures.curves import panels_payload
from workbench.ui.handlers import training as handlers
from workbench.ui.handlers.sampling import SamplingForm
from workbench.ui.handlers.scoring import ScoringForm
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.checks import build_preflight, wire_preflight
from workbench.ui.tabs.common import PRIVATE, drawn, heading, note, note_value
from workbench.ui.tabs.form import pack
from workbench.ui.tabs.inspect import SCORING, InspectTab, read_sampling, read_scoring


@dataclass(frozen=True)
class TrainTab:
    live: gr.HTML
    refresh: Any
    refresh_inputs: list[Any]
    inherited: gr.HTML
    estimate: Any
    estimate_inputs: list[Any]
    estimated: gr.HTML


def plotly_script() -> Path:
    """The script that the plotly package ships; found without importing the package."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def build_train(services: Services, inspect: InspectTab) -> TrainTab:
    default = RunConfig()
    training = default.training
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="train-controls", elem_classes=["controls"], scale=0, min_width=0):
            heading("From Inspect")
            inherited = drawn("inherited", "WorkbenchPage.facts")
            heading("This run")
            with gr.Row(elem_classes=["fields"]):
                steps = gr.Number(training.steps, label="Steps", precision=0, elem_id="steps", min_width=0)
                prompts = gr.Number(
                    training.prompts_per_step, label="Prompts a step", precision=0, elem_id="prompts-per-step",
                    min_width=0,
                )  # fmt: skip
                seed = gr.Number(default.seed, label="Seed", precision=0, elem_id="train-seed", min_width=0)
            with gr.Row(elem_classes=["fields"]):
                rate = gr.Number(
                    training.learning_rate, label="Learning rate", elem_id="learning-rate", min_width=0, step=1e-5
                )
                beta = gr.Number(training.beta, label="KL weight β", elem_id="beta", min_width=0, step=0.01)
            with gr.Row(elem_classes=["fields"]):
                scheme = gr.Dropdown(
                    [handlers.AS_INSPECT, *SCHEMES], value=handlers.AS_INSPECT, label="Credit scheme",
                    elem_id="train-scheme", filterable=False, min_width=0,
                )  # fmt: skip
                loss = gr.Dropdown(
                    list(get_args(LossType)),
                    value=training.loss_type,
                    label="Loss",
                    elem_id="loss-type",
                    filterable=False,
                    min_width=0,
                )
            name = gr.Textbox("", label="Name", placeholder="from the date", elem_id="run-name", max_lines=1)
            preflight = build_preflight()
            estimated = drawn("estimate", "WorkbenchPage.facts")
            with gr.Column(elem_classes=["actions"], min_width=0):
                go = gr.Button("Start", variant="primary", elem_id="start", min_width=0)
                notebook = gr.Button("Notebook code", elem_id="train-notebook", min_width=0, elem_classes=["small"])
                start_note = note("start-note")
        with gr.Column(elem_id="live-column", scale=1, min_width=0):
            code = drawn("train-code", "WorkbenchShare.code")
            live = drawn(
                "live", "WorkbenchTrain.mount", _live_value(None, 0), server_functions=_server_functions(services)
            )
    this_run = pack([steps, prompts, rate, beta, loss, scheme, seed, name])

    def refresh(session: Session, *values: Any) -> str:
        scoring, sampling = read_both(session, values)
        return json.dumps(handlers.inherited(session, scoring, sampling))

    def start(request: gr.Request, session: Session, started: int, *values: Any) -> list[Any]:
        *inspected, wanted = values
        scoring, sampling = read_both(session, inspected)
        form = handlers.TrainingForm(*wanted)
        run, problem = handlers.start_run(session, scoring, sampling, form, services, request.session_hash or "")
        if run is None:
            return [gr.skip(), started, note_value(problem)]
        return [_live_value(run, started + 1), started + 1, ""]

    def read_both(session: Session, values: Any) -> tuple[ScoringForm, SamplingForm]:
        return read_scoring(session, values[:SCORING]), read_sampling(values[SCORING:])

    def estimate(session: Session, *values: Any) -> str:
        *inspected, wanted = values
        scoring, sampling = read_both(session, inspected)
        return json.dumps(handlers.estimated(session, scoring, sampling, handlers.TrainingForm(*wanted), services))

    started = gr.State(0)
    sources = [inspect.session, *inspect.scoring_inputs, *inspect.sampling_inputs]
    go.click(
        start,
        [inspect.session, started, *inspect.scoring_inputs, *inspect.sampling_inputs, this_run],
        [live, started, start_note],
        concurrency_limit=1,
        **PRIVATE,
    )

    def as_code(session: Session, *values: Any) -> str:
        *inspected, wanted = values
        scoring, sampling = read_both(session, inspected)
        return handlers.notebook(session, scoring, sampling, handlers.TrainingForm(*wanted), services)

    notebook.click(as_code, [*sources, this_run], code, queue=False, **PRIVATE)
    wire_preflight(preflight, services, sources, read_both)
    whole = [*sources, this_run]
    for field in (steps, prompts, beta):
        field.change(estimate, whole, estimated, queue=False, trigger_mode="always_last", **PRIVATE)
    live.end(estimate, whole, estimated, queue=False, **PRIVATE)  # of the run that was watched
    return TrainTab(live, refresh, sources, inherited, estimate, whole, estimated)


def _live_value(run: str | None, number: int) -> str:
    """What the live element needs: the run to show, with a number that differs for every start."""
    return json.dumps({"run": run, "number": number, "panels": panels_payload()})


def _server_functions(services: Services) -> list[Any]:
    """What ``train.js`` may ask. Arguments come from the browser and are not trusted."""
    workspace = services.workspace

    def runs(request: Any) -> list[dict[str, Any]]:
        return handlers.runs_table(workspace)

    def poll(request: dict[str, Any]) -> dict[str, Any]:
        cursor, after, after_watched = (int(request.get(name, -1)) for name in ("cursor", "after", "after_watched"))
        return handlers.poll(workspace, str(request["run"]), cursor, after, after_watched)

    def describe(request: dict[str, Any]) -> dict[str, Any]:
        return handlers.describe(workspace, str(request["run"]))

    def rollouts(request: dict[str, Any]) -> dict[str, Any]:
        step, group = int(request["step"]), int(request["group"])
        return handlers.rollouts(services, str(request["run"]), step, group, bool(request.get("watched")))

    def why(request: dict[str, Any]) -> dict[str, Any] | None:
        step, group, rollout, token = (int(request[name]) for name in ("step", "group", "rollout", "token"))
        watched = bool(request.get("watched"))
        return handlers.why(workspace, str(request["run"]), step, group, rollout, token, watched=watched)

    def stop(request: dict[str, Any]) -> dict[str, Any]:
        return handlers.stop(workspace, str(request["run"]))

    def resume(request: dict[str, Any]) -> dict[str, Any]:
        return handlers.resume(workspace, str(request["run"]))

    return [runs, poll, describe, rollouts, why, stop, resume]
