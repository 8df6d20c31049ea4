"""What a completion thinks between ``<think>`` and ``</think>``, and what it answers after that.

The answer is the text after the last ``</think>``, as Qwen3's chat template has it, up to a ``<think>`` that is not
closed again. Where the prompt opened the block already, a completion without ``</think>`` is all thinking.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def answer_span(text: str, *, opened: bool = False) -> tuple[int, int]:
    """Start and end of the answer in ``text``; equal where there is none. ``opened``: the prompt ends in a block."""
    close = text.rfind(CLOSE)
    if close < 0 and opened:
        return len(text), len(text)
    start = close + len(CLOSE) if close >= 0 else 0
    again = text.find(OPEN, start)
    return start, len(text) if again < 0 else again


def ends_in_thinking(prompt: str) -> bool:
    """Whether a prompt, as the policy reads it, leaves a block open."""
    return prompt.rstrip().endswith(OPEN)
