"""The final answer of a completion, and whether it is the right one: read and compared in this one place.

Thinking is no answer: only the text after ``</think>`` is read, and a ``<think>`` that does not end leaves none. The
answer is the last of ``<answer>…</answer>``, ``<SOLUTION>…</SOLUTION>``, ``\\boxed{…}`` and the text after ``####``,
``Answer:`` or, at a line's beginning, ``A:``. Without any of these it follows "answer is", is bold in the last line, or
is the letter of an option that makes up the last line. A ``\\boxed{`` that does not end leaves no answer.

Numbers are compared as numbers: 1,206 and 1\\,206 and +1206 and €1206.00 are equal, 3 1/2 is 3.5, 50 % is 50 or 0.5.
A unit counts if both sides have one. ``x = 7`` and ``m + n = 3 + 4 = 7`` are 7, ``3x + 4 = 7`` and ``x = 1, y = 7`` are
no numbers. An option is its letter: "C", "(C) 12" and "Option C" are equal. Other answers are compared as text; case,
LaTeX spacing and markup do not matter, nor does the order of equations.
``math_equality`` compares formulas. Sums are worked out exactly, and chains of arithmetic are read line by line
(``read_chain``). Reward functions may import this module.
"""

from __future__ import annotations

import ast
import logging
import operator
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import Any, Literal

from workbench.schema import EXTRACTED, answer_span

Form = Literal["any", "gsm8k"]
LONGEST_NUMBER = 200
"""Characters of a text that can be a number."""
LONGEST_LINE = 1000
"""Characters that are read behind a mark."""
MOST_BOLD = 20
"""Of the last line's bold texts, and of boxes in a list, how many are looked at."""
MOST_WRAPPERS = 8
"""Of the marks around an answer, ``**$5$**``, how many are taken off."""

_TAGGED = r"<(?P<tag>answer|SOLUTION)>(?P<tagged>(?:(?!<(?P=tag)>).)*?)</(?P=tag)>"
_NAMED = r"\b(?i:answer)\**[ \t]*:\**[ \t]*\n?"
_OF_GSM8K = r"(?P<hashes>####)|^A:"
_MARKS: Mapping[Form, re.Pattern[str]] = {
    "any": re.compile(f"{_TAGGED}|{_NAMED}|{_OF_GSM8K}", re.DOTALL | re.MULTILINE),
    "gsm8k": re.compile(_OF_GSM8K, re.MULTILINE),
}
_SAID = re.compile(r"\b(?i:(?:answer|(?:option|choice)(?=\s+is\W+(?-i:[A-J])\b))\s+is)\b:?\**[ \t]*\n?")
_ALONE = re.compile(r"\W*(?:(?i:option|choice)\W+)?[A-J]\W*")
_RESULT = re.compile(r"(?!\s*\**\d+\.[ \t]+\w)[\s*$`(\\]*[+\-−]?\s*[$€£¥₹]?\s*[\-−]?\.?\d")
_BOLD = re.compile(r"\*\*([^*\n]*[^*\n:])\*\*")
_BRACES = re.compile(r"\\[{}]|(?P<box>\\(?:boxed|fbox)\s*\{)|[{}]")
_SENTENCE = re.compile(r"(?<!\b[A-Z][a-z])\.\s+(?=[A-Z])")
_WRAPPED = re.compile(r"\$\$(.*)\$\$|\$((?:\\.|[^$\\])*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|`(.*)`|\"(.*)\"", re.DOTALL)
_SYMBOLS = {0x3000: " ", 0x2212: "-", 0x2013: "-", 0xA0: "\\,", 0x2009: "\\,", 0x202F: "\\,", 0xD7: "*", 0xB7: "*"}
_SYMBOLS |= {0x2248: "=", 0xB0: " degrees", 0xB2: "^2", 0xB3: "^3"} | {
    code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)
}
_THOUSANDS = re.compile(r"(?<=\d)(?:,?\\[,!;: ]|\{,\}|~)(?=\d{3})")
_END_TOKENS = re.compile(r"(?:(?:<[|｜][^<>\s]{1,40}[|｜]>|</s>)\s*)+$")
_LATEX = [
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\[,!;: ]|~|\\left|\\right|\\q?quad|\\displaystyle"), " "),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))"), r" \1\2/\3\4 "),
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
    r"(?P<percent>\s*(?:%|(?:percent(?:age)?|pct)\b))?(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_CLAUSE = re.compile(r"[,;]\s+(?:since|because|as|so|which|where)\b")
_UNIT_FORMS = [
    (re.compile(r"^\s*\(([A-Za-z /]+)\)"), r" \1"),
    (re.compile(r"\s*(?:/|\bper\b)\s*"), "/"),
    (re.compile(r"\b(?:square|sq\.?)\s+([A-Za-z]+)"), r"\g<1>^2"),
    (re.compile(r"\b(?:cubic|cu\.?)\s+([A-Za-z]+)"), r"\g<1>^3"),
    (re.compile(r"\b([cmk]?)(?:enti|illi|ilo|)(?:(m)et(?:er|re)|(l)it(?:er|re)|(g)ram)s?\b"), r"\1\2\3\4"),
    (re.compile(r"\b(?:(h)(?:ou)?rs?|(s)ec(?:ond)?s?|(min)utes?|(in)ch(?:es)?|(f)(?:ee|oo)(t))\b"), r"\1\2\3\4\5\6"),
    (re.compile(r"(?<=[A-Za-z])\s*\^\s*\{?([23])\}?"), r"\1"),
]
_SHORT_UNITS = frozenset(
    re.findall(r"\w+", "mm cm km mg kg ml mL ft in lb oz am pm mi yd hr Hz kW kJ of as by at is on if")
)
_LETTERS = frozenset("mgshlLVWJNK")  # units of one letter; any other letter is a variable
_NO_UNITS = frozenset(["or", "and", "not", "to", "pi", "plus", "minus", "times", "over"])
_SEVERAL = re.compile(
    r"[;\n<>≤≥≠]|,(?!\d{3}(?!\d))|\\\\|\b(?:or|and)\b|\\(?:le|ge|ne)q?(?:slant)?\b|\\[lg]t\b|=.*\d[\s\\]+[A-Za-z]\s*="
)
_ARGUMENTS = re.compile(r"(?<=[A-Za-z}'])_(?:\{[^{}]*\}|\w)|(?<=[dfghpqvACDEFGHLMNPQRSTV'])\([^()]*\)")
_WORDS = re.compile(r"\\(?:sum|prod|int|lim)\b|(?<![\\A-Za-z])(?!sqrt|sinh|cosh|tanh)[A-Za-z]{4,}")
_UNKNOWN = re.compile(
    r"(?<![\\A-Za-z])(?!ln)[A-Za-z]{1,2}(?![A-Za-z])|\d\s?[A-Za-z]"
    r"|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|omega)\b"
)
_CHOSEN = re.compile(
    r"(?i:\W*(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)(?:\s+is)?\b)?[\s:]*"
    r"(?:\(([A-J])\)|([A-J])(?=\s*$|[).:,]|\s+(?:because|since|is)\b|\s+[-–—]\s+[A-Za-z]{3}))"
    r"(?!\)?\s*(?:,|or\b|and\b|&|/)\s*\(?[A-J]\b)"
)
_BEHIND = re.compile(r"(?:\\(?:text|mathrm|mbox)\s*|(?<=\d)_)\{?[\s~]*(\w[^{}]*\}?[\^{}\d\s]*)$")
_FORMULA = re.compile(r"(?<!\\)\$((?:\\.|[^$\\])+)\$")
_TEXTS = re.compile(r"\\(?:text|mathrm|mbox)\s*\{(?!\s*,?\s*(?:and|or)\b)")
_JOINED = re.compile(r"\}\s*(?:/|-|\\cdot)\s*\\(?:text|mathrm|mbox)\s*\{[\s~]*")
_WRITTEN = [
    (_JOINED, "/"),
    (re.compile(r"√\s*(\w+)"), r"\\sqrt{\1}"),
    (re.compile(r"\\mathrm\{([eid])\}"), r"\1"),
    (re.compile(r"∞"), r"\\infty"),
    (re.compile(r"∅|\\varnothing\b"), r"\\emptyset"),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi"),
    (re.compile(r"(?:\\q?quad|\\\\|\n)\s*(?=[A-Za-z](?:_\{?\w+\}?)?\s*=)"), ", "),
    # math-verify takes 4t, 2ab and \pi r^2 h for numbers with a unit, but not 4{t}.
    (re.compile(r"(?<=[\d}\s])(?!i\b|cm|mm|km|in|ft|kg|mg|lb|oz)([A-Za-z]{1,2})\s*$"), r"{\1}"),
]
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


def text_of_tag(text: str, tag: str) -> str:
    """Return what the one tag of that name holds, "" if there is not exactly one, opened and closed."""
    parts = text.split(f"<{tag}>")[1].split(f"</{tag}>") if text.count(f"<{tag}>") == 1 else []
    return parts[0] if len(parts) == 2 else ""


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
    """Return where the last marked answer begins, and the text that is marked."""
    marks = list(_MARKS[form].finditer(text))
    if form == "any":
        # "####" is Markdown's heading, too: what is marked in other ways goes before one without a number.
        last = next((mark for mark in reversed(marks) if not mark["hashes"] or _RESULT.match(text, mark.end())), None)
        boxes = sorted(_boxes(text))
        if boxes and (last is None or boxes[-1][0] > last.start()):
            return _join_boxes(text, boxes)
        marks = marks if last is None else [last]
        if last is None and (said := list(_SAID.finditer(text))):
            marks = said
        elif last is None:
            start = text.rstrip().rfind("\n") + 1
            in_last_line = list(_BOLD.finditer(text, start))[-MOST_BOLD:]
            for bold in reversed(in_last_line):
                if read_number(bold[1]) is not None or not text[bold.end() :].strip(" \n.!"):
                    return bold.start(), bold[1]
            if _ALONE.fullmatch(text, start):
                return start, text[start:]
    return (marks[-1].start(), _read_mark(marks[-1])) if marks else None


def _read_mark(match: re.Match[str]) -> str:
    """Return what a tag holds, or the first sentence of the line behind a mark (the next line if the mark ends one)."""
    if (tagged := match.groupdict().get("tagged")) is not None:
        return str(tagged)
    behind = match.string[match.end() : match.end() + LONGEST_LINE]
    line = (behind.lstrip() if match[0].endswith("\n") else behind).partition("\n")[0]
    return _SENTENCE.split(line, maxsplit=1)[0]


def _join_boxes(text: str, boxes: Sequence[tuple[int, int, str]]) -> tuple[int, str]:
    """Return where the last box begins and what it holds; several joined by commas, "and" or "or" count as one."""
    *earlier, (start, _, answer) = boxes
    for begin, end, held in reversed(earlier[-MOST_BOLD:]):
        between = re.sub(r"\\text|\\q?quad|\\\W|[\s${}&~]|\b[A-Za-z](?:_\w|_\{\w+\})?\s*=", "", text[end:start])
        if not between or not re.fullmatch(r"[,;]?(?:and|or)?", between):
            break
        start, answer = begin, answer if is_same(held, answer) else f"{held}, {answer}"
    return start, answer


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return where each ``\\boxed{…}`` begins and ends, and what it holds: "" if it does not end."""
    found, opened = [], list[tuple[int, int] | None]()
    for match in _BRACES.finditer(text):
        if match["box"]:
            opened.append((match.start(), match.end()))
        elif match[0] == "{":
            opened.append(None)
        elif match[0] == "}" and opened and (box := opened.pop()) is not None:
            found.append((box[0], match.end(), text[box[1] : match.start()]))
    return found + [(box[0], len(text), "") for box in opened if box is not None]


def in_plain_digits(text: str) -> str:
    """Return a text with full-width characters, minus signs and spaces between thousands as ASCII has them."""
    return _THOUSANDS.sub(",", text.translate(_SYMBOLS))


def cleaned(text: str) -> str:
    """Return an answer without what marks it up: ``\\boxed``, ``$``, ``**``, a closing full stop, an end token."""
    found = _find_answer(text, "any")
    while found is not None and found[1] != text:
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
    """A number as an answer gives it: ``unit`` is the first word after it, in small letters and without its s.

    ``name`` are the unknowns that it is the value of, ``x`` or ``m+n``, "" if it says none or shows how it comes about.
    """

    value: Fraction
    percent: bool = False
    unit: str = ""
    name: str = ""

    def equals(self, gold: Number, *, rounded: bool = False) -> bool:
        """Return whether both are one quantity; a unit, percent sign or unknown that only one side has may be left out.

        What a gold such as ``x + y = 7`` says of its unknowns may not. ``rounded``: to six decimals.
        """
        if self.unit and gold.unit and self.unit != gold.unit:
            return False
        if gold.name and self.name != gold.name and (self.name or not gold.name.isalpha()):
            return False
        if self.percent == gold.percent:
            off = abs(self.value - gold.value)
            same_digits = rounded and round(self.value, 6) == round(gold.value, 6)
            return not off or (same_digits and off <= abs(gold.value) / 1000)
        share, number = (self, gold) if self.percent else (gold, self)
        return number.value in (share.value, share.value / 100)


def read_number(text: str) -> Number | None:
    """Return the one number that an answer gives, None if it gives none, several, an equation or a formula."""
    if len(text) > LONGEST_NUMBER:
        return None
    *links, last = _ARGUMENTS.sub("", _CLAUSE.split(_plain(text), maxsplit=1)[0]).split("=")
    if links and (_SEVERAL.search("=".join([*links, last])) or not any(map(_is_name, links))):
        return None
    match = _NUMBER.fullmatch(last.strip())
    is_formula = re.search(r"\$|\\[a-z]", text) and not re.search(r"\\(?:text|mathrm|mbox)", text)
    unit = None if match is None else _unit(match["rest"], frozenset() if is_formula else _LETTERS)
    if match is None or unit is None or (match["sign"] and match["minus"]) or match["bottom"] in ("0", "00"):
        return None
    if match["bottom"]:
        value = int(match["whole"] or 0) + Fraction(int(match["top"]), int(match["bottom"]))
    else:
        value = Fraction(match["digits"].replace(",", "").rstrip(".")) * Fraction(10) ** int(match["power"] or 0)
    value *= _SCALES.get(unit, 1) * (-1 if "-" in (match["sign"], match["minus"]) else 1)
    name = re.sub(r"[^A-Za-z+*/-]", "", links[0]) if len(links) == 1 and not _WORDS.search(links[0]) else ""
    name = "+".join(sorted(name.casefold().split("+")))
    return Number(value, bool(match["percent"]), "" if unit in _SCALES else unit, name)


def _is_name(left: str) -> bool:
    """Return whether an equation's left side names a quantity, in words or unknowns (``x``, ``m + n``), or is a sum."""
    left = re.sub(r"(?<=\d)\s*x\s*(?=[\d$(])", "*", left)
    return bool(_WORDS.search(left)) or not (_UNKNOWN.search(left) and re.search(r"[\d^(]", left))


def _unit(rest: str, letters: frozenset[str]) -> str | None:
    """The unit behind a number, "" for none; None if what follows is no unit but a variable, say, or another number."""
    apart = rest[:1].isspace()
    for pattern, plain in _UNIT_FORMS:
        rest = pattern.sub(plain, rest)
    words = rest.rstrip(" .").split()
    if re.search(r"[^A-Za-z/ .'23]|(?<![A-Za-z])[23]", rest) or _NO_UNITS.intersection(map(str.lower, words)):
        return None
    parts = "".join(words[:1]).split("/")
    letters = letters if apart or len(parts) > 1 else frozenset()
    if not all(
        len(word) > 2 or word in {"", *_SHORT_UNITS, *letters} for word in (part.rstrip("23") for part in parts)
    ):
        return None
    return "/".join(re.sub(r"(?<=..)[s.]+(?=[23]?$)", "", part).lower() for part in parts)


def _plain(text: str) -> str:
    """An answer's text with LaTeX's ways of writing numbers and spaces undone."""
    text = cleaned(text)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return text


def is_same(claim: str, gold: str) -> bool:
    """Return whether two answers are one number or one option, or else the same text or the same equations."""
    return bool(compare(claim, gold))


def compare(claim: str, gold: str, *, rounded: bool = False) -> bool | None:
    """Say whether two answers are the same; None for formulas, which have to be worked out.

    What they say behind their numbers has to agree: units, the base, a condition like ``n \\text{ is even}``.
    ``rounded``: numbers to six decimals.
    """
    claimed, right = read_number(claim), read_number(gold)
    if claimed is not None and right is not None:
        return claimed.equals(right, rounded=rounded)
    option, chosen = re.fullmatch(r"\(?([A-J])\)?", _plain(gold)), _CHOSEN.match(_plain(claim))
    if option and chosen:
        return option[1] in chosen.groups()
    folded, behind = [], []
    for answer in (claim, gold):
        text = re.sub(r"\s+", " ", _plain(answer)).strip().casefold().replace("\\$", "").replace("$", "")
        text = re.sub(r"(?<!\w) | (?!\w)|(?<=\d) (?=[a-z]\b)", "", text)
        text = re.sub(r"\((\w)\)", r"\1", text) if len(text) == 3 else text
        folded.append(sorted(re.split(r"[,;]| (?:and|or) ", text)) if text.count("=") > 1 else [text])
        behind.append(
            re.sub(r"s?\}|[{^]", "", "".join(_BEHIND.findall(_JOINED.sub("/", cleaned(answer)[-LONGEST_NUMBER:]))))
        )
    if folded[0] == folded[1]:
        return True
    differ = behind[0] != behind[1] and (
        all(behind) or re.match(r"(?:is|are|if|for|when|where|mod)\b", behind[0] or behind[1])
    )
    chained = claimed is None and right is not None and claim.count("=") > 1  # x = 1 y = 7
    return False if differ or chained or re.fullmatch(r"[A-Za-z ]{3,}|\(?[A-J]\)?", gold) else None


def breaks_off(text: str) -> bool:
    """Return whether LaTeX ends within a command or braces."""
    text = re.sub(r"\\[^A-Za-z]", "", text)
    return text.endswith("\\") or text.count("{") != text.count("}")


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
    """Return whether an answer is one of a row's right ones; None if the row has none. Raises as ``golds_of``."""
    golds = golds_of(answer)
    return any(claim is not None and is_same(claim, gold) for gold in golds) if golds else None


# ── formulas ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def load_math_verify() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return math-verify's ``parse`` and ``verify``, without limits of time; their tables are loaded now."""
    import math_verify

    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    forms = [math_verify.LatexExtractionConfig(boxed_match_priority=0), math_verify.ExprExtractionConfig()]
    parse = partial(math_verify.parse, extraction_config=forms, extraction_mode="first_match", parsing_timeout=None)
    verify = partial(math_verify.verify, timeout_seconds=None)
    verify(parse("1"), parse("$ab$"))
    return parse, verify


def find_formula(text: str) -> list[Any]:
    """Return the last number or formula of a text, as math-verify reads it: an expression and its LaTeX, or nothing."""
    unsigned = re.sub(r"(?m)^[ \t]*\+(?=\d)", "", in_plain_digits(text.strip()))  # it reads no plus
    return list(load_math_verify()[0](unsigned))


def read_formula(text: str) -> list[Any]:
    """Return what an answer means, an expression and its LaTeX, as math-verify reads it.

    Nothing for several formulas in a sentence, or a list of which it would take the first.
    """
    from sympy import Expr

    text, parse = cleaned(text), load_math_verify()[0]
    formulas = [match[1] for match in _FORMULA.finditer(text)]
    if len(formulas) > 1:
        text = "" if re.search(r"\w", re.sub(r"and|or", "", _FORMULA.sub("", text))) else ", ".join(formulas)
    for pattern, latex in _WRITTEN:
        text = pattern.sub(latex, text)
    if not text or (len(_TEXTS.findall(text)) > 1 and _BEHIND.search(text)):
        return []
    is_marked = re.search(r"\\boxed|(?<!\\)\$|\\\(|\\\[", text)
    found = parse(text if is_marked else f"\\boxed{{{text}}}") or parse(text)
    is_list = re.search(r";|,\s", re.sub(r"\([^()]*\)|\{[^{}]*\}", "", text))
    return [] if found and is_list and isinstance(found[0], Expr) else list(found)


def formulas_agree(claim: str, found: Sequence[Any], gold: str) -> bool | None:
    """Return whether math-verify finds a formula read in ``claim`` equal to ``gold``; None if it cannot read that.

    It takes for equal what is not: 7 and 2x + 3 = 7, any two equations without a real solution, any two tiny numbers.
    """
    names = re.findall(r"(?<![A-Za-z\\])([A-Za-z])\s*=", gold)
    if "=" not in claim and len(set(names)) == len(names) > 1:  # x = 3, y = -2 is the point (3, -2)
        gold = "({})".format(re.sub(r"[A-Za-z]\s*=", "", gold))
    expected = read_formula(gold)
    if not expected or isinstance(expected[0], str):
        return None
    has_set = "infty" in gold or "[" in gold  # (1, 2) may be a point
    if not found or not load_math_verify()[1](expected, list(found), allow_set_relation_comp=has_set):
        return False
    with suppress(Exception):  # sympy raises whatever for what it does not know
        return not _is_mistaken(found[0], expected[0], gold)
    return True


def _is_mistaken(claimed: Any, right: Any, gold: str) -> bool:
    """Return whether two expressions are not equal though math-verify finds them so."""
    from sympy import Eq, Expr, Number, simplify, solve

    if isinstance(claimed, Eq) and isinstance(right, Eq):
        # Sides with no unknown only say how a value comes about.
        has_unknown = bool(right.free_symbols)
        sides = [side.lhs - side.rhs if has_unknown else side.rhs for side in (claimed, right)]
        ratio = simplify(sides[0] / sides[1])
        is_multiple = ratio != 0 and not ratio.free_symbols
        return not (is_multiple or solve(right, right.free_symbols)) if has_unknown else ratio != 1
    if isinstance(claimed, Eq) and "=" not in gold:
        return bool(claimed.lhs.free_symbols and claimed.lhs.atoms(Number) - {-1})
    constants = [side for side in (right, claimed) if isinstance(side, Expr) and side.is_number and side.is_finite]
    sizes = [constant.evalf() for constant in constants]
    return len(sizes) > 1 and "%" not in gold and bool(abs(sizes[0] - sizes[1]) > abs(sizes[0]) / 1000)


def last_result(text: str) -> Number | None:
    """Return the number behind the last ``=`` of a text; None if there is none, or something else stands there."""
    _, equals, behind = re.sub(r"<<.*?>>|\*\*", "", in_plain_digits(text)).rpartition("=")
    line = behind.strip(" $*").split("\n")[0]
    match = _NUMBER.match(_plain(line)) if equals and len(line) <= LONGEST_NUMBER else None
    if match is None or re.match(r"\s*[*/+^(\\\d-]|\s?[a-zA-Z]\b", match["rest"]):
        return None
    return read_number(_plain(line)[: match.start("rest")])


@lru_cache(4096)
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
        """Return what the line works out: ``10 * 8``, or an answer's number."""
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
    task = _read_task(start, tuple(map(tuple, operations)))
    chain = _last_read.pop(task, None)
    if chain is None or not text_before.startswith(chain.text):
        chain = _Chain(*task)
    between, chain.text = text_before[len(chain.text) :], text_before + step
    chain.read(between)
    lines = chain.read(step)
    _last_read.clear()
    if text_before[-1:] in ("", "\n") and chain.text.endswith("\n"):
        _last_read[task] = chain
    return lines


@lru_cache(maxsize=64)
def _read_task(start: int, operations: tuple[tuple[object, ...], ...]) -> tuple[int, tuple[tuple[str, int], ...]]:
    return int(start), tuple((str(symbol), int(str(operand))) for symbol, operand in operations)


_last_read: dict[tuple[int, tuple[tuple[str, int], ...]], _Chain] = {}
"""The chain that the last call read, if it ends in whole lines: the next step of the answer goes on from it."""


def goes_wrong_at(
    text_before: str, step: str, start: int | None, operations: Sequence[Sequence[object]] | None
) -> int | None:
    """Return the character of a step at which it first differs from what would be right after ``text_before``.

    Arguments as ``read_chain``. None for a step that is right, and for one that is badly written or not due, which is
    wrong as a whole.
    """
    lines, at = read_chain(text_before, step, start, operations), 0
    texts = [text for text in step.split("\n") if text not in ("", "<reasoning>", "</reasoning>")]
    for text, line in zip(texts, lines, strict=False):
        if not line.in_place:
            return None
        at = step.index(text, at)
        if line.due:
            due = " ".join(map(str, (line.before, *line.due)))
            right = f"{text.partition(':')[0]}: {due} = {work_out(due)}"
        else:
            right = text.replace(str(line.result), str(line.before))
        if text != right:
            pairs = enumerate(zip(text, right, strict=False))
            return at + next((i for i, (a, b) in pairs if a != b), min(len(text), len(right)))
    return None


class _Chain:
    """State of a chain after the lines read by now: a wrong result is blamed once; the next line goes on from it."""

    def __init__(self, value: int, todo: tuple[tuple[str, int], ...]) -> None:
        self.text = ""  # all that is read
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
