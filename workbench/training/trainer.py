"""``ProcessGRPOTrainer``: TRL's ``GRPOTrainer``, resumable, with step rewards and token advantages.

TRL's subclass seam is narrow and this module is the only one that touches it:

* ``_generate`` tells which tokens the policy sampled and which tools or environments wrote;
* ``rollout_func`` plays text environments: TRL takes the mask of what it returns as it takes its own tools';
* ``_generate_single_turn`` samples with the group sampler instead of ``model.generate`` (vLLM, continuous batching,
  tools and images stay TRL's);
* ``_calculate_rewards`` scores steps and outcomes in one pass, as the preview does; TRL gets the outcome scores for its
  logs, in its own float32;
* ``_generate_and_score_completions`` lets TRL build its inputs, of a generation that may be drawn beforehand
  (``resampling``), then replaces ``advantages`` (B,) by the (B, T) tensor
  that ``workbench.credit`` makes of whole groups, gathered over ranks;
* ``_compute_loss`` is TRL's, which takes (B, T) advantages, of the rows that have any (``signal``); only KL estimators
  are logged beside it.

The loss itself, reference and old policies, PEFT, optimisers and distribution are TRL's and accelerate's. Splitting and
scoring are ``rewards.score_completions`` and a token's credit is ``credit.credit_groups``: this module calls both with
the trainer's settings and knows no reward function and no scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import gather, gather_object
from trl import GRPOTrainer

from workbench.config import SamplingConfig
from workbench.credit import SCHEMES, credit_groups
from workbench.environments import Environment
from workbench.errors import ConfigError
from workbench.policies.sampler import Sampled, ended, to_rollout
from workbench.rewards import ErrorBudget, Reward, RewardWorker, load_reward
from workbench.schema import Credit, OnCredit, OnPass, Rollout, ScoredGroup
from workbench.steps import StepPattern
from workbench.training.by_length import ForwardByLength
from workbench.training.config import ProcessGRPOConfig
from workbench.training.episodes import check_playable, play
from workbench.training.metrics import group_metrics, kl_estimators, leave_unscored_out
from workbench.training.passes import ROW, BesidePolicy, KeepsMasks, Passes, entropy_coef
from workbench.training.rank_rows import advantages_of_rank, leave_copies_out
from workbench.training.resampling import Drawn, Resampling
from workbench.training.sampling import PolicySampler
from workbench.training.saving import Resumable
from workbench.training.scoring import Share, distinct_names, outcome_rewards, score_share, scored_groups, tell_logs
from workbench.training.signal import restore_metrics, trained_rows
from workbench.training.stopped import count_stopped_as_ended, mask_truncated, truncated_by_length
from workbench.training.times import Times


class ProcessGRPOTrainer(Resumable, KeepsMasks, ForwardByLength, GRPOTrainer):
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
    held-out accuracy (``training.accuracy``) counts every row once.

    Raises:
        ConfigError: for modes that cannot work with token advantages.
        RewardError: from a training step in which a reward function fails, on every rank the same.
    """

    reward_weights: torch.Tensor
    reward_func_names: list[str]
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
        reward_worker: RewardWorker | None = None,
        error_budget: ErrorBudget | None = None,
        environment: Environment | None = None,
        **kwargs: Any,
    ) -> None:
        self.times = Times()
        self.step_rewards: list[Reward] = [load_reward(spec) for spec in step_rewards]
        self._is_right = is_right
        self._on_rollouts = on_rollouts
        self._passes = None if on_pass is None else Passes(self, on_pass)
        self.loss_masks: dict[str, torch.Tensor] = {}
        self._reward_worker, self._error_budget = reward_worker, error_budget
        self._reward_errors = 0  # of all ranks
        self.sampled: list[Sampled] | None = None
        self._masks: Sequence[Sequence[int]] | None = None  # 0 where a tool or an environment wrote
        self.inputs: Sequence[Mapping[str, Any]] = ()
        self._truncated: Sequence[bool] = ()
        self._share: Share | None = None
        self._generations: dict[str, tuple[int, int]] = {}  # mode -> (global step, generations so far in it)
        self._policy_logps: torch.Tensor | None = None
        self._entropies: torch.Tensor | None = None
        self._router_loss: torch.Tensor | None = None
        self.drawn: Drawn | None = None
        args = args if args is not None else ProcessGRPOConfig()
        if not isinstance(args, ProcessGRPOConfig):
            raise ConfigError(f"args is a {type(args).__name__}; give a ProcessGRPOConfig, which has all of its fields")
        specs = reward_funcs if isinstance(reward_funcs, list | tuple) else [reward_funcs] * (reward_funcs is not None)
        if not specs and not self.step_rewards and not others and kwargs.get("environment_factory") is None:
            raise ConfigError("there is no reward; give step_rewards, reward_funcs, or both")
        functions = [spec.outcome_function if isinstance(spec, Reward) else spec for spec in specs]
        self._rewards = {id(f): spec for f, spec in zip(functions, specs, strict=True) if isinstance(spec, Reward)}
        # TRL does not start without a reward function; a step reward stands in until it has, and is never called.
        stand_in = [reward.function for reward in self.step_rewards[:1]] if not functions else []
        super().__init__(model, functions + stand_in, args, *others, **kwargs)
        if stand_in:
            for entries in (self.reward_funcs, self.reward_func_names, self.reward_processing_classes):
                del entries[0]
            self.reward_weights = self.reward_weights[1:]
        self._settle_outcomes([spec.weight if isinstance(spec, Reward) else 1.0 for spec in specs])
        self._policy_name = policy_name or str(self.model.config._name_or_path)
        self.step_pattern = StepPattern(args.step_pattern, args.step_pattern_kind, args.leave_out_thinking)
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
        self._resampling = Resampling(self, args.resample_flat) if args.resample_flat else None
        if environment is not None:
            check_playable(self, environment)
            self.rollout_func = play

    def _settle_outcomes(self, weights: list[float]) -> None:
        """Names and weights of the outcome rewards, an environment's included."""
        stated = (self.args.reward_weights or weights)[: len(weights)]
        self.reward_weights[: len(stated)] = torch.tensor(stated)
        self._outcome_weights = [*stated, *self.reward_weights[len(stated) :].tolist()]
        self.reward_func_names = distinct_names(
            self.reward_func_names, taken=[reward.name for reward in self.step_rewards]
        )
        self._settle_credit()

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
            self._truncated = count_stopped_as_ended(self, self._rows(generated[1]))
        return generated

    def _rows(self, completion_ids: Sequence[Sequence[int]]) -> list[Sampled]:
        """A generation's completions with how they ended, whoever sampled them."""
        if self.sampled is not None:
            return self.sampled
        rows = [ended(ids, self.eos_token_ids, self.sample.stops) for ids in completion_ids]
        for row, mask in zip(rows, self._masks or (), strict=False):
            row.mask = list(mask)
        return rows

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        if self.drawn is not None:
            self.sampled, self.times.sampling = self.drawn.rows, self.drawn.seconds
            return [row.token_ids for row in self.sampled], [row.raw_logprobs for row in self.sampled]
        with self.times.of_sampling():
            return self._sample_turn(prompt_ids, images, multimodal_fields, num_generations, has_tool_images)

    def _sample_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool
    ) -> Any:
        if self.use_vllm or self.use_transformers_continuous_batching or images or self.tools or self.is_fsdp_enabled:
            self.sampled = None
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        self.sampled = rows = self.sample(prompt_ids, self.generation_seed())
        # Raw, as the loss has them: TRL's off-policy mask compares the two.
        return [row.token_ids for row in rows], [row.raw_logprobs for row in rows]

    def generation_seed(self) -> int:
        """A seed of this generation alone, the same on all ranks and after a resume."""
        mode = "train" if self.model.training else "eval"
        step, count = self._generations.get(mode, (-1, 0))
        count = count + 1 if step == self.state.global_step else 0
        self._generations[mode] = (self.state.global_step, count)
        return ((self.args.seed * 1_000_000 + self.state.global_step) * 64 + count) * 2 + (mode == "eval")

    # -- scoring and credit ------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        if self.drawn is not None:
            self._share = self.drawn.share
        else:
            # TRL's text lacks every special token; but for tools' turns, rewards see what they see in the preview.
            seen = completions if self.tools else None
            self._share = self.scored(inputs, prompts, self._rollouts(completion_ids_list), seen)
        tell_logs(self, self._share)
        outcomes = self._share.outcomes(self.reward_func_names, len(prompts)).to(self.accelerator.device)  # (B, F)
        if not self.reward_func_names:
            return outcomes.new_empty(len(prompts) * self.accelerator.num_processes, 0)
        return gather(outcomes)  # (B_all, F), for TRL's logs alone

    def _follow_schedules(self) -> None:
        """Outcome rewards whose weight depends on the step count so in TRL's logs, too."""
        for place, function in enumerate(self.reward_funcs):
            reward = self._rewards.get(id(function))
            if reward is not None and reward.schedule:
                self.reward_weights[place] = reward.at(self.state.global_step).weight

    def scored(self, inputs: Any, prompts: Any, rollouts: Sequence[Rollout], completions: Any = None) -> Share:
        """This rank's completions of ``inputs``, scored by all reward functions."""
        if self.sample.failure is not None:  # told to all ranks, which wait for each other where groups are gathered
            return Share(failure=self.sample.failure)
        outcomes = outcome_rewards(self, self._rewards, self._outcome_weights, inputs)
        rewards = [reward.at(self.state.global_step) for reward in (*self.step_rewards, *outcomes)]
        share = score_share(
            prompts,
            rollouts,
            inputs,
            self.step_pattern,
            rewards,
            completions=completions,
            opened=self.sample.all_thinking_open(prompts),
            worker=self._reward_worker,
            budget=self._error_budget,
            trainer_state=self.state,
        )
        self.times.rewards.update({reward.name: reward.seconds for reward in share.rewards})
        return share

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if self._resampling is not None and self.model.training:
            self.drawn = self._resampling.draw(inputs, self.generation_seed())
            inputs = self.drawn.inputs
        self.inputs = inputs
        self._follow_schedules()
        with truncated_by_length(self) if self.sample.ends_within else nullcontext():
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._share is not None
        if self.sample.ends_within and self.mask_truncated_completions:
            mask_truncated(self, output, self._truncated)
        reference = output.get("ref_per_token_logps")
        share = self._share.with_reference(reference, finished_only=self.mask_truncated_completions)
        share = share.with_sampler(output.get("sampling_per_token_logps"), output.get("old_per_token_logps"))
        credits = self._credit(share, output)
        output["advantages"] = advantages_of_rank(self, credits, output["completion_ids"])
        if self.args.drop_duplicates:
            leave_copies_out(self, credits, output)
        mode = "train" if self.model.training else "eval"
        metrics = group_metrics(credits, self._is_right, self.step_pattern)
        metrics |= self.times.metrics()
        if self.drawn is not None:
            metrics |= self.drawn.metrics
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)
        # TRL has looked for spread in outcome rewards, whatever the scheme compares.
        self._metrics[mode]["frac_reward_zero_std"][-1] = metrics["zero_spread_share"]
        leave_unscored_out(credits, self._metrics[mode])
        self.times.name_slow_rewards()
        # TRL has just filled this column with its own (B,) advantages; put each row's mean of ours in their place.
        means = [float(credit.of(i).mean()) for credit in credits for i in range(len(credit.scored.group))]
        logged = self._logs["advantages"]
        for _ in range(min(len(means), len(logged))):
            logged.pop()
        logged.extend(means)
        batch = len(output["completion_ids"])
        output[ROW] = torch.arange(batch, device=self.accelerator.device) + self.accelerator.process_index * batch
        if mode == "train" and self._passes is not None:
            self._passes.begin_generation()
        if mode == "train" and self._on_rollouts is not None:
            self._on_rollouts(self.state.global_step + 1, credits)
        self._share = self.drawn = None
        return output

    def _credit(self, share: Share, output: dict[str, Any]) -> list[Credit]:
        """Gather all ranks' shares and credit every whole group. The same list on every rank.

        ``output`` is what the loss will get of this rank's completions.
        """
        shares = self.gathered(share)
        if self._error_budget is not None:
            new = sum(share.reward_errors for share in shares)
            self._reward_errors += new
            self._error_budget.check(self._reward_errors)
            self._metrics["train" if self.model.training else "eval"]["reward_errors"].append(float(new))
        return self.credited(shares)

    def gathered(self, share: Share) -> list[Share]:
        """All ranks' shares. Raises the first failure, on every rank the same."""
        shares: list[Share] = gather_object([share])
        if failures := [share.failure for share in shares if share.failure is not None]:
            raise failures[0]
        return shares

    def credited(self, shares: Sequence[Share]) -> list[Credit]:
        """The credit of every whole group of all ranks' shares."""
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
        """The credit of all ranks' groups of one generation."""
        drop, each = self.args.drop_duplicates, self.args.each_reward or self.args.sums_normalised
        keywords = self.args.credit_keywords()
        return credit_groups(groups, self.credit_scheme, drop_duplicates=drop, each_reward=each, **keywords)

    def credit_watched(self, groups: Sequence[ScoredGroup]) -> list[Credit]:
        """Credit groups that were sampled beside training, as if they were a batch of it; called by one rank alone."""
        return self._credit_groups(groups)

    def _rollouts(self, completion_ids: Sequence[Sequence[int]]) -> list[Rollout]:
        return [to_rollout(self._tokenizer, row) for row in self._rows(completion_ids)]

    # -- what is logged beside TRL's loss ----------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._policy_logps, self._entropies, self._router_loss = result[0].detach(), result[1], result[2]
        return result

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        trained = trained_rows(self, inputs) if self.model.training else None
        coef = entropy_coef(self)  # TRL may change it at the end of the step
        with self.keeping_masks():
            loss = super()._compute_loss(model, inputs if trained is None else trained.inputs)
        if trained is not None:
            loss = loss * trained.factor
            assert self._entropies is not None
            restore_metrics(self, trained, self._entropies.detach(), self._metrics["train"])
        if self._passes is not None and self.model.training and self._policy_logps is not None:
            router = self.router_aux_loss_coef * self._router_loss if self.aux_loss_enabled else None
            beside = BesidePolicy(coef, self._entropies, router)
            self._passes.add(inputs, inputs if trained is None else trained.inputs, self._policy_logps, loss, beside)
        if trained is not None:
            return loss
        reference = inputs.get("ref_per_token_logps")
        if reference is not None and self._policy_logps is not None:
            mode = "train" if self.model.training else "eval"
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)  # what tools wrote is not the policy's
            for name, value in kl_estimators(reference, self._policy_logps, mask).items():
                summed = self.accelerator.reduce(value, reduction="sum")  # (2,): sum over tokens, tokens
                self._metrics[mode][name].append((summed[0] / summed[1].clamp(min=1.0)).item())
        return loss
