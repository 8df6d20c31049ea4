"""The embedded environment: a calculator that answers ``call: 37*8`` with ``= 296`` until there is an ``Answer:``.

What is worked out are numbers with + - * / and parentheses, exactly and by a parser of their own: no text of a policy
is ever evaluated as code. Anything else is answered with ``= error``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

CALL = re.compile(r"call:(.*)", re.DOTALL)
ERROR = "= error\n"
_PIECE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?|[-+*/()])")
_LONGEST, _LARGEST = 200, 10**15


class Calculator:
    """The text environment of the task ``calculator``; a turn is a line."""

    stop: Sequence[str] = ("\n",)

    def reset(self, prompt: str, **columns: object) -> None:
        """Nothing is kept from one call to the next."""

    def reply(self, turn: str) -> str | None:
        """``= RESULT`` for a call, ``= error`` for a line that is neither call nor answer; None ends the episode."""
        line = turn.strip()
        if line.startswith("Answer:"):
            return None
        call = CALL.fullmatch(line)
        try:
            return f"= {shown(evaluate(call[1]))}\n" if call else ERROR
        except (ValueError, ZeroDivisionError):
            return ERROR


def evaluate(text: str) -> Fraction:
    """The value of a sum like ``(37+5)*8``. Raises ValueError for anything else, ZeroDivisionError for a part by 0."""
    pieces = _pieces(text)
    at, by_zero = 0, False

    def taken(*choices: str) -> str:
        nonlocal at
        if at < len(pieces) and pieces[at] in choices:
            at += 1
            return pieces[at - 1]
        return ""

    def total() -> Fraction:
        value = product()
        while sign := taken("+", "-"):
            value = value + product() if sign == "+" else value - product()
        return value

    def product() -> Fraction:
        nonlocal by_zero
        value = factor()
        while sign := taken("*", "/"):
            other = factor()
            if sign == "/" and not other:
                by_zero = True  # raised once it is known that this is a sum
            else:
                value = value * other if sign == "*" else value / other
        return value

    def factor() -> Fraction:
        nonlocal at
        if taken("-"):
            return -factor()
        if taken("("):
            value = total()
            if not taken(")"):
                raise ValueError(f"a parenthesis of {text!r} is not closed")
            return value
        if at == len(pieces) or not pieces[at][0].isdigit():
            raise ValueError(f"a number is missing in {text!r}")
        at += 1
        return Fraction(pieces[at - 1])

    value = total()
    if at < len(pieces):
        raise ValueError(f"{pieces[at]!r} follows a complete sum in {text!r}")
    if by_zero:
        raise ZeroDivisionError(f"a part of {text!r} is divided by 0")
    if abs(value) > _LARGEST:
        raise ValueError(f"{text!r} is over {_LARGEST:,}; a calculator shows no more")
    return value


def shown(value: Fraction) -> str:
    """A whole number in digits, any other with at most six decimals."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.6f}".rstrip("0").rstrip(".")


def _pieces(text: str) -> list[str]:
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text)} characters; a call has at most {_LONGEST}")
    pieces, at, source = [], 0, text.rstrip()
    while at < len(source):
        piece = _PIECE.match(source, at)
        if not piece:
            raise ValueError(f"{source[at:][:20]!r} is no arithmetic")
        pieces.append(piece[1])
        at = piece.end()
    return pieces
