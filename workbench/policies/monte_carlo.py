"""Monte-Carlo step values: what a step is worth, by the outcomes of k completions sampled from its end.

A prefix is the prompt's ids and the completion's sampled ids up to the step's last token; nothing is tokenised again.
All prefixes of a group go through the group sampler together: each distinct one is computed once for its k
continuations, which may take what is left of the completion's length. A step that ends its completion has that
completion's own outcome. Math-Shepherd (arXiv 2312.08935, section 3.3) labels with these values and VinePPO (arXiv
2410.01679, section 4.2) credits by them. What is done with them is ``step_values``' and ``credit``'s business.
"""

from __future__ import annotations

import time
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.config import PatternConfig, RewardConfig, SamplingConfig
from workbench.errors import ConfigError
from workbench.policies.load import Policy
from workbench.policies.sampler import Sampled, encode_prompt, sample_rows, to_rollout
from workbench.policies.step_values import StepValues, differences, estimate
from workbench.rewards import Reward, load_reward, score_group
from workbench.rewards.protocol import Batch, Score
from workbench.schema import Group, Prompt, Rollout
from workbench.steps import StepPattern

ROWS = 256
"""Continuations sampled side by side."""

OnProgress = Callable[[dict[str, Any]], None]
"""Called with ``{"done", "total", "tokens", "seconds"}``; done and total count continuations."""


@dataclass(frozen=True)
class Prefix:
    """Where continuations begin: after ``ids``, with ``left`` tokens to go."""

    ids: tuple[int, ...]
    left: int


def step_values(
    policy: Policy,
    group: Group,
    pattern: StepPattern | PatternConfig,
    outcome_reward: str | Callable[..., Any] | RewardConfig | Reward = "answer_correctness",
    k: int = 8,
    seed: int = 0,
    *,
    max_completion_length: int | None = None,
    sampling: SamplingConfig | None = None,
    threshold: float = 0.5,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> StepValues | None:
    """Estimate the value of every step of a group; the same arguments give the same values. None when cancelled.

    Args:
        outcome_reward: what a whole completion is worth; the group's columns are passed to it.
        k: continuations of each step.
        max_completion_length: tokens of a completion, prefix and continuation together; by default the group's own.
        sampling: temperature and the like; by default the group's own.
        threshold: outcomes over it are successes.

    Raises:
        ConfigError: if k is less than 1, or the reward scores steps.
        PatternError, RewardError, PolicyError: as splitting, scoring and sampling raise them.
    """
    began = time.monotonic()
    reward = load_reward(outcome_reward, pattern=pattern)
    if k < 1 or reward.kind != "outcome":
        raise ConfigError(
            f"give k of at least 1 (got {k}) and an outcome reward (got {reward.name!r}, of kind {reward.kind})"
        )
    how = _sampling(group, sampling, max_completion_length)
    cutter = StepPattern(pattern.regex, pattern.kind) if isinstance(pattern, PatternConfig) else pattern
    count = len(group.rollouts)
    step_ends = score_group(group, cutter, []).step_ends
    sampled = sample_from_steps(
        policy,
        [group.prompt] * count,
        [rollout.token_ids for rollout in group.rollouts],
        step_ends,
        how,
        k=k,
        seed=seed,
        on_progress=on_progress,
        cancelled=cancelled,
    )
    if sampled is None:
        return None
    prompts, columns = [group.prompt] * count, [group.columns] * count
    scored = outcomes_of(policy, reward, prompts, columns, group.rollouts, step_ends, sampled)
    ends = [own for own, _ in scored]
    known = [own for own in ends if own is not None]
    return StepValues(
        **_jagged(scored, step_ends, group.rollouts, threshold),
        start=sum(known) / len(known) if known else None,
        k=k,
        seed=seed,
        threshold=threshold,
        outcome=reward.name,
        pattern=(cutter.regex, cutter.kind),
        tokens=sum(len(row.token_ids) for row in {id(row): row for rows in sampled.values() for row in rows}.values()),
        seconds=time.monotonic() - began,
    )


Continuations = Mapping[tuple[int, int], Sequence[Sampled]]
"""(completion, step) → its k continuations; a step that ends its completion has none."""


def sample_from_steps(
    policy: Policy,
    prompts: Sequence[Prompt],
    completion_ids: Sequence[Sequence[int]],
    step_ends: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    *,
    k: int,
    seed: int,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Continuations | None:
    """k continuations from the end of every step that does not end its completion; None when cancelled.

    Steps with equal prefixes have the same continuations, and so the same value.
    A row's draws depend on the seed and on its place among all rows only, not on how many are sampled side by side.
    """
    prompt_ids = [encode_prompt(policy.tokenizer, prompt) for prompt in prompts]
    prefixes: dict[Prefix, list[tuple[int, int]]] = {}
    for i, (ids, ends) in enumerate(zip(completion_ids, step_ends, strict=True)):
        for step, end in enumerate(ends):
            left = sampling.max_completion_length - end - 1
            if left > 0 and end + 1 < len(ids):
                prefix = Prefix((*prompt_ids[i], *ids[: end + 1]), left)
                prefixes.setdefault(prefix, []).append((i, step))
    rows = [prefix for prefix in prefixes for _ in range(k)]
    sampled: list[Sampled] = []
    began, tokens = time.monotonic(), 0

    def tell(finished: int) -> None:
        if on_progress is not None:
            spent = time.monotonic() - began
            on_progress({"done": finished, "total": len(rows), "tokens": tokens, "seconds": spent})

    for start in range(0, len(rows), ROWS):
        chunk = rows[start : start + ROWS]

        def count(drawn: list[tuple[int, int]], end: int = start + len(chunk)) -> None:
            nonlocal tokens
            tokens += len(drawn)
            tell(end - len(drawn))

        sampled += sample_rows(
            policy.model,
            [row.ids for row in chunk],
            sampling,
            eos_token_ids=policy.eos_token_ids,
            pad_token_id=policy.tokenizer.pad_token_id,
            seed=seed,
            first_row=start,
            total_rows=len(rows),
            limits=[row.left for row in chunk],
            on_tokens=count,
            cancelled=cancelled,
        )
        if cancelled is not None and cancelled():
            return None
    tell(len(rows))
    return {place: sampled[n * k : (n + 1) * k] for n, places in enumerate(prefixes.values()) for place in places}


def outcomes_of(
    policy: Policy,
    reward: Reward,
    prompts: Sequence[Prompt],
    columns: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Rollout],
    step_ends: Sequence[Sequence[int]],
    sampled: Continuations,
) -> list[tuple[Score, list[list[Score]]]]:
    """For each completion its own outcome, and a list of its continuations' outcomes for each step.

    Every completion and continuation is scored in one call of the reward. A step that ends its completion has that
    completion's own outcome alone.
    """
    whole = list(rollouts)
    owners = list(range(len(rollouts)))
    for (i, step), rows in sampled.items():
        before = rollouts[i].token_ids[: step_ends[i][step] + 1]
        for row in rows:
            whole.append(to_rollout(policy.tokenizer, Sampled([*before, *row.token_ids], finished=row.finished)))
            owners.append(i)
    names = list(dict.fromkeys(name for row in columns for name in row))
    texts = [rollout.text for rollout in whole]
    asked = [prompts[i] for i in owners]
    batch = Batch(
        prompts=asked,
        completions=[
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(asked, texts, strict=True)
        ],
        columns={name: [columns[i].get(name) for i in owners] for name in names},
        completion_ids=[rollout.token_ids for rollout in whole],
    )
    outcomes = iter(reward.score_outcome(batch)[0])
    own = [next(outcomes) for _ in rollouts]
    found = {place: [next(outcomes) for _ in rows] for place, rows in sampled.items()}
    return [(own[i], [found.get((i, step), [own[i]]) for step in range(len(ends))]) for i, ends in enumerate(step_ends)]


def _jagged(
    scored: Sequence[tuple[Score, list[list[Score]]]],
    step_ends: Sequence[Sequence[int]],
    rollouts: Sequence[Rollout],
    threshold: float,
) -> dict[str, Any]:
    parts: dict[str, list[tuple[Any, ...]]] = {"values": [], "errors": [], "counts": [], "successes": []}
    for (_, steps), ends, rollout in zip(scored, step_ends, rollouts, strict=True):
        known = [[value for value in values if value is not None] for values in steps]
        estimates = [estimate(values) for values in known]
        exact = [end + 1 == len(rollout) and value is not None for end, (value, _) in zip(ends, estimates, strict=True)]
        parts["values"].append(tuple(value for value, _ in estimates))
        parts["errors"].append(tuple(0.0 if sure else e for sure, (_, e) in zip(exact, estimates, strict=True)))
        parts["counts"].append(tuple(map(len, known)))
        parts["successes"].append(tuple(sum(value > threshold for value in values) for values in known))
    return {name: tuple(rows) for name, rows in parts.items()}


def _sampling(group: Group, sampling: SamplingConfig | None, length: int | None) -> SamplingConfig:
    if sampling is None:
        own = {name: group.sampling[name] for name in SamplingConfig.model_fields if name in group.sampling}
        longest = max(map(len, group.rollouts), default=1)
        sampling = SamplingConfig.model_validate({"max_completion_length": max(longest, 128), **own})
    return sampling if length is None else sampling.model_copy(update={"max_completion_length": length})


# --- as the step reward of a training run -------------------------------------------------------------------------


class MonteCarloReward:
    """A step reward function that samples from ``policy`` as it is at the call.

    The seed of a call comes from the ids it scores, so that the same rollouts get the same values, also after a resume.
    With ``progress`` a step's score is its value less that of the step before it; before the first stands the mean
    outcome of the call's completions of the same prompt.
    """

    def __init__(
        self,
        policy: Policy,
        outcome: Reward,
        k: int,
        sampling: SamplingConfig,
        seed: int = 0,
        *,
        progress: bool = False,
    ) -> None:
        self._policy, self._outcome, self._k, self._sampling, self._seed = policy, outcome, k, sampling, seed
        self._progress = progress

    def __call__(
        self, prompts: Any, completions: Any, steps: Any, completion_ids: Any, step_ends: Any, **columns: Any
    ) -> list[list[Score]]:
        ends = frozenset(self._policy.eos_token_ids)
        rollouts = [
            to_rollout(self._policy.tokenizer, Sampled(list(ids), finished=bool(ids) and ids[-1] in ends))
            for ids in completion_ids
        ]
        seed = self._seed
        for ids in completion_ids:
            seed = zlib.crc32(array("q", ids).tobytes(), seed)
        sampled = sample_from_steps(
            self._policy, prompts, completion_ids, step_ends, self._sampling, k=self._k, seed=seed
        )
        assert sampled is not None  # nothing cancels it
        rows = [{name: values[i] for name, values in columns.items()} for i in range(len(rollouts))]
        scored = outcomes_of(self._policy, self._outcome, prompts, rows, rollouts, step_ends, sampled)
        values = [[estimate([v for v in outcomes if v is not None])[0] for outcomes in rows] for _, rows in scored]
        if not self._progress:
            return values
        return [differences(row, start) for row, start in zip(values, _starts(prompts, scored), strict=True)]


def _starts(prompts: Sequence[Prompt], scored: Sequence[tuple[Score, Any]]) -> list[Score]:
    """The value of each completion's prompt: the mean outcome of all completions of it, None where none is scored."""
    own: dict[str, list[float]] = {}
    for prompt, (outcome, _) in zip(prompts, scored, strict=True):
        own.setdefault(repr(prompt), []).extend([] if outcome is None else [outcome])
    return [estimate(own[repr(prompt)])[0] for prompt in prompts]


def monte_carlo_reward(config: RewardConfig, policy: Policy, sampling: SamplingConfig, seed: int = 0) -> Reward:
    """The step reward that ``config.monte_carlo`` describes, sampling from ``policy``.

    Raises RewardCodeError for an outcome reward that is not built in, ConfigError for one that scores steps.
    """
    assert config.monte_carlo is not None
    outcome = load_reward(config.monte_carlo.outcome)
    if outcome.kind != "outcome":
        raise ConfigError(f"reward {config.name!r}: {outcome.name!r} scores steps; name an outcome reward")
    how = config.monte_carlo
    function = MonteCarloReward(policy, outcome, how.continuations, sampling, seed, progress=how.progress)
    return Reward(config.name, "step", function, config.weight)
