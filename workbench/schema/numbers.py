"""Numbers: in sentences, and equal up to rounding (0.1 + 0.2 and 0.3 are the same reward)."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import numpy.typing as npt


def say_count(number: int, noun: str) -> str:
    """A number of things: "1 group", "1,500 groups"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def signed(value: float) -> str:
    """A number with its sign and two decimals, or with two significant figures where it would read as 0."""
    return f"{value:+.2g}" if 0 < abs(value) < 0.005 else f"{value:+.2f}"


def two_places(value: float) -> str:
    """A number with two decimals, rounded as the drawing rounds it: 0.125 is 0.13, and minus is a true one."""
    size = Decimal(abs(value)).quantize(
        Decimal("0.01"), ROUND_HALF_UP, Context(prec=48)
    )  # the largest float32 has 39 digits
    return f"{'−' * (value < 0 and size > 0)}{size}"


def whole_percent(share: float) -> int:
    """A share in whole per cent, half rounded up as the drawing does, also where a float32 lies just below half."""
    return int(100 * share * (1 + 1e-7) + 0.5)


ROUNDING = 1e-9
"""Scores that are nearer to each other than this, in relation to 1 or their size, are equal."""


def differ(low: npt.ArrayLike, high: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return whether ``high`` is above ``low`` by more than rounding, elementwise."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # a pool without values: inf - inf
        return np.asarray(high - low > ROUNDING * np.maximum(1.0, np.maximum(np.abs(high), np.abs(low))))


def is_varied(values: Iterable[float | None]) -> bool:
    """Return whether two of the values differ by more than rounding; None is no value."""
    known = [value for value in values if value is not None]
    return bool(known) and bool(differ(min(known), max(known)))
