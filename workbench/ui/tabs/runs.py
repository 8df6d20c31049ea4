"""The Runs tab: one element that ``runs.js`` draws, and the functions it may ask.

Buttons there and on Train use a run that is over on another tab: its policy, its reward model, its settings.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import runs as handlers
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.reward_forms import run_as_reward
from workbench.ui.handlers.run_follow import resume, stop
from workbench.ui.handlers.run_rollouts import side_by_side
from workbench.ui.handlers.runs import inspect_policy, train_on, use_settings
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, note_value, served
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.inspect import InspectEvents
from workbench.ui.tabs.widgets import Form

ASKED = (
    handlers.table,
    handlers.overlay,
    handlers.curve,
    handlers.say_of,
    handlers.remove,
    handlers.undelete,
    resume,
    stop,
)
"""What ``runs.js`` asks of the workspace; of the services, ``side_by_side``."""


def build_runs(services: Services) -> gr.HTML:
    value = json.dumps(handlers.RunsValue(downloads=FOLDER, most=handlers.COMPARED_RUNS))
    asked = [*served(ASKED, services.workspace), *served([side_by_side], services)]
    return drawn("runs", "runs", value, server_functions=asked)


def wire_run_actions(
    form: Form,
    tabs: gr.Tabs,
    elements: Sequence[gr.HTML],
    services: Services,
    asks: InspectEvents,
) -> None:
    """One event of all ``elements``; its data names the run by what is wanted of it: reward, policy or settings."""
    said, asked = form.rewards.add_note, gr.State("")

    def reward(draft: PageState, name: str) -> Updates:
        added = run_as_reward(draft.rows, name, services.workspace)
        shows = {tabs: gr.Tabs(selected="inspect")}
        if isinstance(added, Note):
            return shows | {said: note_value(added)}
        return shown(form, draft, draft.with_row(added)) | shows | {said: ""}

    def policy(draft: PageState, reference: str) -> Updates:
        after, said = inspect_policy(draft, reference, services.workspace)
        shows = {tabs: gr.Tabs(selected="inspect"), form.sample_note: note_value(said)}
        return shows if after is draft else shown(form, draft, after) | shows | {asked: secrets.token_hex(8)}

    def change(draft: PageState, asked: str) -> Updates:
        name, _, alarm = asked.partition("/")
        return taken(draft, *use_settings(draft, name, services.workspace, alarm))

    def taken(draft: PageState, after: PageState, said: Note) -> Updates:
        shows = {tabs: gr.Tabs(selected="train")}
        if after is draft:
            return shows | {form.train.start_note: note_value(said)}
        return shown(form, draft, after, undo=said.text) | shows | {form.train.start_note: ""}

    actions: dict[str, Callable[[PageState, str], Updates]] = {
        "reward": reward,
        "policy": policy,
        "settings": lambda draft, name: taken(draft, *use_settings(draft, name, services.workspace)),
        "change": change,
        "onward": lambda draft, reference: taken(draft, *train_on(draft, reference, services.workspace)),
    }

    def act(event: gr.EventData, *held: Any) -> Any:
        wanted, name = next(iter(event._data.items()), ("", ""))
        action = actions.get(wanted)
        return gr.skip() if action is None else action(read(*held), str(name))

    outputs = [tabs, said, form.sample_note, form.train.start_note, asked, *form.outputs]
    acted = gr.on([element.apply for element in elements], act, form.inputs, outputs, queue=False, **PRIVATE)
    asks.then_score(acted)
    acted.then(lambda token: token, asked, asks.sample, concurrency_limit=None, **PRIVATE)
