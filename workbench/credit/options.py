"""The options of the credit schemes, read from the schemes' own signatures.

One place says what may be set: the keyword arguments of a scheme's function, and what every scheme shares
(``SHARED``). Checks and the page's form are made from this. Knows no scheme by name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from workbench.errors import CreditError, did_you_mean, shown

Value = bool | float | str | None


@dataclass(frozen=True)
class Range:
    """What a number means and between which bounds (both included) it lies."""

    help: str
    low: float
    high: float


@dataclass(frozen=True)
class Option:
    """One option as a form shows it; ``choices`` for a name, ``low`` and ``high`` for a number."""

    name: str
    kind: Literal["switch", "number", "choice"]
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def check(self, value: Any) -> Value:
        """The value, as its kind. Raises CreditError naming the option, the value and what would fit."""
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise CreditError(f"{self.name} is {shown(value)}; use true or false")
            return value
        if self.kind == "choice":
            if value not in self.choices:
                raise CreditError(f"{self.name} is {shown(value)}; choose one of {', '.join(self.choices)}")
            return str(value)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        assert self.low is not None and self.high is not None  # noqa: PT018
        if not fits or not self.low <= value <= self.high or not math.isfinite(value):
            raise CreditError(f"{self.name} is {shown(value)}; use a number from {self.low:g} to {self.high:g}")
        return float(value)

    def from_text(self, text: str) -> Value:
        """What text from a shell or a file means as this option's kind; text that means nothing comes back as it is."""
        if self.kind == "switch":
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.kind == "number":
            with suppress(ValueError):
                return float(text)
        return text


SHARED_HELP = {
    "normalise": "What a reward is compared with before it becomes an advantage",
    "scale": "Divide by the standard deviation (off is Dr. GRPO's choice)",
}
SHARED = ("outcome_weight", "clip", "drop_duplicates", "each_reward")
"""What every scheme has beside its own options; ``gamma`` may be given to all, and is said where it changes nothing."""
GAMMA = Option("gamma", "number", 1.0, "Discount of a step for each step before it", low=0.0, high=1.0)


@cache  # of as many as there are schemes
def options_of(compute: Callable[..., Any]) -> tuple[Option, ...]:
    """The keyword arguments of a scheme's function as options."""
    hints = get_type_hints(compute, include_extras=True)
    return tuple(
        _option(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(compute).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )


def _option(name: str, hint: Any, default: Value) -> Option:
    """``Annotated[float, Range(…)]``, or ``Annotated`` with a help text of a bool or a Literal."""
    kind, about = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, SHARED_HELP.get(name))
    assert about is not None, f"option {name!r} needs a help text, or a Range for a number"
    if isinstance(about, Range):
        return Option(name, "number", default, about.help, low=about.low, high=about.high)
    if kind is bool:
        return Option(name, "switch", default, about)
    return Option(name, "choice", default, about, choices=get_args(kind))


def resolve(scheme: str, options: tuple[Option, ...], values: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """Every option of a scheme with its value, given or default (a given None is the default); and what has no effect.

    Raises CreditError for an option that is unknown or out of range.
    """
    known = {option.name: option for option in options}
    values = {name: value for name, value in values.items() if value is not None}
    idle = []
    for name, value in values.items():
        if name in known:
            continue
        if name != "gamma":
            raise CreditError(
                f"scheme {scheme!r} has no option {shown(name)}{did_you_mean(name, known)}; it has "
                f"{', '.join((*known, *SHARED))}"
            )
        if GAMMA.check(value) != 1.0:
            idle.append(f"gamma {value:g} has no effect with scheme {scheme!r}, which sums no later steps")
    settled = {name: option.check(values.get(name, option.default)) for name, option in known.items()}
    if values.get("scale") is True and settled.get("normalise") == "none":
        idle.append("scale has no effect while normalise is 'none'")
    return settled, idle
