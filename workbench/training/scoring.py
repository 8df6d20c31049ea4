"""Score the completions of one generation and gather them into groups over all ranks.

All rewards, of steps and of outcomes, are called and checked by ``rewards.score_completions``, as in the preview, and
scores travel between ranks as they are (floats and None). What they are worth to a token is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from workbench.errors import RewardError, WorkbenchError
from workbench.rewards import ErrorBudget, Reward, Sandbox, score_completions, settle
from workbench.schema import Group, Prompt, RewardSummary, Rollout, ScoredGroup, StepScores
from workbench.steps import StepPattern


def distinct_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the names, numbered where one is taken already: ``short``, ``short (2)``."""
    distinct: list[str] = []
    for name in names:
        count = sum(other.partition(" (")[0] == name for other in (*taken, *distinct))
        distinct.append(f"{name} ({count + 1})" if count else name)
    return distinct


@dataclass(frozen=True)
class Member:
    """One scored completion, before it is gathered into its group."""

    prompt: Prompt
    columns: Mapping[str, Any]
    rollout: Rollout
    scores: StepScores

    def with_logprobs(self, **rows: Sequence[float]) -> Member:
        """Return the same with these log-probabilities of its sampled tokens, each row padded to the batch's length."""
        length, of_sampled = len(self.rollout), self.rollout.of_sampled
        known: dict[str, Any] = {name: of_sampled(row[:length]) for name, row in rows.items()}
        return replace(self, rollout=replace(self.rollout, **known))


@dataclass(frozen=True)
class Share:
    """One rank's completions of a generation, scored, or the error for which it has none."""

    members: Sequence[Member] = ()
    rewards: tuple[RewardSummary, ...] = ()
    failure: WorkbenchError | None = None
    reward_errors: int = field(default=0, kw_only=True)

    def with_reference(self, reference: torch.Tensor | None, *, finished_only: bool) -> Share:
        """Return the same with the reference policy's log-probabilities, (B, T), where the loss has them.

        ``finished_only``: those of unfinished completions are masked, and 0 in the place of a log-probability is none.
        """
        if reference is None or not self.members:
            return self
        members = [
            member if finished_only and member.rollout.truncated else member.with_logprobs(ref_logprobs=row)
            for member, row in zip(self.members, reference.tolist(), strict=True)
        ]
        return replace(self, members=members)

    def with_sampler(self, sampling: torch.Tensor | None, trained: torch.Tensor | None) -> Share:
        """The same with log-probabilities of tokens that another engine sampled, (B, T): its own, and the trainer's.

        What the trainer's own sampler sampled has them already. A log-probability that the engine does not know (NaN)
        counts as the trainer's, as in TRL's importance sampling.
        """
        if sampling is None or trained is None:
            return self
        known = torch.where(sampling.isnan(), trained, sampling).tolist()
        members = [
            member if member.rollout.logprobs is not None else member.with_logprobs(logprobs=theirs, raw_logprobs=ours)
            for member, theirs, ours in zip(self.members, known, trained.tolist(), strict=True)
        ]
        return replace(self, members=members)

    def outcomes(self, names: Sequence[str], count: int) -> torch.Tensor:
        """Outcome scores as TRL logs them: (``count``, F) float32, NaN where there is no score."""
        scores = [[member.scores.outcome_scores[name] for name in names] for member in self.members]
        rows = [
            [torch.nan if score is None else score for score in row] for row in scores or [[None] * len(names)] * count
        ]
        return torch.tensor(rows, dtype=torch.float32)


def score_share(
    prompts: Sequence[Any],
    rollouts: Sequence[Rollout],
    inputs: Sequence[Mapping[str, Any]],
    pattern: StepPattern,
    rewards: Sequence[Reward],
    *,
    completions: Sequence[Any] | None = None,
    opened: Sequence[bool] | None = None,
    worker: Sandbox | None = None,
    budget: ErrorBudget | None = None,
    trainer_state: Any = None,
) -> Share:
    """Score this rank's completions. Raises nothing: a failure is put into words that can travel to the other ranks."""
    columns = [{name: value for name, value in row.items() if name != "prompt"} for row in inputs]
    options: dict[str, Any] = {"worker": worker, "budget": budget, "trainer_state": trainer_state}
    try:
        scores, summaries = score_completions(
            prompts, rollouts, columns, pattern, rewards, completions=completions, opened=opened, **options
        )
    except Exception as raised:
        failure = RewardError(f"scoring raised {type(raised).__name__}: {raised}")
        failure.__cause__ = raised
        return Share(failure=raised if isinstance(raised, WorkbenchError) else failure)
    rows = zip(columns, rollouts, scores, strict=True)
    members = [Member(_text_of(prompt), *row) for prompt, row in zip(prompts, rows, strict=True)]
    return Share(members, summaries, reward_errors=budget.new() if budget is not None else 0)


def scored_groups(
    shares: Sequence[Share],
    size: int,
    *,
    policy: str,
    sampling: Mapping[str, Any],
    record: Callable[[Prompt], Mapping[str, Any]] = lambda prompt: {},
) -> list[ScoredGroup]:
    """All ranks' completions in groups of ``size``, in order; of rewards what is the same in every run of a seed.

    ``record(prompt)`` is what a group's ``sampling`` says of its prompt.
    """
    everyone = list(chain.from_iterable(share.members for share in shares))
    rewards = tuple(replace(reward, seconds=0.0, prints={}, metrics={}) for reward in shares[0].rewards)
    groups = []
    for start in range(0, len(everyone), size):
        members = everyone[start : start + size]
        rollouts = tuple(member.rollout for member in members)
        prompt = members[0].prompt
        group = Group(prompt, rollouts, members[0].columns, policy, {**sampling, **record(prompt)})
        groups.append(ScoredGroup(group, settle([member.scores for member in members], rewards), rewards))
    return groups


def _text_of(prompt: Any) -> Prompt:
    """Return a prompt without its pictures, which are neither stored nor drawn."""
    if isinstance(prompt, str):
        return prompt
    return [
        message
        if isinstance(message["content"], str)
        else {**message, "content": "".join(part.get("text") or "" for part in message["content"] or ())}
        for message in prompt
    ]
