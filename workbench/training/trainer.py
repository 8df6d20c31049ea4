"""``ProcessGRPOTrainer``: TRL's ``GRPOTrainer``, resumable, with step rewards and token advantages.

TRL's subclass seam is narrow, and everything that this package overrides of it is in this file:

* ``_generate`` tells which tokens the policy sampled and which tools or environments wrote;
* ``rollout_func`` plays text environments: TRL takes the mask of what it returns as it takes its own tools';
* ``_generate_single_turn`` samples with the group sampler instead of ``model.generate`` (vLLM, continuous batching,
  tools and images stay TRL's);
* ``_calculate_rewards`` scores steps and outcomes in one pass, as the preview does; TRL gets the outcome scores for its
  logs, in its own float32;
* ``_generate_and_score_completions`` lets TRL build its inputs, then replaces ``advantages`` (B,) by the (B, T) tensor
  that ``workbench.credit`` makes of whole groups, gathered over ranks;
* ``_get_per_token_logps_and_entropies`` sends short completions through the model apart from long ones;
* ``_compute_loss`` is TRL's, which takes (B, T) advantages, of the rows that have any; KL estimators are logged beside
  it.

The loss itself, reference and old policies, PEFT, optimisers and distribution are TRL's and accelerate's. Splitting and
scoring are ``rewards.score_completions`` and a token's credit is ``credit.credit_groups``: this module calls both with
the trainer's settings and knows no reward function and no scheme.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather, gather_object
from datasets import IterableDataset
from numpy.random import SeedSequence
from torch.nn.functional import pad
from transformers import Trainer
from trl import GRPOTrainer
from trl.data_utils import apply_chat_template, is_conversational
from trl.extras.profiling import profiling_context
from trl.trainer.utils import is_async_callable, nanstd

from workbench.checks.metrics import group_metrics
from workbench.config import SamplingConfig
from workbench.credit import SCHEMES, credit_groups
from workbench.errors import ConfigError
from workbench.policies.belief import find_importances, with_importances
from workbench.policies.load import Policy
from workbench.policies.sampler import Sampled, ended, to_rollout
from workbench.rewards import ARGUMENTS, ErrorBudget, Reward, Sandbox, load_reward
from workbench.rewards.environments import Environment
from workbench.rewards.watch import slower_than
from workbench.schema import Credit, Example, OnCredit, OnPass, Rollout, ScoredGroup
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import (
    ROW,
    BesidePolicy,
    Member,
    Passes,
    PolicySampler,
    Share,
    distinct_names,
    score_share,
    scored_groups,
)
from workbench.training.saving import Resumable

_log = logging.getLogger(__name__)

_NO_COLUMNS = ("prompt", "completion", "completion_ids")  # which TRL hands over under names of its own
_BY_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Losses that divide by the number of rows of a micro-batch."""
_BY_TOKENS = frozenset({"bnpo"})
"""Those that divide by its tokens."""
_BY_GENERATION = frozenset({"dapo", "cispo"})
"""Those that divide by the tokens of the whole generation, whichever rows are there."""
_INPUTS = frozenset(
    {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages", "num_items_in_batch"}
    | {"old_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio", ROW}
)
"""What has one row a completion, and the one number; with anything else, a picture's parts say, all rows stay."""
_CLIPPED = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")
_PLAIN = frozenset({"batch_size", "compute_entropy", "compute_aux_loss"})
"""Options of TRL's forward pass that go by no row of the batch."""
MOST_PARTS = 4
PASS = {"cpu": 256, "cuda": 4096}
"""What one more forward and backward pass costs, in positions; that of CUDA is a guess, and unmeasured."""


@dataclass
class Drawn:
    """A rank's part of a generation that was drawn beforehand: its rows, what was sampled for each, and its scores."""

    inputs: list[Mapping[str, Any]]
    rows: list[Sampled]
    share: Share
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedRows:
    """The rows of a micro-batch that are trained on; the loss of ``inputs`` counts ``factor`` times.

    ``has_signal`` tells which of them have an advantage other than 0, (rows,); ``tokens`` of ``all_tokens`` are theirs.
    """

    inputs: dict[str, Any]
    factor: float
    has_signal: torch.Tensor
    tokens: float
    all_tokens: float


class ProcessGRPOTrainer(Resumable, GRPOTrainer):
    """GRPO in which every step of a completion is scored and every token has its own advantage.

    Args:
        model: as in ``GRPOTrainer``.
        reward_funcs: outcome reward functions, TRL's argument unchanged, or ``Reward`` objects, which carry a weight
            where ``args.reward_weights`` is unset; may be None when there are step rewards.
        args: a ``ProcessGRPOConfig``.
        *others: ``train_dataset`` and what follows it in ``GRPOTrainer``'s order.
        step_rewards: step reward functions, built-in names, or ``Reward`` objects (which carry a weight).
        policy_name: what stored rollouts say they were sampled from; the model's own name by default.
        is_right: tells whether a completion's text answers its row's columns; when given, ``accuracy/train`` is logged.
        on_rollouts: called after each generation with its credit, whose ``advantages`` are the loss's own.
        on_pass: called after each optimiser step with what its loss was computed from.
        reward_worker: where the step pattern runs; in this process by default.
        error_budget: lets errors of reward functions pass while it lasts, logging ``reward_errors``.
        environment: who answers the policy's turns; a completion then is an episode (``environments``). Classes for
            TRL's own loop of tools go into ``environment_factory``.
        **kwargs: everything else ``GRPOTrainer`` takes.

    ``evaluate`` is TRL's: on several ranks, rows that accelerate repeats to fill the last batch count twice. A run's
    held-out accuracy (``training.watching``) counts every row once.

    Raises:
        ConfigError: for modes that cannot work with token advantages.
        RewardError: from a training step in which a reward function fails, on every rank the same.
    """

    reward_weights: torch.Tensor
    reward_func_names: list[str]
    mask_truncated_completions: bool
    in_parts = True
    """Whether rows may go through the model in another order than the batch's."""
    _tag_names = ["trl", "grpo", "process-supervision"]  # noqa: RUF012 (TRL's attribute)

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: ProcessGRPOConfig | None = None,
        *others: Any,
        step_rewards: Sequence[Any] = (),
        policy_name: str | None = None,
        is_right: Callable[[str, Mapping[str, Any]], bool] | None = None,
        on_rollouts: OnCredit | None = None,
        on_pass: OnPass | None = None,
        reward_worker: Sandbox | None = None,
        error_budget: ErrorBudget | None = None,
        environment: Environment | None = None,
        **kwargs: Any,
    ) -> None:
        self.step_rewards: list[Reward] = [load_reward(spec) for spec in step_rewards]
        self._is_right = is_right
        self._on_rollouts = on_rollouts
        self._passes = None if on_pass is None else Passes(self, on_pass)
        self.loss_masks: dict[str, torch.Tensor] = {}
        self._reward_worker, self._error_budget = reward_worker, error_budget
        self._reward_errors = 0  # of all ranks
        self.reward_seconds: dict[str, float] = {}  # of the last generation, on this rank
        self._sampling_seconds = self._importance_seconds = 0.0
        self._named_slow: set[str] = set()
        self.sampled: list[Sampled] | None = None
        self._masks: Sequence[Sequence[int]] | None = None  # 0 where a tool or an environment wrote
        self._inputs: Sequence[Mapping[str, Any]] = ()
        self._truncated: list[bool] = []
        self._share: Share | None = None
        self._generations: dict[str, tuple[int, int]] = {}  # mode -> (global step, generations so far in it)
        self._policy_logps: torch.Tensor | None = None
        self._entropies: torch.Tensor | None = None
        self._router_loss: torch.Tensor | None = None
        self._drawn: Drawn | None = None
        args = args if args is not None else ProcessGRPOConfig()
        if not isinstance(args, ProcessGRPOConfig):
            raise ConfigError(f"args is a {type(args).__name__}; give a ProcessGRPOConfig, which has all of its fields")
        specs = reward_funcs if isinstance(reward_funcs, list | tuple) else [reward_funcs] * (reward_funcs is not None)
        if not specs and not self.step_rewards and not others and kwargs.get("environment_factory") is None:
            raise ConfigError("there is no reward; give step_rewards, reward_funcs, or both")
        functions = [_stand_in(spec.name) if isinstance(spec, Reward) else spec for spec in specs]
        self._rewards = {id(f): spec for f, spec in zip(functions, specs, strict=True) if isinstance(spec, Reward)}
        # TRL does not start without a reward function.
        stand_in = [_stand_in("none")] if self.step_rewards and not functions else []
        super().__init__(model, functions + stand_in, args, *others, **kwargs)
        if stand_in:
            for entries in (self.reward_funcs, self.reward_func_names, self.reward_processing_classes):
                del entries[0]
            self.reward_weights = self.reward_weights[1:]
        weights = [spec.weight if isinstance(spec, Reward) else 1.0 for spec in specs]
        stated = (self.args.reward_weights or weights)[: len(weights)]
        self.reward_weights[: len(stated)] = torch.tensor(stated)  # an environment's come after them
        self._outcome_weights = [*stated, *self.reward_weights[len(stated) :].tolist()]
        self.reward_func_names = distinct_names(self.reward_func_names, [reward.name for reward in self.step_rewards])
        self._settle_credit()
        self._policy_name = policy_name or str(self.model.config._name_or_path)
        self.step_pattern = args.pattern
        # Not validated: TRL's config has checked these, and allows larger groups than a form does.
        sampling = SamplingConfig.model_construct(
            num_generations=self.num_generations,
            max_completion_length=self.max_completion_length,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            stop=list(args.stop or ()),
        )
        rows_at_once = args.per_device_train_batch_size * args.steps_per_generation
        self.sample = PolicySampler(self, sampling, rows_at_once, self.chat_template_kwargs, environment)
        self._settle_sampling(args, environment)

    def _settle_sampling(self, args: ProcessGRPOConfig, environment: Environment | None) -> None:
        """Have whoever samples do what the run asks of sampling. Raises ConfigError where it cannot."""
        if args.stop:
            self._check_sampler("stop")
            if self.use_vllm:  # which ends a completion at the token that completes the text, as the group sampler does
                self.vllm_generation.generation_kwargs["stop"] = list(args.stop)
        if args.oar and (sharing := self.sharing):
            raise ConfigError(f"oar: it needs the policy's whole weights, and under {sharing} no rank has them")
        if args.resample_flat:
            self._check_sampler("resample_flat")
        if environment is not None:
            self._check_sampler("environment")
            self.rollout_func = self._play

    def _settle_credit(self) -> None:
        """The scheme that fits the rewards. Raises ConfigError where nothing would be learnt."""
        self.credit_scheme: str = self.args.credit_scheme or ("process" if self.step_rewards else "outcome")
        needs_steps = "steps" in SCHEMES[self.credit_scheme].needs
        if needs_steps and not self.step_rewards and not self.args.outcome_weight:
            raise ConfigError(
                f"credit_scheme: {self.credit_scheme!r} credits steps and no reward scores steps, so nothing would be "
                "learnt; give step_rewards, set outcome_weight, or leave credit_scheme out, which then is 'outcome'"
            )
        if "outcome" in SCHEMES[self.credit_scheme].needs and not self.reward_func_names:
            raise ConfigError(
                f"credit_scheme: {self.credit_scheme!r} needs an outcome reward and reward_funcs has none; give one, "
                "or choose a scheme that credits steps"
            )
        self.args.check_credit(self.credit_scheme)

    @property
    def sharing(self) -> str:
        """FSDP or DeepSpeed's ZeRO 3, under which each rank holds a share of every weight; "" if ranks have all."""
        plugin = self.args.deepspeed_plugin
        return "FSDP" if self.is_fsdp_enabled else "ZeRO 3" if plugin is not None and plugin.zero_stage == 3 else ""

    def _check_sampler(self, needed_by: str) -> None:
        """Raise ConfigError if anything but the group sampler would sample; vLLM is told of ``stop``."""
        redraws, dataset = needed_by == "resample_flat", self.train_dataset
        columns = set() if isinstance(dataset, IterableDataset) else set(dataset.column_names or ())
        others = {
            "vLLM": self.use_vllm and needed_by != "stop",
            "continuous batching": self.use_transformers_continuous_batching,
            "tools": bool(self.tools),
            "environment_factory": self.environment_factories is not None,
            "rollout_func": self.rollout_func is not None and needed_by != "stop",  # its own affair
            "FSDP": self.is_fsdp_enabled,
            "DeepSpeed": redraws and self.is_deepspeed_enabled,  # each rank would redraw its own rows
            "a streamed data set": redraws and isinstance(dataset, IterableDataset),
            "images": needed_by != "environment" and bool({"image", "images"} & columns),
        }
        if taken := [other for other, is_so in others.items() if is_so]:
            raise ConfigError(f"{needed_by}: it does not work with {taken[0]}; leave one of the two out")

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    def get_train_dataloader(self) -> Any:
        """TRL's, which gives no batch at all, and so trains no step, where the data is less than one generation."""
        wanted = self.args.generation_batch_size // self.num_generations
        rows = len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else wanted
        if rows < wanted:
            raise ConfigError(
                f"train_dataset: one generation takes {wanted} prompts and there are {rows}, so no step would be "
                f"trained; set generation_batch_size to {rows * self.num_generations} or less, or give more rows"
            )
        return super().get_train_dataloader()

    # -- sampling ----------------------------------------------------------------------------------------------------

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        self._masks = generated[2]
        if self.sample.ends_within:
            self._count_stopped_as_ended(self._rows(generated[1]))
        return generated

    def _rows(self, completion_ids: Sequence[Sequence[int]]) -> list[Sampled]:
        """Return a generation's completions with how they ended, whoever sampled them."""
        if self.sampled is not None:
            return self.sampled
        rows = [ended(ids, self.eos_token_ids, self.sample.stops) for ids in completion_ids]
        for row, mask in zip(rows, self._masks or (), strict=False):
            row.mask = list(mask)
        return rows

    def _count_stopped_as_ended(self, rows: Sequence[Sampled]) -> None:
        """Count completions ended by a stop string or an environment as complete.

        TRL calls every completion without an end-of-sequence token truncated; this corrects its length metrics, whose
        lengths are of sampled tokens.
        """
        self._truncated = [not row.finished and row.stop is None for row in rows]
        here = torch.tensor([(row.sampled_length, cut) for row, cut in zip(rows, self._truncated, strict=True)])
        lengths, truncated = self.accelerator.gather(here.to(self.accelerator.device)).unbind(1)  # (B_all,) each
        terminated = lengths[truncated == 0].float()
        terminated = terminated if len(terminated) else lengths.new_zeros(1).float()
        metrics = self._metrics[self._mode]
        metrics["completions/clipped_ratio"][-1] = truncated.float().mean().item()
        metrics["completions/mean_terminated_length"][-1] = terminated.mean().item()
        metrics["completions/min_terminated_length"][-1] = terminated.min().item()
        metrics["completions/max_terminated_length"][-1] = terminated.max().item()

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        if self.use_vllm or self.use_transformers_continuous_batching or images or self.tools or self.is_fsdp_enabled:
            self.sampled, began = None, time.perf_counter()
            generated = super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
            self._sampling_seconds = time.perf_counter() - began
            return generated
        rows = self._sample_rows(prompt_ids)
        # Raw, as the loss has them: TRL's off-policy mask compares the two.
        return [row.token_ids for row in rows], [row.raw_logprobs for row in rows]

    def _play(self, prompts: list[Any], _: Any) -> dict[str, Any]:
        """TRL's ``rollout_func`` with an environment: a generation of episodes.

        TRL takes ``env_mask``, 1 for each token that was sampled, as it takes that of its own tools: it is
        ``tool_mask`` in a batch, and the loss, the KL, the entropy and the lengths are of sampled tokens alone.
        """
        prompt_ids, _, _ = self._tokenize_prompts(prompts)
        rows = self._sample_rows(prompt_ids)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [row.token_ids for row in rows],
            "logprobs": [row.raw_logprobs for row in rows],
            "env_mask": [row.mask for row in rows],
        }

    def _sample_rows(self, prompt_ids: Any) -> list[Sampled]:
        """Sample this rank's completions of a generation, or take those that were drawn beforehand."""
        if self._drawn is not None:
            self.sampled, self._sampling_seconds = self._drawn.rows, self._drawn.seconds
        else:
            began = time.perf_counter()
            self.sampled = self.sample(prompt_ids, self.generation_seed(), examples=examples_of(self._inputs))
            self._sampling_seconds = time.perf_counter() - began
        return self.sampled

    def generation_seed(self) -> int:
        """Return a seed of this generation alone, the same on all ranks and after a resume."""
        mode = self._mode
        step, count = self._generations.get(mode, (-1, 0))
        count = count + 1 if step == self.state.global_step else 0
        self._generations[mode] = (self.state.global_step, count)
        return ((self.args.seed * 1_000_000 + self.state.global_step) * 64 + count) * 2 + (mode == "eval")

    # -- dynamic sampling --------------------------------------------------------------------------------------------

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

    # -- scoring -----------------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        if self._drawn is not None:
            self._share = self._drawn.share
        else:
            # TRL's text lacks every special token; but for tools' turns, rewards see what they see in the preview.
            rollouts = [to_rollout(self._tokenizer, row) for row in self._rows(completion_ids_list)]
            self._share = self.scored(inputs, prompts, rollouts, completions if self.tools else None)
        self._tell_logs(self._share)
        outcomes = self._share.outcomes(self.reward_func_names, len(prompts)).to(self.accelerator.device)  # (B, F)
        if not self.reward_func_names:
            return outcomes.new_empty(len(prompts) * self.accelerator.num_processes, 0)
        return gather(outcomes)  # (B_all, F), for TRL's logs alone

    def scored(self, inputs: Any, prompts: Any, rollouts: Sequence[Rollout], completions: Any = None) -> Share:
        """This rank's completions of ``inputs``, scored by all reward functions."""
        if self.sample.failure is not None:  # told to all ranks, which wait for each other where groups are gathered
            return Share(failure=self.sample.failure)
        rewards = [*self.step_rewards, *self._outcome_rewards(inputs)]
        share = score_share(
            prompts,
            rollouts,
            inputs,
            self.step_pattern,
            [reward.at(self.state.global_step) for reward in rewards],
            completions=completions,
            opened=self.sample.all_thinking_open(prompts),
            worker=self._reward_worker,
            budget=self._error_budget,
            trainer_state=self.state,
        )
        self.reward_seconds.update({reward.name: reward.seconds for reward in share.rewards})
        if self.args.oar and share.failure is None:
            began, members = time.perf_counter(), share.members
            columns = [{**member.columns, **member.rollout.columns} for member in members]
            weighed = find_importances(self._policy, prompts, rollouts, columns, self.sample.template_kwargs)
            members = [replace(member, rollout=one) for member, one in zip(members, weighed, strict=True)]
            share, self._importance_seconds = replace(share, members=members), time.perf_counter() - began
        return share

    @property
    def _policy(self) -> Policy:
        """The policy as it is now."""
        return Policy(self._policy_name, self.accelerator.unwrap_model(self.model), self._tokenizer)

    def _outcome_rewards(self, inputs: Sequence[Mapping[str, Any]]) -> list[Reward]:
        """TRL's reward functions for one batch: functions, coroutine functions, models and environments'.

        One that is a ``Reward`` already is called as such; every other one gets the arguments that TRL would call it
        with. Weights are as they were stated; one that was changed since counts as it is now, in float32.
        """
        columns = {name: [row[name] for row in inputs] for name in inputs[0] if name not in _NO_COLUMNS}
        if self.environments is not None:
            columns["environments"] = self.environments
        functions = zip(self.reward_func_names, self.reward_funcs, self.reward_processing_classes, strict=True)
        weights = zip(self._outcome_weights, self.reward_weights.tolist(), strict=True)
        rewards = []
        for (name, function, tokenizer), (stated, now) in zip(functions, weights, strict=True):
            weight = stated if np.float32(stated) == np.float32(now) else now
            if id(function) in self._rewards:
                rewards.append(replace(self._rewards[id(function)], name=name, weight=weight))
            elif isinstance(function, torch.nn.Module):
                rewards.append(Reward(name, "outcome", self._classifier(name, function, tokenizer), weight))
            else:
                call = self._called_by_trl(name, function, columns)
                rewards.append(Reward(name, "outcome", call, weight, waits=is_async_callable(function)))
        return rewards

    def _called_by_trl(self, name: str, function: Callable[..., Any], columns: Mapping[str, Any]) -> Any:
        """A function called as TRL would; a coroutine function on the trainer's own loop, where its environments' are.

        Its errors name lines of ``function``. Each gets lists of its own, so that one that sorts or pops does not
        affect the next.
        """

        async def awaited(arguments: Mapping[str, Any]) -> Any:
            with profiling_context(self, name):
                return await function(**arguments)

        def call(prompts: Any, completions: Any, completion_ids: Any, **others: Any) -> Any:
            arguments = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
            arguments |= {key: list(value) if isinstance(value, list) else value for key, value in columns.items()}
            arguments |= {argument: others[argument] for argument in ARGUMENTS}
            if is_async_callable(function):
                return asyncio.run_coroutine_threadsafe(awaited(arguments), self.async_loop).result()
            with profiling_context(self, name):
                return function(**arguments)

        call.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call

    def _classifier(self, name: str, model: torch.nn.Module, tokenizer: Any) -> Callable[..., Any]:
        """Return a function that gives a sequence classifier's first logit of prompt and completion, as in TRL."""

        def call(prompts: Any, completions: Any, **_: Any) -> Any:
            pairs = zip(prompts, completions, strict=True)
            if is_conversational({"prompt": prompts[0]}):
                options = self.chat_template_kwargs
                texts = [apply_chat_template({"messages": p + c}, tokenizer, **options)["text"] for p, c in pairs]
            else:
                texts = [p + c for p, c in pairs]
            with profiling_context(self, name), torch.inference_mode():
                batch = tokenizer(
                    text=texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
                )
                return model(**Trainer._prepare_inputs(self, batch)).logits[:, 0].float()  # (B,)

        return call

    def _tell_logs(self, share: Share) -> None:
        """Log what functions logged of a rank's completions, and warn of one that none scored, as TRL would."""
        if unscored := next((member for member in share.members if not member.scores.is_scored), None):
            message = "no reward scored this completion, which has no advantage: %r of %s, columns %s"
            _log.warning(message, unscored.rollout.text, unscored.prompt, unscored.columns)
        logged = [member.scores.logged for member in share.members]
        columns = dict.fromkeys((column, name) for of in logged for name, extra in of.items() for column in extra)
        taken = Counter(column for column, _ in columns)
        for column, name in columns:
            values = [of.get(name, {}).get(column) for of in logged]
            self._log_completion_extra(column if taken[column] == 1 else f"{name}: {column}", values)
        for reward in share.rewards:
            for metric, numbers in reward.metrics.items():
                for number in numbers:
                    self._log_metric(metric, number)

    # -- credit ------------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if self.args.resample_flat and self.model.training:
            self._drawn = self.draw(inputs, self.generation_seed())
            inputs = self._drawn.inputs
        self._inputs = inputs
        for place, function in enumerate(self.reward_funcs):  # weights that depend on the step do so in TRL's logs
            reward = self._rewards.get(id(function))
            if reward is not None and reward.schedule:
                self.reward_weights[place] = reward.at(self.state.global_step).weight
        masks_truncated = self.mask_truncated_completions
        try:
            if self.sample.ends_within:  # TRL would mask by the last token; _leave_out does it
                self.mask_truncated_completions = False
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        finally:
            self.mask_truncated_completions = masks_truncated
        if self.sample.ends_within and masks_truncated:
            self._leave_out(output, "completion_mask", self._truncated)
        assert self._share is not None
        share = self._share.with_reference(output.get("ref_per_token_logps"), finished_only=masks_truncated)
        share = share.with_sampler(output.get("sampling_per_token_logps"), output.get("old_per_token_logps"))
        credits = self._credit(share, output)
        output["advantages"] = self._advantages(credits, output["completion_ids"])
        if self.args.drop_duplicates:
            copies = [not is_counted for credit in credits for is_counted in credit.counted]
            self._leave_out(output, "tool_mask", self._of_rank(copies, len(output["completion_ids"])))
        self._log_generation(credits)
        batch = len(output["completion_ids"])
        output[ROW] = torch.arange(batch, device=self.accelerator.device) + self.accelerator.process_index * batch
        if self.model.training:
            if self._passes is not None:
                self._passes.begin_generation()
            if self._on_rollouts is not None:
                self._on_rollouts(self.state.global_step + 1, credits)
        self._share = self._drawn = None
        return output

    def _leave_out(self, output: dict[str, Any], name: str, left_out: Sequence[bool]) -> None:
        """Leave this rank's rows that are truncated, or exact copies, out of the loss, the KL and the token count.

        ``name`` is the mask that TRL leaves such a row out by: ``completion_mask`` of truncated rows, ``tool_mask`` of
        what it has not sampled.
        """
        mask = output["completion_mask"]  # (B, T)
        output[name] = output.get(name, torch.ones_like(mask)) * ~torch.tensor(left_out, device=mask.device)[:, None]
        loss_mask = output["completion_mask"] * output.get("tool_mask", 1)
        output["num_items_in_batch"] = self.accelerator.gather(loss_mask.sum()).sum()

    def _log_generation(self, credits: Sequence[Credit]) -> None:
        metrics = group_metrics(credits, self._is_right, self.step_pattern)
        metrics |= {f"rewards/{name}/time": seconds for name, seconds in self.reward_seconds.items()}
        metrics["sampling_time"] = self._sampling_seconds
        if self.args.oar:
            metrics["importance_time"] = self._importance_seconds
        if self._drawn is not None:
            metrics |= self._drawn.metrics
        logged = self._metrics[self._mode]
        for name, value in metrics.items():
            logged[name].append(value)
        # TRL has looked for spread in outcome rewards, whatever the scheme compares.
        logged["frac_reward_zero_std"][-1] = metrics["zero_spread_share"]
        # A completion's sum has 0 in TRL's ``reward`` and ``reward_std`` for a score that it lacks.
        scored = [row for credit in credits for row in credit.scored.scored]
        if any(row.outcome is None and any(s is not None for s in row.outcome_scores.values()) for row in scored):
            sums = torch.tensor([torch.nan if row.outcome is None else row.outcome for row in scored])
            logged["reward"][-1], logged["reward_std"][-1] = sums.nanmean().item(), nanstd(sums).item()
        for name in {*slower_than(self.reward_seconds, self._sampling_seconds)} - self._named_slow:
            self._named_slow.add(name)
            message = "reward %r took %.2g s and sampling %.2g s: it sets the pace of this run"
            _log.warning(message, name, self.reward_seconds[name], self._sampling_seconds)
        # TRL has just filled this column with its own (B,) advantages; put each row's mean of ours in their place.
        means = [float(credit.of(i).mean()) for credit in credits for i in range(len(credit.scored.group))]
        column = self._logs["advantages"]
        for _ in range(min(len(means), len(column))):
            column.pop()
        column.extend(means)

    def _credit(self, share: Share, output: dict[str, Any]) -> list[Credit]:
        """Gather all ranks' shares and credit every whole group. The same list on every rank.

        ``output`` is what the loss will get of this rank's completions.
        """
        shares = self.gathered(share)
        if self._error_budget is not None:
            new = sum(share.reward_errors for share in shares)
            self._reward_errors += new
            self._error_budget.check(self._reward_errors)
            self._metrics[self._mode]["reward_errors"].append(float(new))
        return self.credited(shares)

    def gathered(self, share: Share) -> list[Share]:
        """Return all ranks' shares. Raises the first failure, on every rank the same."""
        shares: list[Share] = gather_object([share])
        if failures := [share.failure for share in shares if share.failure is not None]:
            raise failures[0]
        return shares

    def credited(self, shares: Sequence[Share]) -> list[Credit]:
        """Return the credit of every whole group of all ranks' shares."""
        size = self.num_generations if self.model.training else self.num_generations_eval
        names = (
            *("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
            *("max_completion_length", "mask_truncated_completions"),
        )
        sampling = {name: getattr(self, name) for name in names} | {"step": self.state.global_step + 1}
        sampling |= {"stop": list(self.args.stop)} if self.args.stop else {}
        groups = scored_groups(shares, size, policy=self._policy_name, sampling=sampling, record=self.sample.record)
        return self._credit_groups(groups)

    def _credit_groups(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Return the credit of all ranks' groups of one generation."""
        drop, each = self.args.drop_duplicates, self.args.each_reward or self.args.sums_normalised
        keywords = self.args.credit_keywords()
        return credit_groups(groups, self.credit_scheme, drop_duplicates=drop, each_reward=each, **keywords)

    def credit_watched(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Credit groups that were sampled beside training, as if they were a batch of it; called by one rank alone."""
        if self.args.oar:
            groups = [replace(scored, group=with_importances(self._policy, scored.group)) for scored in groups]
        return self._credit_groups(groups)

    def _of_rank(self, rows: Sequence[Any], batch: int) -> Sequence[Any]:
        """This rank's of all ranks' rows, which every rank has in the ranks' order."""
        first = self.accelerator.process_index * batch
        return rows[first : first + batch]

    def _padded(self, rows: Sequence[npt.NDArray[np.float32]], completion_ids: torch.Tensor) -> torch.Tensor:
        """This rank's of all ranks' rows, a number a token, padded to (B, T) float32 like ``completion_ids``."""
        padded = torch.zeros(completion_ids.shape)
        for i, row in enumerate(self._of_rank(rows, len(completion_ids))):
            padded[i, : len(row)] = torch.from_numpy(row)
        return padded.to(completion_ids.device)

    def _advantages(self, credits: Sequence[Credit], completion_ids: torch.Tensor) -> torch.Tensor:
        """This rank's rows of all groups' advantages, padded to (B, T) float32 like ``completion_ids``.

        (B,) where the loss works with whole sequences, which only schemes with one advantage a completion allow.
        """
        rows = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
        if not self.args.sequence_modes:
            return self._padded(rows, completion_ids)
        # Every sampled token of a row has the same one; others have 0.
        of_rank = self._of_rank(rows, len(completion_ids))
        whole = [float(row[np.abs(row).argmax()]) if len(row) else 0.0 for row in of_rank]
        return torch.tensor(whole, device=completion_ids.device)

    # -- forward and loss --------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        forward = super()._get_per_token_logps_and_entropies
        # In parts if no other row and no random number has a say in a row's, and no wrapper of several processes
        # expects one forward pass to a backward one.
        rows_alone = self.in_parts and not self.aux_loss_enabled and self.args.disable_dropout
        is_plain = not any(value is not None for name, value in kwargs.items() if name not in _PLAIN)
        if rows_alone and is_plain and self.accelerator.num_processes == 1:
            result = forward_by_length(forward, *args, **kwargs)
        else:
            result = forward(*args, **kwargs)
        self._policy_logps, self._entropies, self._router_loss = result[0].detach(), result[1], result[2]
        return result

    @contextmanager
    def _keeping_masks(self) -> Iterator[None]:
        """Keep, by the method's name, which tokens TRL's loss leaves out by entropy or for being off policy.

        The class's own methods stay TRL's, one of them static: they can be called without an instance.
        """

        def kept(name: str, of_trl: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def keep(*args: Any, **kwargs: Any) -> torch.Tensor:
                self.loss_masks[name] = of_trl(*args, **kwargs)
                return self.loss_masks[name]

            return keep

        self.loss_masks.clear()
        for name in ("get_high_entropy_mask", "get_off_policy_mask"):
            setattr(self, name, kept(name, getattr(self, name)))
        try:
            yield
        finally:
            del self.get_high_entropy_mask, self.get_off_policy_mask

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        trained = self._trained_rows(inputs) if self.model.training else None
        of_rows = inputs if trained is None else trained.inputs
        coef = None
        if self._entropy_bonus_enabled:  # TRL may change it at the end of the step
            too_sure = not self.use_adaptive_entropy or self._last_world_entropy <= self.args.entropy_target
            coef = float(self.entropy_coef) if too_sure else 0.0
        with self._keeping_masks():
            loss = super()._compute_loss(model, of_rows)
        if trained is not None:
            loss = loss * trained.factor
            assert self._entropies is not None
            self._restore_metrics(trained, self._entropies.detach())
        if self._passes is not None and self.model.training and self._policy_logps is not None:
            router = self.router_aux_loss_coef * self._router_loss if self.aux_loss_enabled else None
            self._passes.add(inputs, of_rows, self._policy_logps, loss, BesidePolicy(coef, self._entropies, router))
        reference = inputs.get("ref_per_token_logps")
        if trained is None and reference is not None and self._policy_logps is not None:
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # what tools wrote is not the policy's
            for name, value in kl_estimators(reference, self._policy_logps, mask).items():
                summed = self.accelerator.reduce(value, reduction="sum")  # (2,): sum over tokens, tokens
                self._metrics[self._mode][name].append((summed[0] / summed[1].clamp(min=1.0)).item())
        return loss

    @property
    def can_leave_rows_out(self) -> bool:
        """Return whether loss and gradient are the same without the rows whose advantages are all 0.

        Where the loss is a weighted sum of A_t times something, such a row adds 0 to it and to its gradient; what is
        left is the rows' number or tokens in the divisor, put right by a factor. Where a row adds something else (a
        KL, an entropy bonus, a router's loss), or others depend on it, all rows stay.
        """
        return bool(
            self.loss_type in _BY_ROWS | _BY_TOKENS | _BY_GENERATION
            and self.beta == 0
            and self.importance_sampling_level == "token"
            and self.top_entropy_quantile == 1.0  # a quantile over all rows of the micro-batch
            and not (self._entropy_bonus_enabled or self.aux_loss_enabled)
            and self.args.disable_dropout  # its random numbers depend on the rows
        )

    def _trained_rows(self, inputs: dict[str, Any]) -> TrainedRows | None:
        """The rows with signal, as many on every rank and at least one, so that no gradient lacks; None for all."""
        if not self.can_leave_rows_out or inputs.keys() - _INPUTS:
            return None
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # (B, T)
        has_signal = (inputs["advantages"] != 0).reshape(len(mask), -1).any(dim=1)  # (B,)
        # Ranks gather one number a row for the metrics, so they need as many rows.
        count = max(1, int(self.accelerator.gather(has_signal.sum()).max()))
        if count >= len(mask):
            return None
        rows = has_signal.int().argsort(descending=True, stable=True)[:count].sort().values
        tokens, all_tokens = float(mask[rows].sum()), float(mask.sum())
        factor = count / len(mask) if self.loss_type in _BY_ROWS else 1.0
        if self.loss_type in _BY_TOKENS:
            factor = max(tokens, 1.0) / max(all_tokens, 1.0)
        trained = {
            name: value[rows] if torch.is_tensor(value) and value.dim() else value for name, value in inputs.items()
        }
        return TrainedRows(trained, factor, has_signal[rows], tokens, all_tokens)

    def _restore_metrics(self, trained: TrainedRows, entropies: torch.Tensor) -> None:
        """Make what TRL has logged of the trained rows independent of which others were left out, on any ranks.

        Clip ratios are of all rows again, as a row without signal has none clipped. The entropy is that of the rows
        with signal; NaN, which is not counted, where there are none.
        """
        metrics, inputs = self._metrics["train"], trained.inputs
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1) * trained.has_signal[:, None]
        numbers = torch.stack([(entropies * mask).sum().float(), mask.sum().float()])
        rows = torch.tensor([trained.tokens, trained.all_tokens], device=numbers.device)
        numbers = self.accelerator.reduce(torch.cat([numbers, rows]), reduction="sum")
        entropy, count, tokens, all_tokens = numbers.tolist()
        metrics["entropy"][-1] = entropy / count if count else float("nan")
        for name in _CLIPPED:
            if name in metrics:
                metrics[name][-1] *= tokens / max(all_tokens, 1.0)
        if "clip_ratio/low_min" in metrics:
            metrics["clip_ratio/low_min"][-1] = 0.0


def _stand_in(name: str) -> Any:
    """Return a reward function for TRL to know by name; ``_calculate_rewards`` calls the reward itself."""

    def never_called(**batch: Any) -> list[float]:
        raise AssertionError

    never_called.__name__ = name
    return never_called


def examples_of(inputs: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Return rows of the data set as what an environment begins with."""
    return [Example(row["prompt"], {name: value for name, value in row.items() if name != "prompt"}) for row in inputs]


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, default=str)


def parts_by_length(lengths: Sequence[int], prompt: int, extra: int) -> list[list[int]]:
    """Return the rows of a batch in at most ``MOST_PARTS`` parts, from short to long, of (nearly) as many rows each.

    ``lengths`` are those of the completions, in tokens, ``prompt`` is the prompts' common width, and ``extra`` is what
    each part after the first costs, in positions. The cheapest number of parts is taken, the least of equally cheap.
    """
    rows = sorted(range(len(lengths)), key=lambda row: lengths[row])
    choices = []
    for count in range(1, min(MOST_PARTS, len(rows)) + 1):
        bounds = [len(rows) * part // count for part in range(count + 1)]
        parts = [rows[start:end] for start, end in pairwise(bounds)]
        positions = sum(len(part) * (prompt + lengths[part[-1]]) for part in parts)
        choices.append((positions + (count - 1) * extra, parts))
    return min(choices, key=lambda choice: choice[0])[1]


def forward_by_length(
    forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None, Any]],
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, Any]:
    """``forward`` of TRL's log-probabilities and entropies, part by part: both (B, ``logits_to_keep``).

    ``input_ids`` and ``attention_mask`` are (B, prompt + ``logits_to_keep``). Behind a part's longest row they are 0.
    What ``forward`` returns third, a loss over the rows of a batch, is left out.
    """
    prompt = input_ids.shape[1] - logits_to_keep
    positions = torch.arange(1, logits_to_keep + 1, device=input_ids.device)
    lengths: list[int] = (attention_mask[:, prompt:] * positions).amax(dim=1).clamp(min=1).tolist()
    parts = parts_by_length(lengths, prompt, PASS.get(input_ids.device.type, PASS["cuda"]))
    if len(parts) == 1 and max(lengths) == logits_to_keep:
        return forward(model, input_ids, attention_mask, logits_to_keep, **options)
    found: list[tuple[torch.Tensor, ...]] = []
    for part in parts:
        longest = lengths[part[-1]]
        width = prompt + longest
        logps, entropies, _ = forward(model, input_ids[part, :width], attention_mask[part, :width], longest, **options)
        values = (logps,) if entropies is None else (logps, entropies)
        found.append(tuple(pad(value, (0, logits_to_keep - longest)) for value in values))
    places = torch.tensor([row for part in parts for row in part], device=input_ids.device).argsort()
    logps, *rest = (torch.cat(values)[places] for values in zip(*found, strict=True))
    return logps, rest[0] if rest else None, None


def kl_estimators(reference: torch.Tensor, policy: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """k1, k2 and k3 of KL(policy || reference) on the sampled tokens.

    With d = log pi_ref - log pi_theta: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (Schulman,
    http://joschu.net/blog/kl-approx.html). Inputs are (B, T); each result is (2,): the sum over unmasked tokens, and
    their number, so that ranks can be added before dividing.
    """
    d = (reference - policy).float()
    estimators = {"kl/k1": -d, "kl/k2": d.square() / 2, "kl/k3": d.exp() - d - 1}
    count = mask.sum().float()
    return {name: torch.stack([(value * mask).sum(), count]) for name, value in estimators.items()}
