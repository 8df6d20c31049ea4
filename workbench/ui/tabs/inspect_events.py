"""What the Inspect tab's widgets do: score at every change, choose examples, sample. The logic is in ``handlers``."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.data import HUB
from workbench.errors import WorkbenchError
from workbench.steps import PRESETS, StepPattern
from workbench.ui.handlers import example as handlers
from workbench.ui.handlers.fields import KIND, REGEX
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.presets import pattern_note, preset_rows
from workbench.ui.handlers.rewards import listed, with_task
from workbench.ui.handlers.sampling import Sampled, adopt, sample
from workbench.ui.handlers.scoring import Note, ScoringView, isolation_note, message, remedied, rescore, scheme_note
from workbench.ui.handlers.session import Services
from workbench.ui.handlers.sharing import restore
from workbench.ui.handlers.task_rows import in_page_words, preview, read_as, refused
from workbench.ui.tabs.checks import wire_probes
from workbench.ui.tabs.common import PRIVATE, note_value, start_and_cancel, table_value
from workbench.ui.tabs.config_import import wire_import
from workbench.ui.tabs.form import LAST, Updates, changes, form_note_value, read, shown
from workbench.ui.tabs.opening import DoorEvents
from workbench.ui.tabs.rewards import said_values, wire_rewards
from workbench.ui.tabs.share_events import kept_value, wire_share
from workbench.ui.tabs.widgets import Form, InspectWidgets

Score = Callable[[gr.Request, Tab], Updates]
"""Scores what a tab holds by now; what there is to set."""
ThenScore = Callable[[Any], None]
"""Has the group scored once an event is through."""


@dataclass(frozen=True)
class InspectEvents:
    """What other tabs ask of Inspect. ``sample`` is sampled from as soon as a queued event has changed it."""

    then_score: ThenScore
    sample: gr.State


def wire_inspect(form: Form, widgets: InspectWidgets, services: Services) -> InspectEvents:
    """Give every widget of the tab its events."""
    # Scoring is one event with many triggers, so that the answers to two changes cannot overtake each other. What
    # changes no control (a row removed, a new group) changes this state instead; the page hears of a changed state only
    # from an event that was queued.
    again, sample_now = gr.State(""), gr.State("")

    def then_score(event: Any) -> None:
        event.then(lambda: secrets.token_hex(8), None, again, concurrency_limit=None, **PRIVATE)

    _wire_scoring(form, widgets, services, again)
    _wire_remedies(form, widgets, services, then_score)
    wire_rewards(form, services)
    wire_import(widgets.config_import, form, services, then_score)
    _wire_examples(form, widgets, then_score)
    _wire_task(form, sample_now, then_score)
    _wire_undo(form, widgets, then_score)
    _wire_sampling(form, widgets, services, sample_now, then_score)
    DoorEvents(widgets.door, form, services, then_score, sample_now)
    wire_probes(widgets.probes, form, services, then_score)
    wire_share(widgets.share, form, services)
    return InspectEvents(then_score, sample_now)


# ── scoring ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_scoring(form: Form, widgets: InspectWidgets, services: Services, again: gr.State) -> None:
    rewards = form.rewards

    def score(request: gr.Request, held: Tab) -> Updates:
        tab = request.session_hash or ""
        if services.sampling.going(tab):  # the drawing shows texts growing; it is scored when they are whole
            return {}
        draft, is_last = read(held), held.asks()
        held.scored = draft.rows
        view = rescore(
            draft, services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates), services.models
        )
        if not is_last():  # a change that came later is answered, or soon will be
            return {}
        services.keep_credit(tab, view.credit, view.other)
        watch, said = said_values(services, tab, draft, view, held.editing)
        updates: Updates = {widgets.strip: view.preflight} if view.preflight else {}
        return updates | {
            widgets.drawing: view.drawing,
            form.preset: handlers.preset_of(draft.regex, draft.kind),
            widgets.pattern_note: _pattern_value(draft, view),
            widgets.presets: gr.skip() if services.listed.get(tab) is draft.group else "",
            widgets.credit_note: note_value(view.note),
            widgets.formula: note_value(scheme_note(draft.credit)),
            rewards.watch: watch,
            rewards.said: said,
            rewards.listed: listed(draft.rows),
            widgets.share.kept: kept_value(services, draft),
        }

    outputs = [
        widgets.drawing, widgets.strip, form.preset, widgets.pattern_note, widgets.presets, widgets.credit_note,
        widgets.formula, rewards.watch, rewards.said, rewards.listed, widgets.share.kept,
    ]  # fmt: skip
    again.change(score, form.inputs, outputs, **LAST)

    _wire_fields(form, widgets, services, score, outputs)
    _wire_pattern(form, widgets, services, score, outputs)


def _wire_fields(form: Form, widgets: InspectWidgets, services: Services, score: Score, outputs: list[Any]) -> None:
    """What a change of each field does: nearly always, the group is scored anew."""
    rewards = form.rewards

    def keep(request: gr.Request, held: Tab) -> Updates:
        return {widgets.share.kept: kept_value(services, read(held))}

    def isolate(request: gr.Request, held: Tab) -> Updates:
        """Say what this system lacks of the isolation that is asked for."""
        worker = services.reward_worker(request.session_hash or "", isolate=read(held).isolates)
        return score(request, held) | {widgets.isolation: note_value(isolation_note(worker))}

    def read_rows(request: gr.Request, held: Tab, before: PageState) -> Updates:
        """The rows of the task that is typed, which may be one that could not be read without what was typed now."""
        draft = read(held)
        try:
            after = read_as(draft, held.task_asked or draft.task, before)
        except WorkbenchError as error:
            return {form.task_preview: refused(error)} | keep(request, held)
        if after is None:
            return {form.task_preview: preview(draft)} | keep(request, held)
        updates = shown(form, draft, after)
        return updates | score(request, held) | {form.task_preview: preview(after)}

    def edit_rewards(request: gr.Request, tab: Tab, edits: str) -> Any:
        return score(request, tab) if tab.change(lambda draft: draft.with_edits(json.loads(edits))) else gr.skip()

    def open_editor(request: gr.Request, tab: Tab, key: str) -> Any:
        tab.editing = key
        return score(request, tab) if key else gr.skip()

    def score_rows(request: gr.Request, tab: Tab) -> Any:
        return gr.skip() if read(tab).rows == tab.scored else score(request, tab)

    rewards.edits.change(edit_rewards, [form.draft, rewards.edits], outputs, **LAST)
    rewards.editing.change(open_editor, [form.draft, rewards.editing], outputs, **LAST)
    rewards.listed.change(score_rows, form.inputs, outputs, **LAST)

    # How a group is sampled: the drawing says if the one on screen is of another prompt, policy or settings.
    for scored in (form.pattern, form.credit, form.compare, form.sampling):
        scored.wire(lambda request, held, before: score(request, held), outputs)
    form.isolation.wire(lambda request, held, before: isolate(request, held), [*outputs, widgets.isolation])
    form.task_rows.wire(read_rows, [*outputs, *form.outputs])
    form.task_rows.opens(form.task_fold.expand)

    def change(path: str) -> Any:
        def changed(request: gr.Request, held: Tab, value: Any) -> Any:
            return score(request, held) if held.set(path, value) else gr.skip()

        return changed

    for path, field in form.bound.items():
        if path != KIND:
            changes(field)(change(path), [form.draft, field], outputs, **LAST)


def _wire_pattern(form: Form, widgets: InspectWidgets, services: Services, score: Score, outputs: list[Any]) -> None:
    """What sets the pattern otherwise than its own field: presets, its kind, what they are found to be good for."""
    regex, kind, answer = form.bound[REGEX], form.bound[KIND], gr.Textbox(visible=False, max_lines=1)

    def choose(chosen: Callable[..., tuple[str, str]]) -> Any:
        """An event that sets the pattern, unless that was typed into since: a field of choices says twice that it was
        chosen from, and once more when it is left."""

        def change(request: gr.Request, held: Tab, typed: str, *given: Any) -> Any:
            before = read(held)
            pattern = chosen(before, *given)
            if typed != before.regex or pattern == (before.regex, before.kind):
                return {answer: ""}
            updates = shown(form, before, before.with_pattern(*pattern))
            told = json.dumps([typed, updates.pop(regex, {})])
            del updates[form.preset]  # said with the scores, by the last that is asked
            return updates | score(request, held) | {answer: told}

        return change

    def preset_named(draft: PageState, name: str) -> tuple[str, str]:
        preset = PRESETS.get(name)
        return (draft.regex, draft.kind) if preset is None else (preset.pattern.regex, preset.pattern.kind)

    def picked(request: gr.Request, event: gr.EventData, held: Tab, regex: str) -> Any:
        return choose(preset_named)(request, held, regex, str(event._data.get("name")))

    def by_kind(draft: PageState, kind: str) -> tuple[str, str]:
        return handlers.regex_for(kind, draft.regex), kind

    def ends(draft: PageState) -> tuple[str, str]:
        return draft.regex, "ends" if _is_separator(draft) else draft.kind

    given, sets = [form.draft, regex], list(dict.fromkeys([answer, *form.outputs, *outputs]))
    for event in (
        form.preset.input(choose(preset_named), [*given, form.preset], sets, queue=False, **PRIVATE),
        kind.input(choose(by_kind), [*given, kind], sets, queue=False, **PRIVATE),
        widgets.pattern_note.apply(choose(ends), given, sets, queue=False, **PRIVATE),
        widgets.presets.apply(picked, given, sets, queue=False, **PRIVATE),
    ):
        event.then(None, [answer, regex], regex, js=PUT_REGEX, **PRIVATE)

    def list_presets(request: gr.Request, held: Tab) -> Any:
        draft = read(held)
        if _is_separator(draft):
            return gr.skip()
        services.listed[request.session_hash or ""] = draft.group
        return table_value(preset_rows(draft, services.reward_worker(request.session_hash or "")))

    widgets.pattern_note.apply(list_presets, form.inputs, widgets.presets, queue=False, **PRIVATE)


PUT_REGEX = """(answer, now) => {
  const stays = { __type__: "update" }, [before, { value, ...more }] = JSON.parse(answer || "[null, {}]");
  if (before === null) return stays;
  return now === before && value !== undefined ? { ...stays, ...more, value } : { ...stays, ...more };
}"""
"""Sets the regex, and what it is called, to what was answered; what somebody typed meanwhile stays."""


def _pattern_value(draft: PageState, view: ScoringView) -> str:
    """What the pattern finds or what is wrong with it, and the button that lists the presets."""
    return note_value(
        pattern_note(draft, view), action=ENDS if _is_separator(draft) else "Try all presets on these answers"
    )


ENDS = "Each match ends a step"


def _is_separator(draft: PageState) -> bool:
    return StepPattern(draft.regex, draft.kind).is_separator


def _wire_remedies(form: Form, widgets: InspectWidgets, services: Services, then_score: ThenScore) -> None:
    """The buttons beside what the drawing says of a group without spread."""

    def remedy(request: gr.Request, event: gr.EventData, *held: Any) -> Any:
        draft = read(*held)
        after = remedied(draft, services.credit(request.session_hash or ""), event._data.get("remedy"))
        return gr.skip() if after is None else shown(form, draft, after)

    then_score(widgets.drawing.apply(remedy, form.inputs, form.outputs, queue=False, **PRIVATE))


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_examples(form: Form, widgets: InspectWidgets, then_score: ThenScore) -> None:
    inputs = [form.example, *form.inputs]

    def choose(held: tuple[Any, ...], chosen: Callable[[PageState], PageState]) -> Updates:
        before = read(*held)
        try:
            after = chosen(before)
        except WorkbenchError as error:
            return {form.columns: note_value(Note(str(error)))}
        return shown(form, before, after) | {form.example: after.index}  # which may hold another number

    def move(by: int) -> Any:
        def step(index: float | None, *held: Any) -> Any:
            if by == 0 and index == read(*held).index:  # leaving the field unchanged keeps an edited prompt
                return gr.skip()
            return choose(held, lambda draft: handlers.choose_example(draft, index, by=by))

        return step

    for widget, by in ((widgets.previous, -1), (widgets.following, 1)):
        then_score(widget.click(move(by), inputs, form.outputs, queue=False, **PRIVATE))
    left = [form.example.submit, form.example.blur]
    then_score(gr.on(left, move(0), inputs, form.outputs, queue=False, **PRIVATE))

    def at_random(*held: Any) -> Updates:
        return choose(held, handlers.random_example)

    then_score(widgets.chance.click(at_random, form.inputs, form.outputs, queue=False, **PRIVATE))


def _wire_task(form: Form, sample_now: gr.State, then_score: ThenScore) -> None:
    answers = gr.State("")

    def choose_task(name: str, *held: Any) -> Iterator[Any]:
        """Another task brings its own pattern, rewards and length; reward functions somebody wrote stay.

        A policy that was taught the task answers at once: the group before would be scored by what is about another.
        """
        (tab,) = held
        before, tab.task_asked = read(tab), name
        if name == before.task:  # the field says so whenever it is left, too
            yield gr.skip()
            return
        if name.strip().startswith(HUB):
            loading = f"loading {name.strip().removeprefix(HUB)} from the Hub …"
            yield {form.columns: note_value(Note(loading, level="info"))}
        plain = before.with_rows_as_they_are()  # how rows are read is about the task before
        try:
            task = handlers.find_task(plain.task_section(name))
            after = with_task(handlers.choose_example(plain, 0, task=task), task)
        except WorkbenchError as error:
            # How rows are read is said in the part that is folded away.
            unfolded = gr.Accordion(open=True)
            shown_error = refused(error)
            yield {
                form.columns: note_value(Note(in_page_words(error))),
                form.task_preview: shown_error,
                form.more: unfolded,
                form.task_fold: unfolded,
                form.task_rows.version: secrets.token_hex(8),
            }
            return
        said = f"{after.task} brings its own pattern, rewards and length"
        if after.credit["scheme"] != before.credit["scheme"]:
            said += f"; its rewards are read by the scheme {after.credit['scheme']}"
        if after.policy != task.policy:
            yield shown(form, before, after, undo=said)
            return
        yield shown(form, before, after.but(group=None), undo=said) | {answers: secrets.token_hex(8)}

    chosen = form.task.input(
        choose_task,
        [form.task, *form.inputs],
        [*form.outputs, form.more, form.task_fold, answers],
        concurrency_limit=None,
        trigger_mode="always_last",
        **PRIVATE,
    )
    # Not before: what is sampled is what the fields say once they are set.
    chosen.then(lambda asked: asked, answers, sample_now, concurrency_limit=None, **PRIVATE)
    then_score(chosen)


# ── undo ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_undo(form: Form, widgets: InspectWidgets, then_score: ThenScore) -> None:
    """Undo brings back the whole page as it was, and can itself be undone, as Start over can."""
    undo = form.undo

    def bring_back(before: PageState | None, *held: Any) -> Any:
        if before is None:
            return gr.skip()
        return shown(form, read(*held), before, undo="as it was before")

    def start_over(*held: Any) -> Updates:
        before = read(*held)
        first = handlers.first_draft()
        return shown(form, before, first, undo="reset to defaults")

    asked = [note.apply for note in undo.notes]
    then_score(gr.on(asked, bring_back, [undo.before, *form.inputs], form.outputs, queue=False, **PRIVATE))
    then_score(widgets.start_over.click(start_over, form.inputs, form.outputs, queue=False, **PRIVATE))
    widgets.sample.click(lambda: [""] * len(undo.notes), None, list(undo.notes), queue=False, **PRIVATE)


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_sampling(
    form: Form, widgets: InspectWidgets, services: Services, sample_now: gr.State, then_score: ThenScore
) -> None:
    def run(request: gr.Request, held: Tab) -> Iterator[Updates]:
        for view in sample(read(held), services, request.session_hash or ""):
            updates: Updates = {
                widgets.drawing: view.drawing,
                sampled_group: view.sampled,
                widgets.sample_note: form_note_value(view.note),
                **dict(zip((widgets.sample, widgets.cancel), start_and_cancel(view.running), strict=True)),
            }
            if view.seed is not None:
                before = read(held)
                updates |= shown(form, before, before.but(seed=view.seed))
            yield updates

    # Kept apart from the draft, which may have changed by the time the group is there.
    sampled_group = gr.State(None)
    outputs = [widgets.drawing, sampled_group, widgets.sample_note, widgets.sample, widgets.cancel, *form.outputs]
    asked = [widgets.sample.click, sample_now.change]
    sampled = gr.on(asked, run, form.inputs, outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)

    def take(tab: Tab, group: Sampled | None) -> None:
        tab.change(lambda draft: adopt(draft, group))

    then_score(sampled.then(take, [form.draft, sampled_group], None, queue=False, **PRIVATE))

    def stop(request: gr.Request) -> None:
        services.sampling.cancel(request.session_hash or "")

    widgets.cancel.click(stop, None, None, queue=False, **PRIVATE)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────


def opening_outputs(form: Form, widgets: InspectWidgets) -> list[Any]:
    """What ``opening`` sets."""
    noted = [widgets.pattern_note, widgets.credit_note]
    drawn = [widgets.drawing, widgets.strip, *noted, form.rewards.watch, form.rewards.said]
    return [*drawn, widgets.share.kept, widgets.share.problem, widgets.isolation, *form.outputs]


def opening(
    services: Services, form: Form, widgets: InspectWidgets, request: gr.Request, kept: str, before: PageState
) -> tuple[PageState, Updates]:
    """What the page opens with: the draft as the browser tab kept it or a link names it, its group scored and drawn."""
    tab = request.session_hash or ""
    query = {name: value for name, value in dict(request.query_params or {}).items() if isinstance(value, str)}
    restored = restore(kept, query, services.groups)
    draft = restored.draft if restored is not None else before
    worker = services.reward_worker(tab, draft.reward_deadline, isolate=draft.isolates)
    view = rescore(draft, worker, services.models)
    services.keep_credit(tab, view.credit, view.other)
    services.warm()
    watch, said = said_values(services, tab, draft, view, "")
    assert before.tab is not None
    before.tab.scored = draft.rows
    updates: Updates = {
        form.rewards.said: said,
        form.rewards.listed: listed(draft.rows),
        widgets.drawing: view.drawing or message(empty=""),
        widgets.strip: view.preflight,
        widgets.pattern_note: _pattern_value(draft, view),
        widgets.credit_note: note_value(view.note),
        form.rewards.watch: watch,
        widgets.share.kept: kept_value(services, draft, first=True, restored=restored is not None, tab=tab),
        widgets.isolation: note_value(isolation_note(worker)),
    }
    for drawn in form.forms[:-2]:
        updates[drawn.version] = secrets.token_hex(8)
    if restored is not None:
        problems = Note("; ".join(restored.problems), level="warning") if restored.problems else None
        updates |= shown(form, before, draft) | {widgets.share.problem: note_value(problems)}
    return draft, updates
