"""What the sandbox's process does, ``python -m workbench.rewards``: patterns, reward functions, environments.

``sandbox`` is the other side. A request names the code or the pattern each time, so a process that was replaced needs
telling nothing; code that was loaded before is not run again. What a function returned is checked here, and nowhere
else.
"""

from __future__ import annotations

# What rewards commonly need, so that a call need not wait for it. Larger libraries are imported when the code loads.
import collections  # noqa: F401
import dataclasses
import faulthandler
import fractions  # noqa: F401
import hashlib
import inspect
import itertools  # noqa: F401
import math  # noqa: F401
import random  # noqa: F401
import re  # noqa: F401
import statistics  # noqa: F401
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy  # noqa: F401

from workbench.environments import Reply, answer_turn, begin_episode, check_class
from workbench.errors import EpisodeError, RewardCodeError, RewardError
from workbench.rewards.logged import mark_prints
from workbench.rewards.protocol import (
    Batch,
    as_reward,
    call_reward,
    is_async,
    is_reward_class,
    line_of,
    message_of,
    read_signature,
)
from workbench.sandbox.child import Emitter, is_json
from workbench.sandbox.isolate import what_is_off
from workbench.sandbox.limits import what_ran_out
from workbench.schema.rollouts import state_of
from workbench.steps import StepPattern, split_leniently, split_preview

FILENAME = "<reward>"
"""What a user's code is called in its tracebacks."""
LOADED = 64
"""Functions that stay loaded: each edit of one is another function."""
MOST_THREADS = 32
"""Threads that may be left when a call is over; a pool that code keeps is fine, a flood of them is not."""
MISSING: list[str] = []
"""The limits, and layers of isolation, that this system lacks."""
_MODULE = "reward_code"
_LOG_ROWS = 50  # of a trainer's history that this process is sent


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """``load`` a function of the request's code, ``score`` a batch with it, ``split`` texts by a pattern, play a turn
    of an ``environment``, or tell what is ``missing``."""
    if request["do"] == "missing":
        return {"missing": MISSING}
    # Ends this process, and says in which line it hangs. Nothing the code does can hold it up.
    faulthandler.dump_traceback_later(request["deadline"], exit=True, file=2)
    try:
        return _ANSWERS[request["do"]](request)
    except (RewardError, EpisodeError) as error:
        emit.is_last = isinstance(error.__cause__, MemoryError)  # what the code left behind may still hold it
        off = what_is_off(error.__cause__) if "--isolated" in sys.argv else None
        if reason := off or what_ran_out(error.__cause__):
            error.args = (f"{error} ({reason} in the sandbox)",)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
        emit.is_last = emit.is_last or threading.active_count() > MOST_THREADS


def _split(request: dict[str, Any]) -> dict[str, Any]:
    split = split_leniently if request["leniently"] else split_preview
    pattern = StepPattern(request["regex"], request["kind"])
    _ = pattern.compiled  # also where there are no texts
    return {
        "splits": [
            {
                "steps": [[step.start, step.end] for step in text.steps],
                "matched": text.matched,
                "matches": text.matches,
                "failed": text.failed,
            }
            for text in split(request["texts"], pattern)
        ]
    }


# --- reward functions -------------------------------------------------------------------------------------------------


def _load(request: dict[str, Any]) -> dict[str, Any]:
    function, signature = _function(request["code"], request["name"])
    parameters = [[one.name, one.kind.name, one.default is not one.empty] for one in signature.parameters.values()]
    return {"parameters": parameters, "async": is_async(function)}


def _score(request: dict[str, Any]) -> dict[str, Any]:
    """Score the batch that ``pack_batch`` packed."""
    name, sent, texts = request["name"], request["batch"], iter(request["texts"])
    function, _ = _function(request["code"], name)
    turns = {name: [value[0] if value else next(texts) for value in sent[name]] for name in ("prompts", "completions")}
    steps = [list(islice(texts, count)) for count in sent["steps"]]
    state = None if sent["trainer_state"] is None else SimpleNamespace(**sent["trainer_state"])
    batch = Batch(**{**sent, **turns, "steps": steps, "trainer_state": state})
    # User code may raise SystemExit or KeyboardInterrupt, which must not end this process.
    scores = call_reward(name, function, batch, catch=BaseException, on_rollout=mark_prints)
    return {"scores": scores, "logged": vars(batch.log)}


@lru_cache(LOADED)
def _function(code: str, name: str) -> tuple[Any, inspect.Signature]:
    function = as_reward(_choose(_execute(code, name, "reward"), name))
    return function, read_signature(function, name)


def pack_batch(batch: Batch) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return a batch as JSON without its texts, these, and the names of the columns left out because they are not JSON.

    A prompt or a completion that is a text is there as ``[]``, another one as ``[value]``; steps as their number.
    """
    columns = {name: values for name, values in batch.columns.items() if is_json(values)}
    state: Any = batch.trainer_state
    if state is not None:  # its plain fields, and the last rows of its history
        fields = dataclasses.fields(state) if dataclasses.is_dataclass(state) else ()
        values = {field.name: getattr(state, field.name) for field in fields} or dict(vars(state))
        values["log_history"] = list(values.get("log_history") or ())[-_LOG_ROWS:]
        state = {name: value for name, value in values.items() if is_json(value)}
    sent = {
        "prompts": [[] if isinstance(prompt, str) else [prompt] for prompt in batch.prompts],
        "completions": [[] if isinstance(completion, str) else [completion] for completion in batch.completions],
        "columns": columns,
        "steps": [len(steps) for steps in batch.steps],
        "completion_ids": None if batch.completion_ids is None else [list(ids) for ids in batch.completion_ids],
        "turn": batch.turn,
        "observation": batch.observation,
        "trainer_state": state,
    }
    texts = [text for text in (*batch.prompts, *batch.completions) if isinstance(text, str)]
    return sent, [*texts, *chain.from_iterable(batch.steps)], [name for name in batch.columns if name not in columns]


# --- environments -----------------------------------------------------------------------------------------------------

MOST_EPISODES = 4096
"""Episodes at a time; the oldest one leaves, and is played again where it still goes on."""


@dataclass
class _Playing:
    environment: Any
    turns: int
    state: str | None


class Instances:
    """The environments of this process: one a running episode.

    Every request brings the episode's turns and hashes of what they were answered, so that a process that was replaced
    plays it again and goes on: what the environment answered then must be what it answers now.
    """

    def __init__(self) -> None:
        self._playing: OrderedDict[str, _Playing] = OrderedDict()

    def handle(self, kind: Callable[[], Any], name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """``describe`` the class, ``begin`` an episode, ``reply`` to its newest turn, or ``end`` it.

        Raises whatever the environment raises, and EpisodeError for what it may not do.
        """
        call, episode = request["call"], str(request.get("episode"))
        if call == "describe":
            return {"stop": list(check_class(kind, name))}
        if call == "end":
            self._playing.pop(episode, None)
            return {}
        turns, replies = list(request["turns"]), list(request["replies"])
        playing = self._playing.get(episode)
        if playing is None or playing.turns != len(replies):
            row = request["prompt"], request["columns"]
            playing = self._play_again(kind, name, *row, turns[: len(replies)], replies)
            self._playing[episode] = playing
            while len(self._playing) > MOST_EPISODES:
                self._playing.popitem(last=False)
        if call == "begin":
            return {"state": playing.state}
        try:
            answer = answer_turn(playing.environment, turns[-1])
        except BaseException:
            self._playing.pop(episode, None)
            raise
        playing.turns += 1
        return {"text": answer.text, "state": answer.state}

    def _play_again(
        self, kind: Callable[[], Any], name: str, prompt: Any, columns: Mapping[str, Any], turns: Any, replies: Any
    ) -> _Playing:
        environment = kind()
        state = begin_episode(environment, prompt, columns)
        for turn, before in zip(turns, replies, strict=True):
            answer: Reply = answer_turn(environment, turn)
            if state_of(answer.text or "") != before:
                raise EpisodeError(
                    f"environment {name!r}: its process was replaced in the middle of an episode, and when its turns "
                    "were played again it answered otherwise; make it answer alike to the same turns"
                )
            state = answer.state
        return _Playing(environment, len(replies), state)


_instances = Instances()


def _play(request: dict[str, Any]) -> dict[str, Any]:
    """One call of the environment that the request's code defines."""
    name = request["name"]
    try:
        return _instances.handle(_class(request["code"], name), name, request)
    except EpisodeError:
        raise
    except BaseException as error:  # whatever the user's code raises
        line = line_of(error, FILENAME)
        where = "" if line is None else f" at line {line}"
        raise EpisodeError(
            f"environment {name!r} raised {type(error).__name__}{where}: {message_of(error)}", line=line
        ) from error


@lru_cache(LOADED)
def _class(code: str, name: str) -> Any:
    """The code's class of that name, or its only public class with a method ``reply``."""
    try:
        module = _execute(code, name, "environment")
    except RewardCodeError as error:
        raise EpisodeError(str(error), line=error.line) from error
    kinds = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    playable = {key: kind for key, kind in kinds.items() if hasattr(kind, "reply")}
    if name in kinds:
        return kinds[name]
    if len(playable) == 1:
        return next(iter(playable.values()))
    raise EpisodeError(
        f"environment {name!r}: define a class of that name with the methods reset and reply; the code defines "
        f"{', '.join(kinds) or 'no class'}"
    )


# --- code -------------------------------------------------------------------------------------------------------------


def _execute(code: str, name: str, what: str) -> ModuleType:
    module = ModuleType(f"{_MODULE}_{hashlib.sha256(code.encode(errors='surrogatepass')).hexdigest()[:8]}")
    # Where dataclasses and pickle look a class's module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, FILENAME, "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        where = "" if error.lineno is None else f" at line {error.lineno}"
        text = f": {error.text.strip()[:80]}" if error.text else ""
        raise RewardCodeError(
            f"{what} {name!r} does not compile: {error.msg}{where}{text}",
            reward=name,
            line=error.lineno,
        ) from error
    except BaseException as error:  # whatever the code's own top level raises
        line = line_of(error, FILENAME)
        where = "" if line is None else f" at line {line}"
        found = " (it can import what is installed, and of a --reward-file what lies beside it)"
        raise RewardCodeError(
            f"the code of {what} {name!r} raised {type(error).__name__}{where}: {message_of(error)}"
            + found * isinstance(error, ModuleNotFoundError),
            reward=name,
            line=line,
        ) from error
    return module


def _choose(module: ModuleType, name: str) -> Any:
    """The code's function of that name, or ``reward``, or its only public function."""
    defined = {
        key: value
        for key, value in vars(module).items()
        if _is_function(value) and getattr(value, "__module__", None) == module.__name__ and not key.startswith("_")
    }
    named = vars(module).get(name)
    if _is_function(named):
        return named
    if "reward" in defined:
        return defined["reward"]
    if len(defined) == 1:
        return next(iter(defined.values()))
    names = ", ".join(defined) or "no function"
    raise RewardCodeError(f"define a function named {name!r} (or 'reward'); the code defines {names}", reward=name)


def _is_function(value: Any) -> bool:
    """Return whether it is a function, an object that can be called or scores, or a class of such (ms-swift's)."""
    if inspect.isclass(value):
        return is_reward_class(value)
    return callable(value) or hasattr(value, "forward") or (hasattr(value, "funcs") and hasattr(value, "weights"))


_ANSWERS = {"split": _split, "load": _load, "score": _score, "environment": _play}
