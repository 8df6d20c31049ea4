"""Visitors of a public page at the door: who asks, by a cookie, and the requests that no visitor needs.

Written against the ASGI interface alone, as ``door`` is, behind which it stands. What a visitor may do with the page
is the business of ``handlers.visitors``.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from typing import Any

import gradio as gr
from gradio.context import LocalContext
from gradio.route_utils import API_PREFIX
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.ui.handlers.visitors import REMEDY, VISITOR

COOKIE = "workbench-visitor"
HEADER = "x-workbench-visitor"
"""Put on every request here, whatever a client sends under this name."""
MOST_BYTES = 2_000_000
"""Of a request's body; forms of the page take a few ten thousand."""
CLOSED = tuple(f"{before}/{name}" for before in ("", API_PREFIX) for name in ("upload", "file", "proxy", "deep_link"))
"""Beginnings of the paths by which Gradio takes and gives files."""
_DAY = 24 * 3600
_VISITOR: ContextVar[str] = ContextVar("visitor", default="")


class Visits:
    """ASGI middleware. ``framed``: another site shows the page in a frame, where a browser keeps only cookies that say
    they may be kept apart for each such site."""

    def __init__(self, app: ASGIApp, *, framed: bool) -> None:
        self.app, self._framed = app, framed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if (problem := _problem(scope, headers)) is not None:
            await PlainTextResponse(f"Refused: {problem}\n", 403)(scope, receive, send)
            return
        known = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        visitor = known if VISITOR.fullmatch(known) else secrets.token_hex(16)
        marked = [(name, value) for name, value in scope["headers"] if name != HEADER.encode()]
        marked.append((HEADER.encode(), visitor.encode()))

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and visitor != known:
                MutableHeaders(scope=message).append("set-cookie", self._cookie(visitor))
            await send(message)

        _VISITOR.set(visitor)
        await self.app({**scope, "headers": marked}, receive, with_cookie)

    def _cookie(self, visitor: str) -> str:
        apart = "SameSite=None; Secure; Partitioned" if self._framed else "SameSite=Strict"
        return f"{COOKIE}={visitor}; Path=/; Max-Age={_DAY}; HttpOnly; {apart}"


def _problem(scope: Scope, headers: Headers) -> str | None:
    """Why a request is not a visitor's."""
    if scope["path"].startswith(CLOSED):
        return f"visitors of this Space send and fetch no files; {REMEDY}."
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return None
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return "the request does not say how long it is; send it with a Content-Length."
    if int(length) > MOST_BYTES:
        return f"the request has {int(length):,} bytes and a visitor's at most {MOST_BYTES:,}; send less, or {REMEDY}."
    return None


def asking() -> str:
    """The visitor whose request is being answered; "" outside of any."""
    request: gr.Request | Any = LocalContext.request.get(None)  # of an event, which the queue may answer
    return _VISITOR.get() if request is None else str(request.headers.get(HEADER, ""))
