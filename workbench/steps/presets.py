"""Step patterns of common formats, each with a sample text.

They are starting points: the page puts a preset's expression in the field, where it can be edited. Those that cut by
tokens (``surprise``, ``entropy``, ``tokens``) have no sample, as a text alone has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.steps.pattern import StepPattern


@dataclass(frozen=True)
class Preset:
    """A named pattern: ``used_by`` says where the format comes from, ``sample`` is a text in it ("" by tokens)."""

    name: str
    pattern: StepPattern
    used_by: str
    sample: str


_WHOLE = r"""(?xs)
    # Fenced code, displayed mathematics and environments are passed over whole; a fence that is not closed to the end.
    (?: (?m: ^ ) [ \t]*+ (?P<fence> `{3,} | ~{3,} ) .*? (?: \n [ \t]*+ (?P=fence) [`~]* [ \t\r]* (?m: $ ) | \Z )
        | \$\$ .*? \$\$ | \\\[ .*? \\\] | \\begin\{ (?P<name> \w+\*? ) \} .*? \\end\{ (?P=name) \}
    ) (*SKIP) (*FAIL)
"""
_SENTENCE = rf"""{_WHOLE}
    | (?: \$ [^$\n]* \$ | \\\( .*? \\\) ) (*SKIP) (*FAIL)
    # A full stop that numbers a line or shortens a word ends no sentence.
    | (?<= [.!?] ) (?<! (?: ^ | \n ) [ \t]* \d+ \. ) (?<! \b (?: e\.g | i\.e | cf | vs | Eq | Fig | Dr | Mrs? ) \. ) \s+
    | (?<= [。！？] ) \s*
"""
_PARAGRAPH = rf"""{_WHOLE}
    | \r?\n (?: [ \t]*+ \r?\n )+
"""
_ANY_LABEL = r"""(?xm)
    ^ [ \t]* (?: [-*•] [ \t]+ )? (?:
        # A heading or bold text may go on; a plain label ends in a mark or with its line.
        (?: \#{1,6} [ \t]+ (?: \*\* | __ )? | \*\* | __ ) (?i: step ) [ \t]* \d+
        | (?i: step ) [ \t]* \d+ [ \t]* (?: [:.)：] (?! \d ) | \r? $ )
        | (?: \#{1,6} [ \t]+ )? (?: \*\* )?
            (?: 步骤 [ \t]* [\d一二三四五六七八九十]+ | 第 [\d一二三四五六七八九十]+ 步 )
        | (?: \*\* )? Thought (?: [ \t]+ \d+ )? (?: \*\* )? [:：]
    )
    | (?i: <step (?: [ _-]? \d+ )? > )
"""

_ALL = [
    Preset(
        "step-n",
        StepPattern(r"(?m)^Step \d+:"),
        "Math-Shepherd and GRPO tutorials",
        "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nThe answer is: 24",
    ),
    Preset(
        "step-n-answer",
        StepPattern(r"(?m)^(?:Step \d+|Answer):"),
        "the chain-arithmetic task: the answer is a step of its own",
        "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nAnswer: 24",
    ),
    Preset(
        "step-tag",
        StepPattern(r"STEP:"),
        "texts that mark each step with one word",
        "STEP: add the apples. STEP: double them.\nSTEP: say 24.",
    ),
    Preset(
        "heading-step",
        StepPattern(r"(?m)^## Step \d+:"),
        "search-and-learn",
        "## Step 1: Read the problem\nThere are 12.\n\n## Step 2: Double\nThat makes 24.",
    ),
    Preset(
        "any-label",
        StepPattern(_ANY_LABEL),
        "chat models: **Step 1**, ### Step 1, Step 1., 步骤1：, Thought:, <step>",
        "**Step 1**\nRead.\n### Step 2: Add\n7 + 5\nStep 3. Double.\n步骤4：写下 24\nThought: done.\n<step>24</step>",
    ),
    Preset(
        "numbered",
        StepPattern(r"(?m)^[ \t]*\d+[.)]\s"),
        "chat models",
        "Let us see.\n1. Add 5 to 7.\n2) Double the 12.\n  3. It is 24.",
    ),
    Preset(
        "line",
        StepPattern(r"\n+", kind="ends"),
        "TRL's stepwise data, Skywork's PRM, VinePPO",
        "7 + 5 = 12\n12 * 2 = 24\n\nSo it is 24.",
    ),
    Preset(
        "paragraph",
        StepPattern(_PARAGRAPH, kind="ends"),
        "Qwen2.5-Math-PRM, PURE, PRM800K's solutions",
        "First add:\n7 + 5 = 12.\n\nThen double:\n12 * 2 = 24.",
    ),
    Preset(
        "sentence",
        StepPattern(_SENTENCE, kind="ends"),
        "VinePPO",
        "We know $x = 1. 5$ holds, e.g. here. Then \\[ y = 2. \\] follows! 所以答案是二。对吗？Yes.",
    ),
    Preset(
        "think-answer",
        StepPattern(r"</think>\s*", kind="ends"),
        "R1-style models; chat templates often write the opening tag into the prompt",
        "<think>\n7 + 5 = 12, doubled 24.\n</think>\n\nThe answer is 24.",
    ),
    Preset(
        "reasoning-answer",
        StepPattern(r"(?s)<reasoning>.*?</reasoning>|<answer>.*?</answer>", kind="is"),
        "GSM8K recipes for GRPO",
        "<reasoning>\n7 + 5 = 12\n</reasoning>\n<answer>\n12\n</answer>",
    ),
    Preset(
        "working-out",
        StepPattern(
            r"(?s)(?:<start_working_out>|\A(?!.*<start_working_out>)).*?<end_working_out>|<SOLUTION>.*?</SOLUTION>",
            kind="is",
        ),
        "the Qwen3-4B recipe for GRPO, which writes the opening tag into the prompt",
        "<start_working_out>7 + 5 = 12<end_working_out><SOLUTION>12</SOLUTION>",
    ),
    Preset(
        "paragraph-tag",
        StepPattern(r"(?s)<paragraph_(\d+)>.*?</paragraph_\1>", kind="is"),
        "ProcessBench's prompts for critics",
        "<paragraph_0>\n7 + 5 = 12\n</paragraph_0>\n\n<paragraph_1>\n12 * 2 = 24\n</paragraph_1>",
    ),
    Preset(
        "ki",
        StepPattern(r"\s*ки", kind="ends"),
        "Math-Shepherd's scorer, which reads + or - after each",
        "Step 1: 7 + 5 = 12 ки\nStep 2: 12 * 2 = 24 ки",
    ),
    Preset(
        "extra-0",
        StepPattern(r"<extra_0>", kind="ends"),
        "Qwen2.5-Math-PRM's scorer",
        "7 + 5 = 12<extra_0>12 * 2 = 24<extra_0>",
    ),
    Preset(
        "action",
        StepPattern(r"\|\|", kind="ends"),
        "RAGEN",
        "Up || Right || Up",
    ),
    Preset(
        "mixed-list",
        StepPattern(r"(?m)^[ \t]*(?:Step \d+:|\#{1,6}\s|\d+[.)]\s|[-*•]\s|(?:First|Second|Third|Next|Then|Finally),)"),
        "open-r1: headings, numbers, bullets and words that order",
        "# Plan\n1. Add.\n- seven\n* five\nFinally, double.",
    ),
    Preset("turns", StepPattern("", kind="turns"), "episodes: every turn is a step", "call: 37*8"),
    Preset(
        "window",
        StepPattern(r"\S+(?:\s+\S+){0,15}\s*", kind="is"),
        "every 16 words, whatever they say",
        "Seven and five are twelve, and twelve taken twice is twenty-four, so the answer that we were asked for is 24.",
    ),
    Preset(
        "surprise",
        StepPattern("0.9 5", kind="surprise"),
        "SPO: before every fifth token of a probability below 0.9",
        "",
    ),
    Preset(
        "entropy",
        StepPattern("1.5 10", kind="entropy"),
        "PRPO: before tokens of high entropy (1.5 nats and more), 10 tokens apart",
        "",
    ),
    Preset("tokens", StepPattern("32", kind="tokens"), "fixed segments: every 32 tokens", ""),
]
PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}
