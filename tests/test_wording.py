"""Numbers in sentences."""

import pytest

from workbench.schema.numbers import counted, signed, two_places


def test_one_thing_is_not_several() -> None:
    assert [counted(n, "group") for n in (0, 1, 2, 1500)] == ["0 groups", "1 group", "2 groups", "1,500 groups"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.954, "+1.95"), (-0.5, "-0.50"), (0.0, "+0.00"), (0.0049, "+0.0049"), (-0.000123, "-0.00012"), (0.005, "+0.01")],
)
def test_a_number_that_is_not_0_never_reads_as_0(value: float, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.125, "0.13"), (0.135, "0.14"), (1.005, "1.00"), (-0.125, "−0.13"), (-0.004, "0.00"), (2.96, "2.96")],
)
def test_two_places_are_what_the_drawing_writes(value: float, text: str) -> None:
    """JavaScript's ``toFixed``: of the number as it is stored (1.005 is a little less), halves away from 0."""
    assert two_places(value) == text
