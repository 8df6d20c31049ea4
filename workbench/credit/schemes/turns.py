"""Schemes for episodes of several turns."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from workbench.credit.batch import Batch, Floats
from workbench.credit.normalise import Normalise, Normalised, z_within
from workbench.credit.options import Range
from workbench.credit.schemes.scheme import Gamma, Part, by_completion, outcomes_of

StateWeight = Annotated[float, Range("Weight of the comparison within states beside the total returns'", -100.0, 100.0)]
AcrossSteps = Annotated[bool, "An episode's total return counts once for each of its steps in mean and std"]


def gigpo(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    gamma: Gamma = 0.95,
    state_weight: StateWeight = 1.0,
    across_steps: AcrossSteps = False,
) -> Part | tuple[Part, ...]:
    """The normalised total return, and a step's discounted return beside those of the steps that begin in its state.

    A_{i,t} = z(T_i) + state_weight * z(G_{i,k(t)}), T_i = R_i + sum over k of r_{i,k}, the second z over the group's
    steps that begin in the same state as k(t), 0 outside every step and in a state where one step alone begins.
    G_{i,k} = r_{i,k} + gamma G_{i,k+1}, the last step's with R_i added: as in an environment that rewards success at
    the end. An unscored step has r = 0; a completion without an outcome has no returns. The state in which a turn
    begins is what its environment calls it, else the observation before it; of a later step in a turn that, and what
    the turn says before the step.

    GiGPO (arXiv 2505.10978), equations 3 and 5 to 8; ``compute_gigpo_outcome_advantage`` in ``gigpo/core_gigpo.py`` of
    https://github.com/langfengQ/verl-agent, where ``mode="mean_norm"``, the default, is ``scale`` off. Equation 3 has
    mean and std of T over episodes; the code's default takes them over all steps of the group
    (``compute_mean_std_cross_steps``), which is ``across_steps``.
    """
    assert batch.step_state is not None, "what a scheme needs is checked before it is computed"
    outcomes = outcomes_of(batch)
    beside = z_within(_returns(batch, outcomes, gamma), batch.step_state, batch.completion, normalise, scale)
    totals = outcomes + np.nan_to_num(batch.sums)
    return (
        Part("step", "own", beside, np.full_like(batch.rewards, state_weight)),
        Part("return", "all", _of_episodes(batch, totals, normalise, scale, across_steps)),
    )


def _of_episodes(batch: Batch, totals: Floats, how: Normalise, scale: bool, across_steps: bool) -> Normalised:
    """Return ``totals`` (B,) normalised over the group's episodes, or over their steps; one without counts once."""
    if not across_steps:
        return by_completion(batch, totals, how, scale)
    counts = np.maximum(np.diff(batch.offsets), 1)
    owner = np.repeat(np.arange(batch.completions), counts)
    z = z_within(totals[owner], batch.group[owner], owner, how, scale)
    first = np.cumsum(counts) - counts
    return Normalised(z.raw[first], z.mean[first], z.std[first], z.value[first], z.spread[first])


def _returns(batch: Batch, outcomes: Floats, gamma: float) -> Floats:
    """The discounted return of each step, the outcome coming with the last, (N,); NaN without an outcome."""
    returns, later = np.nan_to_num(batch.rewards), 0.0
    for n in range(len(returns) - 1, -1, -1):
        is_last = n + 1 == batch.offsets[batch.completion[n] + 1]
        later = returns[n] = returns[n] + (outcomes[batch.completion[n]] if is_last else gamma * later)
    return returns
