"""Rewards summed after each function's scores were normalised on their own: GDPO.

r'_{i,k} = sum over functions f of w_f z(r_{i,k,f}) and R'_i = sum over f of w_f z(R_{i,f}), z over the function's own
scores in the group, which a scheme then takes for rewards. So a function with a small spread counts as much as one
with a large one. GDPO (arXiv 2601.05242) has it for outcomes and normalises the sums once more over the batch:
``trl-GDPO/trl-0.18.0-gdpo/trl/trainer/grpo_trainer.py`` of https://github.com/NVlabs/GDPO, and TRL 1.16 as
``multi_objective_aggregation="normalize_then_sum"``.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from workbench.credit.normalise import z_within
from workbench.schema import ScoredGroup

NOTE = "each reward function's scores were normalised over the group before they were summed (normalize_then_sum)"


def summed_steps(scored: ScoredGroup, counted: npt.NDArray[np.bool_]) -> list[list[float | None]]:
    """r' of each step, None where no function scored it; completions that are not ``counted`` are in no mean or std."""
    rows = scored.scored
    ends = np.cumsum([len(row.rewards) for row in rows]).tolist()
    names = [reward.name for reward in scored.rewards if reward.kind == "step"]
    scores = {name: list(chain.from_iterable(row.scores[name] for row in rows)) for name in names}
    known = np.array([reward is not None for row in rows for reward in row.rewards], dtype=bool)
    sums = _summed(scored, scores, np.repeat(counted, np.diff(ends, prepend=0)) & known)
    flat = [total if there else None for total, there in zip(sums, known, strict=True)]
    return [flat[first:after] for first, after in zip([0, *ends], ends, strict=False)]


def summed_outcomes(scored: ScoredGroup, counted: npt.NDArray[np.bool_]) -> list[float | None] | None:
    """R' of each completion, None where it is unscored; None where there is no outcome reward function."""
    if scored.outcomes is None:
        return None
    names = [reward.name for reward in scored.rewards if reward.kind == "outcome"]
    scores = {name: [row.outcome_scores[name] for row in scored.scored] for name in names}
    sums = _summed(scored, scores, counted & np.array([outcome is not None for outcome in scored.outcomes]))
    return [None if outcome is None else total for outcome, total in zip(scored.outcomes, sums, strict=True)]


def _summed(scored: ScoredGroup, scores: dict[str, list[float | None]], counted: npt.NDArray[np.bool_]) -> list[float]:
    """The weighted sum of each function's normalised scores; a score that is not there adds nothing."""
    pool, sums = np.zeros(len(counted), dtype=np.int64), np.zeros(len(counted))
    for reward in scored.rewards:
        if reward.name in scores:
            raw = np.array([np.nan if score is None else score for score in scores[reward.name]], dtype=np.float64)
            z = z_within(np.where(counted, raw, np.nan), pool, np.arange(len(raw)), "pooled", scale=True)
            sums += reward.weight * np.nan_to_num(z.value)
    return sums.tolist()
