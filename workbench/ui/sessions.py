"""Gradio's sessions seen from outside: when a tab was closed, and requests that name what its page does not have.

Gradio's own event for a closed tab builds a session of all components first, if the tab has none: 40 ms in which the
server answers nobody, for each of the tabs that a browser closes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from gradio.route_utils import API_PREFIX, FnIndexInferError
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

HEARTBEAT = f"{API_PREFIX}/heartbeat/"


class ClosedTabs:
    """ASGI middleware that calls ``left`` with a tab's session, in a thread, when its heartbeat ends."""

    def __init__(self, app: ASGIApp, left: Callable[[str], None]) -> None:
        self.app, self._left = app, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        beats = scope["type"] == "http" and scope["path"].startswith(HEARTBEAT)
        try:
            await self.app(scope, receive, send)
        finally:
            if beats:
                asyncio.get_running_loop().run_in_executor(None, self._left, scope["path"].removeprefix(HEARTBEAT))


def refuse_unknown_names(app: FastAPI) -> None:
    """Answer 404, not 500, to a request for a function or component that the mounted page does not have."""
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, gr.routes.App):
            for error in (KeyError, FnIndexInferError):
                route.app.add_exception_handler(error, _unknown)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "this page has no such function or component; reload it"}, 404)
