"""A closed tab, as the page's server hears of it, and what Gradio keeps of tabs and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from workbench.ui.sessions import HEARTBEAT, KEPT_CLOSED, MOST_SESSIONS, ClosedTabs, Sessions, tend


@pytest.mark.parametrize(
    ("kind", "path", "heard"),
    [
        ("http", f"{HEARTBEAT}some-tab", ["some-tab"]),
        ("http", "/config", []),
        ("websocket", f"{HEARTBEAT}some-tab", []),
    ],
)
@pytest.mark.parametrize("error", [None, asyncio.CancelledError])
def test_a_tab_is_left_when_its_heartbeat_ends(kind: str, path: str, heard: list[str], error: Any) -> None:
    left: list[str] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        assert left == []
        if error is not None:
            raise error

    async def closed() -> None:
        app = ClosedTabs(page, left.append)
        try:
            await app({"type": kind, "path": path}, None, None)  # type: ignore[arg-type]
        except asyncio.CancelledError:
            assert error is not None
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(closed())
    assert left == heard


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def client(sessions: Sessions) -> Iterator[TestClient]:
    def double(number: int) -> int:
        return 2 * number

    async def make() -> FastAPI:  # Gradio makes locks while it is built
        with gr.Blocks() as page:
            gr.api(double)
        app = gr.mount_gradio_app(FastAPI(), page, path="/", ssr_mode=False, mcp_server=False)
        tend(app, sessions)
        return app  # type: ignore[no-any-return]

    with TestClient(asyncio.run(make())) as client:
        yield client


def ask(client: TestClient, number: int, **session: str) -> str:
    event = client.post("/gradio_api/call/double", json={"data": [number], **session}).json()["event_id"]
    return client.get(f"/gradio_api/call/double/{event}").text


def test_calls_that_name_no_session_share_one(client: TestClient, sessions: Sessions) -> None:
    assert "[2]" in ask(client, 1)
    kept = set(sessions.session_data)
    assert len(kept) == 1
    assert "[14]" in [ask(client, n) for n in range(8)][-1]
    assert set(sessions.session_data) == kept


def test_of_closed_tabs_those_used_last_are_kept(client: TestClient, sessions: Sessions) -> None:
    tabs = [f"tab{i}" for i in range(KEPT_CLOSED + 3)]
    for tab in tabs:
        assert "[6]" in ask(client, 3, session_hash=tab)
    for tab in tabs[:KEPT_CLOSED]:
        sessions.close(tab)
    assert set(sessions.session_data) == set(tabs)
    ask(client, 3, session_hash=tabs[0])  # its network was away for a moment
    for tab in tabs[KEPT_CLOSED:]:
        sessions.close(tab)
    assert set(sessions.session_data) == {tabs[0], *tabs[-KEPT_CLOSED + 1 :]}


def test_open_tabs_have_a_bound(client: TestClient, sessions: Sessions) -> None:
    for n in range(MOST_SESSIONS + 3):
        sessions[f"tab{n}"]
    assert len(sessions.session_data) == MOST_SESSIONS
    assert "tab0" not in sessions
