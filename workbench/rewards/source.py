"""Source code of rewards: what it defines, without running it, and the files of the workspace that hold one's own.

What code defines is a guess for the page and the command line to start from; what counts is what the sandbox finds when
it runs the code. Code that does not parse has no answers.
"""

import ast
import inspect
import math
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import model_validator

from workbench.config.reading import read_text
from workbench.config.rewards import RewardSection
from workbench.errors import ConfigError, RewardCodeError, RewardError, cut, quote
from workbench.files import replace_file
from workbench.places import SHIPPED_ONLY
from workbench.rewards.builtin import find_builtin
from workbench.rewards.others import scores_steps, tool_of
from workbench.rewards.protocol import form_of, kind_of, step_arguments
from workbench.schema import RewardKind

Functions = tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of all threads' syntax trees together, and fails when two are built at once."""


def functions_in(code: str) -> Functions:
    """Return the functions at the top level of the code, in order; none where it does not parse.

    A class whose objects are called with completions is one, too: its ``__call__`` under the class's name.
    """
    try:
        body = _parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name == "__call__":
                    called = deepcopy(method)
                    called.name, called.args.args = node.name, called.args.args[1:]
                    if "completions" in _signature(called).parameters:
                        found.append(called)
    return tuple(found)


@lru_cache(maxsize=64)  # the page asks at every key, of every row, though one row changes at most
def _parse(code: str) -> ast.Module:
    with _PARSING:
        return ast.parse(code)


def syntax_said(error: SyntaxError) -> str:
    text = f": {error.text.strip()[:80]}" if error.text else ""
    return error.msg + ("" if error.lineno is None else f" at line {error.lineno}") + text


def function_of_file(code: str, file: Path, wanted: str = "") -> str:
    """Return the name of the reward that ``file`` defines: its own, or that of the only function that can be a reward.

    Where a function is ``wanted`` by name, return that.

    Raises RewardCodeError for code that does not parse, with the line, and where there is no function or several.
    """
    try:
        module = _parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said, line = (syntax_said(error), error.lineno) if isinstance(error, SyntaxError) else (str(error), None)
        raise RewardCodeError(f"it does not compile: {said}", line=line) from error
    functions = [function.name for function in functions_in(code)]
    names = reward_functions(code) or [name for name in functions if name[:1] != "_"]
    if wanted in functions or (not wanted and choose_function(code, file.stem) is not None):
        return wanted or file.stem
    if len(names) == 1 and not wanted:
        return names[0]
    values = (getattr(node, "value", node) for node in module.body if isinstance(node, ast.Assign | ast.ClassDef))
    assigns = any(
        isinstance(value, ast.Call | ast.Lambda | ast.Name | ast.Attribute | ast.ClassDef) for value in values
    )
    if assigns and (wanted or not names):
        return wanted or file.stem  # an object that scores, say: only running the code can tell
    if names:
        raise RewardCodeError(f"it defines {', '.join(names)}; name one: {file}::{names[0]}")
    raise RewardCodeError("it defines no function; write 'def reward(prompt, step, **columns)' that returns a score")


def reward_in_file(text: str) -> dict[str, Any]:
    """Return the name, kind, code and folder of the reward that ``FILE.py`` or ``FILE.py::NAME`` names.

    Raises ConfigError for a file that cannot be read, and where it defines no such function.
    """
    path, _, wanted = text.partition("::")
    file = Path(path).expanduser()
    code = read_text(file, f"the reward's file {cut(path, 300)}")
    try:
        name = function_of_file(code, file, wanted)
    except RewardCodeError as error:
        raise ConfigError(f"{cut(path, 300)}: {error}") from error
    folder, imports = file.resolve().parent, " ".join(re.findall(r"(?m)^\s*(?:from|import) (.*)", code))
    names = re.findall(r"\w+", imports)
    is_needed = any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in names)
    beside = {"folder": str(folder)} if is_needed else {}  # the code imports what lies beside it
    return {"name": name, "kind": kind_in(code, name) or "step", "code": code, **beside}


def kind_in(code: str, name: str) -> RewardKind | None:
    """The kind of the function ``name`` (or ``reward``, or the only public one) by its parameters; None for no such."""
    function = choose_function(code, name)
    if function is None:  # of verifiers, or an object of a class of one's own
        scores = rf"(?m)^{re.escape(name)}\s*=.*Rubric\(|def __call__\(self,.*\bcompletions\b"
        return "outcome" if re.search(scores, code) else None
    signature = _signature(function)
    return "step" if scores_steps(signature, ast.unparse(function)) else kind_of(form_of(signature))


def reward_functions(code: str) -> list[str]:
    """The functions of the code that have a reward's parameters: pasted recipes often hold several."""
    found = []
    for function in functions_in(code):
        signature = _signature(function)
        names = signature.parameters.keys()
        named = any(names >= some for some in ({"completions"}, {"prompt", "step"}, {"steps"}))
        if (function.args.kwarg and named) or step_arguments(signature, by_name=True) or tool_of(signature):
            found.append(function.name)
    return found


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> inspect.Signature:
    """Return the function's parameters by name, which have a default (an Ellipsis here), and what it returns, as text.

    Runs none of its code.
    """
    given = deepcopy(function.args)
    for parameter in ast.walk(given):
        if isinstance(parameter, ast.arg):
            parameter.annotation = None
    given.defaults = [ast.Constant(...) for _ in given.defaults]
    given.kw_defaults = [default and ast.Constant(...) for default in given.kw_defaults]
    returns = function.returns and ast.unparse(function.returns)
    return inspect.signature(eval(f"lambda {ast.unparse(given)}: 0")).replace(return_annotation=returns)


def choose_function(code: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function that the sandbox would choose for the reward ``name``; None for none."""
    functions = {function.name: function for function in functions_in(code)}
    public = [function for key, function in functions.items() if not key.startswith("_")]
    only = public[0] if len(public) == 1 else None
    return functions.get(name) or functions.get("reward") or only


class RewardConfig(RewardSection):
    """A reward of a run. Its kind is by default what its function does; ``name`` may be FILE.py::NAME."""

    @model_validator(mode="before")
    @classmethod
    def _read_the_function(cls, data: Any) -> Any:
        if callable(data):
            name = getattr(data, "__name__", "reward")
            raise ValueError(
                f"a run is a process of its own, which takes source and no function; give RewardConfig(name={name!r}, "
                f"code=inspect.getsource({name})), or train in this process with ProcessGRPOTrainer"
            )
        if not isinstance(data, Mapping):
            return data
        data = {name: value for name, value in data.items() if name != "trusted"}  # which version 0.4 said of functions
        name = data.get("name")
        if isinstance(name, str) and ".py" in name and not data.get("code") and not os.environ.get(SHIPPED_ONLY):
            found = reward_in_file(name)
            data = {**found, **data, "name": found["name"]}
        is_function = not any(data.get(part) for part in ("model", "judge", "monte_carlo", "belief"))
        name, code = data.get("name"), data.get("code")
        if is_function and "kind" not in data and isinstance(name, str):
            with suppress(RewardCodeError):  # it is refused where it is loaded
                data["kind"] = kind_in(code, name) or "step" if isinstance(code, str) else find_builtin(name).kind
        return data


# --- one's own functions: <workspace>/rewards/NAME.py -----------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
LARGEST = 256 * 1024
"""Bytes of code that are saved at most."""


def saved_rewards(workspace: Path) -> list[str]:
    """Return the names of the saved functions, in order."""
    return sorted(path.stem for path in (workspace / "rewards").glob("*.py") if _NAME.fullmatch(path.stem))


def save_reward(workspace: Path, name: str, code: str) -> Path:
    """Write code to the function's file, in place of what it held.

    Raises RewardCodeError for a name or a size that will not do, and OSError where the disk refuses.
    """
    if not _NAME.fullmatch(name):
        raise RewardCodeError(
            f"{name[:100]!r} cannot be a saved reward's name; use 1 to 80 letters, digits and underscores", reward=name
        )
    path = workspace / "rewards" / f"{name}.py"
    data = code.encode("utf-8", "replace")
    if not data.strip() or len(data) > LARGEST:
        raise RewardCodeError(f"reward {name!r} has {len(data):,} bytes of code; save 1 to {LARGEST:,}", reward=name)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
    return path


# --- a step reward with some of its labels wrong ------------------------------------------------------------------

# The wrong labels are those of a judge, not of a coin that is thrown anew at every look: whether a step's label is
# turned follows from the prompt, the text up to the step's end and a seed, so that an answer is always judged alike.

_WRAPPED = '''

def {name}(prompts, completions, steps, **columns):
    """``{right}`` with the label of {share:.0%} of the steps turned, 1 - score, as seed {seed} has it."""
    import random

    from workbench.rewards.protocol import Batch, call_reward

    turned = []
    right = call_reward("{right}", {right}, Batch(prompts, completions, columns, steps))
    for prompt, row, scores in zip(prompts, steps, right):
        read, judged = str(prompt), []
        for text, score in zip(row, scores):
            read += text
            turn = score is not None and random.Random("{seed} " + read).random() < {share!r}
            judged.append(1 - score if turn else score)
        turned.append(judged)
    return turned
'''


def with_wrong_labels(reward: str, share: float, *, seed: int = 0, weight: float = 1.0) -> RewardConfig:
    """The built-in step reward ``reward`` with a ``share`` of its labels turned from r to 1 - r.

    Raises RewardError for a reward that does not score steps from 0 to 1, and for a share that is none.
    """
    builtin = find_builtin(reward)
    if builtin.kind != "step" or (builtin.low, builtin.high) != (0, 1):
        raise RewardError(f"{reward!r} scores no steps from 0 to 1, so that no label can be turned; give another")
    if not (math.isfinite(share) and 0 <= share <= 1):
        raise RewardError(f"share is {quote(share)}; give the part of the labels that are wrong, from 0 to 1")
    name = f"wrong_{reward}"
    wrapped = _WRAPPED.format(name=name, right=reward, share=float(share), seed=int(seed))
    return RewardConfig(name=name, kind="step", weight=weight, code=builtin.source + wrapped)
