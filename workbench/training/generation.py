"""The parts of a generation: completions sampled from the policy as it is now, and scored.

``PolicySampler`` samples for generation, held-out accuracy and the watched prompts, with any trainer of transformers.
``score_share`` scores a rank's completions as the preview does, by ``rewards.score_completions``; scores travel between
ranks as they are (floats and None), and what they are worth to a token is not known here. ``DynamicSampling`` draws
a generation beforehand, and replaces groups without variance by other prompts'.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from numpy.random import SeedSequence
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from workbench.config import SamplingConfig, SharedConfig
from workbench.data import Task
from workbench.errors import ConfigError, EpisodeError, RewardError, WorkbenchError
from workbench.models.weights import context_length
from workbench.policies.decoding import NotOfThisShape, decoding_of, sampling_copy
from workbench.policies.load import Policy, eos_token_ids
from workbench.policies.prompts import Episodes, StopStrings, encode_prompt, prompt_record, thinking_open
from workbench.policies.sampler import Sampled, sample_rows, to_rollout
from workbench.rewards import ErrorBudget, Reward, Sandbox, score_completions, settle
from workbench.rewards.environments import Environment
from workbench.schema import (
    Credit,
    Example,
    Group,
    Prompt,
    RewardSummary,
    Rollout,
    ScoredGroup,
    StepScores,
)
from workbench.steps import StepPattern


class PolicySampler:
    """Samples from a trainer's model as it is now, by one set of sampling parameters.

    Args:
        trainer: a transformers trainer, after its ``__init__``.
        sampling: temperature, lengths and the rest.
        rows_at_once: rows a rank has memory for; None for all.
        template_kwargs: of the chat template.
        environment: who answers the policy's turns, where completions are episodes.

    ``failure`` is the error of an environment that is to end the run, after the call in which it happened.
    """

    def __init__(
        self,
        trainer: Any,
        sampling: SamplingConfig,
        rows_at_once: int | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._trainer, self.sampling, self.environment = trainer, sampling, environment
        self.failure: EpisodeError | None = None
        self.tokenizer = trainer.processing_class
        self.template_kwargs = dict(template_kwargs or {})
        self.stops = StopStrings(self.tokenizer, sampling.stop)
        # A CPU has memory for all, and is faster with all at once.
        self.rows_at_once = None if trainer.accelerator.device.type == "cpu" else rows_at_once
        self._eos_token_ids = eos_token_ids(trainer.accelerator.unwrap_model(trainer.model), self.tokenizer)

    @contextmanager
    def _copied(self, model: Any) -> Iterator[Any]:
        """Give what tokens are sampled from: a copy in the 16 bits of the run's autocast, with LoRA merged.

        Both would keep the model from its plain step, or make it twice as long. A model without one is sampled as it
        is, under autocast.
        """
        trainer, accelerator = self._trainer, self._trainer.accelerator
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(accelerator.mixed_precision)
        how: AbstractContextManager[Any] = nullcontext()
        decoding = ""
        if half is not None or hasattr(model, "peft_config"):
            try:
                model = sampling_copy(model, half or model.dtype)
            except NotOfThisShape as reason:
                how, decoding = accelerator.autocast(), f"transformers' own step ({reason})"
        with how:
            if not hasattr(trainer, "decoding"):
                trainer.decoding = decoding or f"{decoding_of(model)} in {str(model.dtype).removeprefix('torch.')}"
                if accelerator.is_main_process:
                    print(f"note: tokens are sampled by the {trainer.decoding}", flush=True)
            yield model

    def encode(self, prompt: Prompt) -> list[int]:
        return encode_prompt(self.tokenizer, prompt, self.template_kwargs)

    @property
    def ends_within(self) -> bool:
        """Return whether a completion may end, and not be truncated, without an end-of-sequence token."""
        return bool(self.stops) or self.environment is not None

    def record(self, prompt: Prompt) -> dict[str, Any]:
        """Return what a group's ``sampling`` says of this prompt, and of who answers its turns."""
        played = {} if self.environment is None else self.environment.recorded
        ends, stop = self._eos_token_ids, self.sampling.stop
        return prompt_record(self.tokenizer, prompt, self.template_kwargs, ends, stop) | played

    def all_thinking_open(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Return which prompts end inside a ``<think>`` block."""
        return [thinking_open(self.tokenizer, prompt, self.template_kwargs) for prompt in prompts]

    def rollout(self, row: Sampled) -> Rollout:
        return to_rollout(self.tokenizer, row)

    def __call__(
        self,
        prompt_ids: Sequence[Sequence[int]],
        seed: int,
        *,
        examples: Sequence[Example] = (),
        measuring: bool = False,
        first_row: int | None = None,
        total_rows: int | None = None,
    ) -> list[Sampled]:
        """Sample a completion for each of this rank's rows, as one process with all ranks' rows would.

        ``examples`` are the rows' own, which an environment begins with; ``measuring``: no error of it ends the run.
        ``first_row`` and ``total_rows`` say where the rows lie among all ranks'; by default every rank has as many.
        """
        trainer, accelerator = self._trainer, self._trainer.accelerator
        if first_row is None or total_rows is None:
            first_row = accelerator.process_index * len(prompt_ids)
            total_rows = accelerator.num_processes * len(prompt_ids)
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped,
                accelerator,
                gather_deepspeed3_params=getattr(trainer.args, "ds3_gather_for_generation", True),
                gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
            ) as trained,
            self._copied(trained) as model,
        ):
            episodes, environment = None, self.environment
            if environment is not None:
                if measuring:
                    settings = environment.settings.model_copy(update={"on_environment_error": "row"})
                    environment = replace(environment, settings=settings)
                episodes = Episodes(environment, self.tokenizer, examples, self.template_kwargs)
            rows = sample_rows(
                model,
                prompt_ids,
                self.sampling,
                eos_token_ids=self._eos_token_ids,
                pad_token_id=self.tokenizer.pad_token_id,
                seed=seed,
                first_row=first_row,
                total_rows=total_rows,
                stops=self.stops,
                episodes=episodes,
            )
        self.failure = None if episodes is None else episodes.failure
        for row in rows if self.failure is not None else ():
            if not row.token_ids:  # never begun, and TRL takes no completion without a token
                row.token_ids, row.mask = [self._eos_token_ids[0]], [0]
                row.logprobs, row.raw_logprobs, row.entropies = [0.0], [0.0], [0.0]
        return rows


_SPECIAL = 16  # tokens that a tokenizer may add to a text, at most


def within_context(task: Task, policy: Policy, config: SharedConfig, sampling: SamplingConfig, count: int) -> Task:
    """Return the task with those of its first ``count`` rows, and of the held-out ones in use, whose answers have room.

    Raises ConfigError, naming the row, for one that has none and is not to be skipped, or where all are too long.
    """
    context, longest = context_length(policy.model), getattr(config.method, "max_prompt_length", None)
    answer, kwargs = sampling.max_completion_length, config.prompt.template_kwargs
    if context is None and longest is None:
        return task
    room = min(length for length in (longest, context and context - answer) if length is not None)
    run = config.run
    held_out = max(run.eval_skip + run.eval_prompts if run.eval_steps else 0, run.watch_prompts)
    fitting, skipped = dict[str, list[Example]](), False
    for split, rows, most in (("training", task.examples, count), ("held-out", task.held_out, held_out)):
        examples = [rows[i] for i in range(min(len(rows), most))]
        lengths = []
        for prompt in (example.prompt for example in examples):
            if isinstance(prompt, str) and prompt and len(prompt.encode("utf-8", "replace")) + _SPECIAL <= room:
                lengths.append(0)  # too short to have more than ``room``, as a token stands for a byte at least
            else:
                lengths.append(len(encode_prompt(policy.tokenizer, prompt, kwargs)))
        long = [i for i, length in enumerate(lengths) if length > room]
        if long and (config.task.long_prompts != "skip" or len(long) == len(examples)):
            raise ConfigError(
                f"task.long_prompts: {len(long):,} of {len(examples):,} {split} prompts have more than {room:,} tokens "
                f"(row {long[0] + 1} has {lengths[long[0]]:,}), the least of method.max_prompt_length and the policy's "
                f"context ({context}) less method.sampling.max_completion_length ({answer}); change one of these, "
                "shorten the prompts, or set task.long_prompts to skip"
            )
        if long and os.environ.get("RANK", "0") == "0":
            print(f"task.long_prompts: skipped {len(long):,} of {len(examples):,} {split} rows", flush=True)
        fitting[split] = [row for row, length in zip(examples, lengths, strict=True) if length <= room]
        skipped = skipped or bool(long)
    return replace(task, examples=fitting["training"], held_out=fitting["held-out"]) if skipped else task


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


def groups_of_shares(
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


# -- a generation that is drawn beforehand --------------------------------------------------------------------------


@dataclass
class Drawn:
    """A rank's part of a generation that was drawn beforehand: its rows, what was sampled for each, and its scores."""

    inputs: list[Mapping[str, Any]]
    rows: list[Sampled]
    share: Share
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


class DynamicSampling(GRPOTrainer):
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
        share = self.score_own_share(inputs, prompts, [to_rollout(self._tokenizer, row) for row in rows])
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
