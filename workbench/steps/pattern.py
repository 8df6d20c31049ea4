"""A step pattern: a regular expression and what a match of it means, or numbers that tokens are compared with.

Patterns are the ``regex`` package's, because its matching can be given a time limit and lets other threads run. Its
compiler has neither: it writes out what is repeated (``(a{1000}){1000}`` takes 270 MB), so that is counted before.
Patterns of a page or run are compiled in its sandbox. Below the patterns stand the presets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, fields
from functools import lru_cache
from typing import Annotated, Any, Literal

import regex as rx
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from workbench.errors import PatternError, PatternSyntaxError, quote

PatternKind = Literal["starts", "ends", "is", "turns", "surprise", "entropy", "tokens"]
NUMBERS: Mapping[str, str] = {
    "surprise": "a probability between 0 and 1, and how many tokens below it make a step: 0.9 5, or 0.9 for each",
    "entropy": "an entropy in nats, and how many tokens a step has at least: 1.5 10, or 1.5",
    "tokens": "the number of tokens in a step: 32",
}
"""What the text of a pattern of these kinds is, which read no text; ``split_by_tokens`` says how they cut."""
MAX_BYTES = 10_000
MAX_REPEATED = 100_000
"""Characters and sets that a pattern may come to with its repetitions written out, of some 300 bytes each."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class StepPattern:
    """``regex`` and what its match is: it ``starts`` a step, ``ends`` one, or ``is`` one.

    The name of a preset alone, ``StepPattern("step-n")``, is that preset's pattern (``PRESETS``).
    With the kind ``turns`` every turn of an episode is a step, whatever the regex; an answer of one turn is one step.
    The kinds ``surprise``, ``entropy`` and ``tokens`` have ``numbers`` for a regex (``split_by_tokens``).
    ``leave_out_thinking`` looks for steps in the answer after a ``<think>`` block alone (``schema.rollouts``).
    With a named group ``step`` that group's start, end or span counts instead of the match's. The pattern is compiled
    on first use, which raises PatternSyntaxError where it is wrong and PatternError where it cannot be used. Raises
    ValueError for an unknown kind.
    """

    regex: str = r"(?m)^(?:Step \d+|Answer):"
    """Regular expression (the `regex` package's syntax) that finds the steps of an answer; numbers for the kinds
    surprise, entropy and tokens (0.9 5, 1.5 10, 32)."""
    kind: PatternKind = "starts"
    """What a match is: it starts a step, ends one, or is one. Without a regex every turn of an episode is a step
    (turns), or steps end before improbable tokens (surprise) or uncertain ones (entropy), or have so many tokens
    (tokens)."""
    _: KW_ONLY
    leave_out_thinking: Annotated[bool, Field(title="Leave out <think> blocks")] = False
    """Leave <think> blocks out of the steps, and out of what reward functions read."""

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, given: Any) -> Any:
        values = dict(given) if isinstance(given, Mapping) else {**dict(enumerate(given.args)), **(given.kwargs or {})}
        preset = PRESETS.get(str(values.get(0, values.get("regex")))) if len(values) == 1 else None
        return given if preset is None else asdict(preset.pattern)

    def __str__(self) -> str:
        """The pattern in words: its regex, its kind and the switches that are on."""
        switches = [one.name.replace("_", " ") for one in fields(self)[2:] if getattr(self, one.name)]
        return f"{self.regex} ({', '.join([self.kind, *switches])})"

    @property
    def by_tokens(self) -> bool:
        """Return whether it is compared with a completion's tokens, not looked for in its text."""
        return self.kind in NUMBERS

    @property
    def numbers(self) -> tuple[float, int]:
        """The number that tokens are compared with, and a count of tokens. Raises PatternError for other text."""
        words = self.regex.split()
        number, *counts = [float(word) if _NUMBER.fullmatch(word) else -1.0 for word in words] or [-1.0]
        count = number if self.kind == "tokens" else counts[0] if counts else 1.0
        fits = {"surprise": 0 < number < 1, "entropy": number > 0, "tokens": not counts}[self.kind]
        if not fits or len(counts) > 1 or count < 1 or count != int(count):
            raise PatternError(
                f"a step pattern of kind {self.kind!r} is {NUMBERS[self.kind]}; it is {quote(self.regex)}"
            )
        return number, int(count)

    @property
    def is_separator(self) -> bool:
        """Return whether steps start with white space alone, so that text before the first of it is in no step."""
        return self.kind == "starts" and _WHITE_SPACE.fullmatch(self.regex) is not None

    @property
    def compiled(self) -> rx.Pattern[str]:
        return _compiled(_ANY_TEXT if self.kind == "turns" else self.regex)


PRESETS: dict[str, Preset] = {}
_ANY_TEXT = r"(?s).+"
"""Of each turn's text, all of it."""
_WHITE_SPACE = rx.compile(r"(?:(?:\\[nrtsR]|\s|\[(?:\\[nrts]|\s)+\])(?:[+*?]|\{\d*,?\d*\})?)+")
_NUMBER = rx.compile(r"\d{1,9}(?:\.\d{1,12})?|\.\d{1,12}")


@lru_cache(maxsize=256)
def _compiled(source: str) -> rx.Pattern[str]:
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise PatternError(f"the step pattern is {size:,} bytes; the limit is {MAX_BYTES:,}")
    if (repeated := _expanded_size(source)) > MAX_REPEATED:
        raise PatternError(
            f"the step pattern comes to {repeated:,} characters with its repetitions written out; the limit is "
            f"{MAX_REPEATED:,}: repeat less often, or with + for a large count"
        )
    try:
        pattern: rx.Pattern[str] = rx.compile(source)
    except rx.error as error:
        raise PatternSyntaxError(
            f"invalid pattern: {error.msg} at character {error.pos}", position=error.pos
        ) from error
    except Exception as error:  # the package's compiler lets some of Python's own escape: RecursionError, MemoryError
        raise PatternSyntaxError(f"invalid pattern: {str(error) or type(error).__name__}") from error
    if pattern.search("", timeout=1):
        raise PatternError("the step pattern matches empty text; require at least one character, with + for * say")
    return pattern


_PART = rx.compile(r"(?s)\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{(?P<least>\d{1,10})\d*,?\d*\}|.")


def _expanded_size(source: str) -> int:
    """Return how many characters and sets a pattern has when each is written as often as it must match, or more."""
    total, last, opened = 0, 0, list[int]()
    for part in _PART.finditer(source):
        if part[0] == "(":
            opened.append(total)
        elif part[0] == ")":
            last = total - (opened.pop() if opened else 0)
        elif part["least"]:
            total += last * max(0, int(part["least"]) - 1)
        else:
            total, last = total + 1, 1
    return total


# --- presets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """A named pattern: ``used_by`` says where the format comes from, ``sample`` is a text in it ("" by tokens).

    A preset is a starting point: the page puts its expression in the field, where it can be edited.
    """

    name: str
    pattern: StepPattern
    used_by: str
    sample: str


_WHOLE = r"""(?xs)
    # Fenced code, displayed mathematics and environments are passed over whole; a fence that is not closed to the end.
    (?: (?m: ^ ) [ \t]*+ (?P<fence> `{3,} | ~{3,} ) .*? (?: \n [ \t]*+ (?P=fence) [`~]* [ \t\r]* (?m: $ ) | \Z )
        | \$\$ .*? \$\$ | \\\[ .*? \\\] | \\begin\{ (?P<name> \w+\*? ) \} .*? \\end\{ (?P=name) \}
    ) (*SKIP) (*FAIL)
"""
_SENTENCE = rf"""{_WHOLE}
    | (?: \$ [^$\n]* \$ | \\\( .*? \\\) ) (*SKIP) (*FAIL)
    # A full stop that numbers a line or shortens a word ends no sentence.
    | (?<= [.!?] ) (?<! (?: ^ | \n ) [ \t]* \d+ \. ) (?<! \b (?: e\.g | i\.e | cf | vs | Eq | Fig | Dr | Mrs? ) \. ) \s+
    | (?<= [。！？] ) \s*
"""
_PARAGRAPH = rf"""{_WHOLE}
    | \r?\n (?: [ \t]*+ \r?\n )+
"""
_STEP = r"""
    (?i: step | paso | passo | schritt | étape | etape | stap | krok | шаг | bước | ステップ | 단계 ) [ \t]* \#? [ \t]*
    (?: \d+ | (?i: one | two | three | four | five | six | seven | eight | nine | ten ) \b )
"""
_ANY_LABEL = rf"""(?xm)
    ^ [ \t]* (?: [-*•] [ \t]+ )? (?:
        # A heading or bold text may go on; a plain label ends in a mark or with its line.
        (?: \#{{1,6}} [ \t]+ (?: \*\* | __ )? | \*\* | __ ) {_STEP}
        | {_STEP} [ \t]* (?: [:.)：] (?! \d ) | [-–—] [ \t] | \r? $ )
        | (?: \#{{1,6}} [ \t]+ )? (?: \*\* )?
            (?: 步[骤驟] [ \t]* [\d一二三四五六七八九十]+ | 第 [\d一二三四五六七八九十]+ 步 )
        | (?: \*\* )? Thought (?: [ \t]+ \d+ )? (?: \*\* )? [:：]
    )
    | (?i: <step (?: [ _-]? \d+ | \s [^<>]* )? > )
"""

_ALL = [
    Preset(
        "step-n",
        StepPattern(r"(?m)^Step \d+:"),
        "Math-Shepherd and GRPO tutorials",
        "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nThe answer is: 24",
    ),
    Preset(
        "step-n-answer",
        StepPattern(r"(?m)^(?:Step \d+|Answer):"),
        "the chain-arithmetic task: the answer is a step of its own",
        "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nAnswer: 24",
    ),
    Preset(
        "step-tag",
        StepPattern(r"STEP:"),
        "texts that mark each step with one word",
        "STEP: add the apples. STEP: double them.\nSTEP: say 24.",
    ),
    Preset(
        "heading-step",
        StepPattern(r"(?m)^## Step \d+:"),
        "search-and-learn",
        "## Step 1: Read the problem\nThere are 12.\n\n## Step 2: Double\nThat makes 24.",
    ),
    Preset(
        "any-label",
        StepPattern(_ANY_LABEL),
        "chat models: **Step 1**, ### Step 1, Step 1., Step One:, Step 1 -, Paso 1:, 步骤1：, Thought:, <step>",
        "**Step 1**\nRead.\n### Step 2: Add\n7 + 5\nStep 3. Double.\n步骤4：写下 24\nThought: done.\n<step>24</step>",
    ),
    Preset(
        "numbered",
        StepPattern(r"(?m)^[ \t]*(?:\d+[.)]|\(\d+\))\s|^[ \t]*(?:\d+、|（\d+）)"),
        "chat models: 1., 1), (1)",
        "Let us see.\n1. Add 5 to 7.\n2) Double the 12.\n  3. It is 24.",
    ),
    Preset(
        "line",
        StepPattern(r"\n+", kind="ends"),
        "TRL's stepwise data, Skywork's PRM, VinePPO",
        "7 + 5 = 12\n12 * 2 = 24\n\nSo it is 24.",
    ),
    Preset(
        "paragraph",
        StepPattern(_PARAGRAPH, kind="ends"),
        "Qwen2.5-Math-PRM, PURE, PRM800K's solutions",
        "First add:\n7 + 5 = 12.\n\nThen double:\n12 * 2 = 24.",
    ),
    Preset(
        "sentence",
        StepPattern(_SENTENCE, kind="ends"),
        "VinePPO",
        "We know $x = 1. 5$ holds, e.g. here. Then \\[ y = 2. \\] follows! 所以答案是二。对吗？Yes.",
    ),
    Preset(
        "think-answer",
        StepPattern(r"</think>\s*", kind="ends"),
        "R1-style models; chat templates often write the opening tag into the prompt",
        "<think>\n7 + 5 = 12, doubled 24.\n</think>\n\nThe answer is 24.",
    ),
    Preset(
        "reasoning-answer",
        StepPattern(r"(?s)<reasoning>.*?</reasoning>|<answer>.*?</answer>", kind="is"),
        "GSM8K recipes for GRPO",
        "<reasoning>\n7 + 5 = 12\n</reasoning>\n<answer>\n12\n</answer>",
    ),
    Preset(
        "working-out",
        StepPattern(
            r"(?s)(?:<start_working_out>|\A(?!.*<start_working_out>)).*?<end_working_out>|<SOLUTION>.*?</SOLUTION>",
            kind="is",
        ),
        "the Qwen3-4B recipe for GRPO, which writes the opening tag into the prompt",
        "<start_working_out>7 + 5 = 12<end_working_out><SOLUTION>12</SOLUTION>",
    ),
    Preset(
        "paragraph-tag",
        StepPattern(r"(?s)<paragraph_(\d+)>.*?</paragraph_\1>", kind="is"),
        "ProcessBench's prompts for critics",
        "<paragraph_0>\n7 + 5 = 12\n</paragraph_0>\n\n<paragraph_1>\n12 * 2 = 24\n</paragraph_1>",
    ),
    Preset(
        "ki",
        StepPattern(r"\s*ки", kind="ends"),
        "Math-Shepherd's scorer, which reads + or - after each",
        "Step 1: 7 + 5 = 12 ки\nStep 2: 12 * 2 = 24 ки",
    ),
    Preset(
        "extra-0",
        StepPattern(r"<extra_0>", kind="ends"),
        "Qwen2.5-Math-PRM's scorer",
        "7 + 5 = 12<extra_0>12 * 2 = 24<extra_0>",
    ),
    Preset(
        "action",
        StepPattern(r"\|\|", kind="ends"),
        "RAGEN",
        "Up || Right || Up",
    ),
    Preset(
        "mixed-list",
        StepPattern(r"(?m)^[ \t]*(?:Step \d+:|\#{1,6}\s|\d+[.)]\s|[-*•]\s|(?:First|Second|Third|Next|Then|Finally),)"),
        "open-r1: headings, numbers, bullets and words that order",
        "# Plan\n1. Add.\n- seven\n* five\nFinally, double.",
    ),
    Preset("turns", StepPattern("", kind="turns"), "episodes: every turn is a step", "call: 37*8"),
    Preset(
        "window",
        StepPattern(r"\S+(?:\s+\S+){0,15}\s*", kind="is"),
        "every 16 words, whatever they say",
        "Seven and five are twelve, and twelve taken twice is twenty-four, so the answer that we were asked for is 24.",
    ),
    Preset(
        "surprise",
        StepPattern("0.9 5", kind="surprise"),
        "SPO: before every fifth token of a probability below 0.9",
        "",
    ),
    Preset(
        "entropy",
        StepPattern("1.5 10", kind="entropy"),
        "PRPO: before tokens of high entropy (1.5 nats and more), 10 tokens apart",
        "",
    ),
    Preset("tokens", StepPattern("32", kind="tokens"), "fixed segments: every 32 tokens", ""),
]
PRESETS |= {preset.name: preset for preset in _ALL}
