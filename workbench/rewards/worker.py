"""The reward worker: runs users' reward code in a process of its own, as ``python -m workbench.rewards.worker``.

A request names the code each time, so a worker that was replaced needs telling nothing; code it has run before is not
run again. The parent (``client``) keeps the deadline, and checks every reply.
"""

from __future__ import annotations

import faulthandler
import inspect
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

from workbench.child import Emitter, serve
from workbench.errors import RewardCodeError
from workbench.rewards.client import FILENAME
from workbench.rewards.protocol import Batch, call_outcome, call_steps, form_of, line_of, message_of, read_signature

_MODULE = "reward_code"


def handle(request: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """``describe`` a function of the request's code, or ``score`` a batch with it."""
    # Says which line a call hangs in before the parent kills this process. Nothing the code does can hold it up.
    deadline = request["deadline"]
    faulthandler.dump_traceback_later(max(deadline / 2, deadline - 0.5), file=2)
    try:
        name = request["name"]
        function = _function(request["code"], name)
        signature = read_signature(function, name)
        if request["do"] == "describe":
            return {
                "parameters": [
                    [one.name, one.kind.name, one.default is not one.empty] for one in signature.parameters.values()
                ]
            }
        call = call_outcome if form_of(signature) == "outcome" else call_steps
        # User code may raise SystemExit or KeyboardInterrupt, which must not end the worker.
        return {"scores": call(name, function, Batch(**request["batch"]), catch=BaseException)}
    finally:
        faulthandler.cancel_dump_traceback_later()


@lru_cache(maxsize=32)
def _function(code: str, name: str) -> Any:
    return _chosen(_executed(code, name), name)


def _executed(code: str, name: str) -> ModuleType:
    module = ModuleType(_MODULE)
    # Where dataclasses and pickle look a class's module up.
    sys.modules[_MODULE] = module
    try:
        exec(compile(code, FILENAME, "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        where = "" if error.lineno is None else f" at line {error.lineno}"
        text = f": {error.text.strip()[:80]}" if error.text else ""
        raise RewardCodeError(
            f"reward {name!r} does not compile: {error.msg}{where}{text}",
            reward=name,
            line=error.lineno,
        ) from error
    except BaseException as error:  # whatever the code's own top level raises
        line = line_of(error, FILENAME)
        where = "" if line is None else f" at line {line}"
        raise RewardCodeError(
            f"the code of reward {name!r} raised {type(error).__name__}{where}: {message_of(error)}",
            reward=name,
            line=line,
        ) from error
    return module


def _chosen(module: ModuleType, name: str) -> Any:
    """The code's function of that name, or ``reward``, or its only public function."""
    defined = {
        key: value
        for key, value in vars(module).items()
        if _is_function(value) and getattr(value, "__module__", None) == _MODULE and not key.startswith("_")
    }
    named = vars(module).get(name)
    if _is_function(named):
        return named
    if "reward" in defined:
        return defined["reward"]
    if len(defined) == 1:
        return next(iter(defined.values()))
    found = ", ".join(defined) or "no function"
    raise RewardCodeError(f"define a function named {name!r} (or 'reward'); the code defines {found}", reward=name)


def _is_function(value: Any) -> bool:
    return callable(value) and not inspect.isclass(value)


if __name__ == "__main__":
    serve(handle)
