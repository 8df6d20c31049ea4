"""The reward functions that come with the workbench: ``BUILTINS`` lists them, ``find_builtin`` knows TRL's too.

``answers`` judges final answers and the shape of completions, ``steps`` the work.

A built-in stands alone: its source, shown in the page's editor, runs when pasted anywhere where the workbench is
installed. So imports and helpers live inside the functions, annotations use only names that are always there, and of
the workbench only ``workbench.rewards.answers`` and ``workbench.rewards.sums`` are imported. Their signatures are those
of a user's own functions (see ``protocol``); keyword-only parameters with a default are options.

The functions of ``trl.rewards`` are built-ins, too, as ``trl:accuracy_reward``. TRL is not imported here: the few lines
that do are written as text and run in the sandbox, in a preview and in a run alike; loading ``trl.rewards`` there
takes a fraction of a second and no torch.
"""

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

from workbench.errors import RewardCodeError, did_you_mean, quote
from workbench.rewards.builtin.answers import (
    countdown_equation,
    gsm8k_answer,
    gsm8k_correctness,
    gsm8k_integer,
    gsm8k_soft_format,
    gsm8k_strict_format,
    gsm8k_xml_count,
    length_target,
    math_equality,
    overlong,
    qwen3_answer,
    qwen3_format_approximate,
    qwen3_format_exact,
    repetition,
    think_format,
)
from workbench.rewards.builtin.steps import (
    answer_correctness,
    answer_follows,
    calculator_notes,
    call_needed,
    call_parses,
    given_labels,
    given_reward,
    length_and_mistake,
    observation_used,
    step_correctness,
    sums_hold,
    tag_format,
    turns_penalty,
)
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
        """The columns of the data without which it cannot be called."""
        return () if self.function is None else columns_of(inspect.signature(self.function))

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
        """Return the option that a shell's text means. Raises RewardCodeError if it fits neither name nor type."""
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
        for name, value in options.items():
            default = re.compile(rf"(\b{name}(?:: \w+)? ?= ?)[^,]+")
            source = default.sub(rf"\g<1>{value!r}", source, count=1)  # the first one stands in the signature
        return source


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

_NO_BOUND = float("inf")
_OURS = "chain-arithmetic task"
_GSM8K = "GSM8K GRPO recipe, https://gist.github.com/willccbb/4676755236bb08cab5f4e54a0475d6fb"
_COBBE = "GSM8K's own notation, Cobbe et al. 2021, https://github.com/openai/grade-school-math"
_FILE = "the imported file"
_TURNS = "calculator task"
_QWEN3 = "Qwen3-4B-Base GRPO recipe, https://docs.unsloth.ai/get-started/reinforcement-learning-rl-guide"

BUILTINS: dict[str, Builtin] = {
    builtin.name: builtin
    for builtin in (
        Builtin(
            "step_correctness",
            "step",
            step_correctness,
            "Chain arithmetic: 1 for a right step, else 0",
            0,
            1,
            _OURS,
            judged_by="judged by the line before",
        ),
        Builtin(
            "answer_correctness", "outcome", answer_correctness, "1 if the final answer is right, else 0", 0, 1, _OURS
        ),
        Builtin(
            "answer_follows",
            "outcome",
            answer_follows,
            "1 if the final answer is the last result before it, else 0",
            0,
            1,
            "agreement of reasoning and answer",
        ),
        Builtin(
            "tag_format", "outcome", tag_format, "0.5 for one reasoning and one answer in tags, else 0", 0, 0.5, _OURS
        ),
        Builtin(
            "length_and_mistake",
            "step",
            length_and_mistake,
            "0.01 a character, less 0.3 for the word mistake",
            -0.3,
            _NO_BOUND,
            "the articles' demonstration scorer",
        ),
        Builtin("gsm8k_correctness", "outcome", gsm8k_correctness, "2 if the <answer> is right, else 0", 0, 2, _GSM8K),
        Builtin("gsm8k_integer", "outcome", gsm8k_integer, "0.5 if the <answer> is an integer, else 0", 0, 0.5, _GSM8K),
        Builtin("gsm8k_strict_format", "outcome", gsm8k_strict_format, "0.5 for the tags line by line", 0, 0.5, _GSM8K),
        Builtin("gsm8k_soft_format", "outcome", gsm8k_soft_format, "0.5 for the tags in order", 0, 0.5, _GSM8K),
        Builtin("gsm8k_xml_count", "outcome", gsm8k_xml_count, "0.125 for each of four tags", 0, 0.5, _GSM8K),
        Builtin(
            "qwen3_format_exact", "outcome", qwen3_format_exact, "3 for working out and solution in tags", 0, 3, _QWEN3
        ),
        Builtin(
            "qwen3_format_approximate",
            "outcome",
            qwen3_format_approximate,
            "0.5 for each of three tags, −1 for each missing or repeated",
            -3,
            1.5,
            _QWEN3,
        ),
        Builtin(
            "qwen3_answer",
            "outcome",
            qwen3_answer,
            "5 right, 3.5 written otherwise, 2 or 1.5 near, else −2.5",
            -4.5,
            5,
            _QWEN3,
        ),
        Builtin(
            "length_target",
            "outcome",
            length_target,
            "−|target − length| in characters",
            -_NO_BOUND,
            0,
            "short-story recipe with SmolLM-135M, https://huggingface.co/learn/llm-course/chapter12/5",
        ),
        Builtin(
            "overlong",
            "outcome",
            overlong,
            "0, falling to −1 near the longest completion",
            -1,
            0,
            "DAPO, arXiv 2503.14476, equation 13",
        ),
        Builtin(
            "repetition",
            "outcome",
            repetition,
            "minus the share of repeated word n-grams",
            -1,
            0,
            "arXiv 2502.03373, appendix C.2; open-r1",
        ),
        Builtin(
            "think_format",
            "outcome",
            think_format,
            "1 for thinking that ends with </think> before the answer, else 0",
            0,
            1,
            "DeepSeek-R1, arXiv 2501.12948, section 2.2.2",
        ),
        Builtin(
            "math_equality",
            "outcome",
            math_equality,
            "1 if math-verify finds the answer equal, else 0",
            0,
            1,
            "math-verify, https://github.com/huggingface/Math-Verify",
            in_worker=True,
        ),
        Builtin(
            "countdown_equation",
            "outcome",
            countdown_equation,
            "1 for a sum of all numbers that reaches the target, 0.1 for another answer, else 0",
            0,
            1,
            "TinyZero, https://github.com/Jiayi-Pan/TinyZero",
        ),
        Builtin(
            "calculator_notes",
            "step",
            calculator_notes,
            "1 if a step's notes <<16-3=13>> are right, else 0",
            0,
            1,
            _COBBE,
        ),
        Builtin(
            "sums_hold", "step", sums_hold, "the share of a step's equations that hold", 0, 1, "equations in prose"
        ),
        Builtin("call_parses", "step", call_parses, "1 if a turn's calls can be read, else 0", 0, 1, _TURNS),
        Builtin(
            "call_needed", "step", call_needed, "1 for a call that the answer needs, made once, else 0", 0, 1, _TURNS
        ),
        Builtin(
            "observation_used", "step", observation_used, "1 if a turn has the number it was told, else 0", 0, 1, _TURNS
        ),
        Builtin("turns_penalty", "step", turns_penalty, "−1 for each turn after the free ones", -1, 0, _TURNS),
        Builtin("gsm8k_answer", "outcome", gsm8k_answer, "1 if the number after #### or A: is right", 0, 1, _COBBE),
        Builtin(
            "given_reward",
            "outcome",
            given_reward,
            "Imported rollouts: the file's own reward",
            -_NO_BOUND,
            _NO_BOUND,
            _FILE,
        ),
        Builtin(
            "given_labels", "step", given_labels, "Imported rollouts: the file's own label of each step", 0, 1, _FILE
        ),
        *TRL_FUNCTIONS,
    )
}
"""Name → built-in reward function."""


def find_builtin(name: str) -> Builtin:
    """A built-in by name; ``trl:NAME`` is any function of ``trl.rewards``. Raises RewardCodeError for another name."""
    if name in BUILTINS:
        return BUILTINS[name]
    if name.startswith(PREFIX):
        return trl_function(name.removeprefix(PREFIX))
    raise RewardCodeError(
        f"no built-in reward is named {quote(name)}{did_you_mean(name, BUILTINS)}; choose one of "
        f"{', '.join(BUILTINS)}, or give its code",
        reward=name,
    )


__all__ = [
    "BUILTINS",
    "Builtin",
    "OptionValue",
    "answer_correctness",
    "find_builtin",
    "length_and_mistake",
    "step_correctness",
    "tag_format",
]
