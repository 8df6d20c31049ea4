"""Equations in prose, and whether they hold: ``3 boxes × $402 = $1,206``, ``48/2=24``, ``20% of 50 = 10``.

An equation has a value on each side of its sign, one of which is computed; in a chain, ``a + b = c = d``, each sign
makes one. Units and other words behind a number, currency and LaTeX's markup do not matter. What has an unknown in it,
or cannot be read with certainty, is no equation.
"""

import re
from fractions import Fraction

from workbench.rewards.answers import in_plain_digits, work_out

LONGEST_SIDE = 200
"""Characters of a side; an equation with a longer one is not read."""

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_APPROXIMATELY = re.compile(r"\\approx|≈|~=")
_SPELLINGS = [
    (re.compile(r"<<(?:(?!<<|>>).)*>>|(?<!\d)\*\*|\*\*(?!\d)|\\left\b|\\right\b|\\[()\[\]]"), ""),
    (re.compile(r"[<>!]=|=>|^[ \t]*[-*•]\s", re.MULTILINE), ";"),  # no equation, or the mark of a list
    (re.compile(r"==+|\s(?:is equal to|equals)\s"), "="),
    (re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"((\1)/(\2))"),
    (re.compile(r"(?:(?<=\d),|(?:(?<=\$\d)|(?<=\$\d\d)|(?<=\$\d\d\d)) )(?=\d{3}(?!\d))|(?<=\d) (?=000\b)|\\(?=%)"), ""),
    (re.compile(rf"\\?\$\s*(-?{_NUMBER})(?![\d.%])"), r"\1 dollars"),
    (re.compile(r"\\?[$€£¥₹]"), ""),
    (re.compile(r"\b(\d+) (\d{1,2}/\d{1,3})\b(?!/)"), r"(\1+\2)"),
    (re.compile(r"(%|\d/\d+\)*) of (?:the )?(?=[\d(.])"), r"\1*"),
    (re.compile(r"\\times|\\cdot|⋅|\s(?:times|multiplied by)\s(?=[\d(.])|(?<=[\d)%\s])[xX](?=\s*[\d(.])"), "*"),
    (re.compile(r"\\div|÷|\sdivided by\s(?=[\d(.])"), "/"),
    (re.compile(r"\splus\s(?=[\d(.])"), "+"),
    (re.compile(r"\sminus\s(?=[\d(.])"), "-"),
    (re.compile(r"(?<=[\d)])(?=\([\d(.-])|(?<=\))(?=\d)"), "*"),
]
_CONJUNCTIONS = "and|as|because|but|if|is|or|since|so|than|that|then|when|which|while"
_WORD = rf"(?!(?:{_CONJUNCTIONS})\b)(?:[A-Za-z°][A-Za-z'’°&]+(?:-[A-Za-z]+)*|[mgshlLaI])\b"
_WORDS = re.compile(rf"(?<=[\d)%])(?:[ \t]*+(?:\((?:[ \t]*+{_WORD}){{1,6}}[ \t]*\)|(?:/[ \t]*+)?{_WORD})){{1,6}}")
_UNREAD = "_"  # in place of each of their characters
_BREAK = re.compile(r"[^-+*/()%\d. \t_]|\.(?!\d)")
_ADJOINING = re.compile(r"(?<=[\d)%])[ \t_]+(?=[\d.(])")
_OF_VALUES = frozenset("0123456789.(")
_PLAIN = re.compile(r"-?\d*(?:\.(\d+))?(%?)")
_UNITS = [
    re.compile(rf"\b({names})(?:e?s)?\b")
    for names in (
        "second|minute|hour|day|week|month|year|decade",
        "cent|dollar",
        "inch|feet|foot|yard|mile|mm|cm|m|km|meter|kilometer",
        "ounce|pound|ton|mg|g|gram|kg|kilogram|teaspoon|tablespoon|cup|pint|quart|gallon|liter|ml|l",
    )
]


def check_equations(text: str) -> list[bool]:
    """Return whether each equation of a text holds, in their order.

    Values are worked out exactly. A result with decimals may be rounded in its last one, behind ``≈`` any result, and a
    percent sign may be left out (``5/20 * 100 = 25%``). An equation whose numbers differ is left out if its sides name
    other units of one kind, minutes and hours, say.
    """
    text = in_plain_digits(_APPROXIMATELY.sub("≅", text))
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    blank = _WORDS.sub(lambda words: _UNREAD * len(words[0]), text)
    signs = [match.start() for match in re.finditer("[=≅]", blank)]
    found, is_chain = list[bool](), False
    for before, sign, after in zip([-1, *signs], signs, [*signs[1:], len(blank)], strict=False):
        start, end = _start(blank, before + 1, sign), _end(blank, sign + 1, after)
        sides = [side.replace(_UNREAD, "").strip() for side in (blank[start:sign], blank[sign + 1 : end])]
        is_computed = not all(_PLAIN.fullmatch(side) for side in sides)
        is_chain = is_computed or (is_chain and start == before + 1)
        if not is_chain:
            continue
        try:
            holds = are_equal(*sides, exactly=blank[sign] == "=")
        except (ValueError, ZeroDivisionError):
            is_chain = False
            continue
        if holds or not _convert(text[start:sign], text[sign + 1 : end]):
            found.append(holds)
    return found


def _start(text: str, first: int, sign: int) -> int:
    """Return where the expression before an equals sign starts, ``sign`` if what is there is not all of it."""
    start = max((match.end() for match in _BREAK.finditer(text, first, sign)), default=first)
    label = text[max(0, start - 2) : start]
    if start > first and text[start] in _OF_VALUES and (label[-1:].isalnum() or label[:1].isdigit()):
        return sign  # x5, or 3:30
    start = max([start, *(start + place + 1 for place in _unmatched(text[start:sign]))])
    start = max([start, *(match.end() for match in _ADJOINING.finditer(text, start, sign))])
    return sign if re.match(r"[\s_]*(?:[+*/]|-\s)", text[start:sign]) else start


def _end(text: str, first: int, last: int) -> int:
    """Return where the expression behind an equals sign ends, ``first`` if what is there is not all of it."""
    stop = _BREAK.search(text, first, last)
    end = last if stop is None else stop.start()
    if re.match(r"\^|[A-Za-z]\b", text[end:last]) and text[first:end].rstrip()[-1:] != _UNREAD:
        return first  # an unknown, or a power
    end = min([end, *(first + place for place in _unmatched(text[first:end]))])
    end = min([end, *(match.start() for match in _ADJOINING.finditer(text, first, end))])
    return first + len(re.sub(r"[\s_]-\s*$", "", text[first:end]))


def _unmatched(text: str) -> list[int]:
    """Return the places of parentheses that are not closed or not opened."""
    opened, closed = list[int](), list[int]()
    for place, character in enumerate(text):
        if character == ")" and opened:
            opened.pop()
        elif character in "()":
            (opened if character == "(" else closed).append(place)
    return [*opened, *closed]


def are_equal(left: str, right: str, *, exactly: bool = True) -> bool:
    """Return whether two sums are equal, as ``check_equations`` compares them; not ``exactly``: up to a rounded result.

    Raises ValueError and ZeroDivisionError as ``work_out`` does, and ValueError for a sum that is too long.
    """
    if max(len(left), len(right)) > LONGEST_SIDE:
        raise ValueError("a side is too long")
    values, others = ((work_out(side), work_out(side.replace("%", ""))) for side in (left, right))
    allowed = abs(values[0]) / 10**9 if "." in left + right else Fraction(0)  # a calculator's floating point
    for side in (left, right):
        if (plain := _PLAIN.fullmatch(side.strip())) and (plain[1] or not exactly):
            allowed = max(allowed, Fraction(1, 2 * 10 ** (len(plain[1] or "") + 2 * len(plain[2]))))
    pairs = (values[0], others[0]), (values[0], others[1]), (values[1], others[0])
    return any(abs(a - b) <= allowed for a, b in pairs)


def _convert(left: str, right: str) -> bool:
    """Return whether two sides name other units of one kind."""
    named = ([{match[1] for match in units.finditer(side.lower())} for side in (left, right)] for units in _UNITS)
    return any(a and b and a.isdisjoint(b) for a, b in named)
