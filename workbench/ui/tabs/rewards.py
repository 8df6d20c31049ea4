"""The list of rewards, and the editor of the one that was chosen, in the main column in place of the cards.

The list is one element whose JSON value the page's script (``rewards.js``) draws with inputs of its own and owns: its
one event, ``input``, sends the whole list at each change, and no answer to it sets it. Only what replaces rewards does:
another task, a configuration, undo. The editor is drawn by the same script around a ``gr.Code`` that is always there.
What rewards returned is one message, ``said``.

A reward model, a judge, a belief, step values and a file have a form there; its event ``submit`` loads, asks or
estimates and answers with a row, which the script puts into its list.

What is on screen is checked in one panel below the facts: on new prompts, by cheating edits, and by the clinic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.assets import EMBEDDED
from workbench.rewards.statistics import CallTimes
from workbench.ui.handlers import reward_forms as forms
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.checks import (
    PREFLIGHT_PROMPTS,
    open_prompt,
    pair,
    probe_demo,
    probe_setup,
    run_preflight,
    sample_beside,
    try_clinic,
)
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.scoring import ScoringView, View, message
from workbench.ui.handlers.session import Services, Works
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    drawn,
    field,
    note,
    note_value,
    read,
    sending,
    served,
    shown,
    start_and_cancel,
    wire_cancel,
)


def build_reward_list(services: Services, first: PageState) -> SimpleNamespace:
    """Make the list, and what is said of it."""
    can_add = handlers.catalogue(services.reward_forms)
    asked = served(handlers.LIST_ASKED, services)
    rows = drawn("reward-list", "rewards", handlers.list_value(first), constant=can_add, server_functions=asked)
    said, made = drawn("rewards-said", "rewardsSaid"), drawn("reward-made", "rewardMade")
    return SimpleNamespace(rows=rows, said=said, made=made, add_note=note("add-note"), watch=_watch())


def _watch() -> gr.HTML:
    return drawn("watch", "watch", classes=["watch"])


def build_editor() -> gr.Code:
    """Make the place where the script draws the editor, and its code, which is there from the first time it opens."""
    with gr.Column(elem_id="reward-editor", min_width=0):
        drawn("editor", "rewardEditor")
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
        for view in forms.add(part, values, key, read(tab), services, request.session_hash or ""):
            row, instead = view.made or (None, "")
            said = None if view.note is None else view.note.to_json()
            made = None if row is None else handlers.page_row(row)
            yield message(note=said, running=bool(view.running), row=made, instead=instead)

    rewards.rows.submit(make, form.inputs, rewards.made, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)


def said_values(
    services: Services, tab: str, held: Tab, draft: PageState, view: ScoringView, told: int
) -> tuple[Any, str]:
    """Values for ``watch``, which stays where nothing could be scored, and for ``said``.

    ``told`` is the number of the page's last change of the list that the draft has.
    """
    watched = None
    if view.credit is not None:
        services.call_times[tab] = times = services.call_times.get(tab) or CallTimes()
        watched = handlers.watch_group(draft, view.credit.scored, times)
    said = handlers.rewards_said(draft, view, watched, held.editing) | {"number": told}
    return gr.skip() if watched is None else message(**handlers.watch_payload(watched)), json.dumps(said)


Look = Callable[..., Iterator[View]]
"""What a check does: of the draft, what its own fields hold, the services and the tab."""


def build_checks(services: Services) -> SimpleNamespace:
    """One panel of checks, and one for another policy's answers; scripts put both below the facts (``inspect.js``)."""
    # Columns and no accordions, which would make what is in them only once they are opened.
    with gr.Column(elem_id="check-setup", elem_classes=["drawer"], min_width=0):
        drawn("check-title", "panelTitle", constant="Check this setup")
        strip = drawn("preflight-strip", "strip")
        text = f"{PREFLIGHT_PROMPTS} new prompts: what a run would find before it has learnt. A click opens a prompt."
        preflight = _check("preflight", "Sample them", text, "findings")
        text = "Cheating edits: would an answer earn more with padding, a repeated step, an empty one?"
        probes = _check("probe", "Probe this group", text, "probes", server_functions=served([pair], services))
        with probes.row:
            probes.demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0, elem_classes=["small"])
        text = "The rewards: right, wrong and odd answers that are made up for them; what do they get wrong?"
        clinic = _check("clinic", "Try the rewards", text, "clinic")
    with gr.Column(elem_id="beside", elem_classes=["drawer"], min_width=0):
        drawn("beside-title", "panelTitle", constant="Beside another policy")
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
    said = note(f"{name}-note")
    return SimpleNamespace(row=row, go=go, cancel=cancel, note=said, findings=drawn(f"{name}-found", script, **options))


def wire_checks(form: Form, services: Services) -> None:
    checks = form.checks

    def wire(part: SimpleNamespace, look: Look, works: Works, *more: Any) -> None:
        """Let the part's button ``look``, and its other one cancel that."""

        def run(request: gr.Request, tab: Tab, *given: Any) -> Iterator[list[Any]]:
            for view in look(read(tab), *given, services, request.session_hash or ""):
                yield [view.drawing, note_value(view.note), *start_and_cancel(view.running)]

        outputs = [part.findings, part.note, part.go, part.cancel]
        sends = sending(form, run, more=more)
        part.go.click(**sends, outputs=outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
        wire_cancel(part.cancel, works, services.judges)

    wire(checks.preflight, run_preflight, services.preflight)
    wire(checks.probes, probe_setup, services.probing)
    wire(checks.clinic, try_clinic, services.clinic)
    wire(checks.beside, sample_beside, services.beside, checks.other)

    def demo(tab: Tab) -> Updates:
        draft = read(tab)
        loaded, said = probe_demo(draft)
        return shown(form, draft, loaded, undo=said.text)

    form.then_score(checks.probes.demo.click(demo, form.inputs, form.outputs, queue=False, **PRIVATE))

    def opened(request: gr.Request, event: gr.EventData, tab: Tab) -> Any:
        draft = read(tab)
        after = open_prompt(draft, services, request.session_hash or "", event._data.get("place"))
        return gr.skip() if after is None else shown(form, draft, after)

    form.then_score(checks.preflight.findings.apply(opened, form.inputs, form.outputs, queue=False, **PRIVATE))
