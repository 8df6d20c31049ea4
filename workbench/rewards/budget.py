"""Error budget of reward functions: how many failures a run leaves unscored before it stops.

One budget is one rank's; ranks add up what they spent. This module knows nothing of training.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from workbench.errors import RewardError
from workbench.rewards.protocol import Batch, form_of
from workbench.rewards.returned import Score
from workbench.rewards.reward import Reward

FAILED = math.inf
"""Stands for the scores of a rollout's steps that a function failed on; no function may return it."""


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
        self._lock = threading.Lock()

    def spend(self, error: RewardError) -> None:
        """Let one error pass. Raises RewardError, with the error's own place, once it is one too many."""
        with self._lock:  # rewards that wait for others are called on threads
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
            f"{spent} errors of reward functions; method.max_reward_errors is {self.limit}"
            + (f". The last was: {last}" if last is not None else ""),
            reward=last.reward if last else None,
            line=last.line if last else None,
        )

    def new(self) -> int:
        """Errors since the last call."""
        new, self._reported = self.spent - self._reported, self.spent
        return new

    def score_steps(self, reward: Reward, batch: Batch) -> tuple[list[list[Score]], str]:
        """``reward.score_steps`` in which a failed rollout's steps are ``FAILED``.

        A function that is called step by step fails on one rollout alone and is called again for the others; of a
        function that sees all of them at once nothing is known, and all are unscored.
        """
        scores: list[list[Score]] = [[None] * len(texts) for texts in batch.steps]
        remaining: list[Sequence[str]] = list(batch.steps)
        while any(remaining):
            try:
                scored, printed = reward.score_steps(replace(batch, steps=remaining))
            except RewardError as error:
                self.spend(error)
                if error.rollout is None or form_of(reward.signature) != "step":
                    break
                remaining[error.rollout] = ()  # so that the others keep their numbers
                scores[error.rollout] = [FAILED] * len(scores[error.rollout])
            else:
                return [
                    row if texts else none for row, texts, none in zip(scored, remaining, scores, strict=True)
                ], printed
        return scores, ""

    def score_outcome(self, reward: Reward, batch: Batch) -> tuple[list[Score], str]:
        """``reward.score_outcome``, all unscored where it failed."""
        try:
            return reward.score_outcome(batch)
        except RewardError as error:
            self.spend(error)
            return [None] * len(batch), ""
