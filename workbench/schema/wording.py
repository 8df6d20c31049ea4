"""Numbers in sentences."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal


def counted(number: int, noun: str) -> str:
    """A number of things: "1 group", "1,500 groups"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def signed(value: float) -> str:
    """A number with its sign and two decimals, or with two significant figures where it would read as 0."""
    return f"{value:+.2g}" if 0 < abs(value) < 0.005 else f"{value:+.2f}"


def two_places(value: float) -> str:
    """A number with two decimals, rounded as the drawing rounds it: 0.125 is 0.13, and minus is a true one."""
    size = Decimal(abs(value)).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return f"{'−' * (value < 0 and size > 0)}{size}"
