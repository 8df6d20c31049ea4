"""Environments as a sampler asks them: built-in ones and classes of this process directly, users' code in the sandbox.

An ``Environment`` begins episodes; an ``Episode`` answers the turns of one row and raises nothing for what goes wrong
there, which is in its ``Reply``. How turns are sampled, and what an observation's tokens are, is not known here.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from workbench.config import EnvironmentSection
from workbench.environments import protocol
from workbench.environments.calculator import Calculator
from workbench.environments.protocol import Reply, TextEnvironment, check_class
from workbench.errors import ConfigError, EpisodeError, did_you_mean, shown
from workbench.sandbox.child import is_json
from workbench.schema import Prompt, state_of

_numbers = itertools.count()
_ALSO = 200  # characters of a message of the environment's


class Episode:
    """One row's environment, after ``reset``. ``state`` is what it calls the state that its next turn begins in.

    This one is played in this process.
    """

    def __init__(self, kind: Callable[[], TextEnvironment], prompt: Prompt, columns: Mapping[str, Any]) -> None:
        self.state: str | None = None
        self._failed: str | None = None
        try:
            self._environment = kind()
            self.state = protocol.reset(self._environment, prompt, columns)
        except Exception as error:
            self._failed = _describe("reset", error)

    def reply(self, turn: str) -> Reply:
        """What is answered to a turn. Raises nothing for an environment that fails."""
        if self._failed is not None:
            return Reply(error=self._failed)
        began = time.perf_counter()
        try:
            answer = protocol.reply(self._environment, turn)
        except Exception as error:
            return Reply(error=_describe("reply", error), seconds=time.perf_counter() - began)
        self.state = answer.state
        return replace(answer, seconds=time.perf_counter() - began)

    def end(self) -> None:
        """The episode is over, whoever ended it."""


def _describe(method: str, error: Exception) -> str:
    if isinstance(error, EpisodeError):
        return str(error)
    return f"{method} raised {type(error).__name__}: {str(error)[:_ALSO] or '(no message)'}"


@dataclass(frozen=True)
class Environment:
    """An environment that can be played: ``stop`` ends turns, ``settings`` are the limits of an episode.

    ``begin`` begins a row's episode; one whose environment fails says so at its first turn.
    """

    name: str
    stop: tuple[str, ...]
    settings: EnvironmentSection
    begin: Callable[[Prompt, Mapping[str, Any]], Episode]

    @property
    def recorded(self) -> dict[str, Any]:
        """What a group's record says of it."""
        names = ("name", "max_turns", "max_observation_length")
        return {"environment": {name: getattr(self.settings, name) for name in names}}


def load_environment(
    spec: str | type[TextEnvironment] | Mapping[str, Any] | EnvironmentSection, host: Callable[[], Any] | None = None
) -> Environment | None:
    """A built-in by name, a class of this process, or what a section says; None for a section without a name.

    ``host`` gives the ``rewards.Sandbox`` in which a section's code runs.

    Raises:
        ConfigError: for a name that no environment has.
        EpisodeError: for a class that is no environment, or code that does not define one.
    """
    if isinstance(spec, type):
        settings = EnvironmentSection(name=spec.__name__)
        return Environment(spec.__name__, check_class(spec, spec.__name__), settings, partial(Episode, spec))
    settings = spec if isinstance(spec, EnvironmentSection) else EnvironmentSection.parse(spec)
    name = settings.name
    if name is None:
        return None
    if settings.code is not None:
        if host is None:
            raise ConfigError(f"environment {name!r}: its code runs in the sandbox, and none is there")
        send = partial(host().environment, settings.code, name, deadline=settings.deadline)
        reply, _ = send({"call": "describe"})
        return Environment(name, tuple(reply["stop"]), settings, partial(_EpisodeInWorker, send))
    if name not in ENVIRONMENTS:
        raise ConfigError(
            f"environment: no environment called {shown(name)}{did_you_mean(name, ENVIRONMENTS)}; built in are "
            f"{', '.join(ENVIRONMENTS) or 'none'}, or give the code of a class"
        )
    kind = ENVIRONMENTS[name]
    return Environment(name, check_class(kind, name), settings, partial(Episode, kind))


class _EpisodeInWorker(Episode):
    """Sends an episode's history with every call, so that a worker's process can be replaced between two."""

    def __init__(
        self,
        send: Callable[[Mapping[str, Any]], tuple[dict[str, Any], str]],
        prompt: Prompt,
        columns: Mapping[str, Any],
    ) -> None:
        self._send = send
        self._printed = ""
        self._turns: list[str] = []
        self._replies: list[str] = []  # by their hashes
        self._about = {
            "episode": f"{os.getpid()}-{next(_numbers)}",
            "prompt": prompt,
            "columns": {column: value for column, value in columns.items() if is_json(value)},
        }
        answer = self._ask("begin")
        self.state, self._failed, self._printed = answer.state, answer.error, answer.printed

    def reply(self, turn: str) -> Reply:
        if self._failed is not None:
            return Reply(error=self._failed, printed=self._printed)
        self._turns.append(turn)
        answer = self._ask("reply")
        printed, self._printed = self._printed + answer.printed, ""
        if answer.text is not None:
            self._replies.append(state_of(answer.text))
        self.state, self._failed = answer.state, answer.error
        return replace(answer, printed=printed)

    def end(self) -> None:
        if self._failed is None:
            self._ask("end")

    def _ask(self, call: str) -> Reply:
        began = time.perf_counter()
        request = {"call": call, **self._about, "turns": self._turns, "replies": self._replies}
        try:
            reply, printed = self._send(request)
        except EpisodeError as error:
            return Reply(error=str(error), seconds=time.perf_counter() - began, printed=error.printed)
        return Reply(reply.get("text"), None, reply.get("state"), time.perf_counter() - began, printed)


ENVIRONMENTS: Mapping[str, Callable[[], TextEnvironment]] = {"calculator": Calculator}
