"""``ProcessGRPOTrainer``: TRL's ``GRPOTrainer``, resumable, with step rewards and token advantages.

TRL's subclass seam is narrow. What this package overrides of it is in this file and in ``training.loss``:

* ``_generate`` tells which tokens the policy sampled and which tools or environments wrote;
* ``rollout_func`` plays text environments: TRL takes the mask of what it returns as it takes its own tools';
* ``_generate_single_turn`` samples with the group sampler instead of ``model.generate`` (vLLM, continuous batching,
  tools and images stay TRL's);
* ``_calculate_rewards`` scores steps and outcomes in one pass, as the preview does; TRL gets the outcome scores for its
  logs, in its own float32;
* ``_generate_and_score_completions`` lets TRL build its inputs, then replaces ``advantages`` (B,) by the (B, T) tensor
  that ``workbench.credit`` makes of whole groups, gathered over ranks;
* ``_compute_loss`` is TRL's, which takes (B, T) advantages; ``training.loss`` has it and the forward pass.

The loss itself, reference and old policies, PEFT, optimisers and distribution are TRL's and accelerate's. Splitting and
scoring are ``rewards.score_completions`` and a token's credit is ``credit.credit_groups``: this module calls both with
the trainer's settings and knows no reward function and no scheme.
"""

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate.utils import gather, gather_object
from datasets import IterableDataset
from transformers import Trainer
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
from workbench.schema import Credit, OnCredit, OnPass, Rollout, ScoredGroup
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import (
    Drawn,
    DynamicSampling,
    PolicySampler,
    Share,
    distinct_names,
    examples_of,
    groups_of_shares,
    score_share,
)
from workbench.training.loss import ROW, LossOfTrainedRows, Passes
from workbench.training.saving import Resumable

_NO_COLUMNS = ("prompt", "completion", "completion_ids")  # which TRL hands over under names of its own


class ProcessGRPOTrainer(Resumable, DynamicSampling, LossOfTrainedRows):
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
        self.sampled: list[Sampled] | None = None
        self._masks: Sequence[Sequence[int]] | None = None  # 0 where a tool or an environment wrote
        self._inputs: Sequence[Mapping[str, Any]] = ()
        self._truncated: list[bool] = []
        self._share: Share | None = None
        self._generations: dict[str, tuple[int, int]] = {}  # mode -> (global step, generations so far in it)
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
        if self.credit.oar and (sharing := self.sharing):
            raise ConfigError(f"oar: it needs the policy's whole weights, and under {sharing} no rank has them")
        if args.resample_flat:
            self._check_sampler("resample_flat")
        if environment is not None:
            self._check_sampler("environment")
            self.rollout_func = self._play

    def _settle_credit(self) -> None:
        """Find how rewards are credited, by default as fits them. Raises ConfigError if nothing would be learnt."""
        self.credit = self.args.credit_by("process" if self.step_rewards else "outcome")
        scheme, needs = self.credit.scheme, SCHEMES[self.credit.scheme].needs
        if "steps" in needs and not self.step_rewards and not self.credit.outcome_weight:
            raise ConfigError(
                f"credit: {scheme!r} credits steps and no reward scores steps, so nothing would be learnt; give "
                "step_rewards, set outcome_weight, or leave the scheme out, which then is 'outcome'"
            )
        if "outcome" in needs and not self.reward_func_names:
            raise ConfigError(
                f"credit: {scheme!r} needs an outcome reward and reward_funcs has none; give one, or choose a scheme "
                "that credits steps"
            )

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
        here = torch.tensor([(row.policy_length, cut) for row, cut in zip(rows, self._truncated, strict=True)])
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

    # -- scoring -----------------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        if self._drawn is not None:
            self._share = self._drawn.share
        else:
            # TRL's text lacks every special token; but for tools' turns, rewards see what they see in the preview.
            rollouts = [to_rollout(self._tokenizer, row) for row in self._rows(completion_ids_list)]
            self._share = self.score_own_share(inputs, prompts, rollouts, completions if self.tools else None)
        self._tell_logs(self._share)
        outcomes = self._share.outcomes(self.reward_func_names, len(prompts)).to(self.accelerator.device)  # (B, F)
        if not self.reward_func_names:
            return outcomes.new_empty(len(prompts) * self.accelerator.num_processes, 0)
        return gather(outcomes)  # (B_all, F), for TRL's logs alone

    def score_own_share(self, inputs: Any, prompts: Any, rollouts: Sequence[Rollout], completions: Any = None) -> Share:
        """Score this rank's completions of ``inputs`` by all reward functions."""
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
        if self.credit.oar and share.failure is None:
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
        """Log what functions logged of a rank's completions."""
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
        if self.credit.drop_duplicates:
            copies = [not is_counted for credit in credits for is_counted in credit.is_counted]
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
        if self.credit.oar:
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
        groups = groups_of_shares(shares, size, policy=self._policy_name, sampling=sampling, record=self.sample.record)
        return self._credit_groups(groups)

    def _credit_groups(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Return the credit of all ranks' groups of one generation."""
        return credit_groups(groups, **self.credit.keywords())

    def credit_watched(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Credit groups that were sampled beside training, as if they were a batch of it; called by one rank alone."""
        if self.credit.oar:
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


def _stand_in(name: str) -> Any:
    """Return a reward function for TRL to know by name; ``_calculate_rewards`` calls the reward itself."""

    def never_called(**batch: Any) -> list[float]:
        raise AssertionError

    never_called.__name__ = name
    return never_called
