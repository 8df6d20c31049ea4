"""Groups with scores and credit made by hand, for whoever draws or stores them."""

from collections.abc import Sequence

import numpy as np

from workbench.credit import credit_group
from workbench.schema import (
    Credit,
    Group,
    LossPass,
    LossSettings,
    RewardSummary,
    Rollout,
    RolloutPass,
    ScoredGroup,
    Step,
    StepScores,
)


def make_rollout(texts: Sequence[str], *, finished: bool = True, logprobs: bool = True, first_id: int = 100) -> Rollout:
    """Token i has id ``first_id`` + i and, where log-probabilities are wanted, log-probability -i / 10."""
    return Rollout(
        token_ids=tuple(first_id + i for i in range(len(texts))),
        texts=tuple(texts),
        finished=finished,
        logprobs=tuple(-i / 10 for i in range(len(texts))) if logprobs else None,
        entropies=tuple(i / 100 for i in range(len(texts))) if logprobs else None,
    )


def make_credit(
    rollouts: Sequence[Rollout],
    ends: Sequence[Sequence[int]],
    rewards: Sequence[Sequence[float | None]],
    outcomes: Sequence[float | None] | None = None,
    *,
    scheme: str = "process",
    starts: Sequence[Sequence[int]] | None = None,
    outcome_weight: float = 0.0,
    names: tuple[str, str] = ("rule", "right"),
) -> Credit:
    """Credit of a group whose steps end at the given tokens, a reward each; a step's text is that of its tokens.

    A rollout may have no step: no end and no reward. ``names`` are those of the step and of the outcome reward.
    """
    scored = []
    for i, rollout in enumerate(rollouts):
        assert len(ends[i]) == len(rewards[i]), f"rollout {i} has {len(ends[i])} ends and {len(rewards[i])} rewards"
        firsts = starts[i] if starts is not None else [0, *(end + 1 for end in ends[i])][: len(ends[i])]
        offsets = [0]
        for text in rollout.texts:
            offsets.append(offsets[-1] + len(text))
        length = len(rollout.text)
        steps = [
            Step(offsets[first], min(offsets[end + 1], length)) for first, end in zip(firsts, ends[i], strict=True)
        ]
        outcome = outcomes[i] if outcomes is not None else None
        scored.append(
            StepScores(
                steps=tuple(steps),
                spans=tuple(zip(firsts, ends[i], strict=True)),
                scores={names[0]: tuple(rewards[i])},
                rewards=tuple(rewards[i]),
                outcome_scores={} if outcomes is None else {names[1]: outcome},
                outcome=outcome,
            )
        )
    summaries = [RewardSummary(names[0], "step", 1.0)]
    if outcomes is not None:
        summaries.append(RewardSummary(names[1], "outcome", 1.0))
    group = Group("2 + 2 = ?", tuple(rollouts), {"answer": "4"}, "by hand")
    return credit_group(ScoredGroup(group, tuple(scored), tuple(summaries)), scheme, outcome_weight=outcome_weight)


WORKED_REWARDS = [[1.0, 1.0, 0.0], [1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
WORKED_ENDS = [[3, 7, 9], [4, 8], [2, 4, 6, 8]]


def worked_credit(
    scheme: str = "process", outcomes: Sequence[float | None] | None = None, names: tuple[str, str] = ("rule", "right")
) -> Credit:
    """Three rollouts of 10, 9 and 9 tokens: mean 4/9 = 0.444444, std sqrt(5/18) = 0.527046 over the nine steps."""
    rollouts = [
        make_rollout([f"t{i} " for i in range(length)], first_id=100 * n) for n, length in enumerate((10, 9, 9), 1)
    ]
    return make_credit(rollouts, WORKED_ENDS, WORKED_REWARDS, outcomes, scheme=scheme, names=names)


def pass_over(credit: Credit, generation: int, number: int = 1) -> LossPass:
    """A pass of the grpo loss over the generation of that step, log-probability -0.5 · ``number`` of every token."""
    before = [np.full(len(rollout), -0.5, np.float32) for rollout in credit.scored.group.rollouts]
    rows = tuple(RolloutPass(0, row * number, row) for row in before)
    settings = LossSettings("grpo", max_completion_length=10)
    tokens = sum(map(len, before))
    return LossPass(generation + number - 1, generation, number, settings, rows, tokens=tokens, loss=0.25)
