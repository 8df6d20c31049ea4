"""A closed tab, as the page's server hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from workbench.ui.sessions import HEARTBEAT, ClosedTabs


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
