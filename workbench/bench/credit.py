"""What credit assignment costs: every scheme on one large group, against ``outcome``, which only spreads one number."""

from __future__ import annotations

import random
from functools import partial

from workbench.bench import Measure, median_seconds
from workbench.credit import SCHEMES, assign_credit

COMPLETIONS, TOKENS, STEPS = 16, 1024, 16


def measure(repeat: int) -> list[Measure]:
    draw = random.Random(0)
    step_rewards = [[draw.random() for _ in range(STEPS)] for _ in range(COMPLETIONS)]
    step_ends = [[(k + 1) * TOKENS // STEPS - 1 for k in range(STEPS)] for _ in range(COMPLETIONS)]
    outcomes = [draw.random() for _ in range(COMPLETIONS)]
    credit = partial(assign_credit, step_rewards, step_ends, [TOKENS] * COMPLETIONS, outcome_rewards=outcomes)
    seconds = median_seconds({name: partial(credit, scheme=name) for name in SCHEMES}, repeat)
    return [
        Measure(name, round(1000 * took, 3), "ms", round(took / seconds["outcome"], 2), "outcome")
        for name, took in seconds.items()
    ]
