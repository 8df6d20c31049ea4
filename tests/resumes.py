"""The difference of two runs, and an environment that tests play."""

import re

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
