"""What is known of a built-in reward function, and its source with other options written in.

A built-in stands alone: its source, shown in the page's editor, runs when pasted anywhere. So imports and helpers live
inside the functions, and annotations use only names that are always there. Their signatures are those of a user's own
functions (see ``protocol``); keyword-only parameters with a default are options.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from workbench.errors import RewardCodeError
from workbench.schema import RewardKind

OptionValue = bool | int | float | str


@dataclass(frozen=True)
class Builtin:
    """A reward function that comes with the workbench.

    ``low`` and ``high`` bound its scores (infinite where nothing does) and ``reference`` says where it comes from.
    ``in_worker`` marks what must not run in the page's own process: it loads a large library, or can take for ever.
    One that exists only as ``text`` has no ``function``.
    """

    name: str
    kind: RewardKind
    function: Callable[..., Any] | None
    description: str
    low: float
    high: float
    reference: str
    in_worker: bool = False
    text: str = ""

    @cached_property
    def source(self) -> str:
        """Its code, which runs on its own."""
        if self.function is None:
            return self.text
        return inspect.getsource(self.function)

    @cached_property
    def called(self) -> Callable[..., Any] | None:
        """``function``, its lines numbered as in ``source``, so that an error names the line that an editor shows."""
        return None if self.function is None else _numbered_from_one(self.function)

    @cached_property
    def options(self) -> dict[str, OptionValue]:
        """Option name → default."""
        return {name: ast.literal_eval(default) for name, default in _defaults(self.source).items()}

    @property
    def range(self) -> str:
        """Its bounds in words: "0 to 2"."""
        below, above = math.isfinite(self.low), math.isfinite(self.high)
        if below and above:
            return f"{self.low:g} to {self.high:g}"
        return f"from {self.low:g}" if below else f"up to {self.high:g}" if above else "no bound"

    def check(self, options: Mapping[str, OptionValue]) -> None:
        """Raises RewardCodeError for an option it does not have."""
        if unknown := [name for name in options if name not in self.options]:
            has = f"it has {', '.join(self.options)}" if self.options else "it has none"
            raise RewardCodeError(f"reward {self.name!r} has no option {unknown[0]!r}; {has}", reward=self.name)

    def source_with(self, options: Mapping[str, OptionValue]) -> str:
        """Its code with these options as the defaults. Raises RewardCodeError for an option it does not have."""
        self.check(options)
        source = self.source
        lines = source.encode().splitlines(keepends=True)  # ast counts bytes
        changed = {name: node for name, node in _defaults(source).items() if name in options}
        for name, node in sorted(changed.items(), key=lambda item: (item[1].lineno, item[1].col_offset), reverse=True):
            assert node.end_col_offset is not None
            line = lines[node.lineno - 1]
            value = repr(options[name]).encode()
            lines[node.lineno - 1] = line[: node.col_offset] + value + line[node.end_col_offset :]
        return b"".join(lines).decode()


def _numbered_from_one(function: Callable[..., Any]) -> Callable[..., Any]:
    shift = function.__code__.co_firstlineno - 1

    def moved(code: CodeType) -> CodeType:
        inner = tuple(moved(one) if isinstance(one, CodeType) else one for one in code.co_consts)
        return code.replace(co_firstlineno=code.co_firstlineno - shift, co_consts=inner)

    copy = FunctionType(moved(function.__code__), function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__doc__ = function.__doc__
    return copy


def _defaults(source: str) -> dict[str, ast.expr]:
    """The keyword-only parameters of the source's last function, with the node of each default."""
    function = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {parameter.arg: default for parameter, default in pairs if default is not None}
