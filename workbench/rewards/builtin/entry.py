"""Metadata and source of a built-in reward function, the source also with other options as defaults.

A built-in stands alone: its source, shown in the page's editor, runs when pasted anywhere where the workbench is
installed. So imports and helpers live inside the functions, annotations use only names that are always there, and of
the workbench only ``workbench.answers`` is imported. Their signatures are those of a user's own
functions (see ``protocol``); keyword-only parameters with a default are options.

The functions of ``trl.rewards`` are built-ins, too, as ``trl:accuracy_reward``. TRL is not imported here: the few lines
that do are written as text and run in the sandbox, in a preview and in a run alike; loading ``trl.rewards`` there
takes a fraction of a second and no torch.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workbench.errors import RewardCodeError, did_you_mean
from workbench.rewards.protocol import columns_of
from workbench.schema import RewardKind

OptionValue = bool | int | float | str
_TYPES: dict[type, tuple[type, ...]] = {bool: (bool,), int: (int, float), float: (int, float), str: (str,)}
"""Of an option's default → of the values it takes."""


@dataclass(frozen=True)
class Builtin:
    """A reward function that comes with the workbench.

    ``low`` and ``high`` bound its scores (infinite where nothing does) and ``reference`` says where it comes from.
    ``in_worker`` marks what must not run in the page's own process: it loads a large library, or can take for ever.
    One that exists only as ``text`` has no ``function``. ``judged_by`` says, where it is easily mistaken, what a score
    goes by; the page shows it beside the reward.
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
    judged_by: str = ""

    @cached_property
    def source(self) -> str:
        """Its code, which runs on its own."""
        if self.function is None:
            return self.text
        return inspect.getsource(self.function)

    def function_with(self, options: Mapping[str, OptionValue]) -> Any:
        """Return the function with these options, run from its source, so that an error names the line of an editor."""
        source, name = self.source_with(options), f"<{self.name}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        defined = {"__name__": __name__}
        exec(compile(source, name, "exec", dont_inherit=True), defined)
        return defined[self.name]

    @cached_property
    def options(self) -> dict[str, OptionValue]:
        """Option name → default."""
        return {name: ast.literal_eval(default) for name, default in _defaults(self.source).items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it needs: its parameters without a default or with None."""
        if self.function is None:
            return ()
        signature = inspect.signature(self.function)
        return (*columns_of(signature), *(one.name for one in signature.parameters.values() if one.default is None))

    @property
    def range(self) -> str:
        """Its bounds in words: "0 to 2"."""
        below, above = math.isfinite(self.low), math.isfinite(self.high)
        if below and above:
            return f"{self.low:g} to {self.high:g}"
        return f"from {self.low:g}" if below else f"up to {self.high:g}" if above else "no bound"

    def check(self, options: Mapping[str, OptionValue]) -> None:
        """Raises RewardCodeError for an option it does not have, or a value of another type than its default."""
        for name, value in options.items():
            if name not in self.options:
                has = f"it has {', '.join(self.options)}" if self.options else "it has none"
                guess = did_you_mean(name, self.options)
                raise RewardCodeError(f"reward {self.name!r} has no option {name!r}{guess}; {has}", reward=self.name)
            expected = _TYPES[type(self.options[name])]
            if not isinstance(value, expected) or isinstance(value, bool) is not (bool in expected):
                raise RewardCodeError(
                    f"reward {self.name!r}: {name} is {value!r}; its default is {self.options[name]!r}, give a value "
                    "of that type",
                    reward=self.name,
                )

    def option_of_text(self, name: str, text: str) -> OptionValue:
        """What text from a shell means for an option. Raises RewardCodeError where it fits neither name nor type."""
        value: OptionValue = text
        if not isinstance(self.options.get(name, ""), str):
            with suppress(ValueError, SyntaxError):
                value = ast.literal_eval(text.title() if text.lower() in ("true", "false") else text)
        self.check({name: value})
        return value

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


def _defaults(source: str) -> dict[str, ast.expr]:
    """The keyword-only parameters of the source's last function, with the node of each default."""
    function = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {parameter.arg: default for parameter, default in pairs if default is not None}


# --- the functions of trl.rewards ---------------------------------------------------------------------------------

PREFIX = "trl:"
_LINK = "https://huggingface.co/docs/trl/rewards"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")

_TEXT = '''def {short}(prompts, completions, completion_ids=None,{parameters} **columns):
    """{about}"""
    from trl.rewards import {name}

    score = {name}{arguments}
    if "solution" not in columns and "answer" in columns:  # TRL's name for the right answer
        columns["solution"] = columns["answer"]
    chat = [[{{"role": "assistant", "content": text}}] if isinstance(text, str) else text for text in completions]
    return score(prompts=prompts, completions=chat, completion_ids=completion_ids, **columns)
'''


def trl_function(
    name: str,
    about: str = "",
    low: float = -float("inf"),
    high: float = float("inf"),
    options: Mapping[str, OptionValue] | None = None,
) -> Builtin:
    """The function ``name`` of ``trl.rewards`` as a built-in; ``options`` are the arguments of one that makes another.

    Raises RewardCodeError for what cannot be a function's name. Whether TRL has it, the worker finds out.
    """
    if not _NAME.fullmatch(name):
        raise RewardCodeError(
            f"'{PREFIX}{name[:80]}' names no function; write {PREFIX} and a name of trl.rewards, "
            f"{PREFIX}accuracy_reward for one"
        )
    about = about or f"TRL's {name}"
    text = _TEXT.format(
        name=name,
        short=name.removeprefix("get_") if options else name,
        about=about,
        parameters=f" *, {', '.join(f'{key}={value!r}' for key, value in options.items())}," if options else "",
        arguments=f"({', '.join(f'{key}={key}' for key in options)})" if options else "",
    )
    return Builtin(PREFIX + name, "outcome", None, about, low, high, f"trl.rewards.{name}, {_LINK}", True, text)


TRL_FUNCTIONS: tuple[Builtin, ...] = (
    trl_function("accuracy_reward", "TRL: 1 if math-verify finds the LaTeX answer equal to `solution`, else 0", 0, 1),
    trl_function(
        "reasoning_accuracy_reward",
        "TRL: the same for the text after </think>; 0 for reasoning that does not end",
        0,
        1,
    ),
    trl_function("think_format_reward", "TRL: 1 for reasoning in <think> tags from the start, else 0", 0, 1),
    trl_function(
        "get_cosine_scaled_reward",
        "TRL: right or wrong, scaled along a cosine of the length in tokens",
        -1,
        1,
        {
            "max_len": 128,
            "min_value_wrong": -1.0,
            "max_value_wrong": -0.5,
            "min_value_correct": 0.5,
            "max_value_correct": 1.0,
        },
    ),
    trl_function(
        "get_repetition_penalty_reward",
        "TRL: minus the share of repeated token n-grams",
        -1,
        0,
        {"ngram_size": 3, "max_penalty": -1.0},
    ),
    trl_function(
        "get_soft_overlong_punishment",
        "TRL: DAPO's overlong penalty in tokens",
        -1,
        0,
        {"max_completion_len": 128, "soft_punish_cache": 32},
    ),
)
