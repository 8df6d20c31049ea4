"""The Runs tab: one element that ``runs.js`` draws, and the functions it may ask."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from workbench.ui.downloads import FOLDER
from workbench.ui.handlers import run_follow
from workbench.ui.handlers import runs as handlers
from workbench.ui.handlers.session import Services
from workbench.ui.tabs.common import drawn


def build_runs(services: Services) -> gr.HTML:
    value = json.dumps(handlers.RunsValue(downloads=FOLDER, most=handlers.COMPARED_RUNS))
    return drawn("runs", "runs", value, server_functions=_server_functions(services))


def _server_functions(services: Services) -> list[Any]:
    """What ``runs.js`` may ask. Arguments come from the browser and are not trusted."""
    workspace = services.workspace

    def table(request: Any) -> handlers.Table:
        return handlers.table(workspace)

    def overlay(request: dict[str, Any]) -> handlers.Overlay:
        return handlers.overlay(workspace, _texts(request["runs"]))

    def remove(request: dict[str, Any]) -> handlers.Removed:
        return handlers.delete(workspace, _texts(request["runs"]))

    def undelete(request: dict[str, Any]) -> handlers.Restored:
        return handlers.undelete(workspace, _texts(request["entries"]))

    def resume(request: dict[str, Any]) -> run_follow.Answer:
        return run_follow.resume(workspace, str(request["run"]))

    def resume_pipeline(request: dict[str, Any]) -> run_follow.Answer:
        return handlers.resume_pipeline(workspace, str(request["pipeline"]))

    def stop_pipeline(request: dict[str, Any]) -> run_follow.Answer:
        return handlers.stop_pipeline(workspace, str(request["pipeline"]))

    return [table, overlay, remove, undelete, resume, resume_pipeline, stop_pipeline]


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
