"""Dynamic sampling: groups without spread are replaced by other prompts' groups before anything is trained on.

After DAPO, section 3.2 (https://arxiv.org/abs/2503.14476): a group whose rewards are all equal has no gradient, so
others are sampled in its place. What is drawn depends on the seed and the step alone, so that it is the same on any
number of ranks and in a resumed run. Which groups have spread is ``credit``'s to say.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import IterableDataset
from numpy.random import SeedSequence

from workbench.errors import ConfigError
from workbench.policies.sampler import Sampled, to_rollout
from workbench.schema import Credit
from workbench.training.episodes import examples
from workbench.training.scoring import Member, Share


@dataclass
class Drawn:
    """A rank's part of a generation: its rows, what was sampled for each, and how it was scored."""

    inputs: list[Mapping[str, Any]]
    rows: list[Sampled]
    share: Share
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


class Resampling:
    """Draws generations for a ``ProcessGRPOTrainer``; flat groups are redrawn in at most ``rounds`` rounds."""

    def __init__(self, trainer: Any, rounds: int) -> None:
        self._trainer, self._rounds = trainer, rounds
        dataset = trainer.train_dataset
        if isinstance(dataset, IterableDataset):
            raise ConfigError("resample_flat: a streamed data set has no other prompts to draw; load it whole")
        if (
            trainer.use_vllm
            or trainer.use_transformers_continuous_batching
            or trainer.rollout_func is not None
            or trainer.tools
            or trainer.environment_factories is not None
            or {"image", "images"} & set(dataset.column_names)
        ):
            raise ConfigError(
                "resample_flat: prompts are redrawn with the group sampler, which has no tools, environments, images, "
                "vLLM or rollout_func; set it to 0"
            )
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ConfigError(
                "resample_flat: each rank redraws its own rows, which the sharded weights of FSDP and DeepSpeed do not "
                "allow; set it to 0"
            )

    def draw(self, inputs: Sequence[Mapping[str, Any]], seed: int) -> Drawn:
        """Sample and score ``inputs``, a rank's rows, and redraw whole groups while some have no spread."""
        trainer, size = self._trainer, self._trainer.num_generations
        first = trainer.accelerator.process_index * len(inputs)
        total = trainer.accelerator.num_processes * len(inputs)
        drawn = Drawn(list(inputs), [Sampled()] * len(inputs), Share())
        places, tried = list(range(total)), set[str]()
        flat_groups = groups = redrawn = rounds = 0
        while True:
            self._sample(drawn, places, first, seed if not rounds else _seed(seed, rounds))
            credits: list[Credit] = trainer.credited(trainer.gathered(drawn.share))
            flat = [i for i, credit in enumerate(credits) if not credit.spread]
            asked = {place // size for place in places}
            groups, flat_groups = groups + len(asked), flat_groups + len(asked & set(flat))
            tried |= {_key(credit.scored.group.prompt) for credit in credits}
            others = self._others(tried, len(flat), seed + rounds) if rounds < self._rounds else []
            if not others:
                break
            rounds, redrawn = rounds + 1, redrawn + len(others)
            places = []
            for group, row in zip(flat, others, strict=False):  # where too few are left, the last ones stay
                for place in range(group * size, (group + 1) * size):
                    places.append(place)
                    if first <= place < first + len(inputs):
                        drawn.inputs[place - first] = {name: row[name] for name in inputs[0]}
        drawn.metrics = {
            "resample/flat_share": flat_groups / groups,
            "resample/rounds": float(rounds),
            "resample/prompts": float(redrawn),
        }
        return drawn

    def _sample(self, drawn: Drawn, places: Sequence[int], first: int, seed: int) -> None:
        """Fill those of ``places``, of all ranks' rows, that are this rank's."""
        trainer, last = self._trainer, first + len(drawn.inputs)
        local = [place - first for place in places if first <= place < last]
        if not local:
            return
        began = time.perf_counter()
        inputs = [drawn.inputs[i] for i in local]
        prompts = [row["prompt"] for row in inputs]
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        before = sum(place < first for place in places)
        rows = trainer.sample(prompt_ids, seed, examples=examples(inputs), first_row=before, total_rows=len(places))
        drawn.seconds += time.perf_counter() - began
        rollouts = [to_rollout(trainer._tokenizer, row) for row in rows]
        share = trainer.scored(inputs, prompts, rollouts)
        members: list[Member] = list(drawn.share.members) or list(share.members)
        if share.failure is None and drawn.share.failure is None:
            for i, row, member in zip(local, rows, share.members, strict=True):
                drawn.rows[i], members[i] = row, member
        drawn.share = Share(
            members,
            drawn.share.rewards or share.rewards,
            drawn.share.failure or share.failure,
            reward_errors=drawn.share.reward_errors + share.reward_errors,
        )

    def _others(self, tried: set[str], count: int, seed: int) -> list[Mapping[str, Any]]:
        """``count`` rows of the data with other prompts, each once, or as many as there are."""
        dataset = self._trainer.train_dataset
        looked_at = min(len(dataset), 4 * (len(tried) + count))
        others: dict[str, Mapping[str, Any]] = {}
        for index in random.Random(seed).sample(range(len(dataset)), looked_at):
            if len(others) == count:
                break
            row = dataset[index]
            key = _key(row["prompt"])
            if key not in tried:
                others.setdefault(key, row)
        return list(others.values())


def _seed(seed: int, number: int) -> int:
    """Of round ``number``: far from any generation's own."""
    return int(SeedSequence([seed, number]).generate_state(1)[0])


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, default=str)
