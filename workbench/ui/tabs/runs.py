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
from workbench.ui.handlers import run_follow, run_rollouts
from workbench.ui.handlers import runs as handlers
from workbench.ui.handlers.page_state import PageState
from workbench.ui.handlers.reward_forms import run_as_reward
from workbench.ui.handlers.runs import inspect_policy, train_on, use_settings
from workbench.ui.handlers.scoring import Note
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import PRIVATE, drawn, note_value
from workbench.ui.tabs.form import Updates, read, shown
from workbench.ui.tabs.inspect import InspectEvents
from workbench.ui.tabs.widgets import Form, InspectWidgets, TrainWidgets


def build_runs(services: Services) -> gr.HTML:
    value = json.dumps(handlers.RunsValue(downloads=FOLDER, most=handlers.COMPARED_RUNS))
    return drawn("runs", "runs", value, server_functions=_server_functions(services))


def _server_functions(services: Services) -> list[Any]:
    """What ``runs.js`` may ask. Arguments come from the browser and are not trusted."""

    def table(request: Any) -> handlers.Table:
        return handlers.table(services.workspace)

    def overlay(request: dict[str, Any]) -> handlers.Overlay:
        return handlers.overlay(services.workspace, **chosen(request))

    def curve(request: dict[str, Any]) -> str:
        return handlers.curve(services.workspace, str(request["key"]), **chosen(request))

    def chosen(request: dict[str, Any]) -> dict[str, Any]:
        return {
            "names": _texts(request["runs"]),
            "axis": str(request.get("axis", "step")),
            "off": _texts(request.get("off")),
            "each": bool(request.get("each")),
            "smoothing": float(request.get("smoothing", 0)),
        }

    def side(request: dict[str, Any]) -> run_rollouts.Sides:
        return run_rollouts.side_by_side(services, _texts(request["runs"]), int(request["index"]))

    def say_of(request: dict[str, Any]) -> run_follow.Answer:
        name, new, note = (str(request[key]) for key in ("run", "name", "note"))
        return handlers.say_of(services.workspace, name, new, note, _texts(request["tags"]))

    def remove(request: dict[str, Any]) -> handlers.Removed:
        return handlers.delete(services.workspace, _texts(request["runs"]))

    def undelete(request: dict[str, Any]) -> handlers.Restored:
        return handlers.undelete(services.workspace, _texts(request["entries"]))

    def resume(request: dict[str, Any]) -> run_follow.Answer:
        return run_follow.resume(services, str(request["run"]))

    def stop(request: dict[str, Any]) -> run_follow.Answer:
        return run_follow.stop(services.workspace, str(request["run"]))

    return [table, overlay, curve, side, say_of, remove, undelete, resume, stop]


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []


def wire_run_actions(
    form: Form,
    tabs: gr.Tabs,
    elements: Sequence[gr.HTML],
    inspect: InspectWidgets,
    train: TrainWidgets,
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
        shows = {tabs: gr.Tabs(selected="inspect"), inspect.sample_note: note_value(said)}
        return shows if after is draft else shown(form, draft, after) | shows | {asked: secrets.token_hex(8)}

    def change(draft: PageState, asked: str) -> Updates:
        name, _, alarm = asked.partition("/")
        return taken(draft, *use_settings(draft, name, services.workspace, alarm))

    def taken(draft: PageState, after: PageState, said: Note) -> Updates:
        shows = {tabs: gr.Tabs(selected="train")}
        if after is draft:
            return shows | {train.start_note: note_value(said)}
        return shown(form, draft, after, undo=said.text) | shows | {train.start_note: ""}

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

    outputs = [tabs, said, inspect.sample_note, train.start_note, asked, *form.outputs]
    acted = gr.on([element.apply for element in elements], act, form.inputs, outputs, queue=False, **PRIVATE)
    asks.then_score(acted)
    acted.then(lambda token: token, asked, asks.sample, concurrency_limit=None, **PRIVATE)
