"""Parts of Inspect with events of their own: the list of rewards and its editor, checks of the setup, the door to data.

The list is one element whose JSON value the page's script (``rewards.js``) draws with inputs of its own and owns: its
one event, ``input``, sends the whole list at each change, and no answer to it sets it. Only what replaces rewards does:
another task, a configuration, undo. The editor is drawn by the same script around a ``gr.Code`` that is always there,
in the main column in place of the cards. What rewards returned is one message, ``said``. A reward model, a judge, a
belief, step values and a file have a form there; its event ``submit`` loads, asks or estimates and answers with a row,
which the script puts into its list.

What is on screen is checked in one panel below the facts: on new prompts, by cheating edits, and by the clinic.

The door is a box that takes a file, dropped anywhere or chosen, and below it what was opened.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.assets import EMBEDDED, recipes
from workbench.data import LABELLED, formats
from workbench.errors import ConfigError, WorkbenchError
from workbench.rewards.others import Role
from workbench.ui.handlers import checks, scoring, sharing
from workbench.ui.handlers import opening as opening_handlers
from workbench.ui.handlers import reward_forms as forms
from workbench.ui.handlers import rewards as listing
from workbench.ui.handlers.opening import Ask, Opening
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.session import Services, Works
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    bind,
    element,
    facts_value,
    field,
    note,
    note_value,
    replaces,
    row_of_event,
    sending,
    show_draft,
    start_and_cancel,
    table,
    table_value,
    wire_cancel,
)

# ── rewards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_reward_list(services: Services, first: PageState) -> SimpleNamespace:
    """Make the list, and what is said of it."""
    can_add = listing.catalogue(services.reward_forms)
    rows = element(
        "reward-list",
        "rewards",
        listing.list_value(first),
        constant=can_add,
        server_functions=bind(listing.LIST_ASKED, services),
    )
    said, made = element("rewards-said", "rewardsSaid"), element("reward-made", "rewardMade")
    return SimpleNamespace(
        rows=rows, said=said, made=made, add_note=note("add-note"), watch=element("watch", "watch", classes=["watch"])
    )


def build_editor() -> gr.Code:
    """Make the place where the script draws the editor, and its code, which is there from the first time it opens."""
    with gr.Column(elem_id="reward-editor", min_width=0):
        element("editor", "rewardEditor")
        return gr.Code(
            language="python",
            label="Code",
            show_label=False,
            elem_id="reward-code",
            visible=False,
            interactive=True,
            lines=22,
            max_lines=36,
            wrap_lines=True,
            buttons=[],
            min_width=0,
        )


def wire_rewards(form: Form, services: Services) -> None:
    """Wire the editor's code to the list, and what a form adds."""
    rewards = form.rewards
    rewards.rows.select(None, None, rewards.code, js="() => Workbench.codeShown()", **PRIVATE)
    rewards.code.change(None, rewards.code, None, js="(code) => Workbench.codeTyped(code)", **PRIVATE)

    def make(request: gr.Request, event: gr.EventData, tab: Tab) -> Iterator[str]:
        part, values, key = (json.loads(event._data["asked"])[name] for name in ("part", "values", "key"))
        for view in forms.add(part, values, key, tab.draft, services, request.session_hash or ""):
            row, instead = view.made or (None, "")
            said = None if view.note is None else view.note.to_json()
            yield scoring.message(
                note=said,
                running=bool(view.running),
                row=None if row is None else listing.page_row(row),
                instead=instead,
            )

    rewards.rows.submit(make, form.draft, rewards.made, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)


def reward_values(tab: Tab, draft: PageState, view: scoring.ScoringView, told: int) -> tuple[Any, str]:
    """Return values for ``watch``, which stays where nothing could be scored, and for ``said``.

    ``told`` is the number of the page's last change of the list that the draft has.
    """
    watched = None if view.credit is None else listing.watch_group(draft, view.credit.scored, tab.call_times)
    said = listing.rewards_said(draft, view, watched, tab.editing) | {"number": told}
    return gr.skip() if watched is None else scoring.message(**listing.watch_payload(watched)), json.dumps(said)


def build_checks(services: Services) -> SimpleNamespace:
    """One panel of checks, and one for another policy's answers; scripts put both below the facts (``inspect.js``)."""
    # Columns and no accordions, which would make what is in them only once they are opened.
    with gr.Column(elem_id="check-setup", elem_classes=["drawer"], min_width=0):
        element("check-title", "panelTitle", constant="Check this setup")
        strip = element("preflight-strip", "strip")
        text = (
            f"{checks.PREFLIGHT_PROMPTS} new prompts: what a run would find before it has learnt. "
            "A click opens a prompt."
        )
        preflight = _check("preflight", "Sample them", text, "findings")
        text = "Cheating edits: would an answer earn more with padding, a repeated step, an empty one?"
        probes = _check("probe", "Probe this group", text, "probes", server_functions=bind([checks.pair], services))
        with probes.row:
            probes.demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0, elem_classes=["small"])
        text = "The rewards: right, wrong and odd answers that are made up for them; what do they get wrong?"
        clinic = _check("clinic", "Try the rewards", text, "clinic")
    with gr.Column(elem_id="beside", elem_classes=["drawer"], min_width=0):
        element("beside-title", "panelTitle", constant="Beside another policy")
        other = field(
            "beside-policy", str, "Policy; empty: the one that the run of this one began with", "",
            choices=[("", ""), *EMBEDDED], allow_custom_value=True,
        )  # fmt: skip
        text = "The same prompt and seed, sampled from another policy and scored by the same rewards."
        beside = _check("beside-it", "Sample it too", text, "sides")
    return SimpleNamespace(strip=strip, preflight=preflight, probes=probes, clinic=clinic, beside=beside, other=other)


def _check(name: str, button: str, text: str, script: str, **options: Any) -> SimpleNamespace:
    """A part of the panel: what it looks at, its buttons, and what it found."""
    with gr.Row(elem_classes=["fields", "check"]) as row:
        gr.HTML(f"<p>{text}</p>", apply_default_css=False)
        go = gr.Button(button, elem_id=name, min_width=0, elem_classes=["small"])
        cancel = gr.Button("Cancel", elem_id=f"{name}-cancel", min_width=0, interactive=False, elem_classes=["small"])
    return SimpleNamespace(
        row=row, go=go, cancel=cancel, note=note(f"{name}-note"), findings=element(f"{name}-found", script, **options)
    )


def wire_checks(form: Form, services: Services) -> None:
    parts = form.checks

    def wire(part: SimpleNamespace, look: Callable[..., Iterator[scoring.View]], works: Works, *more: Any) -> None:
        """Let the part's button ``look``, and its other one cancel that."""

        def run(request: gr.Request, tab: Tab, *given: Any) -> Iterator[list[Any]]:
            for view in look(tab.draft, *given, services, request.session_hash or ""):
                yield [view.drawing, note_value(view.note), *start_and_cancel(view.running)]

        outputs = [part.findings, part.note, part.go, part.cancel]
        sends = sending(form, run, *more)
        part.go.click(**sends, outputs=outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
        wire_cancel(part.cancel, works, services.judges)

    wire(parts.preflight, checks.run_preflight, services.preflight)
    wire(parts.probes, checks.probe_setup, services.probing)
    wire(parts.clinic, checks.try_clinic, services.clinic)
    wire(parts.beside, checks.sample_beside, services.beside, parts.other)

    def demo(tab: Tab) -> Updates:
        draft = tab.draft
        loaded, said = checks.probe_demo(draft)
        return show_draft(form, tab, draft, loaded, undo=said.text)

    form.then_score(parts.probes.demo.click(demo, form.draft, form.outputs, queue=False, **PRIVATE))

    def open_prompt(draft: PageState, session: str, data: Mapping[str, Any]) -> PageState | None:
        return checks.open_prompt(draft, services, session, data.get("place"))

    replaces(form, parts.preflight.findings.apply, open_prompt)


# ── the door ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    """The box, and what is known of an opened file, which is there once one is."""
    with gr.Column(elem_id="door", min_width=0):
        upload = gr.UploadButton("Open or drop data, rewards, a configuration", elem_id="door-file", min_width=0)
        with gr.Row():
            said = note("door-note")
            cancel = gr.Button("Cancel", elem_id="door-cancel", visible=False, min_width=0, elem_classes=["small"])
        reading, groups = _build_reading(), _build_groups()
        with gr.Accordion("Open by name", open=False, elem_classes=["fold"]):
            about = "A path in the workspace, or data that comes along"
            path = field(
                "door-path",
                str,
                about,
                "",
                choices=[*LABELLED, *(f"recipe:{name}" for name in recipes())],
                allow_custom_value=True,
            )
    shows = [reading.fold, *reading.columns, *reading.how, reading.facts, *groups.found]
    shows += [groups.paged, groups.where, groups.fold, groups.listed, groups.check]
    door = {"upload": upload, "path": path, "note": said, "cancel": cancel, "details": shows}
    return SimpleNamespace(**door, reading=reading, groups=groups)


def _build_reading() -> SimpleNamespace:
    """Build the fields that say how a file is read: its columns, its tokens, its format."""
    title = "How it was read: columns, tokens, format"
    with gr.Accordion(title, open=False, visible=False, elem_id="door-reading", elem_classes=["fold"]) as fold:
        columns = [field(f"door-{role}", str, QUESTIONS[role], "", choices=[("none", "")]) for role in formats.ROLES]
        with gr.Row(elem_classes=["fields"]):
            plain = Ask("")
            tokenizers = {"choices": opening_handlers.TOKENIZER_CHOICES, "allow_custom_value": True}
            tokenizer = field("door-tokenizer", str, "Tokens by", plain.tokenizer, **tokenizers)
            format = field("door-format", str, "Format", plain.format, choices=opening_handlers.FORMAT_CHOICES)
        skip = field("door-skip-bad-rows", bool, "Skip bad rows", plain.skip_bad_rows)
        facts = element("door-facts", "facts", classes=["note"])
    return SimpleNamespace(fold=fold, columns=columns, how=[tokenizer, format, skip], facts=facts)


def _build_groups() -> SimpleNamespace:
    """The arrows and the list, and the rewards held against the file's labels."""
    with gr.Row(elem_classes=["fields", "paged"], visible=False) as paged:
        previous = gr.Button("‹", elem_id="door-previous", min_width=0, elem_classes=["small"])
        where = element("door-where", "note", classes=["note"])
        following = gr.Button("›", elem_id="door-next", min_width=0, elem_classes=["small"])
    with gr.Accordion("All groups", open=False, visible=False, elem_classes=["fold"]) as fold:
        listed = table("door-groups", "groups", opening_handlers.GROUP_HEADINGS, picks=True)
    title = "Check rewards against the labels"
    with gr.Accordion(title, open=False, visible=False, elem_id="door-check", elem_classes=["fold"]) as check:
        with gr.Row(elem_classes=["fields"]):
            threshold = field("check-threshold", str, "Right if reward ≥", "", placeholder="the best")
            go = gr.Button("Check rewards", elem_id="check-rewards", min_width=0, elem_classes=["small"])
        said = note("check-note")
        held = table("check-table", "rewards against labels", checks.CHECK_HEADINGS)
        worst = table("check-worst", "worst disagreements", checks.WORST_HEADINGS, picks=True)
    return SimpleNamespace(
        paged=paged, arrows=((previous, -1), (following, 1)), where=where, fold=fold, listed=listed,
        check=check, threshold=threshold, go=go, worst=worst, found=[said, held, worst],
    )  # fmt: skip


def wire_door(form: Form, services: Services) -> None:
    """Open what is asked for: a file, a name, or the same file read in another way."""
    door, reading = form.door, form.door.reading
    wanted = gr.State({})  # of an ``Ask``; it tells of changes alone, and a field of choices speaks up to three times

    def by_name(path: str) -> Any:
        return asdict(Ask(path)) if path else gr.skip()

    def again(tab: Tab, tokenizer: str, format: str, skip_bad_rows: bool, *chosen: str) -> Any:
        if tab.opening is None:
            return gr.skip()
        # What was guessed and stays so is guessed again: a choice elsewhere may change it.
        ask, guessed = tab.opening.ask, _look_of(tab.opening).columns
        told: dict[str, str] = {
            role: name for role, name in zip(formats.ROLES, chosen, strict=True) if name != guessed.get(role, "")
        }
        return asdict(Ask(ask.path, {**ask.columns, **told}, format, tokenizer, skip_bad_rows, ask.upload))

    def open_(request: gr.Request, wanted: dict[str, Any]) -> Iterator[list[Any]]:
        tab = request.session_hash or ""
        services.sampling.cancel(tab)  # its answers are of what was on screen before
        for view in opening_handlers.open_file(Ask(**wanted), services, tab):
            running = gr.skip() if view.running is None else gr.update(visible=view.running)
            yield [note_value(view.note), running, scoring.message(busy=view.note.text) if view.running else gr.skip()]

    def show(request: gr.Request, tab: Tab) -> Updates:
        opening, before = services.opened.get(request.session_hash or ""), tab.draft
        unchanged = {form.drawing: scoring.message(back=True)}
        if opening is None or opening is tab.opening:
            return unchanged
        tab.opening, tab.place, tab.mistakes = opening, 0, ()
        try:
            after, said, undo = _with_opening(before, opening)
        except ConfigError as error:
            after, said, undo = before, scoring.Note(str(error)), ""
        updates = _details(form, opening) | {door.note: note_value(said)}
        if after is before:
            return updates | unchanged
        now = {form.sample_now: secrets.token_hex(8)} if opening_handlers.samples_at_once(after, opening) else {}
        return updates | show_draft(form, tab, before, after, undo=undo) | now

    # The same file may be dropped again.
    door.upload.upload(lambda file: asdict(Ask(file, upload=secrets.token_hex(8))), door.upload, wanted, **QUEUED)
    door.path.input(by_name, door.path, wanted, **QUEUED)
    fields = [*reading.how, *reading.columns]
    gr.on([field.input for field in fields], again, [form.draft, *fields], wanted, **QUEUED)
    wire_cancel(door.cancel, services.opening, services.judges)
    opens = wanted.change(open_, wanted, [door.note, door.cancel, form.drawing], concurrency_limit=2, **PRIVATE)
    form.then_score(
        opens.then(show, form.draft, [door.note, form.sample_now, form.drawing, *door.details, *form.outputs], **QUEUED)
    )
    _wire_groups(form, services)


def _with_opening(before: PageState, opening: Opening) -> tuple[PageState, scoring.Note, str]:
    """Return the draft with what was opened, what to say of it, and of the values that it replaces.

    Raises ConfigError for a configuration that the page cannot hold.
    """
    if opening.configuration is not None:
        file = opening.configuration
        after, said = sharing.open_config(before, file.name, file.read_bytes())
        return after, said, f"Loaded {file.name}"
    if opening.imported is None and opening.section is None and not opening.rewards:
        return before, opening.note, ""
    after = opening_handlers.with_opened(before, opening)
    what = "Rewards" if after.pattern() == before.pattern() else "Pattern, rewards"
    undo = "Added the file's rewards" if opening.rewards else f"{what} and scheme set for this file"
    return after, opening.note, undo


def _look_of(opening: Opening) -> formats.Look:
    return opening.look or formats.Look("rollouts")


def _details(form: Form, opening: Opening) -> Updates:
    """Show what is known of an opened file: how it was read, and its groups if it has any."""
    reading, groups = form.door.reading, form.door.groups
    look, imported, ask = _look_of(opening), opening.imported, opening.ask
    is_data = not opening.rewards and opening.configuration is None
    is_mapped = bool(look.columns or look.missing)
    names = [("none", ""), *((name, name) for name in dict.fromkeys((*look.names, *look.columns.values())))]
    updates: Updates = {
        field: gr.update(visible=is_mapped, choices=names, value=look.columns.get(role, ""))
        for role, field in zip(formats.ROLES, reading.columns, strict=True)
    }
    updates[reading.fold] = gr.update(visible=is_data, open=opening.note.level != "info")
    updates |= dict(zip(reading.how, (ask.tokenizer, ask.format, ask.skip_bad_rows), strict=True))
    updates |= dict.fromkeys(groups.found, "")
    rows = [] if imported is None else opening_handlers.group_rows(imported)
    has_labels = imported is not None and bool(LABELS & opening_handlers.columns_of(imported))
    return updates | {
        reading.facts: facts_value([] if imported is None else [("", line) for line in imported.facts.notes]),
        groups.paged: gr.update(visible=len(rows) > 1),
        groups.where: note_value("" if imported is None else f"1 of {len(imported):,}"),
        groups.fold: gr.update(visible=len(rows) > 1, open=False),
        groups.listed: gr.update(value=table_value(rows), chosen="0"),
        groups.check: gr.update(visible=has_labels, open=False),
    }


def _wire_groups(form: Form, services: Services) -> None:
    """Put groups of the file on screen, and hold rewards against its labels."""
    groups = form.door.groups

    def show_group(tab: Tab, index: int, said: str = "") -> Updates:
        assert tab.opening is not None
        before, imported = tab.draft, tab.opening.imported
        try:
            after, tab.place = opening_handlers.choose_group(before, imported, index)
        except WorkbenchError as error:  # ids that the tokenizer does not have, say
            return {groups.where: note_value(scoring.Note(str(error)))}
        return (
            show_draft(form, tab, before, after)
            | {groups.where: note_value(said or f"{tab.place + 1:,} of {len(imported):,}")}
            | {groups.listed: gr.update(chosen=str(tab.place))}
        )

    def pick(event: gr.EventData, tab: Tab) -> Any:
        row = row_of_event(event, opening_handlers.MAX_LISTED)
        return gr.skip() if row is None else show_group(tab, row)

    def follow(event: gr.EventData, tab: Tab) -> Any:
        """Put the group of a disagreement on screen."""
        row = row_of_event(event, len(tab.mistakes))
        if row is None:
            return gr.skip()
        group, rollout = tab.mistakes[row]
        return show_group(tab, group, said=f"{group + 1:,}, rollout {rollout + 1}")

    outputs = [groups.where, groups.listed, *form.outputs]
    for button, by in groups.arrows:
        moved = button.click(lambda tab, by=by: show_group(tab, tab.place + by), form.draft, outputs, **QUEUED)
        form.then_score(moved)
    form.then_score(groups.listed.apply(pick, form.draft, outputs, **QUEUED))
    form.then_score(groups.worst.apply(follow, form.draft, outputs, **QUEUED))

    def check(request: gr.Request, threshold: str, tab: Tab) -> Iterator[list[Any]]:
        assert tab.opening is not None
        asked = tab.opening.imported, tab.draft, threshold, services, request.session_hash or ""
        for view in checks.check_rewards(*asked):
            running = gr.skip() if view.running is None else gr.update(visible=view.running)
            tab.mistakes = view.made.places
            yield [note_value(view.note), table_value(view.made.rows), table_value(view.made.worst), running]

    sends, found = [groups.threshold, form.draft], [*groups.found, form.door.cancel]
    groups.go.click(check, sends, found, concurrency_limit=2, concurrency_id="checking", **PRIVATE)
