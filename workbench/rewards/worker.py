"""Where users' reward code and patterns run, as ``python -m workbench.rewards.worker``: a warm process and its forks.

The process imports what rewards commonly need and forks a child for each reward function, and another one for patterns,
so that no function can change what another one returns. A child seals itself (``seal``) before it serves. Code that was
trusted runs in a process without a seal, which is none of these forks (``--unsealed``). A request
names the code or the pattern each time, so a child that was replaced needs telling nothing; code it has run before is
not run again. Users' environments run in children of their own in the same way (``environments.hosted``). The parent
(``client``) keeps the deadline, and checks every reply. A child works in a folder of its own, the only one it may
write to.
"""

from __future__ import annotations

# Imported before the seal, so that a call need not wait for them. Larger libraries can still be imported after it.
import collections  # noqa: F401
import faulthandler
import fractions  # noqa: F401
import hashlib
import inspect
import itertools  # noqa: F401
import json  # noqa: F401
import math  # noqa: F401
import os
import random  # noqa: F401
import re  # noqa: F401
import statistics  # noqa: F401
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy  # noqa: F401

from workbench.child import Emitter, Handler, serve, serve_forks
from workbench.environments.hosted import Instances
from workbench.errors import EpisodeError, RewardCodeError, RewardError
from workbench.rewards.asynchronous import is_async
from workbench.rewards.protocol import (
    as_reward,
    call_outcome,
    call_steps,
    form_of,
    line_of,
    message_of,
    read_signature,
)
from workbench.rewards.seal import seal, sealed_folder, what_is_off
from workbench.rewards.wire import FILENAME, UNSEALED, packed_log, packed_signature, packed_split, unpacked_batch
from workbench.steps import StepPattern, split_leniently, split_preview

MISSING: list[str] = []
"""The layers of the seal that this system lacks."""
MOST_THREADS = 32
"""Threads that may be left when a call is over; a pool that code keeps is fine, a flood of them is not."""
_MODULE = "reward_code"
_worn: list[str] = []  # rewards that ran out of memory, which what they left behind may still hold


class WorkerExhausted(Exception):
    """This worker should be replaced; its parent does so and asks again (``ChildFailed``)."""


def start(about: Mapping[str, Any]) -> Handler:
    """Seal this process, which works in the ``folder`` of ``about`` and may import what lies in ``beside``."""
    folder = Path(about["folder"])
    if about["beside"] is not None:
        sys.path.append(about["beside"])  # before the seal, which lets what is on the path be read
    os.chdir(folder)
    os.environ.update(sealed_folder(folder))
    tempfile.tempdir = None
    MISSING.extend(seal(folder))
    return handle


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """``describe`` a function of the request's code, ``score`` a batch with it, ``split`` texts by a pattern, or play
    a turn of an ``environment``."""
    if _worn or threading.active_count() > MOST_THREADS:
        raise WorkerExhausted("earlier calls have left this worker without memory, or with threads that still run")
    if request["do"] == "isolation":
        return {"missing": MISSING}
    if request["do"] == "split":
        split = split_leniently if request["leniently"] else split_preview
        pattern = StepPattern(request["regex"], request["kind"])
        _ = pattern.compiled  # also where there are no texts
        return {"splits": [packed_split(text_split) for text_split in split(request["texts"], pattern)]}
    # Says which line a call hangs in before the parent kills this process. Nothing the code does can hold it up.
    deadline = request["deadline"]
    faulthandler.dump_traceback_later(max(deadline / 2, deadline - 0.5), file=2)
    try:
        return _played(request) if request["do"] == "environment" else _run(request)
    except RewardError as error:
        if isinstance(error.__cause__, MemoryError):
            _worn.append(error.reward or "")
        if UNSEALED not in sys.argv and (off := what_is_off(error.__cause__)):
            error.args = (f"{error} ({off} in the reward worker)",)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def _run(request: dict[str, Any]) -> dict[str, Any]:
    name = request["name"]
    function, signature = _function(request["code"], name)
    if request["do"] == "describe":
        return {"parameters": packed_signature(signature), "async": is_async(function)}
    call = call_outcome if form_of(signature) == "outcome" else call_steps
    batch = unpacked_batch(request["batch"], request["texts"])
    # User code may raise SystemExit or KeyboardInterrupt, which must not end the worker.
    scores = call(name, function, batch, catch=BaseException)
    return {"scores": scores, "logged": packed_log(batch.log)}


def _played(request: dict[str, Any]) -> dict[str, Any]:
    """One call of the environment that the request's code defines."""
    name = request["name"]
    kind = _class(request["code"], name)
    try:
        return _instances.handle(kind, name, request)
    except EpisodeError:
        raise
    except BaseException as error:  # whatever the user's code raises
        if isinstance(error, MemoryError):
            _worn.append(name)
        line = line_of(error, FILENAME)
        where = "" if line is None else f" at line {line}"
        off = what_is_off(error)
        why = f" ({off} in the reward worker)" if off else ""
        raise EpisodeError(
            f"environment {name!r} raised {type(error).__name__}{where}: {message_of(error)}{why}", line=line
        ) from error


_instances = Instances()


@cache
def _function(code: str, name: str) -> tuple[Any, inspect.Signature]:
    function = as_reward(_chosen(_executed(code, name, "reward"), name))
    return function, read_signature(function, name)


@cache
def _class(code: str, name: str) -> Any:
    """The code's class of that name, or its only public class with a method ``reply``."""
    try:
        module = _executed(code, name, "environment")
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


def _executed(code: str, name: str, what: str) -> ModuleType:
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
        raise RewardCodeError(
            f"the code of {what} {name!r} raised {type(error).__name__}{where}: {message_of(error)}{_found(error)}",
            reward=name,
            line=line,
        ) from error
    return module


def _found(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return " (it can import what is installed, and of a --reward-file what lies beside it)"


def _chosen(module: ModuleType, name: str) -> Any:
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
    """Return whether it is a function, or an object that can be called or has ``forward``; a class is neither."""
    return not inspect.isclass(value) and (callable(value) or callable(getattr(value, "forward", None)))


def main(arguments: Sequence[str]) -> NoReturn:
    if UNSEALED not in arguments:
        serve_forks(start)
    if os.getcwd() not in sys.path:  # the user's own modules, which PYTHONSAFEPATH leaves out
        sys.path.insert(0, os.getcwd())
    sys.path += arguments[1:]  # the folder of the file that the code was read from
    serve(handle)


if __name__ == "__main__":
    main(sys.argv[1:])
