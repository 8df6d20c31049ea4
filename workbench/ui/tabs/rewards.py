"""The list of rewards, and the editor of the one that was chosen, in the main column in place of the cards.

The list is one element whose JSON value the page's script (``rewards.js``) draws with inputs of its own and owns: its
one event, ``input``, sends the whole list at each change, and no answer to it sets it. Only what replaces rewards does:
another task, a configuration, undo. The editor is drawn by the same script around a ``gr.Code`` that is always there.
What rewards returned is one message, ``said``.

A reward model, a judge, a belief, step values and a file have a form there; its event ``submit`` loads, asks or
estimates and answers with a row, which the script puts into its list.

Rewards are tried by exploit probes and in the clinic, in panels above the group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr

from workbench.rewards.watch import CallTimes
from workbench.ui.handlers import reward_forms as forms
from workbench.ui.handlers import rewards as handlers
from workbench.ui.handlers.checks import pair, probe_demo, probe_setup
from workbench.ui.handlers.page_state import PageState, Tab
from workbench.ui.handlers.scoring import ScoringView, View, message
from workbench.ui.handlers.session import Services, Works
from workbench.ui.tabs.form import (
    PRIVATE,
    Form,
    Updates,
    drawn,
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


def build_probes(services: Services) -> SimpleNamespace:
    """A folded panel above the group: buttons, and what each edit gains."""
    with gr.Accordion("Exploit probes: would a cheating answer earn more?", open=False, elem_id="probes"):
        with gr.Row(elem_classes=["fields"]):
            go = gr.Button("Probe this group", elem_id="probe", min_width=0)
            cancel = gr.Button("Cancel", elem_id="probe-cancel", min_width=0, interactive=False)
            demo = gr.Button("Load the demo", elem_id="probe-demo", min_width=0)
        said = note("probe-note")
        table = drawn("probe-table", "probes", server_functions=served([pair], services))
    return SimpleNamespace(go=go, cancel=cancel, demo=demo, note=said, findings=table)


def wire_probes(form: Form, services: Services, then_score: Callable[[Any], None]) -> None:
    wire_findings(form.probes, form, services, probe_setup, services.probing)

    def demo(tab: Tab) -> Updates:
        draft = read(tab)
        loaded, said = probe_demo(draft)
        return shown(form, draft, loaded, undo=said.text)

    then_score(form.probes.demo.click(demo, form.inputs, form.outputs, queue=False, **PRIVATE))


def build_clinic() -> SimpleNamespace:
    """A folded panel above the group: a button that tries the rewards, its cancel, and what they get wrong."""
    with gr.Accordion("Reward clinic: what do the rewards get wrong?", open=False, elem_id="clinic"):
        with gr.Row(elem_classes=["fields"]):
            go = gr.Button("Try the rewards", elem_id="clinic-go", min_width=0)
            cancel = gr.Button("Cancel", elem_id="clinic-cancel", min_width=0, interactive=False)
        said = note("clinic-note")
        findings = drawn("clinic-table", "clinic")
    return SimpleNamespace(go=go, cancel=cancel, note=said, findings=findings)


def wire_findings(
    widgets: SimpleNamespace,
    form: Form,
    services: Services,
    look: Callable[[PageState, Services, str], Iterator[View]],
    works: Works,
) -> None:
    """Let the button ``look``, and cancel it among ``works``."""

    def run(request: gr.Request, tab: Tab) -> Iterator[list[Any]]:
        for view in look(read(tab), services, request.session_hash or ""):
            yield [view.drawing, note_value(view.note), *start_and_cancel(view.running)]

    outputs = [widgets.findings, widgets.note, widgets.go, widgets.cancel]
    widgets.go.click(**sending(form, run), outputs=outputs, concurrency_limit=4, concurrency_id="sampling", **PRIVATE)
    wire_cancel(widgets.cancel, works, services.judges)
