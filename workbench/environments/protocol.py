"""What a text environment looks like, how it is called, and what it may answer.

The worker calls users' classes with this module, and its parent checks with it what comes back; no processes here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from workbench.errors import EpisodeError, shown
from workbench.schema import Prompt, prompt_text

MOST_STOPS = 16


@runtime_checkable
class TextEnvironment(Protocol):
    """Who answers a policy's turns in one episode: an instance a row, made without arguments.

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
    """What one call of an environment came to.

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
        function = getattr(kind, method, None)
        if not callable(function):
            raise EpisodeError(f"environment {name!r} has no method {method!r}; write 'def {form}'")
    reset = inspect.signature(kind.reset).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in reset):
        raise EpisodeError(
            f"environment {name!r}: reset cannot take the data's columns; write 'def reset(self, prompt, **columns)'"
        )
    stop = getattr(kind, "stop", None)
    if not isinstance(stop, list | tuple) or len(stop) > MOST_STOPS:
        raise EpisodeError(
            f"environment {name!r}: stop is {shown(stop)}; give a list of at most {MOST_STOPS} texts that end a turn"
        )
    if wrong := [text for text in stop if not isinstance(text, str) or not text]:
        raise EpisodeError(
            f"environment {name!r}: stop has {shown(wrong[0])}; each of them is a text of at least a character"
        )
    return tuple(stop)


def reset(environment: Any, prompt: Prompt, columns: Mapping[str, Any]) -> str | None:
    """Begin an episode; returns the state's name, if it has one."""
    environment.reset(prompt_text(prompt), **{name: value for name, value in columns.items() if name != "prompt"})
    return named_state(environment)


def reply(environment: Any, turn: str) -> Reply:
    """One call of ``reply``. Raises what the environment raises, and EpisodeError for an answer of another type."""
    text = environment.reply(turn)
    if text is not None and not isinstance(text, str):
        raise EpisodeError(
            f"reply returned {shown(text)}, a {type(text).__name__}; return the observation as text, or None where the "
            "episode is over"
        )
    return Reply(text, state=None if text is None else named_state(environment))


def named_state(environment: Any) -> str | None:
    """What the environment calls its state; None where it has no method for that."""
    method = getattr(environment, "state", None)
    if not callable(method):
        return None
    state = method()
    if not isinstance(state, str):
        raise EpisodeError(f"state returned {shown(state)}, a {type(state).__name__}; return a text")
    return state
