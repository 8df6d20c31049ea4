"""The recipes' rewards: a test for every value, and for each place where the well-known code is wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.rewards import BUILTINS
from workbench.rewards.builtin.answers import gsm8k_answer
from workbench.rewards.builtin.steps import calculator_notes, given_labels, given_reward

GOOD = "<reasoning>\n6 * 12\nis 72\n</reasoning>\n<answer>\n72\n</answer>\n"
WORKED = "<start_working_out>6 * 12\nis 72<end_working_out><SOLUTION>72</SOLUTION>"


def score(name: str, text: str, **columns: Any) -> float | None:
    """The score of one completion, the same as text and as a chat message."""
    function = BUILTINS[name].function
    assert function is not None
    rows = {key: [value] for key, value in columns.items()}
    plain = function(prompts=["p"], completions=[text], **rows)
    chat = [{"role": "user", "content": "p"}], [[{"role": "assistant", "content": text}]]
    assert function(prompts=[chat[0]], completions=chat[1], **rows) == plain
    return plain[0]


# ── GSM8K ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs_count(text: str) -> float:
    count = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
    if text.count("\n<answer>\n") == 1:
        count += 0.125 - len(text.split("\n</answer>\n")[-1]) * 0.001
    if text.count("\n</answer>") == 1:
        count += 0.125 - (len(text.split("\n</answer>")[-1]) - 1) * 0.001
    return count


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        (GOOD, "72", 2.0),
        (GOOD, 72, 2.0),
        (GOOD, "6 * 12 = 72\n#### 72", 2.0),
        (GOOD, "73", 0.0),
        ("<answer>1,200</answer>", "1200", 2.0),
        ("<answer>$1200.00.</answer>", "1,200", 2.0),
        ("<answer>-5</answer>", "-5", 2.0),
        ("<answer>Paris</answer>", "Paris", 2.0),
        ("<answer>71</answer><answer>72</answer>", "72", 0.0),
        ("<answer>72", "72", 0.0),
        ("", "72", 0.0),
        ("72", "72", 0.0),  # the recipe takes a text without tags for the answer
        (GOOD, None, None),
    ],
)
def test_gsm8k_correctness_is_two_for_the_right_answer(text: str, answer: Any, expected: float | None) -> None:
    assert score("gsm8k_correctness", text, answer=answer) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # gsm8k_integer
        ("gsm8k_integer", "<answer>72</answer>", 0.5),
        ("gsm8k_integer", "<answer> 72\n</answer>", 0.5),
        ("gsm8k_integer", "<answer>-5</answer>", 0.5),
        ("gsm8k_integer", "<answer>1,200</answer>", 0.5),
        ("gsm8k_integer", "<answer>7.5</answer>", 0.0),
        ("gsm8k_integer", "<answer>x</answer>", 0.0),
        ("gsm8k_integer", "<answer></answer>", 0.0),
        ("gsm8k_integer", "<answer>1,2</answer>", 0.0),
        ("gsm8k_integer", "72", 0.0),
        ("gsm8k_integer", "<answer>²</answer>", 0.0),  # a digit to the recipe's str.isdigit
        ("gsm8k_integer", "<answer>٧٢</answer>", 0.0),
        # gsm8k_strict_format
        ("gsm8k_strict_format", GOOD, 0.5),
        ("gsm8k_strict_format", GOOD.rstrip(), 0.5),
        ("gsm8k_strict_format", GOOD + "\n", 0.0),
        ("gsm8k_strict_format", "So:\n" + GOOD, 0.0),
        ("gsm8k_strict_format", GOOD.replace("\n", ""), 0.0),
        ("gsm8k_strict_format", GOOD.replace("\n72\n", "\n \n"), 0.0),
        ("gsm8k_strict_format", GOOD + GOOD, 0.0),
        ("gsm8k_strict_format", GOOD.replace("72\n<", "72\n</answer>\n<answer>\n72\n<"), 0.0),
        # gsm8k_soft_format
        ("gsm8k_soft_format", GOOD, 0.5),
        ("gsm8k_soft_format", "<reasoning>a</reasoning><answer>b</answer>", 0.5),
        ("gsm8k_soft_format", " <reasoning>a</reasoning>\n\n<answer>b</answer> done", 0.5),
        ("gsm8k_soft_format", "Sure: <reasoning>a</reasoning><answer>b</answer>", 0.0),
        ("gsm8k_soft_format", "<reasoning>a</reasoning> so <answer>b</answer>", 0.0),
        ("gsm8k_soft_format", "<answer>b</answer><reasoning>a</reasoning>", 0.0),
        ("gsm8k_soft_format", "<reasoning></reasoning><answer></answer>", 0.0),
        ("gsm8k_soft_format", "<reasoning>a</reasoning><answer>b", 0.0),
        ("gsm8k_soft_format", "<reasoning>a</reasoning><answer>71</answer><answer>72</answer>", 0.0),
        # gsm8k_xml_count
        ("gsm8k_xml_count", GOOD, 0.5),
        ("gsm8k_xml_count", GOOD.rstrip(), 0.5),
        ("gsm8k_xml_count", "<reasoning>\n", 0.125),
        ("gsm8k_xml_count", "\n</reasoning>\n", 0.125),
        ("gsm8k_xml_count", "\n<answer>\n", 0.125),
        ("gsm8k_xml_count", "\n</answer>", 0.125),
        ("gsm8k_xml_count", "<reasoning>\na\n</reasoning>\n", 0.25),
        ("gsm8k_xml_count", "", 0.0),
        # Ten characters more cost 0.001 each, twice: 0.5 - 0.02.
        ("gsm8k_xml_count", GOOD + "0123456789", 0.48),
        # 0.5 - 0.002 * 1000 is below 0.
        ("gsm8k_xml_count", GOOD + "x" * 1000, 0.0),
        # Every tag is there twice.
        ("gsm8k_xml_count", GOOD + GOOD, 0.0),
        # qwen3_format_exact
        ("qwen3_format_exact", WORKED, 3.0),
        ("qwen3_format_exact", WORKED + "\n", 3.0),
        ("qwen3_format_exact", WORKED.replace("<SOL", "\n\n<SOL"), 3.0),
        ("qwen3_format_exact", WORKED.replace("<SOL", " so <SOL"), 0.0),
        ("qwen3_format_exact", WORKED + " I am sure.", 0.0),
        ("qwen3_format_exact", "Well. " + WORKED, 0.0),
        ("qwen3_format_exact", WORKED.replace("72</", "</"), 0.0),
        ("qwen3_format_exact", WORKED.removesuffix("</SOLUTION>"), 0.0),
        ("qwen3_format_exact", WORKED.removeprefix("<start_working_out>"), 3.0),  # the prompt had it
        ("qwen3_format_exact", WORKED.replace("72</", "71</SOLUTION><SOLUTION>72</"), 0.0),
        ("qwen3_format_exact", WORKED + "\nOr 73.", 0.0),
        ("qwen3_format_exact", "", 0.0),
        # qwen3_format_approximate
        ("qwen3_format_approximate", WORKED, 1.5),  # 3 * 0.5
        ("qwen3_format_approximate", WORKED.removesuffix("</SOLUTION>"), 0.0),  # 2 * 0.5 - 1
        ("qwen3_format_approximate", "<SOLUTION>", -1.5),  # 0.5 - 2
        ("qwen3_format_approximate", "72", -3.0),
        ("qwen3_format_approximate", WORKED + WORKED, -3.0),
        # repetition
        ("repetition", "a b c d", 0.0),
        # "a b c", "b c a", "c a b", "a b c": one of four is a repeat.
        ("repetition", "a b c a b c", -0.25),
        ("repetition", "A a A a a", -2 / 3),  # three trigrams, all the same
        ("repetition", "a b", 0.0),
        ("repetition", "", 0.0),
        # think_format
        ("think_format", "<think>a</think>b", 1.0),
        ("think_format", "a</think>b", 1.0),
        ("think_format", "\n<think>\na\n</think>\n\nb\n", 1.0),
        ("think_format", "<think>a</think>", 0.0),
        ("think_format", "<think></think>b", 0.0),
        ("think_format", "<think>a", 0.0),
        ("think_format", "<think>a</think>b</think>c", 0.0),
        ("think_format", "<think>a<think>b</think>c", 0.0),
        ("think_format", "b", 0.0),
        ("length_target", "a" * 50, 0.0),
        ("length_target", "", -50.0),
        ("length_target", "a" * 49, -1.0),
        ("length_target", "a" * 80, -30.0),
    ],
)
def test_what_a_text_is_worth_by_its_form(name: str, text: str, expected: float) -> None:
    assert score(name, text) == pytest.approx(expected)


@given(st.text(max_size=60).filter(lambda text: "<" not in text))
def test_gsm8k_xml_count_is_the_recipes_where_a_newline_closes_the_answer(after: str) -> None:
    assert score("gsm8k_xml_count", GOOD + after) == pytest.approx(theirs_count(GOOD + after))


# ── Qwen3 ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("solution", "answer", "expected"),
    [
        ("72", "72", 5.0),
        ("5", "0", -2.5),  # by which the recipe divides
        ("0.0", "0", 3.5),
        ("0", "0", 5.0),
        ("71</SOLUTION><SOLUTION>72", "72", -2.0),
        ("72", None, None),
        (" 72\n", "72", 3.5),
        ("72.0", "72", 3.5),
        ("90", "100", 2.0),
        ("110", "100", 2.0),
        ("80", "100", 1.5),
        ("120", "100", 1.5),
        ("79", "100", -2.5),
        ("121", "100", -2.5),
        ("-100", "100", -2.5),
        ("-95", "-100", 2.0),
        ("1,100", "1000", 2.0),
        ("about 72", "72", -4.5),
        ("nan", "72", -4.5),
        ("inf", "72", -4.5),
        ("", "72", -4.5),
        ("72", "seventy-two", -4.5),
    ],
)
def test_qwen3_answer_is_graded(solution: str, answer: str | None, expected: float | None) -> None:
    assert score("qwen3_answer", f"x<end_working_out><SOLUTION>{solution}</SOLUTION>", answer=answer) == expected


# ── the shape of a completion ────────────────────────────────────────────────────────────────────────────────────


def test_length_target_has_its_target_as_an_option() -> None:
    assert BUILTINS["length_target"].function(["p"], ["a" * 70], target_length=80) == [-10.0]


def test_overlong_is_trls_soft_punishment_at_every_length() -> None:
    from trl.rewards import get_soft_overlong_punishment

    ids = [[0] * length for length in range(140)]
    ours = BUILTINS["overlong"].function([], ids, completion_ids=ids)
    assert ours == get_soft_overlong_punishment(max_completion_len=128, soft_punish_cache=32)(completion_ids=ids)
    # Free up to 96; half way from there to 128 is 112; over 128 it is as bad as can be.
    assert [ours[length] for length in (96, 112, 128, 129)] == [0.0, -0.5, -1.0, -1.0]
    hard = BUILTINS["overlong"].function([], ids, completion_ids=ids, soft_punish_cache=0)
    assert hard == [0.0] * 129 + [-1.0] * 11


def test_repetition_takes_size_and_penalty() -> None:
    # Bigrams "a b", "b a", "a b": a third repeated.
    given_scores = BUILTINS["repetition"].function(["p"], ["a b a b"], ngram_size=2, max_penalty=-0.6)
    assert given_scores == [pytest.approx(-0.2)]


# ── mathematics ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        (r"so \boxed{\frac{1}{2}}", "0.5", 1.0),
        (r"so \boxed{\frac12}", r"\frac{1}{2}", 1.0),
        (r"\boxed{2x + 2}", "$2(x+1)$", 1.0),
        ("The answer is 1,200.", "6 * 200\n#### 1200", 1.0),
        ("Answer: 20", 20, 1.0),
        (GOOD, "72", 1.0),
        (WORKED, "72", 1.0),
        (r"\boxed{71} or rather \boxed{72}", "72", 1.0),
        (r"\boxed{72} or rather \boxed{71}", "72", 0.0),
        # Listing candidates is not knowing.
        ("$71$ or $72$", "72", 0.0),
        (r"\boxed{71, 72}", "72", 0.0),
        ("no idea", "72", 0.0),
        ("", "72", 0.0),
        ("72", None, None),
        ("72", "", None),
    ],
)
def test_math_equality(text: str, answer: Any, expected: float | None) -> None:
    assert score("math_equality", text, answer=answer) == expected


# ── Countdown ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>44 + 19</think>\n<answer>(44 + 19) + 35</answer>", 1.0),  # 98
        ("so \\boxed{35 + 44 + 19}", 1.0),
        ("<answer>44 + 19 - 35</answer>", 0.1),  # 28
        ("<answer>98</answer>", 0.1),  # the numbers are not in it
        ("<answer>44 + 19 + 35 + 35 - 35</answer>", 0.1),  # one of them three times
        ("<answer>44 + 19 + 35 = 98</answer>", 0.1),  # no sum, as TinyZero has it
        ("<answer>44 / (19 - 19) + 35</answer>", 0.1),
        ("44 + 19 + 35, I think", 0.0),
    ],
)
def test_countdown_equation_is_one_for_a_sum_of_the_numbers(text: str, expected: float) -> None:
    assert score("countdown_equation", text, answer={"target": 98, "numbers": [44, 19, 35]}) == expected
    assert score("countdown_equation", text, answer="98") is None
    decimal = {"target": 6, "numbers": [1, 5, 4]}  # whose digits are no numbers of their own
    assert score("countdown_equation", "<answer>1.5 * 4</answer>", answer=decimal) == 0.1


# --- calculator notes and GSM8K's final answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("16-3=13", 1.0),
        ("16-3=12", 0.0),
        ("2+3*4=14", 1.0),
        ("(2+3)*4=20", 1.0),
        ("((2))*-3=-6", 1.0),
        ("10-4-3=3", 1.0),  # from the left
        ("24/4/2=3", 1.0),
        ("1/3=0.33", 1.0),  # 0.0033… off, less than half a hundredth
        ("2/3=0.66", 0.0),  # cut instead of rounded: 0.0067 off
        ("1/8=0.13", 1.0),  # 0.125 is exactly half a hundredth off
        ("10/3=3", 0.0),  # no decimals, no rounding
        ("10/3=3.0", 0.0),
        ("0.1+0.2=0.30000000000000004", 1.0),  # a calculator's floating point
        ("560//10=56", 1.0),
        ("7//2=3", 1.0),
        ("50%*20=10", 1.0),
        ("1/8=12.5%", 1.0),
        ("1/3=33%", 0.0),
        ("1/3=33.3%", 1.0),
        ("$1,200+$300=$1,500", 1.0),
        ("1200*.5=600.", 1.0),
        ("12,34+1=1235", 0.0),  # no thousands' comma
        ("6×2=12", 1.0),
        ("6÷2=3", 1.0),
        ("5−3=2", 1.0),
        ("5*2/5=2.0=2", 1.0),
        ("5*2/5=2.0=3", 0.0),
        ("1/0=1", 0.0),
        ("2*x=6", 0.0),
        ("1+=1", 0.0),
        ("(1+1=2", 0.0),
        ("1+1)=2", 0.0),
        ("2**3=8", 0.0),
        ("5+2(3)=11", 0.0),
        ("400-250=150 000", 0.0),
        ("7", 0.0),
        ("", 0.0),
        ("=", 0.0),
        ("(" * 5000 + "1=1", 0.0),
        ("(" * 60 + "1" + ")" * 60 + "=1", 0.0),
        ("9" * 3000 + "=1", 0.0),
        ("__import__('os')=1", 0.0),
    ],
)
def test_a_note_is_right_or_not(note: str, expected: float) -> None:
    assert calculator_notes("p", f"so <<{note}>> it is") == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("There are 13 left.", None),
        ("", None),
        ("cut off <<1+1=", None),
        ("<<1+1=2>>2 and <<2+2=4>>4", 1.0),
        ("<<1+1=2>>2 and <<2+2=5>>5", 0.0),
        ("<<1+1=2>>2 and <<2+2=", 1.0),
    ],
)
def test_a_step_is_as_right_as_all_its_notes(step: str, expected: float | None) -> None:
    assert calculator_notes("p", step) == expected


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        ("so\nA: 18", "18", 1.0),
        ("so\n#### 18", "work\n#### 18", 1.0),
        ("so\nA: 18", "work\nA: 18", 1.0),
        ("A: $1,800.00.", "1800", 1.0),
        ("A: -$3", "-3", 1.0),
        ("A: 18 dollars", "18", 1.0),
        ("A: .5", "0.50", 1.0),
        ("A: 17\nA: 18", "18", 1.0),  # the last one counts
        ("A: 18\nA: 17", "18", 0.0),
        ("A: 180", "18", 0.0),
        ("it is 18", "18", 0.0),
        ("the answer A: 18 is", "18", 0.0),  # not at a line's beginning
        ("A: eighteen", "18", 0.0),
        ("", "18", 0.0),
        ("A: 18", None, None),
        ("A: 18", "unknown", None),
        ([{"role": "assistant", "content": "A: 18"}], 18, 1.0),
    ],
)
def test_the_final_answer(completion, answer, expected) -> None:
    assert gsm8k_answer(["p"], [completion], answer=[answer]) == [expected]


def test_what_the_data_says_is_passed_on() -> None:
    assert given_reward(["p"] * 3, ["a", "b", "c"], reward=[0.5, None, True]) == [0.5, None, 1.0]
    steps, known = [["a\n", "b"], ["x"]], [["a", "b"], ["y"]]
    assert given_labels(["p"] * 2, ["", ""], steps, labelled_steps=known, labels=[[1.0, 0.0], [1.0]]) == [
        [1.0, 0.0],
        [None],
    ]
    assert given_labels(["p"], [""], [["a"]], labelled_steps=[None], labels=[None]) == [[None]]
