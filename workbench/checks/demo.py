"""A demonstration group for exploit probes: one good step, and the same words split into four.

Four answers to one question, a line a step, every line that adds up scored 1. The first answer does all its work in one
line. Writing the same words in four lines earns its first token about five times the advantage under ``process``, and
nothing under ``outcome``: rewards 1 0 | 1 0 | 0 1 | 0 0 have mean 3/8 and std 0.5175, so the first token gets
1.2075 - 0.7245 = 0.4830; 1 1 1 1 0 | 1 0 | 0 1 | 0 0 have mean 6/11 and std 0.5222, and it gets
4 * 0.8703 - 1.0443 = 2.4367.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from workbench.schema import Group, Rollout
from workbench.steps import StepPattern

_QUESTION = "A box holds 3 pens, Ann adds 4, doubles them, takes 5 away and buys 1 more. How many pens are there?\n"
_ANSWERS = (
    "3+4=7, 7*2=14, 14-5=9, 9+1=10,\nThe answer is 11\n",
    "3+4=7, then doubled 14, less 5 is 9,\nThe answer is 9\n",
    "3+4=8, doubled 16, less 5 is 11,\nThe answer is 10\n",
    "3+4=6, doubled 12, less 5 is 8,\nThe answer is 9\n",
)
_PATTERN = StepPattern(r"\n", kind="ends")


def sums_and_answer(prompt: str, step: str, **columns: object) -> float:
    """1 for a line in which every sum is right or which states the right answer, else 0."""
    import re

    sums = re.findall(r"(\d+)([+*-])(\d+)=(\d+)", step)
    if not sums:
        return float(step.strip() == "The answer is 10")
    work = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    return float(all(work[sign](int(a), int(b)) == int(c) for a, sign, b, c in sums))


def split_step_demo() -> tuple[Group, StepPattern, list[Callable[..., Any]]]:
    """Group, pattern and rewards for ``probe``; a token is a word."""
    rollouts = []
    for n, text in enumerate(_ANSWERS):
        texts = [*re.findall(r"\S+[ \n]?", text), "<end>"]
        rollouts.append(Rollout(tuple(range(100 * n, 100 * n + len(texts))), tuple(texts), finished=True))
    return (
        Group(_QUESTION, tuple(rollouts), {"answer": "10"}),
        _PATTERN,
        [sums_and_answer, right_answer],
    )


def right_answer(prompts: list[object], completions: list[str], answer: list[str], **columns: object) -> list[float]:
    """1 for a completion that ends in the answer."""
    return [
        float(text.strip().endswith(f"The answer is {truth}")) for text, truth in zip(completions, answer, strict=True)
    ]
