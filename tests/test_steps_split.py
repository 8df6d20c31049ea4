"""Text → steps: what each kind of pattern cuts, the presets on texts they are made for, and what always holds."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.schema import Step
from workbench.steps import PRESETS, StepPattern, split_steps

CHAIN = "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nStep 3: 24 - 4 = 20\nAnswer: 20"


def cut(text: str, regex: str, kind: str = "starts") -> list[str]:
    return [text[step.start : step.end] for step in split_steps(text, StepPattern(regex, kind))]  # type: ignore[arg-type]


def test_offsets_are_characters_with_an_exclusive_end() -> None:
    assert split_steps("Step 1: a\nStep 2: b", StepPattern(r"(?m)^Step \d+:")) == [Step(0, 10), Step(10, 19)]
    assert split_steps("🙂STEP:中STEP:b", StepPattern("STEP:")) == [Step(1, 7), Step(7, 13)]


LINES = CHAIN.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("text", "regex", "kind", "expected"),
    [
        # Text before the first start is in no step; the answer line counts in or apart as the pattern says.
        ("Well.\nStep 1: a", r"(?m)^Step \d+:", "starts", ["Step 1: a"]),
        (CHAIN, r"(?m)^(?:Step \d+|Answer):", "starts", LINES),
        (CHAIN, r"(?m)^Step \d+:", "starts", [LINES[0], LINES[1], LINES[2] + LINES[3]]),
        # A separator belongs to the step before.
        ("a\n\nb\nc", r"\n+", "ends", ["a\n\n", "b\n", "c"]),
        ("a||b||", r"\|\|", "ends", ["a||", "b||"]),
        # Blank pieces before the first step and after the last are in none; between two they go to the step before.
        ("\n\nfoo\n \nbar\n  ", r"\n", "ends", ["foo\n \n", "bar\n"]),
        ("\nfoo", r"\n", "ends", ["foo"]),
        ("so <a>1</a> and <a>2</a>.", "<a>.*?</a>", "is", ["<a>1</a>", "<a>2</a>"]),
        # The group named step counts instead of the match, if it took part in it.
        ("- a\n- b", r"(?m)^- (?P<step>\w)", "starts", ["a\n- ", "b"]),
        ("a. b. c", r"(?P<step>\.)\s", "ends", ["a.", " b.", " c"]),
        ("<a>1</a><a>2</a>", "<a>(?P<step>.*?)</a>", "is", ["1", "2"]),
        ("<a>1</a> ## 2", r"<a>(?P<step>.)</a>|## .", "is", ["1", "## 2"]),
        # Lookahead groups "abc" at 0, "bcd" at 1, …: each keeps what no earlier one took.
        ("abcde", r"(?=(?P<step>\w{3}))\w", "is", ["abc", "d", "e"]),
        # A pattern of no width marks a place.
        ("Step 1 Step 2", r"(?=Step)", "starts", ["Step 1 ", "Step 2"]),
        ("One. Two.", r"(?<=\.\s)", "ends", ["One. ", "Two."]),
        # Odd characters are text like any other.
        (
            "\x00STEP: \ud800\u202e\u2028STEP: \u200d</textarea>",
            "STEP:",
            "starts",
            ["STEP: \ud800\u202e\u2028", "STEP: \u200d</textarea>"],
        ),
    ],
    ids=range(16),
)
def test_what_each_kind_of_pattern_cuts(text: str, regex: str, kind: str, expected: list[str]) -> None:
    assert cut(text, regex, kind) == expected


@pytest.mark.parametrize(
    ("text", "regex", "kind"),
    [("ab", "(?=a)", "is"), ("abc", "zzz", "starts"), ("", "zzz", "starts"), (" \n ", "\n", "ends")],
)
def test_no_match_is_one_step_that_says_so(text: str, regex: str, kind: Any) -> None:
    assert split_steps(text, StepPattern(regex, kind)) == [Step(0, len(text), matched=False)]


PIECES = {
    "step-n": ["Step 1: 7 + 5 = 12\n", "Step 2: 12 * 2 = 24\nThe answer is: 24"],
    "step-n-answer": ["Step 1: 7 + 5 = 12\n", "Step 2: 12 * 2 = 24\n", "Answer: 24"],
    "step-tag": ["STEP: add the apples. ", "STEP: double them.\n", "STEP: say 24."],
    "heading-step": ["## Step 1: Read the problem\nThere are 12.\n\n", "## Step 2: Double\nThat makes 24."],
    "numbered": ["1. Add 5 to 7.\n", "2) Double the 12.\n", "  3. It is 24."],
    "line": ["7 + 5 = 12\n", "12 * 2 = 24\n\n", "So it is 24."],
    "paragraph": ["First add:\n7 + 5 = 12.\n\n", "Then double:\n12 * 2 = 24."],
    "sentence": [
        "We know $x = 1. 5$ holds, e.g. here. ",
        "Then \\[ y = 2. \\] follows! ",
        "所以答案是二。",
        "对吗？",
        "Yes.",
    ],
    "think-answer": ["<think>\n7 + 5 = 12, doubled 24.\n</think>\n\n", "The answer is 24."],
    "reasoning-answer": ["<reasoning>\n7 + 5 = 12\n</reasoning>", "<answer>\n12\n</answer>"],
    "any-label": [
        "**Step 1**\nRead.\n",
        "### Step 2: Add\n7 + 5\n",
        "Step 3. Double.\n",
        "步骤4：写下 24\n",
        "Thought: done.\n",
        "<step>24</step>",
    ],
    "working-out": ["<start_working_out>7 + 5 = 12<end_working_out>", "<SOLUTION>12</SOLUTION>"],
    "paragraph-tag": ["<paragraph_0>\n7 + 5 = 12\n</paragraph_0>", "<paragraph_1>\n12 * 2 = 24\n</paragraph_1>"],
    "ki": ["Step 1: 7 + 5 = 12 ки", "\nStep 2: 12 * 2 = 24 ки"],
    "extra-0": ["7 + 5 = 12<extra_0>", "12 * 2 = 24<extra_0>"],
    "action": ["Up ||", " Right ||", " Up"],
    "mixed-list": ["# Plan\n", "1. Add.\n", "- seven\n", "* five\n", "Finally, double."],
    "turns": ["call: 37*8"],
    "window": [
        "Seven and five are twelve, and twelve taken twice is twenty-four, so the answer that we ",
        "were asked for is 24.",
    ],
}


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.sample])
def test_a_preset_cuts_its_sample(name: str) -> None:
    preset = PRESETS[name]
    steps = split_steps(preset.sample, preset.pattern)
    assert [preset.sample[step.start : step.end] for step in steps if step.matched] == PIECES[name]


@pytest.mark.parametrize(
    ("preset", "text", "expected"),
    [
        # Openers that a chat template wrote into the prompt may be missing.
        ("think-answer", "so 24.</think>24", ["so 24.</think>", "24"]),
        (
            "working-out",
            "so 24.<end_working_out>\n<SOLUTION>24</SOLUTION>",
            ["so 24.<end_working_out>", "<SOLUTION>24</SOLUTION>"],
        ),
        (
            "working-out",
            "Well. <start_working_out>24<end_working_out>",
            ["<start_working_out>24<end_working_out>"],
        ),
        # Sentences end neither in mathematics nor after a number or a short form.
        (
            "sentence",
            "1. See Eq. 2 and 3.5 of \\begin{align} a. b \\end{align} ok. Next $$x. y$$ too?\n 2. Done.",
            ["1. See Eq. 2 and 3.5 of \\begin{align} a. b \\end{align} ok. ", "Next $$x. y$$ too?\n ", "2. Done."],
        ),
        # Paragraphs end at blank lines outside code and mathematics.
        (
            "numbered",
            "So:\n(1) Add.\n  (2) Double.\n3. Done (4) times",
            ["(1) Add.\n", "  (2) Double.\n", "3. Done (4) times"],
        ),
        ("numbered", "（1）加\n2、乘", ["（1）加\n", "2、乘"]),
        ("mixed-list", "2. b\nStep 3: c\nFirst, d\n• f", ["2. b\n", "Step 3: c\n", "First, d\n", "• f"]),
        ("paragraph", "one\n\ntwo", ["one\n\n", "two"]),
        ("paragraph", "one\r\n\r\ntwo", ["one\r\n\r\n", "two"]),
        ("paragraph", "one\n \t\ntwo", ["one\n \t\n", "two"]),
        ("paragraph", "one\n\n\n  two", ["one\n\n\n", "  two"]),
        ("paragraph", "one\ntwo", ["one\ntwo"]),
        ("paragraph", "```python\na = 1\n\nb = 2\n```\n\ntwo", ["```python\na = 1\n\nb = 2\n```\n\n", "two"]),
        ("paragraph", "~~~\r\na\r\n\r\nb\r\n~~~\r\n\r\ntwo", ["~~~\r\na\r\n\r\nb\r\n~~~\r\n\r\n", "two"]),
        ("paragraph", "````\n```\n\n```\n\n````\n\ntwo", ["````\n```\n\n```\n\n````\n\n", "two"]),
        ("paragraph", "one\n\n```\na\n\nb", ["one\n\n", "```\na\n\nb"]),
        ("paragraph", "so \\[ x\n\n= 1 \\] holds\n\ntwo", ["so \\[ x\n\n= 1 \\] holds\n\n", "two"]),
        ("paragraph", "$$x\n\n= 1$$\n\ntwo", ["$$x\n\n= 1$$\n\n", "two"]),
        ("paragraph", "a \\[ b\n\ntwo", ["a \\[ b\n\n", "two"]),  # not closed: no mathematics
        ("paragraph", "`a`\n\nuse ``` in a line\n\ntwo", ["`a`\n\n", "use ``` in a line\n\n", "two"]),
    ],
)
def test_what_a_preset_cuts(preset: str, text: str, expected: list[str]) -> None:
    pattern = PRESETS[preset].pattern
    assert cut(text, pattern.regex, pattern.kind) == expected


@pytest.mark.parametrize(
    "label",
    [
        *("**Step 1**", "**Step 1:** x", "### Step 1:", "## Step 1", "#### **Step 1: Add**", "__Step 1__"),
        *("Step 1.", "Step 1:", "STEP 1)", "step 1：", "Step 1", "- **Step 1**", "  Step 1: x"),
        *("步骤1：", "步骤 一:", "**步骤1**", "第2步，", "第一步：", "Thought:", "Thought 1:", "**Thought**:"),
        *("<step>", "<step_1>", "<step 1>", '<step id="1">', "<Step number='1'>"),
        *("Step 1 - Add", "Step 1 – Add", "Step One:", "**Step Two**", "Step #1:", "Step#1", "## Step #1"),
        *(
            "Paso 1:",
            "Passo 1.",
            "Schritt 1:",
            "Étape 1 :",
            "Шаг 1:",
            "**Paso 1**",
            "ステップ1：",
            "단계 1:",
            "步驟1：",
        ),
    ],
)
def test_any_label_finds_the_ways_to_write_a_steps_start(label: str) -> None:
    pattern = PRESETS["any-label"].pattern
    text = f"Let us see.\n{label}\n7 + 5 = 12\n{label}\r\nso 12"
    assert cut(text, pattern.regex) == [f"{label}\n7 + 5 = 12\n", f"{label}\r\nso 12"]


@pytest.mark.parametrize(
    "text",
    [
        *("Step 1 was easy", "as in Step 1: this", "Step 1.5 mm", "Thought of it", "steps: 3", "Step 1-2: add"),
        *("Step one by one", "Step onerous:", "<steps>", "Step by step:", "Paso a paso:"),
    ],
)
def test_any_label_takes_no_running_text(text: str) -> None:
    pattern = PRESETS["any-label"].pattern
    assert not any(step.matched for step in split_steps(text, pattern))


TEXTS = st.text(alphabet="ab.\n |S中🙂", max_size=60)
PATTERNS = st.sampled_from(
    [r"\n+", r"\|\|", r"(?m)^a", "S", r"(?=b)", r"(?<=a)", r"(?P<step>a)b|\.", r"(?=(?P<step>..))a", "中|🙂", r"a.*?b"]
)


@settings(deadline=None)
@given(TEXTS, PATTERNS, st.sampled_from(["starts", "ends", "is"]))
def test_invariant_steps_partition(text: str, regex: str, kind: str) -> None:
    steps = split_steps(text, StepPattern(regex, kind))  # type: ignore[arg-type]
    assert steps
    if not steps[0].matched:
        assert steps == [Step(0, len(text), matched=False)]
        return
    at = 0
    for step in steps:
        assert at <= step.start < step.end <= len(text)
        at = step.end


@settings(deadline=None)
@given(TEXTS, PATTERNS)
def test_starts_and_ends_leave_out_only_the_beginning_or_blanks(text: str, regex: str) -> None:
    starts, ends = split_steps(text, StepPattern(regex)), split_steps(text, StepPattern(regex, "ends"))
    assert starts[-1].end == len(text)
    assert all(one.end == other.start for one, other in pairwise(starts))
    assert not (text[: ends[0].start] + text[ends[-1].end :]).strip()
    assert all(one.end == other.start for one, other in pairwise(ends))
