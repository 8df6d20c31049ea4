"""``ProcessGRPOTrainer``: TRL's ``GRPOTrainer`` (as ``ResumableGRPOTrainer``) with step rewards and token advantages.

TRL's subclass seam is narrow and this module is the only one that touches it:

* ``_generate_single_turn`` samples with the group sampler instead of ``model.generate`` (vLLM, continuous batching,
  tools and images stay TRL's);
* ``_calculate_rewards`` lets TRL call the outcome rewards, and remembers what it called them with;
* ``_generate_and_score_completions`` lets TRL build its inputs, then replaces ``advantages`` (B,) by the (B, T) tensor
  that ``workbench.credit`` makes of whole groups, gathered over ranks;
* ``_compute_loss`` is TRL's, which takes (B, T) advantages; only KL estimators are logged beside it.

The loss itself, reference and old policies, PEFT, optimisers and distribution are TRL's and accelerate's. What a step
is worth is decided in ``rewards``, what a token is credited in ``credit``; this module knows neither.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather, gather_object
from trl.models import unwrap_model_for_generation

from workbench.config import SamplingConfig
from workbench.credit import credit_groups
from workbench.errors import ConfigError, RewardError, WorkbenchError
from workbench.policies.sampler import Sampled, UnshareableCache, sample_rows, to_rollout
from workbench.rewards import ErrorBudget, Reward, RewardWorker, load_reward, score_completions
from workbench.rewards.reward import TimedReward
from workbench.rewards.watch import slower_than
from workbench.schema import Credit, Group, RewardSummary, Rollout, ScoredGroup, StepScores
from workbench.steps import StepPattern
from workbench.training.config import ProcessGRPOConfig
from workbench.training.generation import Scored, Share
from workbench.training.metrics import group_metrics, kl_estimators, time_metrics
from workbench.training.outcomes import OutcomeGuard
from workbench.training.saving import ResumableGRPOTrainer

_log = logging.getLogger(__name__)

OnRollouts = Callable[[int, list[Credit]], None]
"""Called on every rank after each generation with the optimiser step it is for (1-based) and all groups' credit."""


def no_outcome(prompts: Sequence[Any], **columns: Any) -> list[None]:
    """Stands in for an outcome reward where a run has step rewards only, because TRL will not start without one."""
    return [None] * len(prompts)


def _as_returned(value: float) -> float | None:
    """A score as the function returned it: TRL keeps float32 and NaN for None; 0.3 comes back as 0.3."""
    return None if math.isnan(value) else float(str(np.float32(value)))


class ProcessGRPOTrainer(ResumableGRPOTrainer):
    """GRPO in which every step of a completion is scored and every token has its own advantage.

    Args:
        model: as in ``GRPOTrainer``.
        reward_funcs: outcome reward functions, TRL's argument unchanged; may be None when there are step rewards.
        args: a ``ProcessGRPOConfig``.
        step_rewards: step reward functions, built-in names, or ``Reward`` objects (which carry a weight).
        policy_name: what stored rollouts say they were sampled from; the model's own name by default.
        is_right: tells whether a completion's text answers its row's columns; when given, ``accuracy/train`` is logged.
        on_rollouts: called after each generation with its credit, whose ``advantages`` are the loss's own.
        reward_worker: where the step pattern runs; in this process by default.
        error_budget: lets errors of reward functions pass while it lasts, logging ``reward_errors``.
        **kwargs: everything else ``GRPOTrainer`` takes.

    Raises:
        ConfigError: for modes that cannot work with token advantages.
        RewardError: from a training step in which a reward function fails, on every rank the same.
    """

    _tag_names = ["trl", "grpo", "process-supervision"]  # noqa: RUF012 (TRL's attribute)

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: ProcessGRPOConfig | None = None,
        *,
        step_rewards: Sequence[Any] = (),
        policy_name: str | None = None,
        is_right: Callable[[str, Mapping[str, Any]], bool] | None = None,
        on_rollouts: OnRollouts | None = None,
        reward_worker: RewardWorker | None = None,
        error_budget: ErrorBudget | None = None,
        **kwargs: Any,
    ) -> None:
        self._reward_seconds: dict[str, float] = {}  # of each function's last call
        self._sampling_seconds = 0.0
        self._named_slow: set[str] = set()
        timed = functools.partial(TimedReward.of, times=self._reward_seconds)
        self.step_rewards: list[Reward] = [timed(load_reward(spec)) for spec in step_rewards]
        self._is_right = is_right
        self._on_rollouts = on_rollouts
        self._reward_worker, self._error_budget = reward_worker, error_budget
        self._reward_errors = 0  # of all ranks
        self._sampled: list[Sampled] | None = None
        self._scored: Scored | None = None
        self._outcomes = OutcomeGuard(self._reward_seconds)
        self._generations: dict[str, tuple[int, int]] = {}  # mode -> (global step, generations so far in it)
        self._policy_logps: torch.Tensor | None = None
        args = args if args is not None else ProcessGRPOConfig()
        if not isinstance(args, ProcessGRPOConfig):
            raise ConfigError(f"args is a {type(args).__name__}; give a ProcessGRPOConfig, which has all of its fields")
        many = isinstance(reward_funcs, list | tuple)
        outcome_rewards = list(reward_funcs) if many else [] if reward_funcs is None else [reward_funcs]
        self._has_outcome = bool(outcome_rewards)
        if not self._has_outcome and not self.step_rewards:
            raise ConfigError("there is no reward; give step_rewards, reward_funcs, or both")
        guarded = [self._outcomes.guarded(function) for function in outcome_rewards]
        super().__init__(model=model, reward_funcs=guarded or [no_outcome], args=args, **kwargs)
        self._policy_name = policy_name or str(self.model.config._name_or_path)
        self._outcome_weights = args.reward_weights or [1.0] * len(self.reward_func_names)
        self.step_pattern = StepPattern(args.step_pattern, kind=args.step_pattern_kind)

    # -- sampling ----------------------------------------------------------------------------------------------------

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        began = time.perf_counter()
        try:
            return self._sample_turn(prompt_ids, images, multimodal_fields, num_generations, has_tool_images)
        finally:
            self._sampling_seconds = time.perf_counter() - began

    def _sample_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool
    ) -> Any:
        if self.use_vllm or self.use_transformers_continuous_batching or images or self.tools or self.is_fsdp_enabled:
            self._sampled = None
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        try:
            rows = self.sample(prompt_ids, self._generation_seed())
        except UnshareableCache:
            self._sampled = None
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        self._sampled = rows
        return [row.token_ids for row in rows], [row.logprobs for row in rows]

    def sample(
        self,
        prompt_ids: Sequence[Sequence[int]],
        seed: int,
        *,
        first_row: int | None = None,
        total_rows: int | None = None,
    ) -> list[Sampled]:
        """Sample a completion for each of this rank's rows, as one process with all ranks' rows would.

        ``first_row`` and ``total_rows`` say where the rows lie among all ranks'; by default every rank has as many.
        """
        if first_row is None or total_rows is None:
            first_row = self.accelerator.process_index * len(prompt_ids)
            total_rows = self.accelerator.num_processes * len(prompt_ids)
        # Not validated: TRL's config has checked these, and allows larger groups than a form does.
        sampling = SamplingConfig.model_construct(
            num_generations=self.num_generations,
            max_completion_length=self.max_completion_length,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            return sample_rows(
                model,
                prompt_ids,
                sampling,
                eos_token_ids=self.eos_token_ids,
                pad_token_id=self._tokenizer.pad_token_id,
                seed=seed,
                first_row=first_row,
                total_rows=total_rows,
            )

    def _generation_seed(self) -> int:
        """A seed of this generation alone, the same on all ranks and after a resume."""
        mode = "train" if self.model.training else "eval"
        step, count = self._generations.get(mode, (-1, 0))
        count = count + 1 if step == self.state.global_step else 0
        self._generations[mode] = (self.state.global_step, count)
        return ((self.args.seed * 1_000_000 + self.state.global_step) * 64 + count) * 2 + (mode == "eval")

    # -- scoring and credit ------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rollouts = self._rollouts(completion_ids_list)
        if not self.tools:
            # TRL's text lacks every special token; rewards see here what they see anywhere else in the workbench.
            texts = [rollout.text for rollout in rollouts]
            plain = isinstance(prompts[0], str)
            completions = texts if plain else [[{"role": "assistant", "content": text}] for text in texts]
        if self._has_outcome:
            outcomes = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        else:  # TRL would warn at every call that nothing was scored
            outcomes = gather(torch.full((len(prompts), 1), torch.nan, device=self.accelerator.device))
        self._scored = Scored(inputs, rollouts, outcomes)
        return outcomes

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._scored is not None
        credits = self._credit(
            self._scored.against(output.get("ref_per_token_logps"), whole=self.mask_truncated_completions)
        )
        output["advantages"] = self._local_advantages(credits, output["completion_ids"])
        mode = "train" if self.model.training else "eval"
        metrics = group_metrics(credits, self._is_right) | time_metrics(self._reward_seconds, self._sampling_seconds)
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)
        self._name_slow_rewards()
        if not self._has_outcome:
            for name in [name for name in self._metrics[mode] if name.startswith(f"rewards/{no_outcome.__name__}/")]:
                del self._metrics[mode][name]
        # TRL has just filled this column with its own (B,) advantages; put each row's mean of ours in their place.
        means = [float(credit.of(i).mean()) for credit in credits for i in range(len(credit.scored.group))]
        logged = self._logs["advantages"]
        for _ in range(min(len(means), len(logged))):
            logged.pop()
        logged.extend(means)
        if mode == "train" and self._on_rollouts is not None:
            self._on_rollouts(self.state.global_step + 1, credits)
        self._scored = None
        return output

    def _name_slow_rewards(self) -> None:
        """Say once of each reward function that takes longer than sampling: it sets the pace of the run."""
        for name in slower_than(self._reward_seconds, self._sampling_seconds):
            if name not in self._named_slow:
                self._named_slow.add(name)
                _log.warning(
                    "reward %r took %.2g s and sampling %.2g s: it sets the pace of this run",
                    name,
                    self._reward_seconds[name],
                    self._sampling_seconds,
                )

    def _credit(self, scored: Scored) -> list[Credit]:
        """Score this rank's rollouts, gather all ranks', and credit every whole group. The same list on every rank."""
        shares = gather_object([self._share(scored)])
        if failures := [share.failure for share in shares if share.failure is not None]:
            raise failures[0]
        if self._error_budget is not None:
            new = sum(share.reward_errors for share in shares)
            self._reward_errors += new
            self._error_budget.check(self._reward_errors)
            self._metrics["train" if self.model.training else "eval"]["reward_errors"].append(float(new))
        everyone = [row for share in shares for row in share.rows]
        outcomes = [[_as_returned(value) for value in row] for row in scored.outcomes.tolist()]
        outcome_weights = dict(zip(self.reward_func_names, self._outcome_weights, strict=True))
        summaries = tuple(RewardSummary(r.name, "step", r.weight) for r in self.step_rewards)
        if self._has_outcome:
            summaries += tuple(RewardSummary(name, "outcome", weight) for name, weight in outcome_weights.items())
        size = self.num_generations if self.model.training else self.num_generations_eval
        groups = []
        for start in range(0, len(everyone), size):
            members = everyone[start : start + size]
            group = Group(
                prompt=members[0][0],
                rollouts=tuple(member[2] for member in members),
                columns=members[0][1],
                policy=self._policy_name,
                sampling={
                    "temperature": self.temperature,
                    "top_p": self.top_p,
                    "top_k": self.top_k,
                    "min_p": self.min_p,
                    "repetition_penalty": self.repetition_penalty,
                    "step": self.state.global_step + 1,
                    "max_completion_length": self.max_completion_length,
                    "mask_truncated_completions": self.mask_truncated_completions,
                },
            )
            rows = tuple(self._with_outcome(member[3], outcomes[start + i]) for i, member in enumerate(members))
            groups.append(ScoredGroup(group, rows, summaries))
        return credit_groups(groups, self.args.credit_scheme, **self.args.credit_keywords())

    def _share(self, scored: Scored) -> Share:
        """This rank's rows, scored; a failure is put into words that can travel to the other ranks."""
        failure = self._outcomes.take()
        if failure is None:
            columns = [{k: v for k, v in row.items() if k != "prompt"} for row in scored.inputs]
            prompts = [row["prompt"] for row in scored.inputs]
            try:
                steps = score_completions(
                    prompts, scored.rollouts, columns, self.step_pattern, self.step_rewards,
                    worker=self._reward_worker, budget=self._error_budget,
                )  # fmt: skip
                errors = self._error_budget.new() if self._error_budget is not None else 0
                return Share(list(zip(prompts, columns, scored.rollouts, steps, strict=True)), None, errors)
            except Exception as raised:
                failure = raised
        if isinstance(failure, WorkbenchError):
            return Share([], failure)
        error = RewardError(f"a reward function raised {type(failure).__name__}: {failure}")
        error.__cause__ = failure
        return Share([], error)

    def _rollouts(self, completion_ids: Sequence[Sequence[int]]) -> list[Rollout]:
        if self._sampled is not None:
            return [to_rollout(self._tokenizer, row) for row in self._sampled]
        eos = set(self.eos_token_ids)
        return [
            to_rollout(self._tokenizer, Sampled(token_ids=list(ids), finished=bool(ids) and ids[-1] in eos))
            for ids in completion_ids
        ]

    def _with_outcome(self, scores: StepScores, outcomes: Sequence[float | None]) -> StepScores:
        """Put one completion's outcome rewards, and their weighted sum, beside its step scores."""
        if not self._has_outcome:
            return scores
        named = dict(zip(self.reward_func_names, outcomes, strict=True))
        weighted = [
            weight * value
            for weight, value in zip(self._outcome_weights, named.values(), strict=True)
            if value is not None
        ]
        return StepScores(
            steps=scores.steps,
            spans=scores.spans,
            scores=scores.scores,
            rewards=scores.rewards,
            outcome_scores=named,
            outcome=sum(weighted) if weighted else None,
        )

    def _local_advantages(self, credits: Sequence[Credit], completion_ids: torch.Tensor) -> torch.Tensor:
        """This rank's rows of all groups' advantages, padded to (B, T) float32 like ``completion_ids``."""
        batch, length = completion_ids.shape
        advantages = torch.zeros(batch, length)
        rows = [credit.of(i) for credit in credits for i in range(len(credit.scored.group))]
        first = self.accelerator.process_index * batch
        for i, row in enumerate(rows[first : first + batch]):
            advantages[i, : len(row)] = torch.from_numpy(row)
        return advantages.to(completion_ids.device)

    # -- what is logged beside TRL's loss ----------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._policy_logps = result[0].detach()
        return result

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        reference = inputs.get("ref_per_token_logps")
        if reference is not None and self._policy_logps is not None:
            mode = "train" if self.model.training else "eval"
            for name, value in kl_estimators(reference, self._policy_logps, inputs["completion_mask"]).items():
                summed = self.accelerator.reduce(value, reduction="sum")  # (2,): sum over tokens, tokens
                self._metrics[mode][name].append((summed[0] / summed[1].clamp(min=1.0)).item())
        return loss
