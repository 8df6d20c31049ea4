"""Gradio's sessions: which are kept, when a tab was closed, and requests that name what its page does not have.

A session is a copy of all components, near a megabyte. Gradio keeps 10,000 of them, makes one for each call of the API,
and keeps those of closed tabs. Its own event for a closed tab builds a session first, if the tab has none: 40 ms in
which the server answers nobody, for each of the tabs that a browser closes at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from gradio.route_utils import API_PREFIX, FnIndexInferError
from gradio.state_holder import SessionState, StateHolder
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

HEARTBEAT = f"{API_PREFIX}/heartbeat/"
MOST_SESSIONS = 100
"""That are kept, of open tabs too; then the one that was used longest ago goes."""
KEPT_CLOSED = 4
"""Tabs that are closed as far as the server knows: one whose network was away for a moment goes on where it was."""
CALLS = "calls"
"""The session of all calls that name none; it remembers nothing from one to the next."""


class Sessions(StateHolder):  # type: ignore[misc]  # Gradio says nothing of its types
    """Gradio's sessions, few of closed tabs, and one for all calls that name none."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: OrderedDict[str, None] = OrderedDict()  # the one used longest ago first

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id in self.blocks._queue.event_ids_to_events:  # a call that names no session is given its event's id
            calls = super().__getitem__(CALLS)
            calls.state_data.clear()
            return calls
        with self.lock:
            if session_id in self._closed:
                self._closed.move_to_end(session_id)
        return super().__getitem__(session_id)

    def close(self, session_id: str) -> None:
        """A tab was closed: forget the one that was closed and used longest ago, beyond the few that are kept."""
        with self.lock:
            self._closed[session_id] = None
            while len(self._closed) > KEPT_CLOSED:
                gone, _ = self._closed.popitem(last=False)
                self.session_data.pop(gone, None)
                self.time_last_used.pop(gone, None)


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


def tend(app: FastAPI, sessions: Sessions) -> None:
    """Have the mounted page keep its sessions in ``sessions``, and answer 404, not 500, to a request for a function or
    component that it does not have."""
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, gr.routes.App):
            route.app.state_holder = sessions
            sessions.set_blocks(route.app.get_blocks())
            sessions.capacity = MOST_SESSIONS
            for error in (KeyError, FnIndexInferError):
                route.app.add_exception_handler(error, _unknown)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "this page has no such function or component; reload it"}, 404)
