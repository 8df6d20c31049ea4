"""What credit assignment costs: every scheme on one large group, against ``outcome``, which only spreads one number.

The last rows double the tokens and then the steps: a ratio of about 2 or less says that the cost is linear in them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import Measure, median_seconds
from workbench.credit import SCHEMES, assign_credit

COMPLETIONS, TOKENS, STEPS = 1024, 4096, 32


def measure(repeat: int) -> list[Measure]:
    group = _group(TOKENS, STEPS)
    seconds = median_seconds({name: partial(group, scheme=name) for name in SCHEMES}, repeat)
    rows = [
        Measure(name, round(1000 * took, 1), "ms", round(took / seconds["outcome"], 2), "outcome")
        for name, took in seconds.items()
    ]
    grown = {"as it is": group, "2x tokens": _group(2 * TOKENS, STEPS), "2x steps": _group(TOKENS, 2 * STEPS)}
    seconds = median_seconds(grown, repeat)
    return rows + [
        Measure(f"process, {name}", round(1000 * took, 1), "ms", round(took / seconds["as it is"], 2), "as it is")
        for name, took in seconds.items()
    ]


def _group(tokens: int, steps: int) -> Callable[..., Any]:
    """``assign_credit`` of one group of COMPLETIONS, each of so many tokens in so many equal steps."""
    draw = random.Random(0)
    return partial(
        assign_credit,
        [[draw.random() for _ in range(steps)] for _ in range(COMPLETIONS)],
        [[(k + 1) * tokens // steps - 1 for k in range(steps)] for _ in range(COMPLETIONS)],
        [tokens] * COMPLETIONS,
        outcome_rewards=[draw.random() for _ in range(COMPLETIONS)],
        states=[[draw.randrange(8) for _ in range(steps)] for _ in range(COMPLETIONS)],
        token_ids=np.random.default_rng(0).integers(1000, size=(COMPLETIONS, tokens)).tolist(),
    )
