"""Calculator notes and GSM8K's final answers, worked by hand."""

import pytest

from workbench.rewards.builtin.answers import gsm8k_answer
from workbench.rewards.builtin.steps import calculator_notes, given_labels, given_reward


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
