"""The final answer of a completion, and whether it is the right one: read and compared in this one place.

Thinking is no answer: only the text after ``</think>`` is read, and a ``<think>`` that does not end leaves none. The
answer is the last of ``<answer>…</answer>``, ``<SOLUTION>…</SOLUTION>``, ``\\boxed{…}`` and the text after ``####``,
``Answer:`` or, at a line's beginning, ``A:``. Without any of these it follows "answer is", or is bold in the last line.

Numbers are compared as numbers: 1,206 and 1\\,206 and +1206 and €1206.00 are equal, 3 1/2 is 3.5, 50 % is 50 or 0.5.
A unit counts if both sides have one. Other answers are compared as text; case, LaTeX spacing and markup do not matter.
``math_equality`` compares formulas. Sums are worked out exactly, and chains of arithmetic are read line by line
(``read_chain``). Reward functions may import this module.
"""

from __future__ import annotations

import ast
import operator
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal

from workbench.schema import EXTRACTED, answer_span

Form = Literal["any", "gsm8k"]
LONGEST_NUMBER = 200
"""Characters of a text that can be a number."""
LONGEST_LINE = 1000
"""Characters that are read behind a mark."""
MOST_BOLD = 20
"""Of the last line's bold texts, how many are looked at."""
MOST_WRAPPERS = 8
"""Of the marks around an answer, ``**$5$**``, how many are taken off."""

_TAGGED = r"<(?P<tag>answer|SOLUTION)>(?P<tagged>(?:(?!<(?P=tag)>).)*?)</(?P=tag)>"
_NAMED = r"\b(?i:answer)\**[ \t]*:\**[ \t]*\n?"
_OF_GSM8K = r"(?P<hashes>####)|^A:"
_MARKS: Mapping[Form, re.Pattern[str]] = {
    "any": re.compile(f"{_TAGGED}|{_NAMED}|{_OF_GSM8K}", re.DOTALL | re.MULTILINE),
    "gsm8k": re.compile(_OF_GSM8K, re.MULTILINE),
}
_SAID = re.compile(r"\b(?i:answer)\s+is\b:?\**[ \t]*\n?")
_RESULT = re.compile(r"(?!\s*\**\d+\.[ \t]+\w)[\s*$`(\\]*[+\-−]?\s*[$€£¥₹]?\s*[\-−]?\.?\d")
_BOLD = re.compile(r"\*\*([^*\n]*[^*\n:])\*\*")
_BRACES = re.compile(r"\\[{}]|(?P<box>\\(?:boxed|fbox)\s*\{)|[{}]")
_SENTENCE = re.compile(r"(?<!\b[A-Z][a-z])\.\s+(?=[A-Z])")
_WRAPPED = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|`(.*)`|\"(.*)\"", re.DOTALL)
_SYMBOLS = {0x3000: " ", 0x2212: "-", 0x2013: "-", 0xA0: "\\,", 0x2009: "\\,", 0x202F: "\\,", 0xD7: "*", 0xB7: "*"}
_SYMBOLS |= {0x2248: "=", 0xB0: " degrees"} | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_THOUSANDS = re.compile(r"(?<=\d)(?:,?\\[,!;: ]|\{,\}|~)(?=\d{3})")
_END_TOKENS = re.compile(r"(?:(?:<[|｜][^<>\s]{1,40}[|｜]>|</s>)\s*)+$")
_LATEX = [
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\[,!;: ]|~|\\left|\\right|\\q?quad|\\displaystyle"), " "),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))"), r" \1\2/\3\4 "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), " degrees"),
    (re.compile(r"\\(?:times|cdot)"), "*"),
    (re.compile(r"\\approx"), "="),
    (re.compile(r"\\([%$])"), r"\1"),
]
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s*[$€£¥₹]?\s*(?P<minus>-?)\s*"
    r"(?:(?:(?P<whole>\d+)\s+)?(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"
    r"|(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)"
    r"(?:(?:[eE]|\s*\*\s*10\s*\^\s*)\{?(?P<power>[+-]?\d{1,3})\}?)?)"
    r"\s*(?P<percent>%|percent\b)?(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_CLAUSE = re.compile(r"[,;]\s+(?:since|because|as|so|which|where)\b")
_SQUARED = re.compile(r"(?<=[a-z])\^\{?[23]\}?")
_SHORT_UNITS = frozenset(["mm", "cm", "km", "mg", "kg", "ml", "mL", "ft", "in", "lb", "oz", "am", "pm"])
_LETTERS = frozenset("mgshlL")  # units of one letter; any other letter is a variable
_NO_UNITS = frozenset(["or", "and", "not", "to", "pi", "plus", "minus", "times", "over"])
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def without_thinking(text: str, *, opened: bool = False) -> str:
    """Return the text after the thinking. ``opened``: the prompt began the ``<think>`` block."""
    start, end = answer_span(text, opened=opened)
    return text[start:end]


_INTRODUCED = (("\\boxed", "\\boxed{"), ("<SOLUTION>", "<SOLUTION>"), ("<answer>", "<answer>"), ("####", "#### "))


def answer_introduction(*asked: str) -> str:
    """Return the line that begins a final answer, by the last mark in the first of the texts that has one.

    The texts are a prompt and a worked solution, the marks ``\\boxed{``, ``<SOLUTION>``, ``<answer>`` and ``####``;
    "Answer: " if there is none. Reasoning in tags is closed first.
    """
    for text in asked:
        if places := [(text.rfind(mark), line) for mark, line in _INTRODUCED if mark in text]:
            return ("\n</reasoning>\n" if "</reasoning>" in text else "\n") + max(places)[1]
    return "\nAnswer: "


def spoken_texts(completions: Sequence[object], columns: Mapping[str, object]) -> list[str]:
    """Return the text of each completion without its thinking.

    ``completions`` and ``columns`` are those of a reward function: texts or lists of messages, and its ``**columns``,
    of which ``thinking_open`` says for each completion whether its prompt began a ``<think>`` block.
    """
    opened = columns.get("thinking_open") or [False] * len(completions)
    pairs = zip(texts_of(completions), opened, strict=True)  # type: ignore[call-overload]
    return [without_thinking(text, opened=bool(flag)) for text, flag in pairs]


def texts_of(completions: Sequence[object]) -> list[str]:
    """Return the text of each completion, which is the text itself or a list of messages."""
    return [text if isinstance(text, str) else text[-1]["content"] for text in completions]  # type: ignore[index]


def is_filled(text: str, form: str, tags: Sequence[str]) -> bool:
    """Return whether a text has each tag once and matches ``form``, none of whose groups is blank."""
    match = re.fullmatch(form, text, re.DOTALL) if all(text.count(tag) == 1 for tag in tags) else None
    return match is not None and all(group.strip() for group in match.groups())


def log_extracted(columns: Mapping[str, object], claims: Sequence[str | None]) -> None:
    """Log what a reward function took for each answer, if its ``**columns`` hold TRL's ``log_extra``."""
    if callable(log_extra := columns.get("log_extra")):
        log_extra(EXTRACTED, [claim or "" for claim in claims])


def final_answer(text: str, form: Form = "any") -> str | None:
    """Return the final answer of a completion without the markup around it, None if it has none.

    ``form`` "gsm8k" reads ``####`` and ``A:`` alone.
    """
    return reasoning_and_answer(text, form)[1]


def reasoning_and_answer(text: str, form: Form = "any") -> tuple[str, str | None]:
    """Return the text before the final answer, thinking included, and the answer (None if there is none)."""
    start, end = answer_span(text)
    found = _find_answer(text[start:end], form)
    if found is None:
        return text, None
    place, answer = found
    return text[: start + place], cleaned(answer) or None


def _find_answer(text: str, form: Form) -> tuple[int, str] | None:
    """Where the last marked answer begins, and the text that is marked."""
    marks = list(_MARKS[form].finditer(text))
    if form == "any":
        # "####" is Markdown's heading, too: what is marked in other ways goes before one without a number.
        last = next((mark for mark in reversed(marks) if not mark["hashes"] or _RESULT.match(text, mark.end())), None)
        boxed = max(boxed_answers(text), default=None)
        if boxed is not None and (last is None or boxed[0] > last.start()):
            return boxed
        marks = marks if last is None else [last]
        if last is None and (said := list(_SAID.finditer(text))):
            marks = said
        elif last is None:
            in_last_line = list(_BOLD.finditer(text, text.rstrip().rfind("\n") + 1))[-MOST_BOLD:]
            for bold in reversed(in_last_line):
                if read_number(bold[1]) is not None or not text[bold.end() :].strip(" \n.!"):
                    return bold.start(), bold[1]
    return (marks[-1].start(), _read_mark(marks[-1])) if marks else None


def _read_mark(match: re.Match[str]) -> str:
    """What a tag holds, or the first sentence of the line behind a mark."""
    if (tagged := match.groupdict().get("tagged")) is not None:
        return str(tagged)
    text, start = match.string, match.end()
    if match[0].endswith("\n"):  # the answer is on the next line
        while text[start : start + 1].isspace():
            start += 1
    line = text[start : start + LONGEST_LINE].partition("\n")[0]
    return _SENTENCE.split(line, maxsplit=1)[0]


def boxed_answers(text: str) -> list[tuple[int, str]]:
    """Return where each closed ``\\boxed{…}`` begins, and what it holds."""
    found, opened = [], list[tuple[int, int] | None]()
    for match in _BRACES.finditer(text):
        if match["box"]:
            opened.append((match.start(), match.end()))
        elif match[0] == "{":
            opened.append(None)
        elif match[0] == "}" and opened and (box := opened.pop()) is not None:
            found.append((box[0], text[box[1] : match.start()]))
    return found


def in_plain_digits(text: str) -> str:
    """Return a text with full-width characters, minus signs and spaces between thousands as ASCII has them."""
    return _THOUSANDS.sub(",", text.translate(_SYMBOLS))


def cleaned(text: str) -> str:
    """Return an answer without what marks it up: ``\\boxed``, ``$``, ``**``, a closing full stop, an end token."""
    found = _find_answer(text, "any")
    while found is not None:
        text = found[1]
        found = _find_answer(text, "any")
    text = in_plain_digits(_END_TOKENS.sub("", text))
    for _ in range(MOST_WRAPPERS):
        stripped = text.strip(" \n\t*")
        stripped = stripped.rstrip(".") if len(stripped) > 1 else stripped
        if match := _WRAPPED.fullmatch(stripped):
            stripped = next(part for part in match.groups() if part is not None)
        if stripped == text:
            break
        text = stripped
    return text


@dataclass(frozen=True)
class Number:
    """A number as an answer gives it: ``unit`` is the first word after it, in small letters and without its s."""

    value: Fraction
    percent: bool = False
    unit: str = ""

    def equals(self, other: Number) -> bool:
        """Whether both are one quantity; a unit or a percent sign that only one side has may be left out."""
        if self.unit and other.unit and self.unit != other.unit:
            return False
        if self.percent == other.percent:
            return self.value == other.value
        share, number = (self, other) if self.percent else (other, self)
        return number.value in (share.value, share.value / 100)


def read_number(text: str) -> Number | None:
    """Return the one number that an answer gives, None if it gives none, several, or a formula."""
    if len(text) > LONGEST_NUMBER:
        return None
    match = _NUMBER.fullmatch(_plain(text).rpartition("=")[2].strip())
    unit = None if match is None else _unit(match["rest"])
    if match is None or unit is None or (match["sign"] and match["minus"]) or match["bottom"] in ("0", "00"):
        return None
    if match["bottom"]:
        value = int(match["whole"] or 0) + Fraction(int(match["top"]), int(match["bottom"]))
    else:
        value = Fraction(match["digits"].replace(",", "").rstrip(".")) * Fraction(10) ** int(match["power"] or 0)
    value *= _SCALES.get(unit, 1)
    negative = "-" in (match["sign"], match["minus"])
    return Number(-value if negative else value, bool(match["percent"]), "" if unit in _SCALES else unit)


def _unit(rest: str) -> str | None:
    """The unit behind a number, "" for none; None if what follows is no unit but a variable, say, or another number."""
    rest = _SQUARED.sub("", _CLAUSE.split(rest, maxsplit=1)[0]).rstrip(" .")
    words = rest.replace("/", " ").split()
    if not words:
        return ""
    first, attached = words[0], not rest[0].isspace()
    if re.search(r"[^A-Za-z/ .']", rest) or _NO_UNITS.intersection(word.lower() for word in words):
        return None
    is_known = first in _SHORT_UNITS or len(first) > 2
    if not is_known and (attached or (len(first) == 1 and first not in _LETTERS)):
        return None
    return first.lower().rstrip("s.")


def _plain(text: str) -> str:
    """An answer's text with LaTeX's ways of writing numbers and spaces undone."""
    text = cleaned(text)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return text


def is_same(claim: str, gold: str) -> bool:
    """Whether two answers are one number, or else the same text."""
    claimed, right = read_number(claim), read_number(gold)
    if claimed is not None and right is not None:
        return claimed.equals(right)
    folded = []
    for answer in (claim, gold):
        text = re.sub(r"\s+", " ", _plain(answer)).strip().casefold().replace("\\$", "").replace("$", "")
        text = re.sub(r"(?<!\w) | (?!\w)", "", text)
        folded.append(re.sub(r"\((\w)\)", r"\1", text) if len(text) == 3 else text)
    return folded[0] == folded[1]


def golds_of(answer: object) -> list[str]:
    """Return the right answers that a row's column gives, any of which is right: a value, or a list of them.

    Of an answer worked as GSM8K's are, the result. Raises ValueError for an object, which no text can be compared with.
    """
    values = answer if isinstance(answer, list | tuple) else [answer]
    if objects := [value for value in values if isinstance(value, Mapping)]:
        raise ValueError(
            f"the column 'answer' holds an object, {str(dict(objects[0]))[:80]}, which no text can be compared with; "
            "choose a reward that reads it"
        )
    texts = [str(value) for value in values if value is not None]
    return [gold for text in texts if (gold := final_answer(text, "gsm8k") or text.strip())]


def is_right(claim: str | None, answer: object) -> bool | None:
    """Whether an answer is one of those that a row's column gives; None if the row has none. Raises as ``golds_of``."""
    golds = golds_of(answer)
    return any(claim is not None and is_same(claim, gold) for gold in golds) if golds else None


def last_result(text: str) -> Number | None:
    """Return the number behind the last ``=`` of a text; None if there is none, or something else stands there."""
    _, equals, behind = re.sub(r"<<.*?>>|\*\*", "", in_plain_digits(text)).rpartition("=")
    line = behind.strip(" $*").split("\n")[0]
    match = _NUMBER.match(_plain(line)) if equals and len(line) <= LONGEST_NUMBER else None
    if match is None or re.match(r"\s*[*/+^(\\\d-]|\s?[a-zA-Z]\b", match["rest"]):
        return None
    return read_number(_plain(line)[: match.start("rest")])


def work_out(text: str, deepest: int = 50) -> Fraction:
    """Return the exact value of a sum with + - * / // ( ), signs and %, whatever the spaces and $ in it.

    Nothing is evaluated as code. Raises ValueError for anything else, also for parentheses nested over ``deepest``;
    ZeroDivisionError for a sum that divides by 0.
    """
    parts: list[str] = re.findall(r"\d+\.?\d*|\.\d+|//|[-+*/()%]|[^\s$]", text)
    if other := [part for part in parts if not (part[-1].isdigit() or part[0].isdigit() or part in _OF_SUMS)]:
        raise ValueError(f"{other[0]!r} is no arithmetic")
    if max(accumulate((part == "(") - (part == ")") for part in parts), default=0) > deepest:
        raise ValueError("nested too deeply")

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Name(name):
                return Fraction(parts[int(name[1:])].rstrip("."))
            case ast.UnaryOp(op, operand):
                return -value(operand) if isinstance(op, ast.USub) else value(operand)
            case ast.BinOp(operand, ast.Pow(), percents) if set(ast.unparse(percents)) <= set("p *"):
                return Fraction(value(operand) / 100 ** (1 + ast.unparse(percents).count("**")))
            case ast.BinOp(left, op, right):
                return Fraction(_WORKED[type(op)](value(left), value(right)))
        raise ValueError(f"{text!r} is no arithmetic")

    # Python's parser reads names in the place of numbers, and a percent sign as a power, which binds as tightly.
    named = [f"n{i}" if part[0] in ".0123456789" else part for i, part in enumerate(parts)]
    try:
        return value(ast.parse(" ".join(named).replace("%", "**p"), mode="eval").body)
    except (SyntaxError, RecursionError, KeyError) as error:
        raise ValueError(f"{text!r} is no arithmetic") from error


_OF_SUMS = frozenset(["//", *"-+*/()%"])
_WORKED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_CALL = re.compile(r"(?:\s*(?:[0-9]{1,15}(?:\.[0-9]{1,9})?(?![0-9.])|[-+*/()]))+\s*")
_NO_CALL = re.compile(r"//|(?:^|[-+*/(])\s*\+")


def work_out_call(text: str) -> Fraction:
    """Return the value of a calculator's call, ``(37+5)*8``: a sum of numbers with + - * / ( ) and minus signs.

    Raises as ``work_out`` does, also for over 200 characters.
    """
    if len(text) > 200 or not _CALL.fullmatch(text) or _NO_CALL.search(text):
        raise ValueError(f"{text[:200]!r} is no call of a calculator")
    return work_out(text, deepest=100)


# ── chains of arithmetic ─────────────────────────────────────────────────────────────────────────────────────────────

_INTEGER = "(-?(?:0|[1-9][0-9]{0,8}))"
_EQUATION = re.compile(f"Step ([1-9][0-9]{{0,3}}): {_INTEGER} ([+*-]) {_INTEGER} = {_INTEGER}")
_ATTEMPT = re.compile(r"Step\s*([0-9]{1,4})\b.*?(-?[0-9]{1,9})\s*([+*-])\s*(-?[0-9]{1,9})\s*=\s*(-?[0-9]{1,9})\b")
_ANSWER = re.compile(f"(?:Answer: {_INTEGER}|<answer>{_INTEGER}</answer>)")
LONGEST_ATTEMPT = 200
"""Characters of a badly written line that is still read for what it claims."""


@dataclass(frozen=True)
class ChainLine:
    """A line ``left operation = result`` of a chain of arithmetic, ``Step 2: 10 * 8 = 80``, or its answer.

    An answer has no ``operation``; ``left`` and ``result`` are both its number. ``before`` is the result that the line
    before claims (the start, for the first), ``due`` the operation of the prompt that is next, None after the last.
    ``in_place``: the line is written as it is to be, has the next number, and an answer comes once, after all
    operations, in tags if the reasoning is.
    """

    in_place: bool
    before: int
    due: tuple[str, int] | None = None
    left: int = 0
    operation: tuple[str, int] | None = None
    result: int | None = None

    @property
    def sum(self) -> str:
        """What the line works out: ``10 * 8``, or an answer's number."""
        return " ".join(str(part) for part in (self.left, *(self.operation or ())))


def read_chain(
    text_before: str, step: str, start: int | None, operations: Sequence[Sequence[object]] | None
) -> list[ChainLine]:
    """Return the lines of a step; a line that only opens or closes the reasoning is none.

    ``text_before`` is the completion's text before the step, ``operations`` are the prompt's, as (symbol, operand).
    Without a ``start`` or operations, of another task, a step has no lines.
    """
    if start is None or operations is None:
        return []
    task = int(start), tuple((str(symbol), int(str(operand))) for symbol, operand in operations)
    chain = copy(_read_last.get((*task, text_before.strip("\n"))))
    starts_a_line = not text_before or text_before.endswith("\n")
    if chain is None or not starts_a_line:
        chain = _Chain(*task)
        chain.read(text_before)
    chain.text = text_before + step
    lines = chain.read(step)
    _read_last.clear()
    if starts_a_line:
        _read_last[(*task, chain.text.strip("\n"))] = chain
    return lines


_read_last: dict[tuple[Any, ...], _Chain] = {}
"""The lines read by the last call: an answer's next step goes on from them."""


class _Chain:
    """How far the lines read by now have come: a wrong result is blamed once, as the next line goes on from it."""

    def __init__(self, value: int, todo: tuple[tuple[str, int], ...]) -> None:
        self.text = ""  # that is read
        self.value, self.todo, self.done = value, todo, 0  # done: operations worked so far
        self.skipped = self.opened = self.closed = self.answered = False

    def read(self, text: str) -> list[ChainLine]:
        lines = text.strip("\n").split("\n") if text.strip("\n") else []
        return [line for line in map(self.line, lines) if line is not None]

    def line(self, text: str) -> ChainLine | None:
        worked, amiss = self.done == len(self.todo) and not self.skipped, ChainLine(False, self.value)
        if text in ("<reasoning>", "</reasoning>"):
            opens, in_place = text == "<reasoning>", not (self.closed or self.answered)
            in_place &= not (self.done or self.opened) if opens else worked
            self.opened, self.closed = self.opened or opens, self.closed or not opens
            return None if in_place else amiss
        if match := _ANSWER.fullmatch(text):
            if match[1]:
                is_styled = not re.search("</?reasoning>", self.text)
            else:
                is_styled = self.text.startswith("<reasoning>\n") and "\n</reasoning>\n<answer>" in self.text
            in_place = worked and not self.answered and is_styled
            self.answered = True
            number = int(match[1] or match[2])
            return ChainLine(in_place, self.value, left=number, result=number)
        return amiss if self.closed or self.answered else self.operation(text)

    def operation(self, text: str) -> ChainLine:
        strict, before = _EQUATION.fullmatch(text), self.value
        due = self.todo[self.done] if self.done < len(self.todo) else None
        if not (match := strict or (_ATTEMPT.match(text) if len(text) < LONGEST_ATTEMPT else None)):
            return ChainLine(False, before, due)
        label, left, operation, result = int(match[1]), int(match[2]), (match[3], int(match[4])), int(match[5])
        labelled = label == self.done + 1
        if due and (labelled or (left == before and operation == due)):
            self.value, self.done = result, self.done + 1
            return ChainLine(bool(strict) and labelled, before, due, left, operation, result)
        if self.done < label <= len(self.todo) and operation == self.todo[label - 1]:  # went ahead; goes on
            self.value, self.done, self.skipped = result, label, True
        return ChainLine(False, before, due, left, operation, result)  # ahead, repeated or extra


def call_limited(
    seconds: float, expired: type[Exception], run: Callable[..., Any], otherwise: Any, *values: Any, **options: Any
) -> Any:
    """Return what ``run`` does, or ``otherwise`` once it took ``seconds`` of processor time and raised ``expired``.

    A limit by the clock on the wall would give other scores on a busy machine. Only a main thread can have the signal:
    on another one ``run`` has no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        return run(*values, **options)
    reported = sys.unraisablehook

    def expire(*_: object) -> None:
        raise expired

    def report(lost: Any) -> None:
        if lost.exc_type is not expired:
            reported(lost)

    before = signal.signal(signal.SIGVTALRM, expire)
    sys.unraisablehook = report
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # repeated: what a destructor raises is lost
    try:
        return run(*values, **options)
    except expired:
        return otherwise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        sys.unraisablehook = reported
