"""Events of the rollout import: open a file, show its groups, evaluate the rewards on its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from workbench.ui.handlers import rollout_import as handlers
from workbench.ui.handlers.draft import Draft
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, note_value, picked_row, start_and_cancel, table_value
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.widgets import Form, RolloutImportWidgets

ThenScore = Callable[[Any], None]
"""Has the group scored once an event is through."""
QUEUED: dict[str, Any] = {"concurrency_limit": None, **PRIVATE}


class RolloutImportEvents:
    """What the part's widgets do. ``index`` is the group on screen, ``places`` where each listed disagreement is."""

    def __init__(self, part: RolloutImportWidgets, form: Form, services: Services, then_score: ThenScore) -> None:
        self.part, self.form, self.services, self.then_score = part, form, services, then_score
        self.readings = handlers.Readings()
        self.index, self.places = gr.State(0), gr.State(())
        self._wire_opening()
        self._wire_choosing()
        self._wire_checking()

        def stop(request: gr.Request) -> None:
            if self.readings.cancel(_page(request)):
                services.judges.cancel()

        part.cancel.click(stop, None, None, queue=False, **PRIVATE)

    def _chosen(self, before: Draft, view: handlers.GroupView | Note, *, undo: str = "") -> Updates:
        if isinstance(view, Note):
            return {self.part.where: note_value(view)}
        updates = shown(self.form, before, view.draft, undo=undo)
        chosen = {self.index: view.index, self.part.groups: gr.update(chosen=str(view.index))}
        return updates | chosen | {self.part.where: note_value(view.where)}

    def _wire_opening(self) -> None:
        part, form = self.part, self.form

        def open_file(request: gr.Request, path: str, upload: str | None, *how: Any) -> Iterator[list[Any]]:
            source = handlers.ImportForm(path or "", upload, *how)
            for view in handlers.open_file(source, self.services.workspace, self.readings, _page(request)):
                failed = view.running is False and view.note.level == "error"
                hidden = gr.update(visible=False) if failed else gr.skip()  # what another file holds
                yield [note_value(view.note), *start_and_cancel(view.running), view.imported is not None, hidden]

        fresh = gr.State(False)
        opened = part.open.click(
            open_file,
            [part.path, part.upload, part.format, part.tokenizer, part.columns, part.skip_bad_rows],
            [part.note, part.open, part.cancel, fresh, part.opened],
            concurrency_limit=2,
            concurrency_id="importing",
            **PRIVATE,
        )

        def show(request: gr.Request, is_fresh: bool, *held: Any) -> Any:
            """The first group on screen, with the pattern and the rewards that fit the data."""
            imported = self.readings.opened(_page(request))
            if imported is None or not is_fresh:
                return gr.skip()
            before = read(*held)
            view = handlers.choose_group(handlers.with_suggestions(before, imported), imported, 0)
            rows = table_value(handlers.group_rows(imported))
            listed = {part.opened: gr.update(visible=True), part.groups: gr.update(value=rows, chosen="0")}
            unchecked = dict.fromkeys((part.checks, part.worst, part.check_note), "")
            return (
                self._chosen(before, view, undo="the file's groups, with a pattern, rewards and a scheme that fit")
                | listed
                | unchecked
            )

        checked = [part.checks, part.worst, part.check_note]
        outputs = [self.index, part.where, part.opened, part.groups, *checked, *form.outputs]
        self.then_score(opened.then(show, [fresh, *form.inputs], outputs, **QUEUED))

    def _wire_choosing(self) -> None:
        part, form = self.part, self.form
        outputs = [self.index, part.where, part.groups, *form.outputs]

        def move(by: int) -> Any:
            def step(request: gr.Request, at: int, *held: Any) -> Updates:
                before = read(*held)
                return self._chosen(
                    before, handlers.choose_group(before, self.readings.opened(_page(request)), at, by=by)
                )

            return step

        for button, by in ((part.previous, -1), (part.following, 1)):
            self.then_score(button.click(move(by), [self.index, *form.inputs], outputs, **QUEUED))

        def pick(request: gr.Request, event: gr.EventData, *held: Any) -> Any:
            before = read(*held)
            imported = self.readings.opened(_page(request))
            row = picked_row(event, handlers.MAX_LISTED)
            return gr.skip() if row is None else self._chosen(before, handlers.choose_group(before, imported, row))

        self.then_score(part.groups.apply(pick, form.inputs, outputs, **QUEUED))

        def follow(request: gr.Request, event: gr.EventData, places: Any, *held: Any) -> Any:
            """Put the group of a disagreement on screen."""
            row = picked_row(event, len(places))
            if row is None:
                return gr.skip()
            group, rollout = places[row]
            before = read(*held)
            view = handlers.choose_group(before, self.readings.opened(_page(request)), group)
            where = note_value(f"group {group + 1}, rollout {rollout + 1}")
            return self._chosen(before, view) | {part.where: where}

        self.then_score(part.worst.apply(follow, [self.places, *form.inputs], outputs, **QUEUED))

    def _wire_checking(self) -> None:
        part, services = self.part, self.services

        def check(request: gr.Request, threshold: str, *held: Any) -> Iterator[list[Any]]:
            page = _page(request)
            imported, worker = self.readings.opened(page), services.reward_worker(page)
            for view in handlers.check_rewards(
                imported, read(*held), threshold, worker, self.readings, page, services.models
            ):
                yield [
                    note_value(view.note),
                    table_value(view.rows),
                    table_value(view.worst),
                    view.places,
                    *start_and_cancel(view.running),
                ]

        part.check.click(
            check,
            [part.threshold, *self.form.inputs],
            [part.check_note, part.checks, part.worst, self.places, part.check, part.cancel],
            concurrency_limit=2,
            concurrency_id="checking",
            **PRIVATE,
        )


def _page(request: gr.Request) -> str:
    return request.session_hash or ""
