"""Text environments in TRL's trainer: its ``rollout_func``, which the group sampler stands behind.

TRL takes the mask of what its ``rollout_func`` returns as it takes that of its own tools: it is ``tool_mask`` in a
batch, and the loss, the KL, the entropy and the lengths are of sampled tokens alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.environments import Environment
from workbench.errors import ConfigError
from workbench.schema import Example


def check_playable(trainer: Any, environment: Environment) -> None:
    """Raises ConfigError where it is not the group sampler that would sample."""
    others = {
        "vLLM": trainer.use_vllm,
        "continuous batching": trainer.use_transformers_continuous_batching,
        "tools": bool(trainer.tools),
        "environment_factory": trainer.environment_factories is not None,
        "rollout_func": trainer.rollout_func is not None,
        "FSDP": trainer.is_fsdp_enabled,
    }
    if taken := [name for name, is_so in others.items() if is_so]:
        raise ConfigError(
            f"environment: the episodes of {environment.name!r} are sampled by the group sampler, which does not work "
            f"with {taken[0]}; leave one of the two out"
        )


def examples(inputs: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Rows of the data set as what an environment begins with."""
    return [Example(row["prompt"], {name: value for name, value in row.items() if name != "prompt"}) for row in inputs]


def play(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """TRL's ``rollout_func`` for a ``ProcessGRPOTrainer`` with an environment: a generation of episodes.

    ``env_mask`` is 1 for each token that was sampled. The rows themselves stay in ``trainer.sampled``.
    """
    prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
    if trainer.drawn is not None:
        trainer.sampled, trainer.times.sampling = trainer.drawn.rows, trainer.drawn.seconds
    else:
        with trainer.times.of_sampling():
            trainer.sampled = trainer.sample(prompt_ids, trainer.generation_seed(), examples=examples(trainer.inputs))
    rows = trainer.sampled
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": [row.token_ids for row in rows],
        "logprobs": [row.raw_logprobs for row in rows],
        "env_mask": [row.mask for row in rows],
    }
