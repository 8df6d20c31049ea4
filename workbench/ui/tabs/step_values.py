"""The panel that estimates Monte-Carlo values of the group on screen, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from workbench.ui.handlers import step_values as handlers
from workbench.ui.handlers.scoring import Note, SlotValues
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.common import PRIVATE, drawn, note, note_value, start_and_cancel

if TYPE_CHECKING:
    from workbench.ui.tabs.inspect import InspectTab


@dataclass(frozen=True)
class ValuesPart:
    """``held`` is what was estimated and is not a row yet; ``file`` is what the page's script saves."""

    panel: gr.Accordion
    k: gr.Number
    outcome: gr.Dropdown
    progress: gr.Checkbox
    in_run: gr.Checkbox
    estimate: gr.Button
    cancel: gr.Button
    note: gr.HTML
    label_form: gr.Dropdown
    estimation: gr.Dropdown
    save: gr.Button
    label_note: gr.HTML
    file: gr.HTML
    held: gr.State


def build_values() -> ValuesPart:
    """The widgets, folded away until somebody wants them."""
    outcomes = handlers.outcome_choices(())
    with gr.Accordion("Step values by sampling …", open=False, elem_id="step-values", elem_classes=["fold"]) as panel:
        with gr.Row(elem_classes=["fields"]):
            k = gr.Number(8, label="Continuations, k", precision=0, elem_id="values-k", min_width=0)
            outcome = gr.Dropdown(
                outcomes, value="answer_correctness", label="Outcome reward", elem_id="values-outcome",
                filterable=False, min_width=0,
            )  # fmt: skip
        with gr.Row(elem_classes=["slot-foot"]):
            go = gr.Button("Estimate step values", elem_id="values-estimate", elem_classes=["small"], min_width=0)
            cancel = gr.Button(
                "Cancel", elem_id="values-cancel", elem_classes=["small"], min_width=0, interactive=False
            )
        said = note("values-note")
        progress = gr.Checkbox(
            False, label="Score a step by progress: its value less the one before", elem_id="values-progress"
        )
        in_run = gr.Checkbox(False, label="Use in the run, estimated anew at each step", elem_id="values-in-run")
        with gr.Row(elem_classes=["fields"]):
            form = gr.Dropdown(
                list(handlers.LABEL_CHOICES), value="trl", label="Labels as", elem_id="labels-form",
                filterable=False, min_width=0,
            )  # fmt: skip
            good = gr.Dropdown(
                list(handlers.ESTIMATION_CHOICES), value="hard", label="A step is good if", elem_id="labels-good",
                filterable=False, min_width=0,
            )  # fmt: skip
            save = gr.Button("Save labels", elem_id="labels-save", elem_classes=["small"], min_width=0)
        label_note = note("labels-note")
        file = drawn("labels-file", "WorkbenchRewards.saveFile")
    return ValuesPart(
        panel, k, outcome, progress, in_run, go, cancel, said, form, good, save, label_note, file, gr.State(None)
    )  # fmt: skip


def wire_values(
    tab: InspectTab, services: Services, read_scoring: Callable[..., Any], then_score: Callable[[Any], None]
) -> None:
    """``read_scoring`` makes the scoring form of a session and the values of ``tab.scoring_inputs``."""
    _wire_estimating(tab, services, read_scoring, then_score)
    _wire_choices(tab, then_score)
    _wire_labels(tab, services)


def _wire_estimating(
    tab: InspectTab, services: Services, read_scoring: Callable[..., Any], then_score: Callable[[Any], None]
) -> None:
    rewards = tab.rewards
    part = rewards.values_part

    def run(
        request: gr.Request, session: Session, policy: str, k: float | None, outcome: str, *values: Any
    ) -> Iterator[list[Any]]:
        form = read_scoring(session, values)
        tab_id = request.session_hash or ""
        for view in handlers.estimate(session, form, policy or "", k, outcome or "", services, tab_id):
            busy = start_and_cancel(view.running)
            yield [view.row, note_value(view.note), *busy]

    def adopt(session: Session, held: Any, progress: bool, in_run: bool, rows: list[Any]) -> list[Any]:
        if held is None:
            return [gr.skip()] * len(adopted)
        placed = handlers.place_row(rewards.read(session, rows), held, progress, in_run)
        if isinstance(placed, Note):
            return [gr.skip(), None, note_value(placed), gr.skip(), *rewards.unchanged]
        place, new = placed
        assert new.slot is not None
        problem = handlers.run_note(new, in_run)
        told = gr.skip() if problem is None else note_value(problem)
        return [_with(session, place, new), None, told, new.slot.in_run, *rewards.placed(place, new)]

    estimated = part.estimate.click(
        run,
        [tab.session, tab.policy, part.k, part.outcome, *tab.scoring_inputs],
        [part.held, part.note, part.estimate, part.cancel],
        concurrency_limit=4,
        concurrency_id="sampling",
        **PRIVATE,
    )
    adopted = [tab.session, part.held, part.note, part.in_run, *rewards.outputs]
    asked = [tab.session, part.held, part.progress, part.in_run, *rewards.inputs]
    then_score(estimated.then(adopt, asked, adopted, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        services.estimating.cancel(request.session_hash or "")

    part.cancel.click(stop, None, None, queue=False, **PRIVATE)

    def choices(session: Session, chosen: str, rows: list[Any]) -> Any:
        found = handlers.outcome_choices(rewards.read(session, rows))
        kept = chosen if any(value == chosen for _, value in found) else found[0][1]
        return gr.update(choices=found, value=kept)

    listed = [tab.session, part.outcome, *rewards.inputs]
    gr.on([part.panel.expand, part.outcome.focus], choices, listed, part.outcome, queue=False, **PRIVATE)


def _wire_choices(tab: InspectTab, then_score: Callable[[Any], None]) -> None:
    rewards = tab.rewards
    part = rewards.values_part

    def change(session: Session, progress: bool, in_run: bool, rows: list[Any]) -> list[Any]:
        changed = handlers.change_row(rewards.read(session, rows), progress, in_run)
        if changed is None:
            return [gr.skip(), gr.skip(), gr.skip(), *rewards.unchanged]
        place, new = changed
        assert new.slot is not None
        problem = handlers.run_note(new, in_run)
        told = gr.skip() if problem is None else note_value(problem)
        return [_with(session, place, new), told, new.slot.in_run, *rewards.placed(place, new)]

    asked = [tab.session, part.progress, part.in_run, *rewards.inputs]
    changed = [tab.session, part.note, part.in_run, *rewards.outputs]
    then_score(gr.on([part.progress.input, part.in_run.input], change, asked, changed, queue=False, **PRIVATE))


def _wire_labels(tab: InspectTab, services: Services) -> None:
    rewards = tab.rewards
    part = rewards.values_part

    def save(request: gr.Request, session: Session, form: str, good: str, rows: list[Any]) -> list[Any]:
        slots = rewards.read(session, rows)
        file, said = handlers.labels_file(slots, form, good, services, request.session_hash or "")
        return [file, note_value(said)]

    asked = [tab.session, part.label_form, part.estimation, *rewards.inputs]
    part.save.click(save, asked, [part.file, part.label_note], queue=False, **PRIVATE)


def _with(session: Session, place: int, new: SlotValues) -> Session:
    return replace(session, slots=tuple(new.slot if i == place else one for i, one in enumerate(session.slots)))
