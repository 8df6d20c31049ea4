"""What the widgets of ``importing`` do: open a file, put its groups on screen, hold the rewards against its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from workbench.ui.handlers import importing as handlers
from workbench.ui.handlers.rewards import task_slots
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services, Session
from workbench.ui.tabs.common import PRIVATE, note_value, start_and_cancel
from workbench.ui.tabs.importing import ImportingPart
from workbench.ui.tabs.inspect import InspectTab, read_scoring
from workbench.ui.tabs.rewards import read_slots

ThenScore = Callable[[Any], None]
"""Has the group scored once an event is through."""
QUEUED: dict[str, Any] = {"concurrency_limit": None, **PRIVATE}


def wire_importing(part: ImportingPart, tab: InspectTab, services: Services, then_score: ThenScore) -> None:
    """Give the part its events."""
    readings = handlers.Readings()
    index, places = gr.State(0), gr.State(())
    _wire_opening(part, tab, services, readings, index, then_score)
    _wire_choosing(part, tab, readings, (index, places), then_score)
    _wire_checking(part, tab, services, readings, places)

    def stop(request: gr.Request) -> None:
        readings.cancel(_page(request))

    part.cancel.click(stop, None, None, queue=False, **PRIVATE)


def _page(request: gr.Request) -> str:
    return request.session_hash or ""


def _shown(part: ImportingPart, tab: InspectTab, index: gr.State) -> list[Any]:
    return [tab.session, index, tab.prompt, tab.columns, part.where]


def _chosen(view: handlers.GroupView | Note) -> list[Any]:
    """Values for the widgets of ``_shown``."""
    if isinstance(view, Note):
        return [*[gr.skip()] * 4, note_value(view)]
    return [view.session, view.index, view.prompt, note_value(view.columns), note_value(view.where)]


def _wire_opening(
    part: ImportingPart,
    tab: InspectTab,
    services: Services,
    readings: handlers.Readings,
    index: gr.State,
    then_score: ThenScore,
) -> None:
    def read(request: gr.Request, path: str, upload: str | None, *how: str) -> Iterator[list[Any]]:
        form = handlers.ImportForm(path or "", upload, *how)
        for view in handlers.open_file(form, services.workspace, readings, _page(request)):
            yield [
                note_value(view.note),
                *start_and_cancel(view.running),
                view.imported is not None,
            ]

    fresh = gr.State(False)
    opened = part.open.click(
        read,
        [part.path, part.upload, part.format, part.tokenizer],
        [part.note, part.open, part.cancel, fresh],
        concurrency_limit=2,
        concurrency_id="importing",
        **PRIVATE,
    )

    def show(request: gr.Request, session: Session, is_fresh: bool, values: list[Any]) -> list[Any]:
        """The first group on screen, with the pattern and the rewards that fit the data."""
        found = readings.opened(_page(request))
        if found is None or not is_fresh:
            return [gr.skip()] * len(outputs)
        task, pattern = handlers.suggested_task(found), handlers.suggested_pattern(found)
        slots: list[Any] = [gr.skip()] * len(tab.rewards.outputs)
        if task is not None:
            listed = task_slots(read_slots(session.slots, values), task)
            session = replace(session, slots=tuple(one.slot for one in listed))
            slots = tab.rewards.values(listed)
        return [
            *_chosen(handlers.choose_group(session, found, 0)),
            gr.update(visible=True),
            handlers.group_rows(found),
            gr.skip() if pattern is None else pattern.regex,
            gr.skip() if pattern is None else pattern.kind,
            *slots,
        ]

    outputs = [*_shown(part, tab, index), part.found, part.groups, tab.regex, tab.kind, *tab.rewards.outputs]
    then_score(opened.then(show, [tab.session, fresh, *tab.rewards.inputs], outputs, **QUEUED))


def _wire_choosing(
    part: ImportingPart,
    tab: InspectTab,
    readings: handlers.Readings,
    states: tuple[gr.State, gr.State],
    then_score: ThenScore,
) -> None:
    index, places = states
    shown = _shown(part, tab, index)

    def move(by: int) -> Any:
        def step(request: gr.Request, session: Session, at: int) -> list[Any]:
            return _chosen(handlers.choose_group(session, readings.opened(_page(request)), at, by=by))

        return step

    for button, by in ((part.previous, -1), (part.following, 1)):
        then_score(button.click(move(by), [tab.session, index], shown, **QUEUED))

    def pick(request: gr.Request, session: Session, event: gr.SelectData) -> list[Any]:
        return _chosen(handlers.choose_group(session, readings.opened(_page(request)), int(event.index[0])))

    then_score(part.groups.select(pick, tab.session, shown, **QUEUED))

    def follow(request: gr.Request, session: Session, where: Any, event: gr.SelectData) -> list[Any]:
        """Put the group of a disagreement on screen."""
        group, rollout = where[int(event.index[0])]
        values = _chosen(handlers.choose_group(session, readings.opened(_page(request)), group))
        return [*values[:-1], note_value(f"group {group + 1}, rollout {rollout + 1}")]

    then_score(part.worst.select(follow, [tab.session, places], shown, **QUEUED))


def _wire_checking(
    part: ImportingPart, tab: InspectTab, services: Services, readings: handlers.Readings, places: gr.State
) -> None:
    def check(request: gr.Request, session: Session, threshold: str, *values: Any) -> Iterator[list[Any]]:
        page = _page(request)
        form, worker = read_scoring(session, values), services.reward_worker(page)
        for view in handlers.check_rewards(
            readings.opened(page), form, threshold, worker, readings, page, services.models
        ):
            yield [
                note_value(view.note),
                gr.update(value=[list(row) for row in view.rows], visible=bool(view.rows)),
                gr.update(value=[list(row) for row in view.worst], visible=bool(view.worst)),
                view.places,
                *start_and_cancel(view.running),
            ]

    part.check.click(
        check,
        [tab.session, part.threshold, *tab.scoring_inputs],
        [part.check_note, part.checks, part.worst, places, part.check, part.cancel],
        concurrency_limit=2,
        concurrency_id="checking",
        **PRIVATE,
    )
