"""The Inspect tab's widgets: controls on the left, the group on the right. ``inspect_events`` says what they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from workbench.steps import PRESETS
from workbench.tasks import TASKS, Task
from workbench.ui.handlers import inspect as handlers
from workbench.ui.handlers.credit import NOTHING
from workbench.ui.handlers.sampling import SamplingForm
from workbench.ui.handlers.scoring import TRUST_MODEL, ScoringForm, explain_token, scheme_note
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.checks import build_probes
from workbench.ui.tabs.common import drawn, heading, note, note_value, tab_of
from workbench.ui.tabs.credit import PER_FORM, CreditWidgets, build_credit_form, read_credit
from workbench.ui.tabs.form import pack
from workbench.ui.tabs.importing import ImportingPart, build_importing
from workbench.ui.tabs.imports import ImportRow, build_import
from workbench.ui.tabs.rewards import RewardList, build_reward_list, read_slots
from workbench.ui.tabs.share import ShareWidgets, build_share

KINDS = [("starts a step", "starts"), ("ends a step", "ends"), ("is a step", "is")]


SAMPLED = ("prompt", "policy", "num_generations", "temperature", "max_completion_length", "seed", "reference")


@dataclass(frozen=True)
class InspectTab:
    """The widgets that other tabs read or that the page wires up."""

    session: gr.State
    task: gr.Dropdown
    example: gr.Number
    prompt: gr.Textbox
    columns: gr.HTML
    preset: gr.Dropdown
    regex: gr.Textbox
    kind: gr.Dropdown
    rewards: RewardList
    isolation: gr.HTML
    credit: CreditWidgets
    other: CreditWidgets
    policy: gr.Dropdown
    num_generations: gr.Number
    temperature: gr.Number
    max_completion_length: gr.Number
    seed: gr.Number
    reference: gr.Dropdown
    scoring: gr.Textbox
    """The pattern, both credit schemes and the rewards."""
    sampling: gr.Textbox
    drawing: gr.HTML
    train: gr.Button

    @property
    def scoring_inputs(self) -> list[Any]:
        return [self.scoring]

    @property
    def sampling_widgets(self) -> list[Any]:
        return [getattr(self, name) for name in SAMPLED]

    @property
    def sampling_inputs(self) -> list[Any]:
        return [self.sampling]


SCORING = 1  # inputs that scoring_inputs are


def read_scoring(session: Session, values: Sequence[Any]) -> ScoringForm:
    """The form that ``InspectTab.scoring_inputs`` hold."""
    ((regex, kind, *rest),) = values
    first, second, slots = rest[:PER_FORM], rest[PER_FORM : 2 * PER_FORM], rest[2 * PER_FORM :]
    credit = read_credit(first)
    assert credit is not None  # its dropdown has no choice without a scheme
    return ScoringForm(regex or "", kind, read_slots(session.slots, slots), credit, read_credit(second))


def read_sampling(values: Sequence[Any]) -> SamplingForm:
    """The form that ``InspectTab.sampling_inputs`` hold."""
    ((prompt, policy, size, temperature, length, seed, reference),) = values
    return SamplingForm(prompt or "", policy or "", size, temperature, length, seed, reference or "")


@dataclass(frozen=True)
class Aside:
    """The widgets that only the Inspect tab's own events need."""

    previous: gr.Button
    following: gr.Button
    chance: gr.Button
    pattern_note: gr.HTML
    credit_note: gr.HTML
    formula: gr.HTML
    strip: gr.HTML
    probe: gr.Button
    probe_schemes: gr.Dropdown
    probe_demo: gr.Button
    probe_note: gr.HTML
    probe_table: gr.HTML
    sample: gr.Button
    cancel: gr.Button
    sample_note: gr.HTML
    importing: ImportingPart
    imports: ImportRow
    share: ShareWidgets


def build_inspect(services: Services) -> tuple[InspectTab, Aside]:
    """The widgets, showing the first group's example and its task's defaults. ``wire_inspect`` brings them to life."""
    first = handlers.first_session()
    task = handlers.find_task(first.task)
    found: dict[str, Any] = {"session": gr.State(first)}
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="controls", scale=0, min_width=0):
            found |= _example_widgets(first)
            found["importing"] = build_importing()
            found |= _step_widgets(task)
            heading("Rewards")
            found["rewards"] = build_reward_list(first.slots, services)
            found["imports"] = build_import()
            drawn("trust-model", "WorkbenchPage.note", note_value(TRUST_MODEL), classes=["note"])
            found["isolation"] = note("isolation-note")
            found |= _credit_widgets() | _sampling_widgets(task)
        with gr.Column(elem_id="view", scale=1, min_width=0):
            found["share"] = build_share(services)
            found["strip"] = drawn("preflight-strip", "WorkbenchChecks.strip")
            found |= build_probes()
            found["drawing"] = drawn("drawing", "WorkbenchInspect.mount", server_functions=[_why(services)])
    credit, other = found["credit"], found["other"]
    read = [found["regex"], found["kind"], *credit.inputs, *other.inputs, *found["rewards"].widgets]
    found["scoring"] = pack(read)
    found["sampling"] = pack([found[name] for name in SAMPLED])
    aside = Aside(**{field.name: found.pop(field.name) for field in fields(Aside)})
    return InspectTab(**found), aside


def _example_widgets(first: Session) -> dict[str, Any]:
    heading("Task")
    with gr.Row(elem_classes=["fields", "example-row"]):
        task = gr.Dropdown(
            list(TASKS),
            value=first.task,
            allow_custom_value=True,
            label="Task, file or hub:…",
            elem_id="task",
            min_width=0,
        )
        example = gr.Number(first.index, label="Example", precision=0, elem_id="example", min_width=0)
        previous = gr.Button("‹", elem_id="example-previous", min_width=0, elem_classes=["small"])
        following = gr.Button("›", elem_id="example-next", min_width=0, elem_classes=["small"])
        chance = gr.Button("random", elem_id="example-random", min_width=0, elem_classes=["small"])
    prompt = gr.Textbox(
        handlers.prompt_text(first.prompt),
        label="Prompt",
        lines=2,
        max_lines=12,
        elem_id="prompt",
        elem_classes=["mono"],
    )
    columns = drawn(
        "columns", "WorkbenchPage.note", note_value(handlers.columns_text(first.columns)), classes=["note", "one-line"]
    )
    return {
        "task": task,
        "example": example,
        "previous": previous,
        "following": following,
        "chance": chance,
        "prompt": prompt,
        "columns": columns,
    }


def _step_widgets(task: Task) -> dict[str, Any]:
    heading("Steps")
    with gr.Row(elem_classes=["fields"]):
        preset = gr.Dropdown(
            [*PRESETS, handlers.CUSTOM],
            value=handlers.preset_of(task.pattern.regex, task.pattern.kind),
            label="Preset",
            elem_id="preset",
            filterable=False,
            min_width=0,
        )
        kind = gr.Dropdown(
            KINDS, value=task.pattern.kind, label="A match", elem_id="kind", filterable=False, min_width=0
        )
    regex = gr.Textbox(
        task.pattern.regex,
        label="Regular expression",
        lines=2,  # of a fixed height for Gradio, which would lay the page out at every key; the style sheet sizes it
        max_lines=2,
        elem_id="regex",
        elem_classes=["mono"],
    )
    return {"preset": preset, "kind": kind, "regex": regex, "pattern_note": note("pattern-note")}


def _credit_widgets() -> dict[str, Any]:
    heading("Credit")
    credit = build_credit_form("process")
    formula = drawn("formula", "WorkbenchPage.note", note_value(scheme_note("process")), classes=["note", "one-line"])
    other = build_credit_form(NOTHING, prefix="b-", optional=True)
    return {"credit": credit, "formula": formula, "other": other, "credit_note": note("credit-note")}


def _sampling_widgets(task: Task) -> dict[str, Any]:
    heading("Sampling")
    policy = gr.Dropdown(
        ["tiny"],
        value="tiny",
        allow_custom_value=True,
        label="Policy: name, Hub id or folder",
        elem_id="policy",
        min_width=0,
    )
    with gr.Row(elem_classes=["fields", "numbers"]):
        generations = gr.Number(8, label="G", precision=0, elem_id="generations", min_width=0)
        temperature = gr.Number(1.0, label="Temperature", step=0.1, elem_id="temperature", min_width=0)
        length = gr.Number(
            task.max_completion_length, label="Max tokens", precision=0, elem_id="max-tokens", min_width=0
        )
        seed = gr.Number(1, label="Seed", precision=0, elem_id="seed", min_width=0)
    reference = gr.Dropdown(
        [("none", ""), "tiny"],
        value="",
        allow_custom_value=True,
        label="Reference policy, for the KL divergence from it",
        elem_id="reference",
        min_width=0,
    )
    with gr.Column(elem_id="actions", min_width=0):
        with gr.Row(elem_classes=["fields"]):
            sample = gr.Button("Sample & score", variant="primary", elem_id="sample", min_width=0)
            cancel = gr.Button("Cancel", elem_id="cancel", min_width=0, interactive=False)
            train = gr.Button("Train on this", elem_id="train-on-this", min_width=0)
        sample_note = note("sample-note")
    return {
        "policy": policy,
        "num_generations": generations,
        "temperature": temperature,
        "max_completion_length": length,
        "seed": seed,
        "reference": reference,
        "sample": sample,
        "cancel": cancel,
        "train": train,
        "sample_note": sample_note,
    }


def _why(services: Services) -> Any:
    def why(asked: dict[str, Any]) -> dict[str, Any] | None:
        credit = services.credit(tab_of(asked), second=asked.get("which") == "b")
        return explain_token(credit, asked.get("rollout"), asked.get("token"))

    return why
