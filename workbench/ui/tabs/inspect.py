"""The Inspect tab: controls on the left, the group on the right, and what they do.

The group is scored at every change; examples are chosen, answers sampled. The logic is in ``handlers``.
"""

import json
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import gradio as gr
from pydantic import validate_call

from workbench.assets import EMBEDDED
from workbench.config import Leaf
from workbench.data import HUB, TASKS, labelled
from workbench.errors import WorkbenchError
from workbench.runs import list_runs
from workbench.steps import PRESETS, StepPattern
from workbench.ui.handlers import example, sharing
from workbench.ui.handlers import example as handlers
from workbench.ui.handlers.fields import (
    COMPARE,
    CREDIT,
    KIND,
    REFERENCE,
    REGEX,
    TEXT,
    credit_form,
    isolation_form,
    options_of,
    paths_of,
    pattern_form,
    sampling_form,
    scheme_field,
    task_form,
)
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.rewards import with_task
from workbench.ui.handlers.scoring import (
    LABELLING,
    TRUST_MODEL,
    Note,
    ScoringView,
    explain_token,
    isolation_note,
    message,
    remedied,
    rescore,
    scheme_note,
    which_scheme,
)
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.form import (
    LAST,
    PRIVATE,
    Form,
    Updates,
    bind,
    build_fields,
    build_share,
    element,
    field,
    form_note_value,
    heading,
    note,
    note_value,
    on_change,
    replaces,
    scheme_view,
    sending,
    share_value,
    show_draft,
    start_and_cancel,
    widget,
    wire_cancel,
    wire_share,
)
from workbench.ui.tabs.parts import (
    build_checks,
    build_door,
    build_editor,
    build_reward_list,
    reward_values,
    wire_checks,
    wire_door,
    wire_rewards,
)
from workbench.views.payloads import WhyPayload

KINDS = [
    ("starts a step", "starts"),
    ("ends a step", "ends"),
    ("is a step", "is"),
    ("every turn", "turns"),
    ("improbable tokens", "surprise"),
    ("uncertain tokens", "entropy"),
    ("every n tokens", "tokens"),
]


def build_inspect(form: Form, services: Services) -> None:
    """The widgets, showing the page as it opens."""
    first = form.first

    @validate_call
    def why(tab: str, rollout: int, token: int, which: str = "a") -> WhyPayload | None:
        return explain_token(services.credit(tab, second=which == "b"), rollout, token)

    with gr.Row(elem_classes=["columns"]):
        with gr.Column(elem_id="controls", scale=0, min_width=0):
            form.door = build_door()
            _build_example(form, first)
            _build_pattern(form, first)
            build_fields(form, pattern_form())
            form.pattern_note = note("pattern-note")
            heading("Rewards")
            form.rewards = build_reward_list(services, first)
            form.isolation_note = note("isolation-note")
            heading("Credit")
            _build_scheme(form, CREDIT)
            form.formula = note("formula", value=note_value(scheme_note(first.credit)), classes=["one-line"])
            with gr.Accordion("Which scheme?", open=False, elem_id="which-scheme", elem_classes=["fold"]):
                gr.HTML(which_scheme(), elem_classes=["note"])
            _build_scheme(form, COMPARE)
            form.credit_note = note("credit-note")
            heading("Sampling")
            build_fields(form, sampling_form(), partial(policies_offered, services))
            note("trust-model", value=note_value(TRUST_MODEL))
            build_fields(form, isolation_form())
            with gr.Accordion("More", open=False, elem_id="more", elem_classes=["fold"]) as form.more:
                with gr.Accordion(
                    "Rows: columns, filter, split", open=False, elem_id="task-reading", elem_classes=["fold"]
                ) as form.task_fold:
                    build_fields(form, task_form())
                    form.task_preview = element("task-preview", "taskRows", example.preview(first), classes=["note"])
                form.start_over = gr.Button("Start over", elem_id="start-over", elem_classes=["small"], min_width=0)
            with gr.Column(elem_id="actions", min_width=0):  # always in sight below the controls
                form.undo_notes.append(note("undo-note", classes=["undo"]))
                with gr.Row(elem_classes=["fields"]):
                    form.sample = gr.Button("Sample & score", variant="primary", elem_id="sample", min_width=0)
                    form.cancel = gr.Button("Cancel", elem_id="cancel", min_width=0, interactive=False)
                    form.open_train = gr.Button("Open in Train", elem_id="train-on-this", min_width=0)
                form.sample_note = note("sample-note")
        with gr.Column(elem_id="view", scale=1, min_width=0):
            element("title", "title")
            form.share = build_share(services)
            form.checks = build_checks(services)
            form.presets = element("preset-table", "presets", constant=example.PRESET_HEADINGS)
            form.drawing = element(
                "drawing",
                "inspect",
                server_functions=[*bind([why]), *bind(LABELLING, services.workspace)],
            )
            form.rewards.code = build_editor()
    form.inspected = list(form.bound)


def _build_example(form: Form, first: PageState) -> None:
    heading("Task")
    with gr.Row(elem_classes=["fields", "example-row"]):
        form.task = field(
            "task", str, "Built-in, file or hub:dataset", first.task, choices=list(TASKS), allow_custom_value=True
        )
        form.example = field("example", int, "Example", first.index, precision=0)
        form.previous = gr.Button("‹", elem_id="example-previous", min_width=0, elem_classes=["small"])
        form.following = gr.Button("›", elem_id="example-next", min_width=0, elem_classes=["small"])
        form.chance = gr.Button("random", elem_id="example-random", min_width=0, elem_classes=["small"])
    _bind(form, Leaf(TEXT, str, False, "", "", "Prompt"), first.text, lines=2, max_lines=12)
    form.prompting = note("prompting")
    form.columns = note("columns", value=note_value(handlers.columns_text(first.columns)), classes=["one-line"])


def _build_pattern(form: Form, first: PageState) -> None:
    heading("Steps")
    with gr.Row(elem_classes=["fields"]):
        form.preset = field(
            "preset",
            str,
            "Preset",
            handlers.preset_of(first.regex, first.kind),
            choices=[*PRESETS, handlers.CUSTOM],
        )
        _bind(form, Leaf(KIND, str, False, "", None, "Each match"), first.kind, choices=KINDS)
    # Of a fixed height for Gradio, which would lay the page out at every key; the style sheet sizes it.
    _bind(form, Leaf(REGEX, str, False, "", None, "Regular expression"), first.regex, lines=2, max_lines=2)


def _bind(form: Form, leaf: Leaf, value: Any, **more: Any) -> None:
    form.bound[leaf.name], form.leaves[leaf.name] = widget(leaf, value, **more), leaf


def _build_scheme(form: Form, prefix: str) -> None:
    """The field of a scheme, and those of the options of all schemes, of which its own are there."""
    build_fields(form, [("", [scheme_field(prefix)])])
    section = form.first.credit if prefix == CREDIT else form.first.compare
    own = {} if section is None else options_of(section["scheme"])
    with gr.Column(visible=section is not None, min_width=0) as form.schemes[prefix]:
        build_fields(form, credit_form(prefix), lambda path: {"visible": path.rpartition(".")[2] in own})


def policies_offered(services: Services, path: str) -> dict[str, Any]:
    """Return what a field that names a policy offers: those that came along, and those of the workspace's runs."""
    if path not in POLICIES:
        return {}
    runs = list_runs(services.workspace)[:LISTED_RUNS]
    names = [*EMBEDDED, *(name for run in runs for name in run.summary().policies[:LISTED_CHECKPOINTS])]
    return {"choices": names if path != REFERENCE else [("none", ""), *((name, name) for name in names)]}


POLICIES = ("policy.path", REFERENCE)
LISTED_RUNS, LISTED_CHECKPOINTS = 50, 4
"""The newest runs whose policies are offered, and how many of each."""


Score = Callable[[gr.Request, Tab], Updates]
"""Scores what a tab holds by now; what there is to set."""


def wire_inspect(form: Form, services: Services) -> None:
    """Give every widget of the tab its events.

    ``form.then_score`` has the group scored once an event is through; ``form.sample_now`` is sampled from as soon as a
    queued event has changed it.
    """
    form.sample_now = gr.State("")
    _wire_scoring(form, services)

    def remedy(draft: PageState, session: str, data: Mapping[str, Any]) -> PageState | None:
        return remedied(draft, services.credit(session), data.get("remedy"))

    replaces(form, form.drawing.apply, remedy)
    wire_rewards(form, services)
    _wire_examples(form)
    _wire_task(form)
    _wire_undo(form, services)
    _wire_sampling(form, services)
    wire_door(form, services)
    wire_checks(form, services)
    wire_share(form, services)


# ── scoring ──────────────────────────────────────────────────────────────────────────────────────────────────────


def score_outputs(form: Form) -> list[Any]:
    """Return what ``show_score`` sets."""
    return [
        form.drawing, form.checks.strip, form.preset, form.pattern_note, form.presets, form.credit_note,
        form.formula, form.prompting, form.rewards.watch, form.rewards.said, form.share.kept,
    ]  # fmt: skip


def show_score(form: Form, services: Services, held: Tab, draft: PageState, view: ScoringView, **marks: Any) -> Updates:
    """Show what came of scoring a draft's group; ``marks`` are kept beside the draft."""
    watch, said = reward_values(held, draft, view, marks.pop("told"))
    try:
        prompting = handlers.prompt_note(draft)
    except WorkbenchError:  # said where its field is
        prompting = ""
    updates: Updates = {form.checks.strip: view.preflight} if view.preflight else {}
    return updates | {
        form.drawing: view.drawing,
        form.preset: handlers.preset_of(draft.regex, draft.kind),
        # What the pattern finds or what is wrong with it, beside the button that lists the presets.
        form.pattern_note: note_value(
            example.pattern_note(draft, view), action=ENDS if _is_separator(draft) else TRY_PRESETS
        ),
        form.presets: gr.skip() if held.listed is draft.group else "",
        form.credit_note: note_value(view.note),
        form.formula: note_value(scheme_note(draft.credit)),
        form.prompting: note_value(prompting),
        form.rewards.watch: watch,
        form.rewards.said: said,
        form.share.kept: share_value(services, draft, **marks),
    }


def _rescore(services: Services, session: str, draft: PageState) -> ScoringView:
    worker = services.reward_worker(session, draft.page_deadline, isolate=draft.isolates)
    return rescore(draft, worker, services.models, labelled.HandLabels(services.workspace))


def _wire_scoring(form: Form, services: Services) -> None:
    def score(request: gr.Request, tab: Tab) -> Updates:
        session = request.session_hash or ""
        if services.sampling.going(session):  # the drawing shows texts growing; it is scored when they are whole
            return {}
        is_last = tab.asks()  # first: whatever is the last has then read the newest
        told, draft = tab.rewards_told, tab.draft
        tab.answered["scores"] = draft
        view = _rescore(services, session, draft)
        if not is_last():  # a change that came later is answered, or soon will be
            return {}
        if view.credit is not None:
            services.drawn[session] = view.credit, view.other
        return show_score(form, services, tab, draft, view, told=told)

    def score_news(request: gr.Request, tab: Tab) -> Any:
        return gr.skip() if tab.answered.get("scores") == tab.draft else score(request, tab)

    outputs, schemes = score_outputs(form), {prefix: form.bound[f"{prefix}.scheme"] for prefix in (CREDIT, COMPARE)}
    elsewhere = {KIND, *(f"{prefix}.scheme" for prefix in schemes), *paths_of(task_form())}
    scored = [path for path in form.inspected if path not in elsewhere]
    sends = sending(form, score_news, press=False)
    form.then_score = lambda event: event.then(**sends, outputs=outputs, queue=False, **PRIVATE)
    _wire_fields(form, services, score, scored, outputs)
    for prefix, chooser in schemes.items():

        def choose(request: gr.Request, tab: Tab, scheme: str, prefix: str = prefix) -> Any:
            is_news = tab.choose(f"{prefix}.scheme", scheme)
            return score(request, tab) | scheme_view(form, prefix, tab.draft) if is_news else gr.skip()

        options = [form.schemes[prefix], *(form.bound[path] for path in form.options(prefix))]
        form.then_score(chooser.input(choose, [form.draft, chooser], [*outputs, *options], **LAST))
    _wire_pattern(form, score, outputs)


def _wire_fields(form: Form, services: Services, score: Score, scored: list[str], outputs: list[Any]) -> None:
    """Wire the fields: nearly every change has the group scored anew."""
    rewards = form.rewards

    def answer(request: gr.Request, tab: Tab, before: PageState) -> Updates:
        """Score the group, and say what this system lacks of the isolation that is asked for."""
        draft, updates = tab.draft, score(request, tab)
        if draft.isolates == before.isolates:
            return updates
        return updates | {
            form.isolation_note: note_value(
                isolation_note(services.reward_worker(request.session_hash or "", isolate=draft.isolates))
            )
        }

    def read_rows(request: gr.Request, tab: Tab, before: PageState) -> Updates:
        """The rows of the task that is typed, which may be one that could not be read without what was typed now."""
        draft = tab.draft
        try:
            after = example.read_as(draft, tab.task_asked or draft.task, before)
        except WorkbenchError as error:
            return {form.task_preview: example.refusal(error), form.share.kept: share_value(services, draft)}
        if after is None:
            return {form.task_preview: example.preview(draft), form.share.kept: share_value(services, draft)}
        return show_draft(form, tab, draft, after) | score(request, tab) | {form.task_preview: example.preview(after)}

    def list_changed(request: gr.Request, tab: Tab, sent: str) -> Any:
        tab.set_rewards(json.loads(sent), services.estimates)
        return score(request, tab)

    rewards.rows.input(list_changed, [form.draft, rewards.rows], outputs, **LAST)
    # How a group is sampled: the drawing says if the one on screen is of another prompt, policy or settings.
    on_change(form, scored, "scores", answer, [*outputs, form.isolation_note])
    on_change(form, paths_of(task_form()), "scores", read_rows, [*outputs, *form.outputs])


def _wire_pattern(form: Form, score: Score, outputs: list[Any]) -> None:
    """Let presets, the pattern's kind, and what they are found to be good for set the pattern."""
    regex, kind, answer = form.bound[REGEX], form.bound[KIND], gr.Textbox("", visible=False)

    def choose(chosen: Callable[..., tuple[str, str]]) -> Any:
        """An event that sets the pattern, unless that was typed into since: a field of choices says twice that it was
        chosen from, and once more when it is left."""

        def change(request: gr.Request, tab: Tab, typed: str, *given: Any) -> Any:
            before = tab.draft
            pattern = chosen(before, *given)
            if typed != before.regex or pattern == (before.regex, before.kind):
                return {answer: ""}
            updates = show_draft(form, tab, before, before.with_pattern(*pattern), typed=REGEX)
            told = json.dumps([typed, updates.pop(regex, {})])
            del updates[form.preset]  # said with the scores, by the last that is asked
            return updates | score(request, tab) | {answer: told}

        return change

    def preset_named(draft: PageState, name: str) -> tuple[str, str]:
        preset = PRESETS.get(name)
        return (draft.regex, draft.kind) if preset is None else (preset.pattern.regex, preset.pattern.kind)

    def pick_preset(request: gr.Request, event: gr.EventData, tab: Tab, regex: str) -> Any:
        return choose(preset_named)(request, tab, regex, str(event._data.get("name")))

    by_kind = choose(lambda draft, kind: (handlers.regex_for(draft, kind), kind))
    ends = choose(lambda draft: (draft.regex, "ends" if _is_separator(draft) else draft.kind))
    given, sets = [form.draft, regex], list(dict.fromkeys([answer, *form.outputs, *outputs]))
    for event, change, more in (
        (form.preset.input, choose(preset_named), [form.preset]),
        (kind.input, by_kind, [kind]),
        (form.pattern_note.apply, ends, []),
        (form.presets.apply, pick_preset, []),
    ):
        changed = event(change, [*given, *more], sets, queue=False, **PRIVATE)
        changed.then(None, [answer, regex], regex, js=PUT_REGEX, **PRIVATE)

    def list_presets(tab: Tab) -> Any:
        draft = tab.draft
        if _is_separator(draft) or draft.group is None:
            return gr.skip()
        tab.listed = draft.group
        rows, others = example.try_presets(draft)
        return message(rows=rows, others=others, asked=secrets.token_hex(4))  # drawn again where it was closed

    form.pattern_note.apply(list_presets, form.draft, form.presets, queue=False, **PRIVATE)


PUT_REGEX = """(answer, now) => {
  const stays = { __type__: "update" }, [before, { value, ...more }] = JSON.parse(answer || "[null, {}]");
  if (before === null) return stays;
  return now === before && value !== undefined ? { ...stays, ...more, value } : { ...stays, ...more };
}"""
"""Sets the regex, and what it is called, to what was answered; what somebody typed meanwhile stays."""
ENDS, TRY_PRESETS = "Each match ends a step", "Try all presets on these answers"


def _is_separator(draft: PageState) -> bool:
    return StepPattern(draft.regex, draft.kind).is_separator


# ── examples, the task, undo ─────────────────────────────────────────────────────────────────────────────────────


def _wire_examples(form: Form) -> None:
    def chooses(event: Any, chosen: Callable[[PageState, float | None], PageState | None]) -> None:
        def choose(tab: Tab, index: float | None) -> Any:
            before = tab.draft
            try:
                after = chosen(before, index)
            except WorkbenchError as error:
                return {form.columns: note_value(Note(str(error)))}
            # The field may hold another number.
            return gr.skip() if after is None else show_draft(form, tab, before, after) | {form.example: after.index}

        form.then_score(event(choose, [form.draft, form.example], form.outputs, queue=False, **PRIVATE))

    def left(draft: PageState, index: float | None) -> PageState | None:
        """Leaving the field unchanged keeps an edited prompt."""
        return None if index == draft.index else handlers.choose_example(draft, index)

    def at_random(draft: PageState, index: float | None) -> PageState:
        task = handlers.find_task(draft.task_section())
        return handlers.choose_example(draft, random.randrange(len(task)), task=task)

    chooses(form.previous.click, lambda draft, index: handlers.choose_example(draft, index, by=-1))
    chooses(form.following.click, lambda draft, index: handlers.choose_example(draft, index, by=1))
    chooses(form.chance.click, at_random)
    chooses(partial(gr.on, [form.example.submit, form.example.blur]), left)


def _wire_task(form: Form) -> None:
    def choose_task(name: str, tab: Tab) -> Iterator[Any]:
        """Another task brings its own pattern, rewards and length; reward functions somebody wrote stay.

        A policy that was taught the task answers at once: the group before would be scored by what is about another.
        """
        before, tab.task_asked = tab.draft, name
        if name == before.task:  # the field says so whenever it is left, too
            yield gr.skip()
            return
        if name.strip().startswith(HUB):
            yield {
                form.columns: note_value(Note(f"loading {name.strip().removeprefix(HUB)} from the Hub …", level="info"))
            }
        plain = before.with_rows_as_they_are()  # how rows are read is about the task before
        try:
            task = handlers.find_task(plain.task_section(name))
            after = with_task(handlers.choose_example(plain, 0, task=task), task)
        except WorkbenchError as error:
            wrong: Updates = {form.columns: note_value(Note(str(error))), form.task_preview: example.refusal(error)}
            # How rows are read is said in the part that is folded away.
            yield wrong | dict.fromkeys((form.more, form.task_fold), gr.Accordion(open=True))
            return
        said = f"{after.task} brings its own pattern, rewards and length"
        if after.credit["scheme"] != before.credit["scheme"]:
            said += f"; its rewards are read by the scheme {after.credit['scheme']}"
        now = {}
        if after.policy == task.policy:
            after, now = after.but(group=None), {form.sample_now: secrets.token_hex(8)}
        yield show_draft(form, tab, before, after, undo=said) | now

    outputs = [*form.outputs, form.more, form.task_fold, form.sample_now]
    last: dict[str, Any] = {"concurrency_limit": None, "trigger_mode": "always_last", **PRIVATE}
    form.then_score(form.task.input(choose_task, [form.task, form.draft], outputs, **last))


def _wire_undo(form: Form, services: Services) -> None:
    """Undo brings back the whole page as it was, and can itself be undone, as Start over can, which ends sampling."""

    def start_over(draft: PageState, session: str, data: Mapping[str, Any]) -> PageState:
        services.sampling.cancel(session)
        return handlers.first_draft()

    def brought_back(tab: Tab) -> Any:
        return gr.skip() if tab.undo is None else show_draft(form, tab, tab.draft, tab.undo, undo="Restored")

    undone = gr.on(
        [note.apply for note in form.undo_notes], brought_back, form.draft, form.outputs, queue=False, **PRIVATE
    )
    form.then_score(undone)
    replaces(form, form.start_over.click, start_over, undo="Reset to defaults")
    form.sample.click(lambda: [""] * len(form.undo_notes), None, list(form.undo_notes), queue=False, **PRIVATE)


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _wire_sampling(form: Form, services: Services) -> None:
    def run(request: gr.Request, tab: Tab) -> Iterator[Updates]:
        tab.answered.pop("scores", None)  # what was drawn makes way for growing texts, also if it comes back
        for view in example.sample(tab.draft, services, request.session_hash or ""):
            updates: Updates = {
                form.drawing: view.drawing,
                form.sample_note: form_note_value(view.note),
                **dict(zip((form.sample, form.cancel), start_and_cancel(view.running), strict=True)),
            }
            if view.made is not None:
                before = tab.draft
                updates |= show_draft(form, tab, before, before.but(**view.made))
            yield updates

    outputs = [form.drawing, form.sample_note, form.sample, form.cancel, *form.outputs]
    # ``sample_now`` changes with the fields, which may hold the old values still: the tab has the new ones.
    for event, sends in (
        (form.sample.click, sending(form, run)),
        (form.sample_now.change, {"fn": run, "inputs": [form.draft]}),
    ):
        sampled = event(**sends, outputs=outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
        form.then_score(sampled)
    wire_cancel(form.cancel, services.sampling)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────


def opening_outputs(form: Form) -> list[Any]:
    """Return what ``opening`` sets."""
    return list(dict.fromkeys([*score_outputs(form), form.share.problem, form.isolation_note, *form.outputs]))


def opening(services: Services, form: Form, request: gr.Request, kept: str, tab: Tab) -> tuple[PageState, Updates]:
    """Open the page: with the draft that the browser tab kept or a link names, its group scored and drawn."""
    session, before = request.session_hash or "", tab.draft
    query = {name: value for name, value in dict(request.query_params or {}).items() if isinstance(value, str)}
    restored = sharing.restore(kept, query, services.groups)
    draft = restored.draft if restored is not None else before
    view = _rescore(services, session, draft)
    if view.credit is not None:
        services.drawn[session] = view.credit, view.other
    services.warm()
    updates = show_score(
        form, services, tab, draft, view, told=tab.rewards_told, first=True, restored=restored is not None, tab=session
    )
    updates[form.isolation_note] = note_value(isolation_note(services.reward_worker(session)))
    if restored is not None:
        problems = Note("; ".join(restored.problems), level="warning") if restored.problems else None
        updates |= show_draft(form, tab, before, draft) | {form.share.problem: note_value(problems)}
    tab.answered["scores"] = draft
    for path in POLICIES:
        updates[form.bound[path]] = gr.update(value=draft.value(path), **policies_offered(services, path))
    return draft, updates
