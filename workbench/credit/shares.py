"""Which answers and which steps the gradient comes from: shares of the pushes on the log-probabilities.

A token's push is minus the derivative of the loss by its log-probability (``credit.loss``); the gradient is the sum of
push times the gradient of the log-probability. The share of a set of tokens is that of the pushes' sizes: how hard the
loss pulls there, whatever the policy's weights make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.credit.loss import TokenLosses
from workbench.schema import Credit, ScoredGroup

NAMED_STEPS = 8
"""Step positions that have a share of their own; later ones share one."""


@dataclass(frozen=True)
class GradientShare:
    """The part ``name``, of ``tokens`` tokens, has ``share`` of all pushes' sizes, ``up`` of it upwards."""

    name: str
    tokens: int
    share: float
    up: float


def gradient_shares(credits: Sequence[Credit], losses: Sequence[TokenLosses]) -> list[GradientShare]:
    """Of right and of wrong answers, where an outcome reward tells them apart, then of each step position.

    ``losses`` are the rollouts' of all groups, as ``pass_losses`` gives them. Empty where nothing is pushed.
    """
    tokens: dict[str, list[float]] = {}
    rows = iter(losses)
    for credit in credits:
        verdicts = right_answers(credit.scored)
        for i, scored in enumerate(credit.scored.scored):
            push = next(rows).push
            verdict = {True: "right answers", False: "wrong answers", None: "answers without a verdict"}[verdicts[i]]
            tokens.setdefault(verdict, []).extend(push)
            place = np.full(len(push), -1)
            for k, (first, last) in enumerate(scored.spans):
                place[first : last + 1] = min(k, NAMED_STEPS)
            for k in np.unique(place):
                tokens.setdefault(_position(int(k)), []).extend(push[place == k])
    total = sum(abs(push) for name, pushes in tokens.items() if "answers" in name for push in pushes)
    if not total:
        return []
    shares = [
        GradientShare(
            name,
            len(pushes),
            float(np.abs(pushes).sum() / total),
            float(np.maximum(pushes, 0).sum() / total),
        )
        for name, pushes in sorted(tokens.items(), key=lambda entry: _order(entry[0]))
    ]
    judged = any(share.name in ("right answers", "wrong answers") for share in shares)
    return [share for share in shares if judged or "answers" not in share.name]


def right_answers(scored: ScoredGroup) -> list[bool | None]:
    """Return whether each answer is right, by the outcome reward that says so; None where none does."""
    judge = scored.judge("outcome")
    scores = [None if judge is None else row.outcome_scores.get(judge) for row in scored.scored]
    return [None if score is None else score > 0 for score in scores]


def _position(k: int) -> str:
    if k < 0:
        return "outside every step"
    return f"step {k + 1} and later" if k == NAMED_STEPS else f"step {k + 1}"


def _order(name: str) -> int:
    answers = ("right answers", "wrong answers", "answers without a verdict")
    if name in answers:
        return answers.index(name)
    return 99 if name == "outside every step" else 10 + int(name.split()[1])
