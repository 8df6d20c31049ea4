"""Monte-Carlo step values: what a step is worth, by the outcomes of k completions sampled from its end.

A prefix is the prompt's ids and the completion's sampled ids up to the step's last token; nothing is tokenised again.
All prefixes of a group go through the group sampler together: each distinct one is computed once for its k
continuations, which may take what is left of the completion's length. A step that ends its completion has that
completion's own outcome. Math-Shepherd (arXiv 2312.08935, section 3.3) labels with these values and VinePPO (arXiv
2410.01679, section 4.2) credits by them. What is done with them is ``step_values``' and ``credit``'s business.
"""

import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from workbench.config import SamplingConfig
from workbench.errors import ConfigError
from workbench.policies.load import Policy
from workbench.policies.prompts import StopStrings, encode_prompt, thinking_open
from workbench.policies.sampler import Sampled, ended, sample_rows, to_rollout
from workbench.policies.step_values import StepValues, differences, estimate
from workbench.rewards import Batch, Reward, RewardConfig, Score, load_reward, score_group
from workbench.schema import Group, Prompt, Rollout
from workbench.steps import StepPattern, answer_texts

ROWS = 256
"""Continuations sampled side by side."""

OnProgress = Callable[[dict[str, Any]], None]
"""Called with ``{"done", "total", "tokens", "seconds"}``; done and total count continuations."""


@dataclass(frozen=True)
class Prefix:
    """The start of continuations: after ``ids``, with ``left`` tokens to go."""

    ids: tuple[int, ...]
    left: int

    def generator(self, seed: int) -> torch.Generator:
        """The prefix's own random numbers: the same whatever else is sampled beside it, and on whichever rank."""
        return torch.Generator().manual_seed(zlib.crc32(array("q", self.ids).tobytes(), seed & 0xFFFFFFFF))


def step_values(
    policy: Policy,
    group: Group,
    pattern: StepPattern,
    outcome_reward: str | Callable[..., Any] | RewardConfig | Reward = "answer_correctness",
    k: int = 8,
    seed: int = 0,
    *,
    sampling: SamplingConfig | None = None,
    threshold: float = 0.5,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> StepValues | None:
    """Estimate the value of every step of a group; the same arguments give the same values. None when cancelled.

    Args:
        outcome_reward: what a whole completion is worth; the group's columns are passed to it.
        k: continuations of each step.
        sampling: temperature and the like, and the tokens of prefix and continuation together; by default the group's
            own.
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
    how = sampling or _sampling_of(group)
    count = len(group.rollouts)
    step_ends = score_group(group, pattern, []).step_ends
    sampled = sample_from_steps(
        policy,
        [group.prompt] * count,
        [rollout.token_ids for rollout in group.rollouts],
        step_ends,
        how,
        k=k,
        seed=seed,
        template_kwargs=group.sampling.get("template_kwargs"),
        on_progress=on_progress,
        cancelled=cancelled,
    )
    if sampled is None:
        return None
    scored = outcomes_of(
        policy,
        reward,
        [group.prompt] * count,
        [group.columns] * count,
        group.rollouts,
        step_ends,
        sampled,
        read=partial(answer_texts, pattern=pattern),
        opened=[group.thinking_open] * count,
    )
    known = [outcomes.whole for outcomes in scored if outcomes.whole is not None]
    rows = {id(row): row for rows in sampled.values() for row in rows}.values()  # equal prefixes share theirs
    return StepValues(
        **_jagged(scored, step_ends, group.rollouts, threshold),
        start=sum(known) / len(known) if known else None,
        k=k,
        seed=seed,
        threshold=threshold,
        outcome=reward.name,
        pattern=pattern,
        tokens=sum(len(row.token_ids) for row in rows),
        seconds=time.monotonic() - began,
        continuations=len(rows),
    )


Continuations = Mapping[tuple[int, int], Sequence[Sampled]]
"""(completion, step) → its k continuations; a step that ends its completion has none."""
START = -1
"""In place of a step: continuations of the bare prompt."""


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of one completion: its own, of its continuations from each step, and of those from its prompt."""

    whole: Score
    steps: list[list[Score]]
    start: list[Score]


def sample_from_steps(
    policy: Policy,
    prompts: Sequence[Prompt],
    completion_ids: Sequence[Sequence[int]],
    step_ends: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    *,
    k: int,
    seed: int,
    from_prompt: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Continuations | None:
    """k continuations from the end of every step that does not end its completion; None when cancelled.

    With ``from_prompt`` also k of each prompt, as step ``START``. Equal prefixes have the same continuations, and so
    the same value. A continuation's draws depend on the seed and on its prefix alone, not on what else is sampled.
    """
    prompt_ids = [encode_prompt(policy.tokenizer, prompt, template_kwargs) for prompt in prompts]
    prefixes: dict[Prefix, list[tuple[int, int]]] = {}
    for i, (ids, ends) in enumerate(zip(completion_ids, step_ends, strict=True)):
        if from_prompt:
            prefixes.setdefault(Prefix(tuple(prompt_ids[i]), sampling.max_completion_length), []).append((i, START))
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
            streams=partial(_numbers, list(prefixes), k, seed, start, start + len(chunk)),
            limits=[row.left for row in chunk],
            stops=StopStrings(policy.tokenizer, sampling.stop),
            on_tokens=count,
            cancelled=cancelled,
        )
        if cancelled is not None and cancelled():
            return None
    tell(len(rows))
    return {place: sampled[n * k : (n + 1) * k] for n, places in enumerate(prefixes.values()) for place in places}


def _numbers(prefixes: Sequence[Prefix], k: int, seed: int, start: int, stop: int) -> Iterator[torch.Tensor]:
    """For each position, numbers of the rows ``start`` to ``stop``, of which every prefix has k: (stop - start,)."""
    first, last = start // k, -(-stop // k)
    generators = [prefix.generator(seed) for prefix in prefixes[first:last]]
    while True:
        drawn = torch.cat([torch.rand(k, generator=generator, dtype=torch.float64) for generator in generators])
        yield drawn[start - first * k : stop - first * k]


def outcomes_of(
    policy: Policy,
    reward: Reward,
    prompts: Sequence[Prompt],
    columns: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Rollout],
    step_ends: Sequence[Sequence[int]],
    sampled: Continuations,
    *,
    read: Callable[..., list[str]],
    opened: Sequence[bool],
) -> list[Outcomes]:
    """Return the outcomes of each completion and of its continuations.

    ``read(texts, opened=…)`` gives what the reward reads of texts; ``opened`` says which prompts end in a ``<think>``
    block.

    Every completion and continuation is scored in one call of the reward. A step that ends its completion has that
    completion's own outcome alone.
    """
    whole = list(rollouts)
    owners = list(range(len(rollouts)))
    for (i, step), rows in sampled.items():
        before = () if step == START else rollouts[i].token_ids[: step_ends[i][step] + 1]
        for row in rows:
            continued = Sampled([*before, *row.token_ids], finished=row.finished, stop=row.stop)
            whole.append(to_rollout(policy.tokenizer, continued))
            owners.append(i)
    names = list(dict.fromkeys(name for row in columns for name in row))
    texts = read([rollout.text for rollout in whole], opened=[opened[i] for i in owners])
    prompts_of_rows = [prompts[i] for i in owners]
    batch = Batch(
        prompts=prompts_of_rows,
        completions=[
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(prompts_of_rows, texts, strict=True)
        ],
        columns={name: [columns[i].get(name) for i in owners] for name in names},
        completion_ids=[rollout.token_ids for rollout in whole],
    )
    outcomes = iter(reward.score(batch)[0])
    whole_outcomes = [next(outcomes) for _ in rollouts]
    of_steps = {place: [next(outcomes) for _ in rows] for place, rows in sampled.items()}
    return [
        Outcomes(
            whole=outcome,
            steps=[of_steps.get((i, step), [outcome]) for step in range(len(step_ends[i]))],
            start=of_steps.get((i, START), []),
        )
        for i, outcome in enumerate(whole_outcomes)
    ]


def _jagged(
    scored: Sequence[Outcomes],
    step_ends: Sequence[Sequence[int]],
    rollouts: Sequence[Rollout],
    threshold: float,
) -> dict[str, Any]:
    parts: dict[str, list[tuple[Any, ...]]] = {"values": [], "errors": [], "counts": [], "successes": []}
    for outcomes, ends, rollout in zip(scored, step_ends, rollouts, strict=True):
        known = [[value for value in values if value is not None] for values in outcomes.steps]
        estimates = [estimate(values) for values in known]
        exact = [end + 1 == len(rollout) and value is not None for end, (value, _) in zip(ends, estimates, strict=True)]
        parts["values"].append(tuple(value for value, _ in estimates))
        parts["errors"].append(tuple(0.0 if sure else e for sure, (_, e) in zip(exact, estimates, strict=True)))
        parts["counts"].append(tuple(map(len, known)))
        parts["successes"].append(tuple(sum(value > threshold for value in values) for values in known))
    return {name: tuple(rows) for name, rows in parts.items()}


def _sampling_of(group: Group) -> SamplingConfig:
    sampled_with = {name: group.sampling[name] for name in SamplingConfig.model_fields if name in group.sampling}
    longest = max(map(len, group.rollouts), default=1)
    return SamplingConfig.model_validate({"max_completion_length": max(longest, 128), **sampled_with})


# --- as the step reward of a training run -------------------------------------------------------------------------


def _value(outcomes: Sequence[Score]) -> Score:
    return estimate([outcome for outcome in outcomes if outcome is not None])[0]


def monte_carlo_reward(
    config: RewardConfig,
    policy: Policy,
    sampling: SamplingConfig,
    seed: int = 0,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    pattern: StepPattern | None = None,
) -> Reward:
    """Return the step reward that ``config.monte_carlo`` describes, sampling from ``policy`` as it is at the call.

    The same rollouts get the same values, also after a resume and however they are spread over ranks. With
    ``progress`` a step's score is its value less that of the step before it; before the first stands the value of the
    prompt, estimated by as many continuations of it.

    Raises RewardCodeError for an outcome reward that is not built in, ConfigError for one that scores steps.
    """
    how = config.monte_carlo
    assert how is not None
    outcome = load_reward(how.outcome)
    if outcome.kind != "outcome":
        raise ConfigError(f"reward {config.name!r}: {outcome.name!r} scores steps; name an outcome reward")
    tokenizer, ends = policy.tokenizer, frozenset(policy.eos_token_ids)
    stops, read = StopStrings(tokenizer, sampling.stop), partial(answer_texts, pattern=pattern)

    def valued(
        prompts: Any, completions: Any, steps: Any, completion_ids: Any, step_ends: Any, **columns: Any
    ) -> list[list[Score]]:
        rollouts = [to_rollout(tokenizer, ended(ids, ends, stops)) for ids in completion_ids]
        sampled = sample_from_steps(
            policy, prompts, completion_ids, step_ends, sampling,
            k=how.continuations, seed=seed, from_prompt=how.progress, template_kwargs=template_kwargs,
        )  # fmt: skip
        assert sampled is not None  # nothing cancels it
        rows = [{name: values[i] for name, values in columns.items()} for i in range(len(rollouts))]
        opened = [thinking_open(tokenizer, prompt, template_kwargs) for prompt in prompts]
        scored = outcomes_of(policy, outcome, prompts, rows, rollouts, step_ends, sampled, read=read, opened=opened)
        values = [[_value(step) for step in outcomes.steps] for outcomes in scored]
        if not how.progress:
            return values
        return [differences(row, _value(outcomes.start)) for row, outcomes in zip(values, scored, strict=True)]

    return Reward(config.name, "step", valued, config.weight, schedule=config.points, judges_all=True).at(0)
