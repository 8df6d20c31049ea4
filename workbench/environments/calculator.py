"""The embedded environment: a calculator that answers ``call: 37*8`` with ``= 296`` until there is an ``Answer:``.

What is worked out are numbers with + - * / and parentheses, exactly (``answers.work_out_call``). Anything else is
answered with ``= error``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.answers import work_out_call

CALL = re.compile(r"call:(.*)", re.DOTALL)
ERROR = "= error\n"
_LARGEST = 10**15


class Calculator:
    """The text environment of the task ``calculator``; a turn is a line."""

    stop: Sequence[str] = ("\n",)

    def reset(self, prompt: str, **columns: object) -> None:
        """Nothing is kept from one call to the next."""

    def reply(self, turn: str) -> str | None:
        """``= RESULT`` for a call, ``= error`` for a line that is neither call nor answer; None ends the episode.

        A result that is not whole has at most six decimals.
        """
        line = turn.strip()
        if line.startswith("Answer:"):
            return None
        call = CALL.fullmatch(line)
        try:
            value = work_out_call(call[1] if call else "")
        except (ValueError, ZeroDivisionError):
            return ERROR
        if abs(value) > _LARGEST:
            return ERROR
        decimals = f"{float(value):.6f}".rstrip("0").rstrip(".")
        return f"= {value.numerator if value.denominator == 1 else decimals}\n"
