"""The built-in rewards on answers worked by hand, good, bad and out to cheat."""

import random
from typing import Any

import pytest

from workbench.data import chain_arithmetic
from workbench.errors import RewardError
from workbench.rewards.builtin import answer_correctness, length_and_mistake, step_correctness, tag_format
from workbench.rewards.protocol import Batch, call_reward
from workbench.rewards.source import with_wrong_labels
from workbench.steps import PRESETS, StepPattern, split_steps

LABELS_AND_ANSWER = StepPattern(r"(?m)^(?:Step \d+|Answer):")
LABELS = StepPattern(r"(?m)^Step \d+:")
TAGS = StepPattern(r"(?m)^(?:Step \d+|<answer>)")
BLOCKS = PRESETS["reasoning-answer"].pattern
LINES = PRESETS["line"].pattern

# Start with 7, add 5, multiply by 2, subtract 4.
OPERATIONS = [["+", 5], ["*", 2], ["-", 4]]
ONE, TWO, THREE = "Step 1: 7 + 5 = 12\n", "Step 2: 12 * 2 = 24\n", "Step 3: 24 - 4 = 20\n"
RIGHT = ONE + TWO + THREE + "Answer: 20"
# 12 * 2 is 24, not 25; going on from 25, 25 - 4 = 21 is right.
WENT_ON = ONE + "Step 2: 12 * 2 = 25\nStep 3: 25 - 4 = 21\nAnswer: 21"
WENT_ON_TAGGED = "<reasoning>\n" + WENT_ON.replace("Answer: 21", "</reasoning>\n<answer>21</answer>")
TAGGED = "<reasoning>\n" + ONE + TWO + THREE + "</reasoning>\n<answer>20</answer>"


def cut(text: str, pattern: StepPattern) -> list[str]:
    return [text[step.start : step.end] for step in split_steps(text, pattern)]


def judged(completions: list[Any], steps: list[list[str]], **columns: list[Any]) -> list[list[float | None]]:
    """What ``step_correctness`` gives each step of these completions."""
    return call_reward("steps", step_correctness, Batch(["p"] * len(steps), completions, columns, steps))


def scores(text: str, pattern: StepPattern = LABELS_AND_ANSWER, operations: Any = OPERATIONS) -> list[float | None]:
    return judged([text], [cut(text, pattern)], start=[7], operations=[operations], answer=["20"])[0]


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        (RIGHT, LABELS_AND_ANSWER, [1, 1, 1, 1]),
        (RIGHT, LABELS, [1, 1, 1]),
        (RIGHT, LINES, [1, 1, 1, 1]),
        (RIGHT, StepPattern(r"\n"), [1, 1, 1]),  # the first line is in no step, and each begins with a line break
        (WENT_ON, StepPattern(r"\n"), [0, 1, 1]),
        (RIGHT.replace("\n", "\n\n"), PRESETS["paragraph"].pattern, [1, 1, 1, 1]),
        (RIGHT.replace("\n", "\n\n"), StepPattern(r"\n"), [None, 1, None, 1, None, 1]),
        (TAGGED, LABELS_AND_ANSWER, [1, 1, 1]),
        (TAGGED, LABELS, [1, 1, 1]),
        (TAGGED, TAGS, [1, 1, 1, 1]),
        (TAGGED, BLOCKS, [1, 1]),
        (TAGGED, LINES, [None, 1, 1, 1, None, 1]),
        # A wrong step is blamed once.
        (WENT_ON, LABELS_AND_ANSWER, [1, 0, 1, 1]),
        (WENT_ON, LABELS, [1, 0, 1]),
        (WENT_ON_TAGGED, LABELS_AND_ANSWER, [1, 0, 1]),
        (WENT_ON_TAGGED, TAGS, [1, 0, 1, 1]),
        # The reasoning is one step here, wrong if any line of it is; the answer repeats its last claim.
        (WENT_ON_TAGGED, BLOCKS, [0, 1]),
        # The answer lies inside the last step: both must be right.
        (ONE + TWO + THREE + "Answer: 24", LABELS, [1, 1, 0]),
        (ONE + TWO + "Step 3: 24 - 4 = 21\nAnswer: 21", LABELS, [1, 1, 0]),
        (ONE + TWO + "Answer: 24", LABELS, [1, 0]),
        (RIGHT + "\nI am sure.", LABELS, [1, 1, 0]),
        # Reasoning that was never closed, or never opened, has no answer tag.
        (TAGGED.replace("</reasoning>\n", ""), TAGS, [1, 1, 1, 0]),
        (TAGGED.replace("<reasoning>\n", "", 1), TAGS, [1, 1, 1, 0]),
        # Both styles at once.
        (TAGGED.replace("<answer>20</answer>", "Answer: 20"), TAGS, [1, 1, 0]),
        (RIGHT.replace("Answer: 20", "<answer>20</answer>"), TAGS, [1, 1, 1, 0]),
        # Closed before the last operation; what follows is outside the reasoning.
        (TAGGED.replace(THREE + "</reasoning>\n", "</reasoning>\n" + THREE), TAGS, [1, 0, 0, 0]),
        (TAGGED + "<answer>20</answer>", TAGS, [1, 1, 1, 0]),
        (TAGGED + "\n<answer>20</answer>", TAGS, [1, 1, 1, 1, 0]),
    ],
)
def test_steps_are_judged_alike_under_every_pattern(text: str, pattern: StepPattern, expected: list[Any]) -> None:
    assert scores(text, pattern) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Step 3 goes on from the true 24 instead of the claimed 25: it is not right given the step before it.
        (ONE + "Step 2: 12 * 2 = 25\n" + THREE + "Answer: 20", [1, 0, 0, 1]),
        # Without its colon step 2 is no match and lies inside step 1, which it spoils. Step 3 goes on from its 24.
        (ONE + TWO.replace(":", "") + THREE + "Answer: 20", [0, 1, 1]),
        # Numbered wrongly, else right: blamed alone.
        (ONE + TWO.replace("Step 2", "Step 3") + THREE + "Answer: 20", [1, 0, 1, 1]),
        (RIGHT.replace("Step 1", "Step 2", 1), [0, 1, 1, 1]),
        # The operator, the operand or the left side is not the one due; 8 - 4 = 4 follows 12 - 4 = 8.
        (ONE + "Step 2: 12 + 2 = 14\nStep 3: 14 - 4 = 10\nAnswer: 10", [1, 0, 1, 1]),
        (ONE + "Step 2: 12 * 3 = 36\nStep 3: 36 - 4 = 32\nAnswer: 32", [1, 0, 1, 1]),
        ("Step 1: 8 + 5 = 13\nStep 2: 13 * 2 = 26\nStep 3: 26 - 4 = 22\nAnswer: 22", [0, 1, 1, 1]),
        # A repeated step is extra and works nothing.
        (ONE + ONE + TWO + THREE + "Answer: 20", [1, 0, 1, 1, 1]),
        (ONE + TWO + TWO + THREE + "Answer: 20", [1, 1, 0, 1, 1]),
        # Steps after the last operation, or after the answer.
        (ONE + TWO + THREE + "Step 4: 20 + 1 = 21\nAnswer: 20", [1, 1, 1, 0, 1]),
        (RIGHT + "\nStep 4: 20 + 1 = 21", [1, 1, 1, 1, 0]),
        (RIGHT + "\nAnswer: 20", [1, 1, 1, 1, 0]),
        # The answer does not repeat the last claim, or comes before every operation was worked.
        (ONE + TWO + THREE + "Answer: 24", [1, 1, 1, 0]),
        (ONE + TWO + "Answer: 24", [1, 1, 0]),
        ("Answer: 20", [0]),
        (ONE + TWO + "Answer: 24\n" + THREE + "Answer: 20", [1, 1, 0, 0, 0]),
        # Operation 2 was skipped: step 3 is wrong, and the answer is not worked out.
        (ONE + "Step 3: 12 - 4 = 8\nAnswer: 8", [1, 0, 0]),
        (ONE + THREE + "Answer: 20", [1, 0, 0]),
        # A missing answer line is no step's fault here; answer_correctness sees it.
        (ONE + TWO + THREE, [1, 1, 1]),
        # Cut off.
        (ONE + "Step 2: 12 * 2 =", [1, 0]),
        (ONE + "Step 2: 12 * 2 = 2", [1, 0]),
    ],
)
def test_each_slip_costs_the_step_it_is_in(text: str, expected: list[Any]) -> None:
    assert scores(text) == expected


@pytest.mark.parametrize(
    ("text", "operations", "expected"),
    [
        # A skipped operation is blamed once.
        (ONE + "Step 3: 12 - 4 = 8\nStep 4: 8 + 1 = 9\nAnswer: 9", [*OPERATIONS, ["+", 1]], [1, 0, 1, 0]),
        # Results below zero are read.
        ("Step 1: 7 - 9 = -2\nStep 2: -2 * 2 = -4\nAnswer: -4", [["-", 9], ["*", 2]], [1, 1, 1]),
    ],
)
def test_other_chains_by_hand(text: str, operations: Any, expected: list[Any]) -> None:
    assert scores(text, operations=operations) == expected


@pytest.mark.parametrize(
    "junk",
    [
        "",
        " ",
        "\n",
        "Step 1: ",
        "20",
        "7 + 5 = 12",
        "Step 1: 7 + 5 = 12 = 12",
        "Step 1: 7 + 5 = 12 apples",
        "Step 1: 7+5=12",
        "Step 1:  7 + 5 = 12",
        " Step 1: 7 + 5 = 12",
        "Step 1: 7 + 5 = 12 ",
        "Step 1: 7 + 5 = 12\nGood.",
        "Step 1: 7 + 5 = 12 Step 2: 12 * 2 = 24",
        "Step 1: 7 + 5 = 012",
        "Step 01: 7 + 5 = 12",
        "Step 1: 7 + 5 = 12.0",
        "Step 1: 7 + 5 = ١٢",
        "Step 1: 7 + 5 = " + "1" * 5000,
        "Step 1: 5 + 7 = 12",
        "Step 1: 7 + 4 + 1 = 12",
        "step 1: 7 + 5 = 12",
        "Step 1: 7 + 5 = 12\u200b",
        "<reasoning>\n</reasoning>",
        "</reasoning>",
        "<reasoning>\n<reasoning>",
        "<answer>20</answer>",
        "<reasoning>\n" + ONE + "</reasoning>",
        "Step 1 " * 500,
    ],
)
def test_text_that_is_not_the_expected_format_scores_nothing(junk: str) -> None:
    for pattern in (LABELS, StepPattern("no such text")):
        assert not any(scores(junk, pattern))
    assert not any(judged([junk], [[junk]], start=[7], operations=[OPERATIONS])[0])


def test_each_completion_of_a_batch_is_judged_by_its_own_row_and_chat_is_read_too() -> None:
    chat = [{"role": "assistant", "content": TAGGED}]
    given = judged(
        ["Step 1: 2 * 3 = 6", chat, "anything"],
        [["Step 1: 2 * 3 = 6"], [TAGGED], ["anything"]],
        start=[2, 7, None],
        operations=[[["*", 3]], OPERATIONS, None],
    )
    assert given == [[1.0], [1.0], [None]]


def test_missing_columns_are_named() -> None:
    with pytest.raises(RewardError, match="'start' and 'operations'"):
        judged(["c"], [["c"]], answer=["20"])
    with pytest.raises(RewardError, match="'answer'"):
        call_reward("answer_correctness", answer_correctness, Batch(["p"], ["c"]))


@pytest.mark.parametrize("style", ["steps", "tags"])
def test_the_tasks_own_answers_are_right_and_its_noisy_ones_blamed_once_each(style: Any) -> None:
    pattern = TAGS if style == "tags" else LABELS_AND_ANSWER
    rng = random.Random(0)
    for _ in range(100):
        chain = chain_arithmetic.draw_chain(rng)
        operations = [[chain_arithmetic.SYMBOL[name], operand] for name, operand in chain.operations]
        slips = [rng.random() < 0.3 for _ in operations]
        results, value = [], chain.start
        for (name, operand), slip in zip(chain.operations, slips, strict=True):
            value = chain_arithmetic.apply(name, value, operand) + slip
            results.append(value)
        text = chain_arithmetic.render(chain, results, style)
        given = judged([text], [cut(text, pattern)], start=[chain.start], operations=[operations])[0]
        assert given == [*(float(not slip) for slip in slips), 1.0]


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [
        (RIGHT, "20", 1.0),
        (TAGGED, 20, 1.0),
        ("so #### 20", "20", 1.0),
        ("<answer>\n1,200\n</answer>", "1200", 1.0),
        ("Answer: $1200.0.", "1,200", 1.0),
        ("Answer: Paris", "Paris", 1.0),
        ("Answer: 12\nAnswer: 20", "20", 1.0),
        ("Answer: 20\nAnswer: 12", "20", 0.0),
        ("Answer: 20 or 21", "20", 0.0),
        ("Answer: 2 0", "20", 0.0),
        ("Answer: nan", "20", 0.0),
        ("Answer:", "20", 0.0),
        ("20", "20", 0.0),
        ("<answer>20", "20", 0.0),
        ("<answer>1<answer>20</answer>", "20", 1.0),
        ("", "20", 0.0),
        ("Answer: 20", None, None),
    ],
)
def test_answer_correctness_reads_the_final_answer(text: str, right: Any, expected: float | None) -> None:
    assert answer_correctness(["p"], [text], answer=[right]) == [expected]
    assert answer_correctness(["p"], [[{"role": "assistant", "content": text}]], answer=[right]) == [expected]


def test_length_and_mistake_is_a_hundredth_a_character_less_three_tenths() -> None:
    assert length_and_mistake("p", "a" * 50) == pytest.approx(0.5)
    # 17 characters: 0.17 - 0.3.
    assert length_and_mistake("p", "That's a MISTAKE.") == pytest.approx(-0.13)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TAGGED, 0.5),
        ("\n<reasoning>a</reasoning><answer>b</answer>\n", 0.5),
        ("<reasoning>a</reasoning> so <answer>b</answer>", 0.0),
        ("Sure! <reasoning>a</reasoning><answer>b</answer>", 0.0),
        ("<reasoning>a</reasoning><answer>b</answer><answer>b</answer>", 0.0),
        ("<reasoning>a<answer>b</answer></reasoning>", 0.0),
        ("<reasoning> </reasoning><answer>b</answer>", 0.0),
        ("<reasoning>a</reasoning><answer></answer>", 0.0),
        ("<reasoning>a</reasoning><answer>b", 0.0),
        (RIGHT, 0.0),
    ],
)
def test_tag_format_wants_each_tag_once_in_order_and_filled(text: str, expected: float) -> None:
    assert tag_format(["p", "p"], [text, [{"role": "assistant", "content": text}]]) == [expected, expected]


# --- step labels that are wrong for a share of the steps --------------------------------------------------------------


def noisy_labels(share: float, seed: int = 0, prompts: int = 400) -> Any:
    """Of 400 prompts `n + 1`, each answered by a right step, a right answer, and a line too many."""
    config = with_wrong_labels("step_correctness", share, seed=seed)
    names: dict[str, Any] = {}
    exec(config.code or "", names)  # as it runs: nothing but its own source is there
    steps = [[f"Step 1: {n} + 1 = {n + 1}\n", f"Answer: {n + 1}\n", "and so on"] for n in range(prompts)]
    columns = {"start": list(range(prompts)), "operations": [[["+", 1]]] * prompts}
    return names[config.name]([f"{n} + 1" for n in range(prompts)], ["".join(row) for row in steps], steps, **columns)


def test_a_share_of_the_labels_is_turned_and_always_the_same_ones() -> None:
    assert noisy_labels(0.0) == [[1.0, 1.0, 0.0]] * 400
    assert noisy_labels(1.0) == [[0.0, 0.0, 1.0]] * 400
    noisy = noisy_labels(0.3)
    # 1,200 labels turned with probability 0.3: 360, with a standard deviation of sqrt(1200 * 0.3 * 0.7) = 15.9.
    turned = sum(label != right for row in noisy for label, right in zip(row, [1.0, 1.0, 0.0], strict=True))
    assert abs(turned - 360) < 4 * 15.9
    assert noisy[:3] == noisy_labels(0.3, prompts=3)  # whatever stands beside it in the batch
    assert noisy != noisy_labels(0.3, seed=1)


def test_what_cannot_be_turned_is_refused() -> None:
    with pytest.raises(RewardError, match="'answer_correctness'"):
        with_wrong_labels("answer_correctness", 0.1)
    with pytest.raises(RewardError, match=r"1\.5"):
        with_wrong_labels("step_correctness", 1.5)
