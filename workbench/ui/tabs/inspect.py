"""The Inspect tab: controls on the left, the group on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from workbench.credit import SCHEMES
from workbench.errors import WorkbenchError
from workbench.steps import PRESETS
from workbench.tasks import TASKS
from workbench.ui.handlers import inspect as handlers
from workbench.ui.handlers.sampling import SamplingForm, sample
from workbench.ui.handlers.scoring import Note, ScoringForm, explain_token, message, rescore, scheme_note
from workbench.ui.handlers.session import SLOTS, Services, Session
from workbench.ui.tabs.common import PRIVATE, drawn, heading, note, note_value
from workbench.ui.tabs.rewards import PER_SLOT, RewardList, build_reward_list, read_slots

KINDS = [("starts a step", "starts"), ("ends a step", "ends"), ("is a step", "is")]


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
    scheme: gr.Dropdown
    scale: gr.Checkbox
    outcome_weight: gr.Number
    policy: gr.Dropdown
    num_generations: gr.Number
    temperature: gr.Number
    max_completion_length: gr.Number
    seed: gr.Number
    drawing: gr.HTML
    train: gr.Button

    @property
    def scoring_inputs(self) -> list[Any]:
        return [self.regex, self.kind, self.scheme, self.scale, self.outcome_weight, *self.rewards.inputs]

    @property
    def sampling_inputs(self) -> list[Any]:
        return [
            self.prompt,
            self.policy,
            self.num_generations,
            self.temperature,
            self.max_completion_length,
            self.seed,
        ]


SCORING = 5 + SLOTS * PER_SLOT
SAMPLING = 6


def read_scoring(session: Session, values: Sequence[Any]) -> ScoringForm:
    """The form that ``InspectTab.scoring_inputs`` hold."""
    regex, kind, scheme, scale, outcome_weight, *slots = values
    return ScoringForm(
        regex=regex or "",
        kind=kind,
        slots=read_slots(session.slots, slots),
        scheme=scheme,
        scale=scale,
        outcome_weight=outcome_weight,
    )


def read_sampling(values: Sequence[Any]) -> SamplingForm:
    """The form that ``InspectTab.sampling_inputs`` hold."""
    prompt, policy, *numbers = values
    return SamplingForm(prompt or "", policy or "", *numbers)


def build_inspect(services: Services) -> InspectTab:
    first = handlers.first_session()
    task = handlers.find_task(first.task)
    session = gr.State(first)
    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="controls", scale=0, min_width=0):
            heading("Task")
            with gr.Row(elem_classes=["fields"]):
                task_box = gr.Dropdown(
                    list(TASKS), value=first.task, allow_custom_value=True, label="Task, or a JSONL file's path",
                    elem_id="task", scale=1, min_width=0,
                )  # fmt: skip
            with gr.Row(elem_classes=["fields", "example-row"]):
                example = gr.Number(
                    first.index, label="Example", precision=0, minimum=0, elem_id="example", min_width=0
                )
                previous = gr.Button("‹", elem_id="example-previous", min_width=0, elem_classes=["small"])
                following = gr.Button("›", elem_id="example-next", min_width=0, elem_classes=["small"])
                chance = gr.Button("random", elem_id="example-random", min_width=0, elem_classes=["small"])
            prompt = gr.Textbox(
                handlers.prompt_text(first.prompt), label="Prompt", lines=2, max_lines=12, elem_id="prompt",
                elem_classes=["mono"],
            )  # fmt: skip
            columns = drawn(
                "columns", "WorkbenchPage.note", note_value(handlers.columns_text(first.columns)), classes=["note"]
            )
            heading("Steps")
            with gr.Row(elem_classes=["fields"]):
                names = [*PRESETS, handlers.CUSTOM]
                preset = gr.Dropdown(
                    names, value=handlers.preset_of(task.pattern.regex, task.pattern.kind), label="Preset",
                    elem_id="preset", filterable=False, min_width=0,
                )  # fmt: skip
                kind = gr.Dropdown(
                    KINDS, value=task.pattern.kind, label="A match", elem_id="kind", filterable=False, min_width=0
                )
            regex = gr.Textbox(
                task.pattern.regex, label="Regular expression", lines=1, max_lines=8, elem_id="regex",
                elem_classes=["mono"],
            )  # fmt: skip
            pattern_note = note("pattern-note")
            heading("Rewards")
            rewards = build_reward_list(first.slots)
            heading("Credit")
            with gr.Row(elem_classes=["fields"]):
                scheme = gr.Dropdown(
                    list(SCHEMES), value="process", label="Scheme", elem_id="scheme", filterable=False, min_width=0
                )
                outcome_weight = gr.Number(
                    0, label="Outcome weight", step=0.1, elem_id="outcome-weight", min_width=0,
                    info=None,
                )  # fmt: skip
                scale = gr.Checkbox(True, label="÷ std", elem_id="scale", min_width=0, elem_classes=["inline"])
            formula = drawn("formula", "WorkbenchPage.note", note_value(scheme_note("process")), classes=["note"])
            credit_note = note("credit-note")
            heading("Sampling")
            with gr.Row(elem_classes=["fields"]):
                policy = gr.Dropdown(
                    ["tiny"], value="tiny", allow_custom_value=True, label="Policy: name, Hub id or folder",
                    elem_id="policy", min_width=0,
                )  # fmt: skip
            with gr.Row(elem_classes=["fields", "numbers"]):
                generations = gr.Number(8, label="G", precision=0, minimum=2, elem_id="generations", min_width=0)
                temperature = gr.Number(1.0, label="Temperature", step=0.1, elem_id="temperature", min_width=0)
                length = gr.Number(
                    task.max_completion_length, label="Max tokens", precision=0, elem_id="max-tokens", min_width=0
                )
                seed = gr.Number(1, label="Seed", precision=0, minimum=0, elem_id="seed", min_width=0)
            with gr.Column(elem_id="actions", min_width=0):
                with gr.Row(elem_classes=["fields"]):
                    go = gr.Button("Sample & score", variant="primary", elem_id="sample", min_width=0)
                    cancel = gr.Button("Cancel", elem_id="cancel", min_width=0, interactive=False)
                    train = gr.Button("Train on this", elem_id="train-on-this", min_width=0)
                sample_note = note("sample-note")
        with gr.Column(elem_id="view", scale=1, min_width=0):
            drawing = drawn("drawing", "WorkbenchInspect.mount", server_functions=[_why(services)])
    tab = InspectTab(
        session, task_box, example, prompt, columns, preset, regex, kind, rewards, scheme, scale, outcome_weight,
        policy, generations, temperature, length, seed, drawing, train,
    )  # fmt: skip
    _wire_examples(tab, previous, following, chance)
    score = _wire_scoring(tab, services, pattern_note, credit_note, formula)
    _wire_sampling(tab, services, go, cancel, sample_note, score)
    return tab


def _why(services: Services) -> Any:
    def why(asked: dict[str, Any], request: gr.Request) -> dict[str, Any] | None:
        return explain_token(services.credit(request.session_hash or ""), asked.get("rollout"), asked.get("token"))

    return why


# ── scoring ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scoring:
    """The one event function that scores, with its inputs and outputs, to be chained after others."""

    function: Any
    inputs: list[Any]
    outputs: list[Any]


def _wire_scoring(
    tab: InspectTab, services: Services, pattern_note: gr.HTML, credit_note: gr.HTML, formula: gr.HTML
) -> Scoring:
    rewards = tab.rewards

    def score(request: gr.Request, session: Session, *values: Any) -> list[Any]:
        form = read_scoring(session, values)
        tab_id = request.session_hash or ""
        if services.is_sampling(tab_id):  # the drawing shows texts growing; it is scored when they are whole
            return [gr.skip()] * len(outputs)
        view = rescore(session, form, services.reward_worker(tab_id))
        services.keep_credit(tab_id, view.credit)
        return [
            view.drawing,
            note_value(view.pattern),
            note_value(view.note),
            note_value(scheme_note(form.scheme)),
            *(note_value(one, editor=f"reward-code-{i}") for i, one in enumerate(view.slots)),
            *(_renamed(session, i, name) for i, name in enumerate(view.names)),
        ]

    outputs = [tab.drawing, pattern_note, credit_note, formula, *rewards.notes, *rewards.switches]
    inputs = [tab.session, *tab.scoring_inputs]
    scoring = Scoring(score, inputs, outputs)
    changes = [tab.regex, tab.kind, tab.scheme, tab.scale, tab.outcome_weight, *rewards.inputs]
    gr.on(
        [widget.change for widget in changes],
        score,
        inputs,
        outputs,
        queue=False,
        trigger_mode="always_last",
        **PRIVATE,
    )

    def choose_preset(name: str) -> list[Any]:
        pattern = handlers.preset_pattern(name)
        return [gr.skip()] * 2 if pattern is None else [pattern.regex, pattern.kind]

    tab.preset.input(choose_preset, tab.preset, [tab.regex, tab.kind], queue=False, **PRIVATE)
    gr.on(
        [tab.regex.change, tab.kind.change],
        handlers.preset_of,
        [tab.regex, tab.kind],
        tab.preset,
        queue=False,
        trigger_mode="always_last",
        **PRIVATE,
    )
    rewards.wire(tab.session, scoring.function, inputs, outputs)
    return scoring


def _renamed(session: Session, i: int, name: str) -> Any:
    """A switch is labelled with what its function is called; only a rename needs to be told."""
    slot = session.slots[i]
    return gr.skip() if slot is None else gr.update(label=f"{name}  ·  {slot.kind}")


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_examples(tab: InspectTab, previous: gr.Button, following: gr.Button, chance: gr.Button) -> None:
    shown = [tab.session, tab.example, tab.prompt, tab.columns]

    def show(view: handlers.ExampleView) -> list[Any]:
        return [view.session, view.index, view.prompt, note_value(view.columns)]

    def move(by: int) -> Any:
        def step(session: Session, index: float | None) -> list[Any]:
            try:
                return show(handlers.choose_example(session, index, by=by))
            except WorkbenchError as error:
                return [gr.skip(), gr.skip(), gr.skip(), note_value(Note(str(error)))]

        return step

    for widget, by in ((previous, -1), (following, 1)):
        widget.click(move(by), [tab.session, tab.example], shown, queue=False, **PRIVATE)
    gr.on([tab.example.submit, tab.example.blur], move(0), [tab.session, tab.example], shown, queue=False, **PRIVATE)

    def at_random(session: Session) -> list[Any]:
        try:
            return show(handlers.random_example(session))
        except WorkbenchError as error:
            return [gr.skip(), gr.skip(), gr.skip(), note_value(Note(str(error)))]

    chance.click(at_random, [tab.session], shown, queue=False, **PRIVATE)

    def choose_task(session: Session, name: str, *values: Any) -> list[Any]:
        """Another task brings its own pattern, rewards and length; reward functions somebody wrote stay."""
        try:
            task = handlers.find_task(name)
            view = handlers.choose_example(session, 0, task=task)
        except WorkbenchError as error:
            return [*[gr.skip()] * (len(outputs) - 1), note_value(Note(str(error)))]
        slots = handlers.task_slots(read_slots(session.slots, values), task)
        session = replace(view.session, slots=tuple(one.slot for one in slots))
        return [
            session,
            view.index,
            view.prompt,
            task.pattern.regex,
            task.pattern.kind,
            task.max_completion_length,
            *tab.rewards.values(slots),
            note_value(view.columns),
        ]

    outputs = [
        tab.session, tab.example, tab.prompt, tab.regex, tab.kind, tab.max_completion_length,
        *tab.rewards.outputs, tab.columns,
    ]  # fmt: skip
    tab.task.input(choose_task, [tab.session, tab.task, *tab.rewards.inputs], outputs, queue=False, **PRIVATE)


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_sampling(
    tab: InspectTab, services: Services, go: gr.Button, cancel: gr.Button, sample_note: gr.HTML, score: Scoring
) -> None:
    def run(request: gr.Request, session: Session, *values: Any) -> Iterator[list[Any]]:
        for view in sample(session, read_sampling(values), services, request.session_hash or ""):
            yield [
                view.drawing,
                view.session if view.session is not None else gr.skip(),
                view.seed if view.seed is not None else gr.skip(),
                note_value(view.note),
                gr.update(interactive=not view.running),
                gr.update(interactive=view.running),
            ]

    outputs = [tab.drawing, tab.session, tab.seed, sample_note, go, cancel]
    sampled = go.click(
        run,
        [tab.session, *tab.sampling_inputs],
        outputs,
        concurrency_limit=4,
        concurrency_id="sampling",
        **PRIVATE,
    )
    sampled.then(score.function, score.inputs, score.outputs, queue=False, **PRIVATE)

    def stop(request: gr.Request) -> None:
        services.cancel_sampling(request.session_hash or "")

    cancel.click(stop, None, None, queue=False, **PRIVATE)


def first_drawing(services: Services, request: gr.Request, session: Session, *values: Any) -> str:
    """The group on screen when the page opens."""
    tab_id = request.session_hash or ""
    view = rescore(session, read_scoring(session, values[:SCORING]), services.reward_worker(tab_id))
    services.keep_credit(tab_id, view.credit)
    services.warm()
    return view.drawing or message(empty="")
