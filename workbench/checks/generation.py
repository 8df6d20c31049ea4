"""``Generation``: the numbers of one generation's groups that the metrics of a run are computed from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit import unused_rewards
from workbench.rewards.reward import texts_after_thinking
from workbench.rewards.statistics import Telling, correlate_with_trained, tell_apart
from workbench.schema import Credit, Judged, Rollout, StepScores
from workbench.steps import StepPattern


@dataclass(frozen=True)
class Generation:
    """The credit of one generation's groups, to compute metrics of.

    What was sampled is measured whole, as TRL measures it: scores, accuracy, lengths, a critic's values. What is learnt
    from it, from the rewards' variance to who is pushed where, is of the rollouts that the loss counts alone.
    ``is_right`` tells whether a text answers its row's columns; it gets what ``pattern`` leaves to read.
    """

    credits: Sequence[Credit]
    is_right: Callable[[str, Mapping[str, Any]], bool] | None = None
    pattern: StepPattern | None = None

    @cached_property
    def step_scores(self) -> list[StepScores]:
        return [scores for credit in self.credits for scores in credit.scored.scored]

    @cached_property
    def step_rewards(self) -> list[float | None]:
        return [reward for scores in self.step_scores for reward in scores.rewards]

    @cached_property
    def rollouts(self) -> list[Rollout]:
        return [rollout for credit in self.credits for rollout in credit.scored.group.rollouts]

    @cached_property
    def telling(self) -> dict[str, Telling]:
        """Return what each reward function tells apart, by its name."""
        return tell_apart([credit.in_loss for credit in self.credits])

    @property
    def episodes(self) -> list[Rollout] | None:
        """The rollouts; None if every completion is one turn by itself."""
        return self.rollouts if any(rollout.mask is not None for rollout in self.rollouts) else None

    def scores(self, name: str, *, of_steps: bool) -> list[float] | None:
        """The scores that a reward function gave to steps, or to completions; None for a function of the other kind."""
        of = [
            row.scores if of_steps else {key: [score] for key, score in row.outcome_scores.items()}
            for row in self.step_scores
        ]
        return [score for row in of for score in row[name] if score is not None] if name in of[0] else None

    @cached_property
    def right(self) -> list[list[bool]] | None:
        """Return whether each answer of each group is right."""
        if self.is_right is None:
            return None
        groups = [credit.scored.group for credit in self.credits]
        return [
            [
                self.is_right(answer, group.columns)
                for answer in texts_after_thinking(group.rollouts, self.pattern, [group.thinking_open] * len(group))
            ]
            for group in groups
        ]

    @cached_property
    def judged(self) -> list[Judged]:
        rights: Sequence[list[bool] | None] = self.right or [None] * len(self.credits)
        return [one for credit, right in zip(self.credits, rights, strict=True) for one in credit.judged(right)]

    def wronged(self, right: bool, *, steps: bool) -> float | None:
        """The share of the right (or wrong) answers, or steps, that are pushed the other way; None of none."""
        of = [one.is_wronged for one in self.judged if one.right is right and (one.step is not None) is steps]
        return mean(of or None)

    def phantoms(self) -> float | None:
        """The share of groups that train although none of their answers is right; None if nothing says which are."""
        rights: Sequence[Sequence[bool | None] | None] = self.right or [c.scored.answers_right for c in self.credits]
        pairs = [(credit, right) for credit, right in zip(self.credits, rights, strict=True) if right is not None]
        return mean([bool(not any(right) and credit.deciding(right)) for credit, right in pairs] or None)

    def token_values(self, name: str) -> npt.NDArray[np.float64] | None:
        """Return the values of each sampled token under ``name`` in a critic's credit; None if there is no critic."""
        rows = [row for credit in self.credits for row in credit.values.get(name, ())]
        masks = [np.array(rollout.mask or [1] * len(rollout), dtype=bool) for rollout in self.rollouts]
        return (
            np.concatenate([row[mask] for row, mask in zip(rows, masks, strict=True)]).astype(float) if rows else None
        )

    def explained_variance(self) -> float | None:
        returns, values = self.token_values("return"), self.token_values("value")
        if returns is None or values is None:
            return None
        variance = float(np.var(returns)) if len(returns) else 0.0
        return 1 - float(np.var(returns - values)) / variance if variance else float("nan")

    def follows_trained(self, name: str) -> float | None:
        """Return how a reward that is watched goes with those that are trained on; None for one of the latter."""
        rewards, unused = self.credits[0].scored.rewards, unused_rewards(self.credits[0])
        trained = {reward.name: reward.weight for reward in rewards if reward.name not in unused}
        of = [credit.in_loss for credit in self.credits if name in unused and trained]
        return correlate_with_trained(of, name, trained) if of else None

    def clamped_scores(self) -> float | None:
        clip = self.credits[0].options.get("score_clip")
        outcomes = [scores.outcome for scores in self.step_scores if scores.outcome is not None]
        return None if clip is None else mean([abs(outcome) > clip for outcome in outcomes])


def mean(
    values: Sequence[float] | npt.NDArray[np.float64] | None, average: Callable[..., Any] = np.mean
) -> float | None:
    """Return the mean (or another ``average``, ``np.std`` say): NaN of no values, None for None."""
    return None if values is None else float(average(values)) if len(values) else float("nan")
