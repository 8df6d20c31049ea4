"""Runs that are compared with each other: their data, an environment, and the difference of two of them."""

import re
from typing import Any

from workbench.runs import Run

_TIMES = re.compile(r"time|seconds|memory")  # columns that no two runs share

CLERK = {
    "name": "Clerk",
    "code": """
class Clerk:
    stop = ("\\n",)

    def reset(self, prompt, **columns):
        self.lines = 0

    def reply(self, turn):
        self.lines += 1
        return f"line {self.lines}.\\n" if self.lines % 2 else ""
""",
}
"""An environment that counts the lines of an answer, and says so at every second one."""


def stored_rows(method: str, count: int) -> list[dict[str, Any]]:
    """Return rows for a method that does not sample; none for one that does."""
    pair = {"chosen": "It is 4.", "rejected": "It is 5."}
    kinds: dict[str, dict[str, Any]] = {
        "sft": {"completion": "It is 4."},
        "dpo": pair,
        "reward": pair,
        "prm": {"completions": ["2 + 2 = 4", "So it is 5."], "labels": [True, False]},
    }
    return [{"prompt": f"{n} + {n}?\n", **kinds[method]} for n in range(count)] if method in kinds else []


def difference(one: Run, other: Run) -> float:
    """The largest difference of any metric at any step; infinite where rows or rollouts are not the same ones."""
    rows, others = one.metrics_rows()[0], other.metrics_rows()[0]
    if [set(row) for row in rows] != [set(row) for row in others] or not _same_rollouts(one, other):
        return float("inf")
    pairs = [
        (row[name], twin[name])
        for row, twin in zip(rows, others, strict=True)
        for name in row
        if not _TIMES.search(name)
    ]
    if any((a is None) != (b is None) for a, b in pairs):
        return float("inf")
    return max(abs(float(a) - float(b)) for a, b in pairs if isinstance(a, (int, float)))


def _same_rollouts(one: Run, other: Run) -> bool:
    """Whether every stored token and advantage is the same, bit for bit."""
    steps = one.rollout_steps()
    return steps == other.rollout_steps() and all(
        a.advantages.tobytes() == b.advantages.tobytes()
        and [r.token_ids for r in a.scored.group.rollouts] == [r.token_ids for r in b.scored.group.rollouts]
        for step in steps
        for a, b in zip(one.rollouts(step), other.rollouts(step), strict=True)
    )
