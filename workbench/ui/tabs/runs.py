"""The Runs tab: one element that ``runs.js`` draws, and the functions it may ask."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import run_follow, run_rollouts
from workbench.ui.handlers import runs as handlers
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import drawn


def build_runs(services: Services) -> gr.HTML:
    value = json.dumps(handlers.RunsValue(downloads=FOLDER, most=handlers.COMPARED_RUNS))
    return drawn("runs", "runs", value, server_functions=_server_functions(services))


def _server_functions(services: Services) -> list[Any]:
    """What ``runs.js`` may ask. Arguments come from the browser and are not trusted."""

    def table(request: Any) -> handlers.Table:
        return handlers.table(services.workspace)

    def overlay(request: dict[str, Any]) -> handlers.Overlay:
        return handlers.overlay(services.workspace, **shown(request))

    def curve(request: dict[str, Any]) -> str:
        return handlers.curve(services.workspace, str(request["key"]), **shown(request))

    def shown(request: dict[str, Any]) -> dict[str, Any]:
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
