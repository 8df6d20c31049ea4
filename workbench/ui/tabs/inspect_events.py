"""What the Inspect tab's widgets do: score at every change, choose examples, sample. The logic is in ``handlers``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError
from workbench.tasks import HUB
from workbench.ui.handlers import inspect as handlers
from workbench.ui.handlers import rewards as reward_handlers
from workbench.ui.handlers.checks import probe_demo
from workbench.ui.handlers.sampling import adopt, sample
from workbench.ui.handlers.scoring import Note, isolation_note, message, rescore, scheme_note
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.checks import wire_probe
from workbench.ui.tabs.common import PRIVATE, note_value, start_and_cancel
from workbench.ui.tabs.importing_events import wire_importing
from workbench.ui.tabs.imports import wire_import
from workbench.ui.tabs.inspect import SCORING, Aside, InspectTab, read_sampling, read_scoring
from workbench.ui.tabs.models import wire_models
from workbench.ui.tabs.rewards import read_slots, watched
from workbench.ui.tabs.share_events import (
    kept_value,
    restored_outputs,
    restored_page,
    restored_values,
    wire_share,
)
from workbench.ui.tabs.step_values import wire_values

ThenScore = Callable[[Any], None]
"""Has the group scored once an event is through."""


def wire_inspect(tab: InspectTab, aside: Aside, services: Services) -> None:
    """Give every widget of the tab its events."""
    # Scoring is one event with many triggers, so that the answers to two changes cannot overtake each other. What
    # changes no control (a row removed, a new group) changes this state instead; the page hears of a changed state only
    # from an event that was queued.
    again = gr.State("")

    def then_score(event: Any) -> None:
        event.then(lambda: secrets.token_hex(8), None, again, concurrency_limit=None, **PRIVATE)

    _wire_scoring(tab, aside, services, again)
    tab.credit.wire()
    tab.other.wire()
    tab.rewards.wire(tab.session, services, then_score)
    wire_models(tab.rewards, tab.session, services, then_score)
    wire_values(tab, services, read_scoring, then_score)
    wire_import(aside.imports, tab, services, then_score)
    _wire_examples(tab, aside, then_score)
    _wire_sampling(tab, aside, services, then_score)
    wire_importing(aside.importing, tab, services, then_score)
    _wire_probes(tab, aside, services, then_score)
    wire_share(aside.share, tab, services)


# ── scoring ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_scoring(tab: InspectTab, aside: Aside, services: Services, again: gr.State) -> None:
    rewards = tab.rewards

    def score(request: gr.Request, session: Session, *values: Any) -> list[Any]:
        form = read_scoring(session, values)
        tab_id = request.session_hash or ""
        if services.sampling.going(tab_id):  # the drawing shows texts growing; it is scored when they are whole
            return [gr.skip()] * len(outputs)
        view = rescore(session, form, services.reward_worker(tab_id), services.models)
        services.keep_credit(tab_id, view.credit, view.other)
        watch, row_notes = watched(services, tab_id, form, view)
        return [
            view.drawing,
            view.preflight or gr.skip(),
            handlers.preset_of(form.regex, form.kind),
            note_value(view.pattern),
            note_value(view.note),
            note_value(scheme_note(form.credit.scheme)),
            watch,
            *row_notes,
            kept_value(services, session, form),
        ]

    outputs = [
        tab.drawing, aside.strip, tab.preset, aside.pattern_note, aside.credit_note, aside.formula,
        rewards.watch, *rewards.notes, aside.share.kept,
    ]  # fmt: skip
    changes = [again, *tab.scoring_inputs]
    gr.on(
        [widget.change for widget in changes],
        score,
        [tab.session, *tab.scoring_inputs],
        outputs,
        queue=False,
        trigger_mode="always_last",
        **PRIVATE,
    )

    def choose_preset(name: str) -> list[Any]:
        pattern = handlers.preset_pattern(name)
        return [gr.skip()] * 2 if pattern is None else [pattern.regex, pattern.kind]

    tab.preset.input(choose_preset, tab.preset, [tab.regex, tab.kind], queue=False, **PRIVATE)


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_examples(tab: InspectTab, aside: Aside, then_score: ThenScore) -> None:
    shown = [tab.session, tab.example, tab.prompt, tab.columns]

    def show(view: handlers.ExampleView) -> list[Any]:
        return [view.session, view.index, view.prompt, note_value(view.columns)]

    def move(by: int) -> Any:
        def step(session: Session, index: float | None) -> list[Any]:
            if by == 0 and index == session.index:  # leaving the field unchanged keeps an edited prompt
                return [gr.skip()] * len(shown)
            try:
                return show(handlers.choose_example(session, index, by=by))
            except WorkbenchError as error:
                return [gr.skip(), gr.skip(), gr.skip(), note_value(Note(str(error)))]

        return step

    for widget, by in ((aside.previous, -1), (aside.following, 1)):
        then_score(widget.click(move(by), [tab.session, tab.example], shown, queue=False, **PRIVATE))
    left = [tab.example.submit, tab.example.blur]
    then_score(gr.on(left, move(0), [tab.session, tab.example], shown, queue=False, **PRIVATE))

    def at_random(session: Session) -> list[Any]:
        try:
            return show(handlers.random_example(session))
        except WorkbenchError as error:
            return [gr.skip(), gr.skip(), gr.skip(), note_value(Note(str(error)))]

    then_score(aside.chance.click(at_random, [tab.session], shown, queue=False, **PRIVATE))

    def choose_task(session: Session, name: str, values: list[Any]) -> Iterator[list[Any]]:
        """Another task brings its own pattern, rewards and length; reward functions somebody wrote stay."""
        said = [gr.skip()] * (len(outputs) - 1)
        if name == session.task:  # the field says so whenever it is left, too
            yield [*said, gr.skip()]
            return
        if name.strip().startswith(HUB):
            yield [*said, note_value(Note(f"loading {name.strip().removeprefix(HUB)} from the Hub …", level="info"))]
        try:
            task = handlers.find_task(name)
            view = handlers.choose_example(session, 0, task=task)
        except WorkbenchError as error:
            yield [*said, note_value(Note(str(error)))]
            return
        slots = reward_handlers.task_slots(read_slots(session.slots, values), task)
        session = replace(view.session, slots=tuple(one.slot for one in slots))
        yield [
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
    chosen = tab.task.input(
        choose_task,
        [tab.session, tab.task, *tab.rewards.inputs],
        outputs,
        concurrency_limit=None,
        trigger_mode="always_last",
        **PRIVATE,
    )
    then_score(chosen)


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_sampling(tab: InspectTab, aside: Aside, services: Services, then_score: ThenScore) -> None:
    def run(request: gr.Request, session: Session, *values: Any) -> Iterator[list[Any]]:
        for view in sample(session, read_sampling(values), services, request.session_hash or ""):
            yield [
                view.drawing,
                view.sampled,
                view.seed if view.seed is not None else gr.skip(),
                note_value(view.note),
                *start_and_cancel(view.running),
            ]

    # Kept apart from the session, which may have changed by the time the group is there.
    sampled_group = gr.State(None)
    outputs = [tab.drawing, sampled_group, tab.seed, aside.sample_note, aside.sample, aside.cancel]
    sampled = aside.sample.click(
        run,
        [tab.session, *tab.sampling_inputs],
        outputs,
        concurrency_limit=4,
        concurrency_id="sampling",
        **PRIVATE,
    )
    then_score(sampled.then(adopt, [tab.session, sampled_group], tab.session, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        services.sampling.cancel(request.session_hash or "")

    aside.cancel.click(stop, None, None, queue=False, **PRIVATE)


def _wire_probes(tab: InspectTab, aside: Aside, services: Services, then_score: ThenScore) -> None:
    wire_probe(
        aside.probe, aside.probe_schemes, aside.probe_note, aside.probe_table, services,
        tab.session, tab.scoring_inputs, read_scoring,
    )  # fmt: skip

    def demo(session: Session) -> list[Any]:
        view = probe_demo(session)
        return [view.session, view.regex, view.kind, *tab.rewards.values(view.slots)]

    outputs = [tab.session, tab.regex, tab.kind, *tab.rewards.outputs]
    then_score(aside.probe_demo.click(demo, tab.session, outputs, queue=False, **PRIVATE))


def opening_outputs(tab: InspectTab, aside: Aside) -> list[Any]:
    """What ``opening`` sets."""
    drawn = [tab.drawing, aside.strip, tab.rewards.watch, *tab.rewards.notes]
    return [*drawn, aside.share.kept, *restored_outputs(tab, aside.share.problem)]


def opening(services: Services, tab: InspectTab, request: gr.Request, session: Session, *values: Any) -> list[Any]:
    """What the page opens with: the group on screen, the strip above it, what its rewards gave; and the controls, where
    the browser tab kept some or the address is a link. The last of ``values`` is what the tab kept."""
    tab_id = request.session_hash or ""
    query = {name: value for name, value in dict(request.query_params or {}).items() if isinstance(value, str)}
    *controls, kept = values
    found = restored_page(services, query, kept or "", session, tuple(controls))
    session, form = (found.session, found.scoring) if found else (session, read_scoring(session, controls[:SCORING]))
    view = rescore(session, form, services.reward_worker(tab_id), services.models)
    services.keep_credit(tab_id, view.credit, view.other)
    services.warm()
    watch, row_notes = watched(services, tab_id, form, view)
    kept = kept_value(services, session, form, first=True, restored=found is not None, tab=tab_id)
    return [view.drawing or message(empty=""), view.preflight, watch, *row_notes, kept, *restored_values(tab, found)]


def first_isolation(services: Services, request: gr.Request) -> str:
    """What of the seal this system lacks, as the page opens."""
    return note_value(isolation_note(services.reward_worker(request.session_hash or "")))
