"""The sandbox's process: patterns, reward functions and environments, within limits.

``python -m workbench.rewards TEMPORARY [--isolated] [FOLDER …]`` is started by ``sandbox.client``, the other side. A
request names the code or the pattern each time, so a process that was replaced needs telling nothing; code that was
loaded before is not run again. What a function returned is checked here, and nowhere else.

The process has limits, and may be isolated (``sandbox.isolate``).
"""

import faulthandler
import hashlib
import inspect
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from workbench.errors import EpisodeError, RewardCodeError, RewardError
from workbench.rewards.environments import Reply, answer_turn, begin_episode, check_class
from workbench.rewards.protocol import (
    Batch,
    Log,
    as_reward,
    call_reward,
    is_async,
    is_reward_class,
    raised,
    read_signature,
)
from workbench.rewards.source import syntax_said
from workbench.sandbox.child import Emitter, mark_prints, serve
from workbench.sandbox.client import FILENAME, LOADED
from workbench.sandbox.isolate import restrict, what_is_off, what_ran_out
from workbench.schema import RewardKind
from workbench.schema.rollouts import state_of
from workbench.steps import StepPattern, split_leniently, split_preview

MOST_THREADS = 32
"""Threads that may be left when a call is over; a pool that code keeps is fine, a flood of them is not."""
MISSING: list[str] = []
"""The limits, and layers of isolation, that this system lacks."""
_MODULE = "reward_code"


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
    pattern = StepPattern(**request["pattern"])
    _ = pattern.compiled  # also where there are no texts
    return {
        "splits": [
            ([astuple(step) for step in text.steps], text.matches, text.failed)
            for text in split(request["texts"], pattern)
        ]
    }


# --- reward functions -------------------------------------------------------------------------------------------------


def _load(request: dict[str, Any]) -> dict[str, Any]:
    function, signature = _function(request["code"], request["name"], request["kind"])
    parameters = [[one.name, one.kind.name, one.default is not one.empty] for one in signature.parameters.values()]
    return {"parameters": parameters, "async": is_async(function)}


def _score(request: dict[str, Any]) -> dict[str, Any]:
    name, sent = request["name"], request["batch"]
    function, _ = _function(request["code"], name, request["kind"])
    state = sent["trainer_state"] and SimpleNamespace(**sent["trainer_state"])
    batch = Batch(**sent | {"trainer_state": state, "log": Log()})
    # User code may raise SystemExit or KeyboardInterrupt, which must not end this process.
    scores = call_reward(name, function, batch, catch=BaseException, on_rollout=mark_prints)
    return {"scores": scores, "logged": vars(batch.log)}


@lru_cache(LOADED)
def _function(code: str, name: str, kind: RewardKind) -> tuple[Any, inspect.Signature]:
    function = as_reward(_choose(_execute(code, name, "reward"), name), kind)
    return function, read_signature(function, name)


# --- environments -----------------------------------------------------------------------------------------------------

MOST_EPISODES = 4096
"""Episodes at a time; the oldest one leaves, and is played again where it still goes on."""


@dataclass
class _Playing:
    environment: Any
    turns: int
    state: str | None


_playing: OrderedDict[str, _Playing] = OrderedDict()
"""The environments of this process: one a running episode."""


def _play(request: dict[str, Any]) -> dict[str, Any]:
    """One call of the environment that the request's code defines, whatever that raises an EpisodeError."""
    name = request["name"]
    try:
        return _play_turn(_class(request["code"], name), request)
    except EpisodeError:
        raise
    except RewardCodeError as error:
        raise EpisodeError(str(error), line=error.line) from error
    except BaseException as error:  # whatever the user's code raises
        said, line = raised(error, FILENAME)
        raise EpisodeError(f"environment {name!r} {said}", line=line) from error


def _play_turn(kind: Callable[[], Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """``describe`` the class, ``begin`` an episode, ``reply`` to its newest turn, or ``end`` it.

    Every request brings the episode's turns and hashes of what they were answered, so that a process that was replaced
    plays it again and goes on: what the environment answered then must be what it answers now.
    """
    call, episode = request["call"], str(request.get("episode"))
    if call == "describe":
        return {"stop": list(check_class(kind, request["name"]))}
    if call == "end":
        _playing.pop(episode, None)
        return {}
    turns, replies = list(request["turns"]), list(request["replies"])
    playing = _playing.get(episode)
    if playing is None or playing.turns != len(replies):
        playing = _Playing(kind(), len(replies), None)
        playing.state = begin_episode(playing.environment, request["prompt"], request["columns"])
        for turn, before in zip(turns, replies, strict=False):
            answer: Reply = answer_turn(playing.environment, turn)
            playing.state = answer.state
            if state_of(answer.text or "") != before:
                raise EpisodeError(
                    f"environment {request['name']!r}: its process was replaced in the middle of an episode, and when "
                    "its turns were played again it answered otherwise; make it answer alike to the same turns"
                )
        _playing[episode] = playing
        if len(_playing) > MOST_EPISODES:
            _playing.popitem(last=False)
    if call == "begin":
        return {"state": playing.state}
    try:
        answer = answer_turn(playing.environment, turns[-1])
    except BaseException:
        _playing.pop(episode, None)
        raise
    playing.turns += 1
    return {"text": answer.text, "state": answer.state}


@lru_cache(LOADED)
def _class(code: str, name: str) -> Any:
    return _choose(_execute(code, name, "environment"), name, "environment")


# --- code -------------------------------------------------------------------------------------------------------------


def _execute(code: str, name: str, what: str) -> ModuleType:
    module = ModuleType(f"{_MODULE}_{hashlib.sha256(code.encode(errors='surrogatepass')).hexdigest()[:8]}")
    # Where dataclasses and pickle look a class's module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, FILENAME, "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        said = f"{what} {name!r} does not compile: {syntax_said(error)}"
        raise RewardCodeError(said, reward=name, line=error.lineno) from error
    except BaseException as error:  # whatever the code's own top level raises
        said, line = raised(error, FILENAME)
        found = " (it can import what is installed, and of a --reward-file what lies beside it)"
        said += found * isinstance(error, ModuleNotFoundError)
        raise RewardCodeError(f"the code of {what} {name!r} {said}", reward=name, line=line) from error
    return module


def _choose(module: ModuleType, name: str, what: str = "reward") -> Any:
    """Return the code's reward function or environment of that name, or ``reward``, or its only public one."""
    is_one = _is_function if what == "reward" else inspect.isclass
    defined = {
        key: value
        for key, value in vars(module).items()
        if is_one(value) and getattr(value, "__module__", None) == module.__name__ and not key.startswith("_")
    }
    named = vars(module).get(name)
    if is_one(named):
        return named
    usable = [value for value in defined.values() if what == "reward" or hasattr(value, "reply")]
    if what in defined or len(usable) == 1:
        return defined.get(what, usable[0])
    wanted, nothing = f"class named {name!r} with the methods reset and reply", "no class"
    if what == "reward":
        own = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__]
        nothing = "no function" + "".join(f"; add 'reward = {one.__name__}()' below the class" for one in own)
        wanted = f"function named {name!r} (or 'reward')"
    raise RewardCodeError(f"define a {wanted}; the code defines {', '.join(defined) or nothing}", reward=name)


def _is_function(value: Any) -> bool:
    """Return whether it is a function, an object that can be called or scores, or a class of such (ms-swift's)."""
    if inspect.isclass(value):
        return is_reward_class(value)
    return callable(value) or hasattr(value, "forward") or (hasattr(value, "funcs") and hasattr(value, "weights"))


_ANSWERS = {"split": _split, "load": _load, "score": _score, "environment": _play}

if __name__ == "__main__":
    os.environ.pop("PYTHONSAFEPATH", None)
    temporary, *importable = sys.argv[1:]
    isolated = "--isolated" in importable
    MISSING += restrict(Path(temporary), [one for one in importable if one != "--isolated"], isolated=isolated)
    serve(handle)
