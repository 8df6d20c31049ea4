"""Outcome reward functions as TRL calls them, their failures kept until every rank can hear of them.

Raised at once, an error on one rank would leave the other ranks waiting for it, and the run without its message. What a
reward is, and what a failure does to the run, is not known here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from trl.trainer.utils import get_callable_name


class OutcomeGuard:
    """``guarded`` wraps a function; ``take`` gives its first failure. ``seconds`` gets each call's time by name."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._failure: Exception | None = None

    def take(self) -> Exception | None:
        """The first failure since the last time, once."""
        failure, self._failure = self._failure, None
        return failure

    def guarded(self, function: Any) -> Any:
        """The function (or partial, callable object, coroutine function) under the name TRL gives it.

        Where it fails it gives no score to any completion. A reward model is TRL's to call, and comes back as it is.
        """
        if isinstance(function, str | torch.nn.Module):
            return function
        name = get_callable_name(function)
        call = self._waiting(function, name) if inspect.iscoroutinefunction(function) else self._plain(function, name)
        call.__name__ = call.__qualname__ = name
        return call

    def _plain(self, function: Any, name: str) -> Callable[..., Any]:
        def call(prompts: Any, completions: Any, **columns: Any) -> Any:
            with suppress(Exception), self._kept(name):  # take() raises it, on every rank
                return function(prompts=prompts, completions=completions, **columns)
            return [None] * len(prompts)

        return call

    def _waiting(self, function: Any, name: str) -> Callable[..., Any]:
        async def call(prompts: Any, completions: Any, **columns: Any) -> Any:
            with suppress(Exception), self._kept(name):  # take() raises it, on every rank
                return await function(prompts=prompts, completions=completions, **columns)
            return [None] * len(prompts)

        return call

    @contextmanager
    def _kept(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            self._failure = self._failure or error
            raise
        finally:
            self._seconds[name] = time.perf_counter() - began
