"""Character spans of steps → token spans, on the texts of the sampled tokens.

A token that straddles two steps belongs to the one whose last character it contains. So step k ends at the token that
holds its last character, and begins at the first token that no earlier step ends in. Tokens that complete no character
("") belong with the character they help to complete. This module does not know how text was split or decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from workbench.schema import Step


def align_steps(texts: Sequence[str], steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The (first, last) token of each step, last inclusive.

    ``texts`` are ``token_texts``; ``steps`` are ordered, disjoint and inside their join. Firsts and lasts never
    decrease. Steps share a token only where one token holds the ends of both: then the later one's span is that token
    alone. A step that stands for a completion without a match spans every token. Raises ValueError for steps that do
    not fit the texts.
    """
    if not texts:
        if steps:
            raise ValueError("a completion without tokens has no steps; give at least one token")
        return []
    ends = list(accumulate(len(text) for text in texts))  # end of each token's characters
    spans: list[tuple[int, int]] = []
    free, previous_end = 0, 0  # first token no step ends in yet
    for step in steps:
        if not step.matched:
            spans.append((0, len(texts) - 1))
            continue
        if not previous_end <= step.start < step.end <= ends[-1]:
            raise ValueError(
                f"step ({step.start}, {step.end}) is empty, overlaps the one before, or ends after the text's "
                f"{ends[-1]} characters"
            )
        last = bisect_right(ends, step.end - 1)
        spans.append((min(max(free, _first_token(texts, ends, step.start)), last), last))
        free, previous_end = last + 1, step.end
    return spans


def _first_token(texts: Sequence[str], ends: Sequence[int], start: int) -> int:
    """The token that completes character ``start``, or the first of those that only help it to do so."""
    token = bisect_right(ends, start)
    if ends[token] - len(texts[token]) == start:
        while token and not texts[token - 1]:
            token -= 1
    return token
