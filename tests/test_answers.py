"""Reading final answers and comparing them with golds: right ones in every notation, and what only looks right."""

from typing import Any

import pytest

from workbench.rewards import BUILTINS
from workbench.rewards.answers import final_answer, is_right, reasoning_and_answer


def score(name: str, text: str, **columns: Any) -> float | None:
    function = BUILTINS[name].function
    assert function is not None
    return function(prompts=["p"], completions=[text], **{key: [value] for key, value in columns.items()})[0]


RIGHT = [  # gold, answer
    ("1206", r"so $3\cdot402=\boxed{1206}$"),
    ("1206", "The answer is 1206."),
    ("1206", "**1206**"),
    ("1206", "Answer: 1206"),
    ("1206", "#### 1206"),
    ("1206", "A: 1206"),
    ("1206", "<answer>\n1,206\n</answer>"),
    ("1206", "<SOLUTION>1206</SOLUTION>"),
    ("1206", "<think>maybe 7</think>\nAnswer: 1206"),
    ("1206", "<think>Answer: 7</think>So it is **1206 rolls**."),
    ("1206", "**Answer:** 1206"),
    ("1206", "**Answer: 1206**"),
    ("1206", "**Final Answer**: $\\boxed{1206}$"),
    ("1206", "The final answer is:\n\n$$\n\\boxed{1206}\n$$"),
    ("1206", "Answer:\n$$\\boxed{\n1206}$$"),
    ("1206", "Final Answer: The final answer is $1206$. I hope it is correct."),
    ("1206", r"\boxed{1206}. I hope the answer is correct."),
    ("1206", "#### Step 1\n3 * 402\n#### Conclusion\nThe answer is **1206**."),
    ("1206", "#### 1. Multiply\nThe answer is 1206."),
    ("1206", r"#### \boxed{1206}"),
    ("1206", "#### **1206**"),
    ("1206", "Answer: 7\nAnswer: 1206"),
    ("1206", "Answer: 3 * 402 = 1206"),
    ("5", "Answer: $x = 5$"),
    # notations of numbers
    ("1206", "Answer: +1206"),
    ("1206", "Answer: €1206"),
    ("1206", "Answer: $1,206.00."),
    ("1206", r"\boxed{\$1206}"),
    ("1206", r"\boxed{1\,206}"),
    ("1206", r"\boxed{1{,}206}"),
    ("1206", "Answer: 1\u202f206"),
    ("1206", "Answer: １２０６"),
    ("-5", "Answer: \u22125"),
    ("-3", "Answer: -$3"),
    ("3.5", "Answer: 3 1/2"),
    ("3.5", r"\boxed{3\frac{1}{2}}"),
    ("0.75", r"\boxed{\frac34}"),
    ("3/4", r"\boxed{\dfrac{3}{4}}"),
    ("100000", "Answer: 1e5"),
    ("100000", "Answer: 1 × 10^5"),
    ("100000", r"\boxed{1 \times 10^{5}}"),
    ("1200000", "The answer is 1.2 million."),
    # units and percent
    ("1206", "Answer: 1206 rolls, since 3 * 402 = 1206"),
    ("1206", r"\boxed{1206\text{ rolls}}"),
    ("5 cm", r"\boxed{5\,\text{cm}}"),
    ("5", "Answer: 5cm"),
    ("50", "Answer: 50 cm^2"),
    ("30", "Answer: $30^\\circ$"),
    ("50", "Answer: 50%"),
    ("50%", r"\boxed{50\%}"),
    ("50%", "Answer: 0.5"),
    ("0.5", "Answer: 50 percent"),
    # texts
    ("Paris", "The answer is Paris. I hope it is correct."),
    ("Paris", "**paris**"),
    ("St. Louis", "Answer: St. Louis"),
    ("B", "Answer: (B)"),
    ("(1, 2)", r"\boxed{\left(1,2\right)}"),
    (r"2\sqrt{3}", r"\boxed{2\sqrt{3}}"),
    ("12:30", "Answer: 12:30"),
    # golds
    ("3 * 402 = <<3*402=1206>>1206\n#### 1,206", "Answer: 1206"),
    (["5", "five"], "Answer: Five"),
    (["5", "five"], "Answer: 5"),
    (1206, "Answer: 1206"),
]
WRONG = [
    ("1206", "<think>maybe 1206"),
    ("1206", "<think>maybe **1206**"),
    ("1206", r"<think>\boxed{1206}"),
    ("1206", "<think>maybe 1206</think>\nI do not know."),
    ("1206", "<think>Answer: 1206</think>"),
    ("1206", "<think>x</think>No. <think>Answer: 1206"),
    ("20", "20"),
    ("20", "it is 20"),
    ("20", "Answer:"),
    ("20", "Answer: 20 or 21"),
    ("20", "Answer: 2 0"),
    ("20", "Answer: not 20"),
    ("20", "Answer: 20\nAnswer: 12"),
    ("20", r"\boxed{20} or rather \boxed{21}"),
    ("20", r"\boxed{20"),
    ("4", "**Step 1:** 2 + 2 = **4**\nthen 5"),
    ("18 to 20", "Answer: 18"),
    ("1206", "Answer: 12,06"),
    ("1206", "Answer: 1.206"),
    ("1206", "Answer: 1206e1"),
    ("5", "Answer: -5"),
    ("5", "Answer: --5"),
    ("5", "Answer: 5!"),
    ("5", "Answer: 5/0"),
    ("5 cm", "Answer: 5 km"),
    ("2", r"\boxed{2x}"),
    ("3", r"\boxed{3i}"),
    ("2", "Answer: 2 pi"),
    ("2", r"\boxed{2\sqrt{3}}"),
    (r"2\sqrt{3}", r"\boxed{2}"),
    (r"2\sqrt{3}", r"\boxed{3}"),
    ("(1, 2)", r"\boxed{1}"),
    ("72", r"\boxed{71, 72}"),
    ("0.5%", "Answer: 50%"),
    ("50%", "Answer: 5"),
    ("5²", "Answer: 52"),
    ("7", "Answer: 7" + "0" * 5000),
    (["5", "five"], "Answer: 6"),
]


@pytest.mark.parametrize(("gold", "text"), RIGHT)
def test_a_right_answer_is_right_in_any_notation(gold: Any, text: str) -> None:
    assert is_right(final_answer(text), gold) is True
    assert score("answer_correctness", text, answer=gold) == 1.0


@pytest.mark.parametrize(("gold", "text"), WRONG)
def test_what_only_looks_right_is_not(gold: Any, text: str) -> None:
    assert is_right(final_answer(text), gold) is False
    assert score("answer_correctness", text, answer=gold) == 0.0


# Gold, the answer as it stands in a box, what math_equality and what answer_correctness give it. The second compares
# texts where the first compares formulas, so that it may miss a right one ("-": not asked), but pays no wrong one.
JUDGED: list[tuple[str, str, float | None, float | str | None]] = [
    # equations are compared whole (Math-Verify#60, #26, #14)
    *[("x=1, y=2", wrong, 0, 0) for wrong in ("x=5, y=2", "x=2, y=1", "y=2", "x=1", "2", "(2,1)", "x=1, y=2, z=3")],
    *[("x=1, y=2", right, 1, 1) for right in ("x = 1 , y = 2", "y=2, x=1", r"x=1 \text{ and } y=2")],
    ("x=1, y=2", "(1,2)", 1, "-"),
    *[("3x+4y+14=0", wrong, 0, 0) for wrong in ("3x-y+13=0", "3x+4y-14=0", "0", "x=0", "3x+4y+14")],
    *[("3x+4y+14=0", right, 1, "-") for right in ("3x + 4y = -14", "6x+8y+28=0", r"y = -\frac{3}{4}x - \frac{7}{2}")],
    *[("x=2 or x=5", wrong, 0, 0) for wrong in ("x=9 or x=5", "x=5", "5", "x=2 or x=5 or x=7")],
    *[("x=2 or x=5", right, 1, 1) for right in ("x=5 or x=2", r"x=2 \text{ or } x=5", "x=2, x=5")],
    ("x=2 or x=5", "2, 5", 1, "-"),
    *[("7", wrong, 0, 0) for wrong in ("x=1, y=7", "x=1 or x=7", "x=1 and y=7", "x=7, y=1", "x=1; y=7", "x=1 y=7")],
    *[("7", wrong, 0, 0) for wrong in ("2x+3=7", "x^2=7", r"x=1 \\ y=7", r"x=1 \quad y=7", "x>7", "7x=7")],
    *[("7", right, 1, 1) for right in ("x=7", "f(2) = 7", "x_{1} = 7", "m+n = 3 + 4 = 7", "m+n=7", "3 x 2 + 1 = 7")],
    *[
        ("7", right, 1, 1)
        for right in ("P = 2l + 1 = 7", r"\text{Total} = 7", r"\sum_{k=3}^{4} k = 7", "x = 7, since 2x = 14")
    ],
    ("m+n = 256+37 = 293", "293", 1, 1),
    ("m+n = 256+37 = 293", "294", 0, 0),
    *[("x=7", right, 1, 1) for right in ("7", "x = 7.0", "7 apples")],
    *[("x=7", wrong, 0, 0) for wrong in ("y=7", "8", "x=-7")],
    *[("x+y=7", wrong, 0, 0) for wrong in ("7", "x-y=7", "x=7", "m=7")],
    ("x+y=7", "y+x=7", 1, 1),
    ("y=3x+2", "y-3x=2", 1, "-"),
    ("y=3x+2", "3x+2", 1, "-"),
    *[("y=3x+2", wrong, 0, 0) for wrong in ("y=2", "2", "y=3x+3", "x=3y+2")],
    *[("x^2+y^2=25", wrong, 0, 0) for wrong in ("x^2-y^2=25", "25", "y=25")],
    ("4x^2+8x+19=0", "4x^2+8x+99=0", 0, 0),  # neither has a real solution
    ("$x^{2}-4 x-2=0$", "x^{2}-4x-2=0", 1, 1),
    (r"B=\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"B = \begin{bmatrix}1&2\\3&4\end{bmatrix}", 1, "-"),
    ("0", "x^2-1=0", 0, 0),
    # relations, sets, intervals, points
    *[("x>5", wrong, 0, 0) for wrong in ("x<5", "x>6", "5", "x=5")],
    ("-2 < x < 3", "(-2,3)", 1, "-"),
    ("[0, \\infty)", "x \\ge 0", 1, "-"),
    (r"x<1 \text{ or } x>3", r"x<2 \text{ or } x>3", 0, 0),
    *[("[0,1)", wrong, 0, 0) for wrong in ("(0,1)", "[0,1]", "0")],
    (r"\{1,2,3\}", r"\{3,2,1\}", 1, "-"),
    ("1331, 1728", "1728", 0, 0),
    ("x=3, y=-2", "(-2,3)", 0, 0),
    ("$2$ and $3$", "2, 3", 1, "-"),
    ("$2$ and $3$", "3", 0, 0),
    ("$x=0$ or $x=2$", "x=1 or x=2", 0, 0),
    # money, percent, small numbers
    *[(r"\$18.90", right, 1, 1) for right in ("18.90", r"\$18.90", "18.9 dollars")],
    *[(r"\$18.90", wrong, 0, 0) for wrong in ("18.80", r"\$18.91")],
    (r"\$32,\!348", "32348", 1, 1),
    (r"\$32,\!348", "32349", 0, 0),
    (r"$\$5$", "5", 1, 1),
    (r"$\$5$", "6", 0, 0),
    ("28%", "28 pct", 1, 1),
    (r"3.1 \times 10^{-8}", r"3.2 \times 10^{-8}", 0, 0),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", 0, 0),
    # units: of one letter, too, but a letter that stands at its number is an unknown
    *[("12", right, 1, 1) for right in ("12 m", "12 g", "12 L", "12 s", "12 N", r"12 \text{ m}", "12 meters")],
    *[("5", right, 1, 1) for right in ("5 m/s", "5m/s", "5 m^2", "5 m²", "5 km per hour", "5 (apples)")],
    *[("5 (apples)", right, 1, 1) for right in ("5", "5 apples")],
    *[("12 m", right, 1, 1) for right in ("12", "12 m", "12 meters")],
    *[("12 m", wrong, 0, 0) for wrong in ("12 cm", "12 km", "12 m^2", "12.0 s", "13 m")],
    ("40 m^2", "40 square meters", 1, 1),
    ("12 feet", "12 inches", 0, 0),
    *[("12", wrong, 0, 0) for wrong in ("12 x", "12m", "12n", "12 ab", "12 xy^2", "3i")],
    *[
        (gold, wrong, 0, 0)
        for gold, wrong in (("4t", "4"), ("$6m$", "6"), ("$8 m$", "8"), ("6ab", "6"), ("101_2", "101_3"))
    ],
    (r"\pi r^{2} h", r"\pi r^{2}", 0, 0),
    (r"\frac{3}{4} s", r"\frac{3}{4}", 0, 0),
    (r"5\sqrt{2}", r"5\sqrt{2} \text{ cm}", 1, "-"),
    (r"5\sqrt{2} \text{ cm}", r"5\sqrt{2} \text{ m}", 0, 0),
    (r"n \text{ is even}", r"n \text{ is odd}", 0, 0),
    (r"3 \text{ h } 20 \text{ min}", r"3 \text{ h } 40 \text{ min}", None, 0),
    # options
    *[("C", right, 1, 1) for right in ("C", "(C)", "c", "C. bearing wear", "(C) 12", "C) 12", "C: 12", "Option C")],
    *[("C", wrong, 0, 0) for wrong in ("D, not B", "D. C", "D) C", "C or D", "C, D", "A", "Cat", "CD")],
    ("(C)", r"\textbf{(C)}\ 12", 1, 1),
    ("A", "A cat", 0, 0),
    # other characters
    (r"2\sqrt{3}", "2√3", 1, "-"),
    (r"\frac{\pi}{2}", "pi/2", 1, "-"),
    ("[0, \\infty)", "[0, ∞)", 1, "-"),
    # what cannot be read
    *[(gold, answer, None, "-") for gold in ("\\", r"\frac{1}{", r"\boxed{5") for answer in (gold, "5")],
    (r"1, 2, \ldots, n", r"1, 3, \ldots, 2n-1", None, 0),
    (r"1, 2, \ldots, n", r"1, 2, \ldots, n", 1, 1),
    ("$1 / 2$ meters, $3$ seconds", "$1 / 4$ meters, $3$ seconds", None, 0),
]


@pytest.mark.parametrize(("gold", "answer", "formulas", "texts"), JUDGED)
def test_an_independent_table_of_answers(gold: str, answer: str, formulas: float | None, texts: Any) -> None:
    text = f"so \\boxed{{{answer}}}"
    assert score("math_equality", text, answer=gold) == formulas
    if texts != "-":
        assert score("answer_correctness", text, answer=gold) == texts


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        ("42", r"first \boxed{42}, then \boxed{73", 0.0),
        ("42", r"Answer: 42. Or \boxed{4", 0.0),
        ("42", r"first \boxed{73}, then \boxed{42}", 1.0),
        ("7", r"$x=\boxed{3}$ and $y=\boxed{7}$", 0.0),
        ("7", r"\boxed{3}, \boxed{5} \text{ and } \boxed{7}", 0.0),
        ("3, 7", r"\boxed{3}, \boxed{7}", 1.0),
        ("7", r"\boxed{7} or \boxed{7.0}", 1.0),
        ("C", "It wears out.\n\nC", 1.0),
        ("C", "It wears out.\n**(C)**", 1.0),
        ("C", "It wears out.\nD.", 0.0),
        ("C", "The answer is C because A is wrong.", 1.0),
        ("C", "The correct option is C. A is a distractor.", 1.0),
        ("C", "The answer is D. C is a distractor.", 0.0),
        ("C", "ANSWER IS C.", 1.0),
    ],
)
def test_which_of_several_answers_is_read(gold: str, text: str, expected: float) -> None:
    for name in ("math_equality", "answer_correctness"):
        assert score(name, text, answer=gold) == expected


@pytest.mark.parametrize(
    "text",
    ["Answer: ", r"\boxed{", "<answer>", "$", "**a", "#### ", "answer is ", "Answer:\n", r"\boxed{1}, ", "\n", "1_1"],
)
def test_a_policy_that_repeats_itself_is_read_in_linear_time(text: str) -> None:
    assert final_answer(text * 10_000) != "5"  # minutes, if each mark were read to its end
    assert score("math_equality", rf"\boxed{{{text * 10_000}}}", answer="5") == 0.0


def test_a_prompt_that_opened_the_thinking_is_told_by_its_column() -> None:
    for name in ("answer_correctness", "math_equality"):
        assert score(name, "maybe Answer: 5", answer="5", thinking_open=True) == 0.0
        assert score(name, "maybe 7</think>Answer: 5", answer="5", thinking_open=True) == 1.0
    assert score("gsm8k_answer", "#### 5", answer="5", thinking_open=True) == 0.0


def test_an_object_is_no_text_to_compare_with_and_an_empty_column_no_gold() -> None:
    with pytest.raises(ValueError, match="object"):
        is_right("6", {"numbers": [1, 2, 3], "target": 6})
    assert [is_right("6", None), is_right("6", []), is_right(None, "6")] == [None, None, False]


def test_the_reasoning_is_what_stands_before_the_answer() -> None:
    assert reasoning_and_answer("<think>a</think>b\nAnswer: 5") == ("<think>a</think>b\n", "5")
    assert reasoning_and_answer("b") == ("b", None)


@pytest.mark.parametrize(
    "form", [r"#### \boxed{1206}", "#### **1206**", "#### +1206", "#### €1206", "#### 1\\,206", "#### １２０６"]
)
def test_gsm8k_answer_reads_any_notation(form: str) -> None:
    assert score("gsm8k_answer", form, answer="1206") == 1.0
    assert score("gsm8k_answer", form.replace("6", "5").replace("６", "５"), answer="1206") == 0.0
    assert score("gsm8k_answer", form.removeprefix("#### "), answer="1206") == 0.0  # the mark is its point


@pytest.mark.parametrize("form", [r"\boxed{1206}", "**1206**", "1206 rolls", "+1206", "\n$1,206\n", "１２０６"])
def test_gsm8k_correctness_reads_any_notation_in_its_tag(form: str) -> None:
    assert score("gsm8k_correctness", f"<answer>{form}</answer>", answer="1206") == 2.0
    assert score("gsm8k_correctness", f"<answer>{form}</answer>", answer="12") == 0.0
    assert score("gsm8k_correctness", f"<think><answer>{form}</answer>", answer="1206") == 0.0


BARE_GOLDS = {  # of MATH's notation, each with parts that are not it
    r"2\sqrt{3}": ["2", "3", r"\sqrt{3}"],
    "(1, 2)": ["1", "2", "(2, 1)"],
    "10^{20}": ["10", "20"],
    "3+4i": ["3", "4i", "4"],
    "[-2, 7]": ["-2", "7", "(-2, 7)"],
    "1331, 1728": ["1331", "1728"],
    r"1\frac{1}{2}": ["1", r"\frac{1}{2}"],
    r"\pm 2021": ["2021", "-2021"],
    r"\frac{\pi}{4}": [r"\pi", "4", r"\frac{1}{4}"],
    r"x^2+1": ["x^2", "1"],
    "Paris": ["pairs", "P"],
    r"50\%": ["5", "0.05"],
}


@pytest.mark.parametrize("gold", BARE_GOLDS)
def test_math_equality_reads_golds_without_dollars_whole(gold: str) -> None:
    for form in (r"\boxed{%s}", "<answer>%s</answer>", "The answer is $%s$.", "**Answer:** %s"):
        assert score("math_equality", form % gold, answer=gold) == 1.0, form
        assert score("math_equality", form % gold, answer=[r"\emptyset", gold]) == 1.0, form
    for part in BARE_GOLDS[gold]:
        assert score("math_equality", rf"\boxed{{{part}}}", answer=gold) == 0.0, part


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        ("1206", "**1206**", 1.0),
        ("1206", "It is 1206.", 1.0),
        ("1206", "It is １２０６.", 1.0),
        ("1206", r"It is 1\,206.", 1.0),
        ("3.5", r"\boxed{3 1/2}", 1.0),
        ("2", r"\boxed{3 1/2}", 0.0),
        ("100000", "Answer: 1e5", 1.0),
        ("1/3", r"\boxed{0.333333}", 1.0),  # to six digits, as math-verify has it
        ("1/3", r"\boxed{0.333}", 0.0),
        ("1206", "<think>maybe 1206", 0.0),
        ("1206", "<think>maybe 1206</think>\nI do not know.", 0.0),
    ],
)
def test_math_equality_reads_numbers_as_the_others_do(gold: str, text: str, expected: float) -> None:
    assert score("math_equality", text, answer=gold) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nAnswer: 24", 1.0),
        ("Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nAnswer: 12", 0.0),
        ("<think>3 * 402 = 1206</think>It is **1206**.", 1.0),
        ("<think>3 * 402 = 1206</think>It is **1205**.", 0.0),
        ("16 - 3 = <<16-3=13>>13 eggs\n#### 13", 1.0),
        (r"so $x = \frac{7}{2}$ and \boxed{3.5}", 1.0),
        ("So 3 * 402 = **1,206**. The answer is 1206.", 1.0),
        ("It must be so. Answer: 12", None),
        ("x = 3 * 402\nAnswer: 1206", None),
        ("x = 2y\nAnswer: 2", None),
        ("7 + 5 = 12", None),
        ("7 + 5 = 12\nAnswer: twelve", None),
    ],
)
def test_answer_follows_holds_the_answer_against_the_last_result(text: str, expected: float | None) -> None:
    assert score("answer_follows", text) == expected


@pytest.mark.parametrize(
    "name",
    ["answer_correctness", "answer_follows", "gsm8k_answer", "gsm8k_correctness", "math_equality", "qwen3_answer"],
)
def test_rewards_that_extract_log_what_they_took_for_the_answer(name: str) -> None:
    function, logged = BUILTINS[name].function, {}
    texts = ["<answer>7</answer>", "#### 7", "<SOLUTION>7</SOLUTION>", r"\boxed{7}", "no idea"]
    assert function is not None
    function(prompts=["p"] * 5, completions=texts, answer=["7"] * 5, log_extra=logged.setdefault)
    assert set(logged["extracted_answer"]) == {"7", ""}
    assert logged["extracted_answer"][-1] == ""
