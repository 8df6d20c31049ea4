"""Environments: who answers a policy's turns in an episode, built in or of a user's own, and how they are asked.

An ``Environment`` begins episodes; an ``Episode`` answers the turns of one row and raises nothing for what goes wrong
there, which is in its ``Reply``. Built-in environments and classes of this process are asked directly, users' code in
the sandbox, which calls it by ``begin_episode`` and ``answer_turn``. How turns are sampled, and what an observation's
tokens are, is not known here.
"""

import inspect
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from workbench.config import EnvironmentSection
from workbench.errors import ConfigError, EpisodeError, did_you_mean, quote
from workbench.rewards.answers import work_out_call
from workbench.sandbox.child import is_json
from workbench.schema import Prompt, prompt_text, state_of

MOST_STOPS = 16


@runtime_checkable
class TextEnvironment(Protocol):
    """The other side of one episode, which answers the policy's turns: an instance a row, made without arguments.

    ``stop`` are the texts that end a turn, as an end-of-sequence token always does. ``reset`` begins an episode with
    the row's prompt as text and its other columns by name. ``reply`` gets the text of a turn, its stop string included
    and its end-of-sequence token left out, and returns the observation, or None: the episode is over. A method
    ``state() -> str``, where there is one, names the state that the policy's next turn begins in.
    """

    stop: Sequence[str]

    def reset(self, prompt: str, **columns: Any) -> None: ...

    def reply(self, turn: str) -> str | None: ...


@dataclass(frozen=True)
class Reply:
    """The outcome of one call of an environment.

    ``text`` is the observation, None where the episode is over; ``error`` says why there is none where the call failed.
    ``state`` is what the environment calls the state it is in now, ``printed`` what its code printed.
    """

    text: str | None = None
    error: str | None = None
    state: str | None = None
    seconds: float = 0.0
    printed: str = ""


def check_class(kind: Any, name: str) -> tuple[str, ...]:
    """The stop strings of a class that can be an environment. Raises EpisodeError, saying what it lacks."""
    for method, form in (("reset", "reset(self, prompt, **columns)"), ("reply", "reply(self, turn)")):
        if not callable(getattr(kind, method, None)):
            raise EpisodeError(f"environment {name!r} has no method {method!r}; write 'def {form}'")
    reset = inspect.signature(kind.reset).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in reset):
        raise EpisodeError(
            f"environment {name!r}: reset cannot take the data's columns; write 'def reset(self, prompt, **columns)'"
        )
    stop: Any = getattr(kind, "stop", None)
    is_list = isinstance(stop, list | tuple) and len(stop) <= MOST_STOPS
    if not is_list or not all(isinstance(text, str) and text for text in stop):
        raise EpisodeError(
            f"environment {name!r}: stop is {quote(stop)}; give a list of at most {MOST_STOPS} texts that end a turn, "
            "each of at least a character"
        )
    return tuple(stop)


def begin_episode(environment: Any, prompt: Prompt, columns: Mapping[str, Any]) -> str | None:
    """Begin an episode; returns the state's name, if it has one."""
    environment.reset(prompt_text(prompt), **{name: value for name, value in columns.items() if name != "prompt"})
    return ask_state(environment)


def answer_turn(environment: Any, turn: str) -> Reply:
    """One call of ``reply``. Raises what the environment raises, and EpisodeError for an answer of another type."""
    text = environment.reply(turn)
    if text is not None and not isinstance(text, str):
        raise EpisodeError(
            f"reply returned {quote(text)}, a {type(text).__name__}; return the observation as text, or None where the "
            "episode is over"
        )
    return Reply(text, state=None if text is None else ask_state(environment))


def ask_state(environment: Any) -> str | None:
    """Return what the environment calls its state; None where it has no method for that."""
    method = getattr(environment, "state", None)
    if not callable(method):
        return None
    state = method()
    if not isinstance(state, str):
        raise EpisodeError(f"state returned {quote(state)}, a {type(state).__name__}; return a text")
    return state


CALL = re.compile(r"call:(.*)", re.DOTALL)
ERROR = "= error\n"
_LARGEST = 10**15


class Calculator:
    """The text environment of the task ``calculator``; a turn is a line."""

    about = "answers “call: 7+3” with “= 10”; a line that begins with “Answer:” ends the episode"
    stop: Sequence[str] = ("\n",)

    def reset(self, prompt: str, **columns: object) -> None:
        """Nothing is kept from one call to the next."""

    def reply(self, turn: str) -> str | None:
        """``= RESULT`` for a call, ``= error`` for a line that is neither call nor answer; None ends the episode.

        A result that is not whole has at most six decimals.
        """
        line = turn.strip()
        if line.startswith("Answer:"):
            return None
        call = CALL.fullmatch(line)
        try:
            value = work_out_call(call[1] if call else "")
        except (ValueError, ZeroDivisionError):
            return ERROR
        if abs(value) > _LARGEST:
            return ERROR
        decimals = f"{float(value):.6f}".rstrip("0").rstrip(".")
        return f"= {value.numerator if value.denominator == 1 else decimals}\n"


_numbers = itertools.count()
_ALSO = 200  # characters of a message of the environment's
Play = Callable[[str, str], Reply]
"""Begins an episode (``begin``), answers its newest turn (``reply``), or ends it (``end``). Raises EpisodeError."""


class Episode:
    """One row's environment, after ``reset``. ``state`` is what it calls the state that its next turn begins in.

    One that failed is over: it gives the same error to each further turn.
    """

    def __init__(self, play: Play) -> None:
        self._play = play
        self._last = self._call("begin")
        self._printed = self._last.printed  # by reset, which the first turn tells

    @property
    def state(self) -> str | None:
        return self._last.state

    def reply(self, turn: str) -> Reply:
        """Return what is answered to a turn. Raises nothing for an environment that fails."""
        if self._last.error is not None:
            return replace(self._last, printed=self._printed)
        self._last = self._call("reply", turn)
        told, self._printed = replace(self._last, printed=self._printed + self._last.printed), ""
        return told

    def end(self) -> None:
        """The episode is over, whoever ended it."""
        if self._last.error is None:
            self._call("end")

    def _call(self, call: str, turn: str = "") -> Reply:
        began = time.perf_counter()
        try:
            answer = self._play(call, turn)
        except EpisodeError as error:
            answer = Reply(error=str(error), printed=error.printed)
        return replace(answer, seconds=time.perf_counter() - began)


def _play_here(kind: Callable[[], TextEnvironment], prompt: Prompt, columns: Mapping[str, Any]) -> Episode:
    """Begin an episode that is played in this process."""
    made: list[TextEnvironment] = []

    def play(call: str, turn: str) -> Reply:
        try:
            if call == "begin":
                made.append(kind())
                return Reply(state=begin_episode(made[0], prompt, columns))
            return answer_turn(made[0], turn) if call == "reply" else Reply()
        except EpisodeError:
            raise
        except Exception as error:
            method, said = "reset" if call == "begin" else "reply", str(error)[:_ALSO] or "(no message)"
            raise EpisodeError(f"{method} raised {type(error).__name__}: {said}") from error

    return Episode(play)


def _play_in_sandbox(
    send: Callable[[Mapping[str, Any]], tuple[dict[str, Any], str]], prompt: Prompt, columns: Mapping[str, Any]
) -> Episode:
    """Begin an episode whose history is sent with every call, so that the sandbox's process can be replaced."""
    about = {
        "episode": f"{os.getpid()}-{next(_numbers)}",
        "prompt": prompt,
        "columns": {column: value for column, value in columns.items() if is_json(value)},
    }
    turns, replies = list[str](), list[str]()  # replies by their hashes

    def play(call: str, turn: str) -> Reply:
        if call == "reply":
            turns.append(turn)
        reply, printed = send({"call": call, **about, "turns": turns, "replies": replies})
        if (text := reply.get("text")) is not None:
            replies.append(state_of(text))
        return Reply(text, None, reply.get("state"), printed=printed)

    return Episode(play)


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
        """Return what a group's record says of it."""
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
        return Environment(spec.__name__, check_class(spec, spec.__name__), settings, partial(_play_here, spec))
    settings = spec if isinstance(spec, EnvironmentSection) else EnvironmentSection.parse(spec)
    name = settings.name
    if name is None:
        return None
    if settings.code is not None:
        if host is None:
            raise ConfigError(f"environment {name!r}: its code runs in the sandbox, and none is there")
        send = partial(host().environment, settings.code, name, deadline=settings.deadline)
        reply, _ = send({"call": "describe"})
        return Environment(name, tuple(reply["stop"]), settings, partial(_play_in_sandbox, send))
    if name not in ENVIRONMENTS:
        raise ConfigError(
            f"environment: no environment called {quote(name)}{did_you_mean(name, ENVIRONMENTS)}; built in are "
            f"{', '.join(ENVIRONMENTS) or 'none'}, or give the code of a class"
        )
    kind = ENVIRONMENTS[name]
    return Environment(name, check_class(kind, name), settings, partial(_play_here, kind))


ENVIRONMENTS: Mapping[str, Callable[[], TextEnvironment]] = {"calculator": Calculator}
