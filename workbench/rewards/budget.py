"""What a run does when a reward function fails: stop (no budget), or leave it unscored until the budget is spent.

One budget is one rank's; ranks add up what they spent. This module knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import RewardError
from workbench.rewards.protocol import Batch, Score, form_of
from workbench.rewards.reward import Reward


class ErrorBudget:
    """Counts the errors of reward functions and raises when there are more than ``limit``.

    ``on_error`` is told of each error that is let pass.
    """

    def __init__(self, limit: int, on_error: Callable[[RewardError], None] = lambda error: None) -> None:
        self.limit = limit
        self.spent = 0
        self._reported = 0
        self._last: RewardError | None = None
        self._on_error = on_error

    def spend(self, error: RewardError) -> None:
        """Let one error pass. Raises RewardError, with the error's own place, once it is one too many."""
        self.spent += 1
        self._last = error
        self.check(self.spent)
        self._on_error(error)

    def check(self, spent: int) -> None:
        """Raises RewardError if ``spent`` (this budget's, or the sum over ranks) is over the limit."""
        if spent <= self.limit:
            return
        last = self._last
        raise RewardError(
            f"{spent} errors of reward functions; training.max_reward_errors is {self.limit}"
            + (f". The last was: {last}" if last is not None else ""),
            reward=last.reward if last else None,
            line=last.line if last else None,
        )

    def new(self) -> int:
        """Errors since this was last asked."""
        new, self._reported = self.spent - self._reported, self.spent
        return new

    def score_steps(self, reward: Reward, batch: Batch) -> tuple[list[list[Score]], str]:
        """``reward.score_steps`` in which a failed rollout is unscored.

        A function that is called step by step leaves only the rollout it failed on unscored and is called again for
        the others; of a function that sees all of them at once nothing is known, and all are unscored.
        """
        scores: list[list[Score]] = [[None] * len(texts) for texts in batch.steps]
        asked: list[Sequence[str]] = list(batch.steps)
        while any(asked):
            try:
                given, printed = reward.score_steps(replace(batch, steps=asked))
            except RewardError as error:
                self.spend(error)
                if error.rollout is None or form_of(reward.signature) != "step":
                    break
                asked[error.rollout] = ()  # so that the others keep their numbers
            else:
                return [row if texts else none for row, texts, none in zip(given, asked, scores, strict=True)], printed
        return scores, ""

    def score_outcome(self, reward: Reward, batch: Batch) -> tuple[list[Score], str]:
        """``reward.score_outcome``, all unscored where it failed."""
        try:
            return reward.score_outcome(batch)
        except RewardError as error:
            self.spend(error)
            return [None] * len(batch), ""

    def outcome_function(self, reward: Reward) -> Callable[..., list[Score]]:
        """``reward.outcome_function`` that scores None where it fails."""
        function = reward.outcome_function

        def outcome(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[Score]:
            try:
                return function(prompts, completions, **columns)
            except RewardError as error:
                self.spend(error)
                return [None] * len(completions)

        outcome.__name__ = outcome.__qualname__ = reward.name
        return outcome
