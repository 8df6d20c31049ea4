"""``DynamicSampling``: a generation is drawn beforehand, and groups without variance are replaced by other prompts'."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.random import SeedSequence

from workbench.policies.sampler import Sampled, to_rollout
from workbench.schema import Credit, Example
from workbench.training.generation import Member, Share
from workbench.training.loss import LossOfParts


@dataclass
class Drawn:
    """A rank's part of a generation that was drawn beforehand: its rows, what was sampled for each, and its scores."""

    inputs: list[Mapping[str, Any]]
    rows: list[Sampled]
    share: Share
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


class DynamicSampling(LossOfParts):
    """A trainer that samples, scores and credits a generation's rows as ``ProcessGRPOTrainer`` does."""

    def draw(self, inputs: Sequence[Mapping[str, Any]], seed: int) -> Drawn:
        """Sample and score ``inputs``, a rank's rows, and redraw whole groups while some have no spread.

        After DAPO, section 3.2 (https://arxiv.org/abs/2503.14476): a group whose rewards are all equal, or whose
        outcomes are under ``gate``, has no gradient, so another prompt's is sampled in its place, in at most
        ``resample_flat`` rounds. What is drawn depends on the seed and the step alone, so that it is the same on any
        number of ranks and in a resumed run.
        """
        size = self.num_generations
        first = self.accelerator.process_index * len(inputs)
        total = self.accelerator.num_processes * len(inputs)
        drawn = Drawn(list(inputs), [Sampled()] * len(inputs), Share())
        places, tried = list(range(total)), set[str]()
        flat_groups = groups = redrawn = rounds = 0
        while True:
            of_round = int(SeedSequence([seed, rounds]).generate_state(1)[0]) if rounds else seed  # far from any other
            self._draw_places(drawn, places, first, of_round)
            credits: list[Credit] = self.credited(self.gathered(drawn.share))
            flat = [i for i, credit in enumerate(credits) if not credit.spread]
            asked = {place // size for place in places}
            groups, flat_groups = groups + len(asked), flat_groups + len(asked & set(flat))
            tried |= {_key(credit.scored.group.prompt) for credit in credits}
            others = self._other_rows(tried, len(flat), seed + rounds) if rounds < self.args.resample_flat else []
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

    def _draw_places(self, drawn: Drawn, places: Sequence[int], first: int, seed: int) -> None:
        """Fill those of ``places``, of all ranks' rows, that are this rank's."""
        local = [place - first for place in places if first <= place < first + len(drawn.inputs)]
        if not local:
            return
        began = time.perf_counter()
        inputs = [drawn.inputs[i] for i in local]
        prompts = [row["prompt"] for row in inputs]
        prompt_ids, _, _ = self._tokenize_prompts(prompts)
        before = sum(place < first for place in places)
        rows = self.sample(prompt_ids, seed, examples=examples_of(inputs), first_row=before, total_rows=len(places))
        drawn.seconds += time.perf_counter() - began
        share = self.scored(inputs, prompts, [to_rollout(self._tokenizer, row) for row in rows])
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

    def _other_rows(self, tried: set[str], count: int, seed: int) -> list[Mapping[str, Any]]:
        """``count`` rows of the data with other prompts, each once, or as many as there are."""
        dataset = self.train_dataset
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


def examples_of(inputs: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Return rows of the data set as what an environment begins with."""
    return [Example(row["prompt"], {name: value for name, value in row.items() if name != "prompt"}) for row in inputs]


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, default=str)
