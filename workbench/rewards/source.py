"""Static analysis of reward code: its function, the kind and the docstring, without running it.

All of it is a guess for the page and the command line to start from; what counts is what the worker finds when it runs
the code (``client``). Code that does not parse has no answers.
"""

from __future__ import annotations

import ast
import threading
from functools import lru_cache

from workbench.schema import RewardKind

Functions = tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of all threads' syntax trees together, and fails when two are built at once."""


def functions_in(code: str) -> Functions:
    """The functions at the top level of the code, in order; none where it does not parse."""
    try:
        with _PARSING:
            return _parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


@lru_cache(maxsize=64)  # the page asks at every key, of every row, though one row changes at most
def _parsed(code: str) -> Functions:
    return tuple(node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def kind_in(code: str, name: str) -> RewardKind | None:
    """The kind of the function ``name`` (or ``reward``, or the only public one) by its parameters; None for no such."""
    function = _chosen(code, name)
    if function is None:
        return None
    arguments = function.args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return "step" if names & {"step", "steps"} else "outcome"


def chosen_function(code: str, name: str) -> str | None:
    """The name of the function that the worker would choose for the reward ``name``; None for none."""
    function = _chosen(code, name)
    return None if function is None else function.name


def reward_functions(code: str) -> list[str]:
    """The functions of the code that have a reward's parameters: pasted recipes often hold several."""
    parameter_sets = ({"completions"}, {"prompt", "step"}, {"steps"})
    names_found = []
    for function in functions_in(code):
        names = {
            argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        }
        if function.args.kwarg is not None and any(names >= some for some in parameter_sets):
            names_found.append(function.name)
    return names_found


def _chosen(code: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function that the worker would choose."""
    functions = {function.name: function for function in functions_in(code)}
    public = [function for key, function in functions.items() if not key.startswith("_")]
    only = public[0] if len(public) == 1 else None
    return functions.get(name) or functions.get("reward") or only
