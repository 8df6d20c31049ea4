"""Coroutine functions called from ordinary code: one event loop a process, on a thread of its own.

A loop that stays lets functions keep what is bound to it, an HTTP session say, from one call to the next; and a thread
of its own lets them run where a loop runs already, as in a notebook. Knows nothing of rewards.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

CONCURRENT = 32
"""Calls of one function that are under way at once, where it is called for each step."""
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process: a fork has none of its parent's threads

Call = Callable[[], Awaitable[Any]]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def results(calls: Sequence[Call], *, at_once: int = CONCURRENT) -> list[Any]:
    """What all calls come to, ``at_once`` of them awaited together. Raises the error of the first that failed."""
    outcomes = asyncio.run_coroutine_threadsafe(_gathered(calls, at_once), _loop()).result()
    for _, error in outcomes:
        if error is not None:
            raise error
    return [value for value, _ in outcomes]


async def _gathered(calls: Sequence[Call], at_once: int) -> list[tuple[Any, BaseException | None]]:
    room = asyncio.Semaphore(at_once)

    async def outcome(call: Call) -> tuple[Any, BaseException | None]:
        async with room:
            try:
                return await call(), None
            except BaseException as error:  # SystemExit, say, would end the loop's thread and not be told
                return None, error

    return await asyncio.gather(*map(outcome, calls))


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None or loop.is_closed():
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="coroutines", daemon=True).start()
        return loop
