"""Equations in prose: by hand, against the calculator notes of real answers, and against sympy."""

import json
import re
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import sympify

from workbench.assets import GSM8K
from workbench.rewards.builtin.steps import calculator_notes, sums_hold
from workbench.rewards.sums import check_equations


@pytest.mark.parametrize(
    ("step", "share"),
    [
        ("There are 13 left.", None),
        ("5 + 3 = 9", 0),
        ("3 boxes × $402 = $1,206", 1),
        ("She has 48/2=<<48/2=24>>24 clips", 1),
        ("$12/60 = 0.2 a minute", 1),
        ("2 + 3 = 5 = 6", 0.5),  # a chain: the result is judged once more
        ("5 + 3 = 8 * 2 = 16", 0.5),  # a running sum is no equality
        ("1. 5 + 3 = 8. 8 * 2 = 17", 0.5),
        ("- 5 + 3 = 8", 1),  # a list's mark
        ("2) 5 + 3 = 8", 1),
        ("**-5 + 3 = -2**", 1),
        ("20% of 50 = 10", 1),
        ("5/20 = 25%", 1),
        ("5/20 * 100 = 25%", 1),
        ("5/20 = 30%", 0),
        (r"$\frac{3}{4} \times 8 = 6$", 1),
        (r"\(3 \cdot 402 = 1,206\)", 1),
        ("10/3 ≈ 3", 1),
        ("10/3 = 3", 0),
        ("10/3 = 3.33", 1),
        ("20/3 = 6.66", 0),  # cut instead of rounded
        ("2(3+4) = 14", 1),
        ("1 1/2 * 4 = 6", 1),
        ("$350 000 * 2 = $700 000", 1),
        ("5 times 3 equals 15", 1),
        ("3 apples x 4 = 12 cards with the letter A", 1),
        ("5 (apples) + 3 (pears) = 8", 1),
        ("5 hours * 8 dollars/hour = $40 - that is all", 1),
        ("x = 5 * 3 = 15", 1),
        ("2x + 3 = 7", None),
        ("x + 3 = 5", None),
        ("2 * (x + 3) = 10", None),
        ("5 + 3 = 8y", None),
        ("5 + 3 = 8 - x", None),
        ("total - 5 = 10 - 2", None),
        ("2^3 * 1 = 8", None),
        ("3:30 + 2 = 5", None),
        ("1/0 = 1", None),
        ("5 = 5", None),  # nothing is computed
        ("2 * 30 minutes = 1 hour", None),  # converted
        ("4 * 25 cents = $1.00", None),
        ("120 minutes / 60 = 2 hours", 1),
        ("3 * 5 =\n15", None),
        ("(" * 60 + "1" + ")" * 60 + " = 1", None),
        ("1" * 3000 + " = 1 + 1", None),
    ],
)
def test_the_share_of_a_steps_equations_that_hold(step, share):
    assert sums_hold("", step) == share


def test_the_verdicts_of_real_answers_are_those_of_their_calculator_notes():
    counts = Counter[str]()
    rows = map(json.loads, (GSM8K / "model-solutions-300.jsonl").read_text("utf-8").split("\n")[:-1])
    answers = (answer["solution"] for row in rows for answer in row.values() if isinstance(answer, dict))
    for step in (step for answer in answers for step in answer.split("\n")):
        if (noted := calculator_notes("", step)) is not None:
            found = sums_hold("", re.sub("<<.*?>>", "", step))
            counts["none" if found is None else "same" if (found == 1) == (noted == 1) else "other"] += 1
    # The others: results cut off after some decimals or left without a sign, and slips of the prose or of the note.
    assert counts == {"same": 3645, "other": 57, "none": 34}


_NUMBERS = st.one_of(st.integers(0, 12_000), st.integers(1, 9_999).map(lambda cents: cents / 100)).map(str)
_SPELT = {"*": ["*", " × ", r" \times ", " x "], "/": ["/", " ÷ "], "+": ["+", " + ", " plus "], "-": ["-", " − "]}


@st.composite
def _sums(draw, depth=2):
    """A sum as Python writes it, and as somebody might."""
    if depth == 0 or (depth < 2 and draw(st.booleans())):
        number = draw(_NUMBERS)
        written = draw(st.sampled_from([f"{float(number):,}" if "." in number else f"{int(number):,}", number]))
        return number, draw(st.sampled_from(["{}", "${}", "{} apples", "{} miles/hour", "{}", "**{}**"])).format(
            written
        )
    sign = draw(st.sampled_from("*/+-"))
    (left, left_text), (right, right_text) = draw(_sums(depth=depth - 1)), draw(_sums(depth=depth - 1))
    return f"({left}){sign}({right})", f"({left_text}){draw(st.sampled_from(_SPELT[sign]))}({right_text})"


@settings(max_examples=60)
@given(_sums(), st.sampled_from([0, 0, 1, -2]), st.sampled_from(["{} = {}", "So it is {} = ${}.", "1. {}={} in all"]))
def test_sums_hold_where_sympy_says_so(sums, off, sentence):
    plain, text = sums
    value = sympify(plain, rational=True)
    assume(value.is_finite)  # nothing is divided by 0
    assert check_equations(sentence.format(text, f"{value + off * (1 + abs(value))}")) == [off == 0]
