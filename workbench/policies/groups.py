"""Groups of many prompts, sampled a few prompts at a time: for data that is made of a policy's own completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.config import SamplingConfig
from workbench.policies.load import Policy
from workbench.policies.prompts import encode_prompt, prompt_record
from workbench.policies.sampler import AnyEnvironment, episodes_of, recorded_of, sample_rows, to_rollout
from workbench.policies.stops import StopStrings
from workbench.schema import Example, Group

ROWS_AT_ONCE = 64


def sample_groups(
    policy: Policy,
    examples: Sequence[Example],
    sampling: SamplingConfig,
    seed: int,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    environment: AnyEnvironment | None = None,
) -> Iterator[Group]:
    """The group of each example; the same arguments give the same groups, however many rows are sampled at once.

    Raises as ``sample_group`` does.
    """
    generations, stops = sampling.num_generations, StopStrings(policy.tokenizer, sampling.stop)
    size = max(1, rows_at_once // generations)
    for start in range(0, len(examples), size):
        chunk = examples[start : start + size]
        encoded = [encode_prompt(policy.tokenizer, row.prompt, template_kwargs) for row in chunk]
        rows_of = [row for row in chunk for _ in range(generations)]
        episodes = episodes_of(policy, environment, rows_of, template_kwargs)
        rows = sample_rows(
            policy.model,
            [ids for ids in encoded for _ in range(generations)],
            sampling,
            eos_token_ids=policy.eos_token_ids,
            pad_token_id=policy.tokenizer.pad_token_id,
            seed=seed,
            first_row=start * generations,
            total_rows=len(examples) * generations,
            stops=stops,
            episodes=episodes,
        )
        recorded = recorded_of(episodes)
        for i, example in enumerate(chunk):
            yield Group(
                prompt=example.prompt,
                rollouts=tuple(
                    to_rollout(policy.tokenizer, row) for row in rows[i * generations : (i + 1) * generations]
                ),
                columns=example.columns,
                policy=policy.name,
                sampling=sampling.recorded
                | {"seed": seed}
                | recorded
                | prompt_record(policy.tokenizer, example.prompt, template_kwargs, policy.eos_token_ids, sampling.stop),
            )
