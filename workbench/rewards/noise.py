"""A built-in step reward with some of its labels wrong: what credit schemes make of a judge that errs.

It knows nothing of training or credit. The wrong labels are those of a judge, not of a coin that is thrown anew at
every look: whether a step's label is turned follows from the prompt, the text up to the step's end and a seed, so that
the same answer is always judged alike.
"""

from __future__ import annotations

import math

from workbench.config import RewardConfig
from workbench.errors import RewardError, shown
from workbench.rewards.builtin import find_builtin

_WRAPPED = '''

def {name}(prompts, completions, steps, **columns):
    """``{right}`` with the label of {share:.0%} of the steps turned, 1 - score, as seed {seed} has it."""
    import random

    from workbench.rewards.protocol import Batch, call_reward

    turned = []
    right = call_reward("{right}", {right}, Batch(prompts, completions, columns, steps))
    for prompt, row, scores in zip(prompts, steps, right):
        read, judged = str(prompt), []
        for text, score in zip(row, scores):
            read += text
            turn = score is not None and random.Random("{seed} " + read).random() < {share!r}
            judged.append(1 - score if turn else score)
        turned.append(judged)
    return turned
'''


def with_wrong_labels(reward: str, share: float, *, seed: int = 0, weight: float = 1.0) -> RewardConfig:
    """The built-in step reward ``reward`` with a ``share`` of its labels turned from r to 1 - r.

    Raises RewardError for a reward that does not score steps from 0 to 1, and for a share that is none.
    """
    builtin = find_builtin(reward)
    if builtin.kind != "step" or (builtin.low, builtin.high) != (0, 1):
        raise RewardError(f"{reward!r} scores no steps from 0 to 1, so that no label can be turned; give another")
    if not (math.isfinite(share) and 0 <= share <= 1):
        raise RewardError(f"share is {shown(share)}; give the part of the labels that are wrong, from 0 to 1")
    name = f"wrong_{reward}"
    wrapped = _WRAPPED.format(name=name, right=reward, share=float(share), seed=int(seed))
    return RewardConfig(name=name, kind="step", weight=weight, code=builtin.source + wrapped)
