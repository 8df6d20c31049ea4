"""Numbers in sentences."""

from __future__ import annotations

import pytest

from workbench.schema.wording import counted, signed


def test_one_thing_is_not_several() -> None:
    assert [counted(n, "group") for n in (0, 1, 2, 1500)] == ["0 groups", "1 group", "2 groups", "1,500 groups"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.954, "+1.95"), (-0.5, "-0.50"), (0.0, "+0.00"), (0.0049, "+0.0049"), (-0.000123, "-0.00012"), (0.005, "+0.01")],
)
def test_a_number_that_is_not_0_never_reads_as_0(value: float, text: str) -> None:
    assert signed(value) == text
