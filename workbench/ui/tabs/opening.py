"""The door to one's own data: a box that takes a file, dropped anywhere or chosen, and below it what was opened."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.assets import recipes
from workbench.data import LABELLED, Imported
from workbench.data.formats import ROLES, Look
from workbench.errors import ConfigError, WorkbenchError
from workbench.rewards.others import Role
from workbench.ui.handlers import checks as checking
from workbench.ui.handlers import opening as handlers
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.scoring import Note, message
from workbench.ui.handlers.session import KEPT_FILES, Recent, Services
from workbench.ui.handlers.sharing import open_config
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    drawn,
    facts_value,
    field,
    note,
    note_value,
    picked_row,
    read,
    shown,
    table,
    table_value,
    wire_cancel,
)

QUESTIONS: dict[Role, str] = {
    "prompt": "Which column is the prompt?",
    "completion": "Which column is the completion? (none: problems)",
    "answer": "Which column is the right answer?",
    "reward": "Which column is the reward?",
}
LABELS = frozenset({"reward", "correct", "labels"})
"""Columns that rewards can be held against."""
QUEUED: dict[str, Any] = {"concurrency_limit": None, **PRIVATE}


def build_door() -> SimpleNamespace:
    """The box, and a place for what is known of an opened file."""
    with gr.Column(elem_id="door", min_width=0):
        upload = gr.UploadButton("Open or drop data, rewards, a configuration", elem_id="door-file", min_width=0)
        with gr.Row():
            said = note("door-note")
            cancel = gr.Button("Cancel", elem_id="door-cancel", visible=False, min_width=0, elem_classes=["small"])
        details = gr.Column(elem_id="door-details", min_width=0)
        with gr.Accordion("Open by name", open=False, elem_classes=["fold"]):
            about = "A path in the workspace, or data that comes along"
            choices = [*LABELLED, *(f"recipe:{name}" for name in recipes())]
            path = field("door-path", str, about, "", choices=choices, allow_custom_value=True)
    return SimpleNamespace(upload=upload, path=path, note=said, cancel=cancel, details=details)


class DoorEvents:
    """What the box does, and what is known of the opened file, drawn anew whenever another one is.

    ``wanted`` and ``opened`` change with each file that is asked for and read. Of each tab, ``place`` is the group on
    screen, ``places`` where each listed disagreement is.
    """

    def __init__(self, form: Form, services: Services) -> None:
        door = form.door
        self.door, self.form, self.services = door, form, services
        self.wanted, self.opened = gr.State(""), gr.State("")
        self.place: Recent[str, int] = Recent(KEPT_FILES)
        self.places: Recent[str, Sequence[tuple[int, int]]] = Recent(KEPT_FILES)
        self.asks: Recent[str, handlers.Ask] = Recent(KEPT_FILES)
        self.shown: Recent[str, handlers.Opening] = Recent(KEPT_FILES)
        door.upload.upload(self._upload, door.upload, self.wanted, **QUEUED)
        door.path.input(self._by_name, door.path, self.wanted, **QUEUED)
        wire_cancel(door.cancel, services.opening, services.judges)
        # What follows stands outside of what is drawn anew, which would take its own events with it.
        shows = self.wanted.change(
            self._open, None, [door.note, door.cancel, self.opened, form.drawing], concurrency_limit=2, **PRIVATE
        ).then(self._show, form.inputs, [door.note, form.sample_now, form.drawing, *form.outputs], **QUEUED)
        form.then_score(shows)
        with door.details:
            gr.render(inputs=self.opened, triggers=[self.opened.change])(self._details)

    # ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _want(self, request: gr.Request, ask: handlers.Ask) -> Any:
        """Have something opened. A field of choices says twice that it was chosen from, and again when it is left."""
        tab = request.session_hash or ""
        if ask == self.asks.get(tab):
            return gr.skip()
        self.asks[tab] = ask
        return secrets.token_hex(8)

    def _upload(self, request: gr.Request, file: str) -> Any:
        self.asks.pop(request.session_hash or "", None)  # the same file may be dropped again
        return self._want(request, handlers.Ask(file))

    def _by_name(self, request: gr.Request, path: str) -> Any:
        return self._want(request, handlers.Ask(path)) if path else gr.skip()

    def _open(self, request: gr.Request) -> Iterator[list[Any]]:
        tab, services = request.session_hash or "", self.services
        services.sampling.cancel(tab)  # its answers are of what was on screen before
        for view in handlers.open_file(self.asks[tab], services, tab):
            ended = f"{tab} {secrets.token_hex(8)}" if view.running is False else gr.skip()
            running = gr.skip() if view.running is None else gr.update(visible=view.running)
            drawing = message(busy=view.note.text) if view.running else gr.skip()
            yield [note_value(view.note), running, ended, drawing]

    def _show(self, request: gr.Request, *held: Any) -> Any:
        tab = request.session_hash or ""
        opening, before = self.services.opened.get(tab), read(*held)
        unchanged = {self.form.drawing: message(back=True)}
        if opening is None or opening is self.shown.get(tab):
            return unchanged
        self.shown[tab], self.place[tab] = opening, 0
        if opening.configuration is not None:
            file = opening.configuration
            try:
                opened, said = open_config(before, file.name, file.read_bytes())
            except ConfigError as error:
                return {self.door.note: note_value(Note(str(error)))} | unchanged
            return shown(self.form, before, opened, undo=f"Loaded {file.name}") | {self.door.note: note_value(said)}
        if opening.imported is None and opening.section is None and not opening.rewards:
            return unchanged
        after = handlers.with_opened(before, opening)
        what = "Rewards" if after.pattern() == before.pattern() else "Pattern, rewards"
        undo = "Added the file's rewards" if opening.rewards else f"{what} and scheme set for this file"
        now = {self.form.sample_now: secrets.token_hex(8)} if handlers.samples_at_once(after, opening) else {}
        return shown(self.form, before, after, undo=undo) | now

    # ── what is known of the file ────────────────────────────────────────────────────────────────────────────────

    def _details(self, ended: str) -> None:
        opening = self.services.opened.get(ended.partition(" ")[0])
        if opening is None or opening.rewards or opening.configuration is not None:
            return
        if opening.imported is not None:
            self._groups(opening.imported)
        look, ask = opening.look or Look("rollouts"), opening.ask
        names = [("none", ""), *((name, name) for name in look.names)]
        roles: Sequence[Role] = ROLES if look.columns or look.missing else ()
        read_by = "How it was read: columns, tokens, format"
        with gr.Accordion(read_by, open=opening.note.level != "info", elem_id="door-reading", elem_classes=["fold"]):
            columns = [
                field(f"door-{role}", str, QUESTIONS[role], look.columns.get(role, ""), choices=names) for role in roles
            ]
            with gr.Row(elem_classes=["fields"]):
                tokenizer = field(
                    "door-tokenizer",
                    str,
                    "Tokens by",
                    ask.tokenizer,
                    choices=handlers.TOKENIZER_CHOICES,
                    allow_custom_value=True,
                )
                format = field("door-format", str, "Format", ask.format, choices=handlers.FORMAT_CHOICES)
            skip = field("door-skip-bad-rows", bool, "Skip bad rows", ask.skip_bad_rows)
            if opening.imported is not None and opening.imported.facts.notes:
                facts = [("", line) for line in opening.imported.facts.notes]
                drawn("door-facts", "facts", facts_value(facts), classes=["note"])

        def again(request: gr.Request, tokenizer: str, format: str, skip_bad_rows: bool, *chosen: str) -> Any:
            # What was guessed and stays so is guessed again: a choice elsewhere may change it.
            told: dict[str, str] = {
                role: name for role, name in zip(roles, chosen, strict=True) if name != look.columns.get(role, "")
            }
            return self._want(
                request, handlers.Ask(ask.path, {**ask.columns, **told}, format, tokenizer, skip_bad_rows)
            )

        fields = [tokenizer, format, skip, *columns]
        gr.on([field.input for field in fields], again, fields, self.wanted, **QUEUED)

    def _groups(self, imported: Imported) -> None:
        """The arrows and the list, and the rewards held against the file's labels."""
        form = self.form
        with gr.Row(elem_classes=["fields", "paged"], visible=len(imported) > 1):
            previous = gr.Button("‹", elem_id="door-previous", min_width=0, elem_classes=["small"])
            where = drawn("door-where", "note", note_value(handlers.place(imported, 0)), classes=["note"])
            following = gr.Button("›", elem_id="door-next", min_width=0, elem_classes=["small"])
        with gr.Accordion("All groups", open=False, visible=len(imported) > 1, elem_classes=["fold"]):
            rows = handlers.group_rows(imported)
            listed = table("door-groups", "groups", handlers.GROUP_HEADINGS, picks=True, rows=rows)
        outputs = [where, listed, *form.outputs]

        def put(tab: str, before: PageState, index: int, by: int = 0, said: str = "") -> Updates:
            try:
                draft, chosen = handlers.choose_group(before, imported, index, by=by)
            except WorkbenchError as error:  # ids that the tokenizer does not have, say
                return {where: note_value(Note(str(error)))}
            self.place[tab] = chosen
            on_screen = {where: note_value(said or handlers.place(imported, chosen))}
            return shown(form, before, draft) | on_screen | {listed: gr.update(chosen=str(chosen))}

        def move(by: int) -> Any:
            def step(request: gr.Request, held: Tab) -> Updates:
                tab = request.session_hash or ""
                return put(tab, read(held), self.place.get(tab) or 0, by)

            return step

        for button, by in ((previous, -1), (following, 1)):
            self.form.then_score(button.click(move(by), form.inputs, outputs, **QUEUED))

        def pick(request: gr.Request, event: gr.EventData, *held: Any) -> Any:
            row = picked_row(event, handlers.MAX_LISTED)
            return gr.skip() if row is None else put(request.session_hash or "", read(*held), row)

        self.form.then_score(listed.apply(pick, form.inputs, outputs, **QUEUED))
        if LABELS & handlers.columns_of(imported):
            self._checks(imported, put, outputs)

    def _checks(self, imported: Imported, put: Callable[..., Updates], outputs: list[Any]) -> None:
        services, form = self.services, self.form
        with gr.Accordion("Check rewards against the labels", open=False, elem_id="door-check", elem_classes=["fold"]):
            with gr.Row(elem_classes=["fields"]):
                threshold = field("check-threshold", str, "Right if reward ≥", "", placeholder="the best")
                go = gr.Button("Check rewards", elem_id="check-rewards", min_width=0, elem_classes=["small"])
            said = note("check-note")
            checks = table("check-table", "rewards against labels", checking.CHECK_HEADINGS)
            worst = table("check-worst", "worst disagreements", checking.WORST_HEADINGS, picks=True)

        def check(request: gr.Request, threshold: str, *held: Any) -> Iterator[list[Any]]:
            tab = request.session_hash or ""
            for view in checking.check_rewards(imported, read(*held), threshold, services, tab):
                running = gr.skip() if view.running is None else gr.update(visible=view.running)
                self.places[tab] = view.made.places
                yield [note_value(view.note), table_value(view.made.rows), table_value(view.made.worst), running]

        found = [said, checks, worst, self.door.cancel]
        go.click(check, [threshold, *form.inputs], found, concurrency_limit=2, concurrency_id="checking", **PRIVATE)

        def follow(request: gr.Request, event: gr.EventData, *held: Any) -> Any:
            """Put the group of a disagreement on screen."""
            tab = request.session_hash or ""
            places = self.places.get(tab) or ()
            row = picked_row(event, len(places))
            if row is None:
                return gr.skip()
            group, rollout = places[row]
            return put(tab, read(*held), group, said=f"{group + 1:,}, rollout {rollout + 1}")

        self.form.then_score(worst.apply(follow, form.inputs, outputs, **QUEUED))
