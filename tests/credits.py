"""Groups with scores and credit made by hand, for whoever draws or stores them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

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


def make_scored(
    rollouts: Sequence[Rollout],
    spans: Sequence[Sequence[tuple[int, int]]],
    steps: Mapping[str, Sequence[Sequence[float | None]]],
    outcomes: Mapping[str, Sequence[float | None]] | None = None,
    weights: Mapping[str, float] | None = None,
    **group: Any,
) -> ScoredGroup:
    """Return a group with the scores ``steps[name][i][k]`` and ``outcomes[name][i]``; rewards are their weighted sums.

    A step's text is that of its tokens.
    """
    weights, outcomes = weights or {}, outcomes or {}

    def total(scores: Mapping[str, float | None]) -> float | None:
        known = [weights.get(name, 1.0) * score for name, score in scores.items() if score is not None]
        return sum(known) if known else None

    rows = []
    for i, rollout in enumerate(rollouts):
        begins = [0, *accumulate(map(len, rollout.texts))]
        whole = {name: scores[i] for name, scores in outcomes.items()}
        rows.append(
            StepScores(
                steps=tuple(Step(begins[a], min(begins[b + 1], len(rollout.text))) for a, b in spans[i]),
                spans=tuple(spans[i]),
                scores={name: tuple(scores[i]) for name, scores in steps.items()},
                rewards=tuple(total({name: row[i][k] for name, row in steps.items()}) for k in range(len(spans[i]))),
                outcome_scores=whole,
                outcome=total(whole),
            )
        )
    summaries = [RewardSummary(name, "step", weights.get(name, 1.0)) for name in steps]
    summaries += [RewardSummary(name, "outcome", weights.get(name, 1.0)) for name in outcomes]
    return ScoredGroup(
        Group(rollouts=tuple(rollouts), **{"prompt": "2 + 2 = ?"} | group), tuple(rows), tuple(summaries)
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
    firsts = starts or [[0, *(end + 1 for end in row)][: len(row)] for row in ends]
    spans = [list(zip(*row, strict=True)) for row in zip(firsts, ends, strict=True)]
    whole = None if outcomes is None else {names[1]: outcomes}
    scored = make_scored(rollouts, spans, {names[0]: rewards}, whole, columns={"answer": "4"}, policy="by hand")
    return credit_group(scored, scheme, outcome_weight=outcome_weight)


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
