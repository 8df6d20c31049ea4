"""GRPO with step rewards and token advantages: its section, its trainer and what its page shows.

The one place that knows both vocabularies: the workbench's configuration and the arguments of TRL's ``GRPOTrainer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.architecture import check_language_model
from workbench.credit import LossType
from workbench.errors import ConfigError
from workbench.schema import OnCredit
from workbench.sections import CreditConfig, MethodSection, Pattern, RewardConfig, SamplingConfig, SharedConfig
from workbench.steps import StepPattern
from workbench.training.methods.method import NOBODY, Listeners, Method

if TYPE_CHECKING:
    import pyarrow as pa

    from workbench.rewards import ErrorBudget
    from workbench.tasks import Task
    from workbench.training.config import ProcessGRPOConfig
    from workbench.training.trainer import ProcessGRPOTrainer


class GRPOSection(MethodSection):
    """Process-supervised GRPO: groups of sampled answers, every step scored, every token with its own advantage."""

    name: Literal["grpo"] = "grpo"
    """The training method."""
    pattern: Pattern = Field(default_factory=StepPattern)
    rewards: list[RewardConfig] = Field(
        default_factory=lambda: [
            RewardConfig(name="step_correctness", kind="step"),
            RewardConfig(name="answer_correctness", kind="outcome"),
        ]
    )
    """The reward functions."""
    credit: CreditConfig = Field(default_factory=CreditConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    prompts_per_step: int = Field(default=6, ge=1, le=4096)
    """Distinct prompts in one generation; the batch is this times G."""
    loss_type: LossType = "dapo"
    """How token losses are averaged (TRL's names)."""
    beta: float = Field(default=0.0, ge=0, le=1000)
    """Weight of the KL to the reference policy in the loss; 0 needs no reference."""
    epsilon: float = Field(default=0.2, ge=0, lt=1)
    """Lower (and, unless set apart, upper) clip range of the ratio."""
    epsilon_high: float | None = Field(default=None, ge=0, le=1_000_000)
    """Upper clip range of the ratio."""
    num_iterations: int = Field(default=1, ge=1, le=64)
    """mu, the optimiser passes over one generation."""
    mask_truncated_completions: bool = False
    """Leave truncated completions out of the loss."""
    sync_ref_model: bool = False
    """Move the reference policy towards the policy as training goes."""
    ref_model_mixup_alpha: float = Field(default=0.6, ge=0, le=1)
    """alpha in pi_ref <- alpha pi + (1 - alpha) pi_ref."""
    ref_model_sync_steps: int = Field(default=512, ge=1, le=1_000_000)
    """Steps between two such moves."""
    rollouts_every: int = Field(default=1, ge=1, le=1_000_000)
    """Store the rollouts of every n-th generation."""
    reward_deadline: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds one reward function's code may take for a rank's whole batch."""
    on_reward_error: Literal["stop", "unscored"] = "stop"
    """When a reward function fails: stop the run, or leave what it failed on unscored."""
    max_reward_errors: int = Field(default=20, ge=0, le=1_000_000)
    """Such failures a run survives, over all ranks, if on_reward_error is unscored."""

    @property
    def label(self) -> str:
        return self.credit.scheme

    @property
    def reward_functions(self) -> Sequence[RewardConfig]:
        return self.rewards

    @property
    def iterations(self) -> int:
        return self.num_iterations

    @property
    def rollouts_per_step(self) -> int:
        return self.prompts_per_step * self.sampling.num_generations

    @property
    def has_reference(self) -> bool:
        return self.beta > 0

    def check(self, config: SharedConfig) -> None:
        if config.task.data is not None:
            raise ValueError(
                "task.data: grpo trains on prompts, which task.name gives; leave it out, or choose sft or dpo"
            )
        self._check_rewards(config.run.ranks)
        self._check_batch(config)
        if self.sync_ref_model and self.beta == 0:
            raise ValueError("method.sync_ref_model: there is no reference policy to move while beta is 0; set beta")
        if self.sync_ref_model and config.policy.lora is not None:
            raise ValueError("method.sync_ref_model: an adapter's reference is the policy without it; turn one off")
        if self.loss_type == "cispo" and (self.epsilon_high is None or self.epsilon_high < 1):
            raise ValueError(
                f"method.epsilon_high: {self.epsilon_high} would cap cispo's ratio below 1 and scale every "
                "gradient down; cispo's cap is the ratio itself, set it to 5"
            )

    def check_files(self, config: SharedConfig) -> None:
        from workbench.rewards.models.formats import check_scores_text
        from workbench.tasks import HUB, load_task

        check_language_model(config.policy.path)
        if not config.task.name.startswith(HUB):  # whose rows may be many: they are read when the run loads them
            self.rows_of(config, load_task(config.task.name))
        for reward in self.rewards:
            if reward.model is not None:
                check_scores_text(reward.model)

    def _check_rewards(self, ranks: int) -> None:
        if not self.rewards:
            raise ValueError("method.rewards: give at least one reward function")
        names = [reward.name for reward in self.rewards]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"method.rewards: {sorted(twice)[0]!r} is given twice; give each function its own name")
        kinds = {reward.kind for reward in self.rewards}
        scheme, outcome_only = self.credit.scheme, self.credit.of_scheme.outcome_only
        if outcome_only and "outcome" not in kinds:
            raise ValueError(
                f"method.credit.scheme: {scheme!r} needs an outcome reward and every one given scores steps; add one "
                "(answer_correctness, say), or choose a scheme that credits steps"
            )
        if not outcome_only and "step" not in kinds and not self.credit.outcome_weight:
            raise ValueError(
                f"method.credit.scheme: {scheme!r} needs a step reward and every one given scores whole "
                "completions, so nothing would be learnt; add a step reward, or choose the scheme 'outcome'"
            )
        if self.credit.outcome_weight and "outcome" not in kinds:
            raise ValueError(
                f"method.credit.outcome_weight: {self.credit.outcome_weight} weighs an outcome reward and there is "
                "none; add one, or set it to 0"
            )
        grouped = [
            reward.name for reward in self.rewards if reward.monte_carlo is not None and reward.monte_carlo.progress
        ]
        if grouped and self.prompts_per_step % ranks:
            raise ValueError(
                f"method.prompts_per_step: {self.prompts_per_step} prompts on {ranks} ranks split a "
                f"group, and {grouped[0]!r} needs its whole group on one; make it a multiple of {ranks}"
            )

    def _check_batch(self, config: SharedConfig) -> None:
        batch, ranks, micro = self.rollouts_per_step, config.run.ranks, config.run.micro_batch_size
        if batch % ranks:
            raise ValueError(
                f"run.ranks: a batch of {batch} completions ({self.prompts_per_step} prompts x "
                f"{self.sampling.num_generations}) does not divide over {ranks} ranks; make method.prompts_per_step a "
                "multiple of it"
            )
        if micro is not None and (batch // ranks) % micro:
            raise ValueError(
                f"run.micro_batch_size: {micro} does not divide the {batch // ranks} completions of a "
                f"rank's batch; try {_nearest_divisor(batch // ranks, micro)}"
            )

    def rows_wanted(self, config: SharedConfig) -> int:
        """As many rows as a run will ask for, and at least a thousand."""
        return max(config.run.steps * self.prompts_per_step, 1000)

    def rows_of(self, config: SharedConfig, task: Task) -> pa.Table:
        """The prompts and columns of ``rows_wanted``, of all rows where there are fewer.

        Raises ConfigError for a task with fewer rows than one generation takes, or whose columns make no table.
        """
        import pyarrow as pa

        from workbench.rewards.protocol import RESERVED

        if len(task) < self.prompts_per_step:
            raise ConfigError(
                f"method.prompts_per_step: {self.prompts_per_step} distinct prompts are asked for and the "
                f"task has {len(task)} training rows; set it to {len(task)} or less, or give more rows"
            )
        rows = [task[i] for i in range(min(len(task), self.rows_wanted(config)))]
        # TRL hands columns to reward functions by name, those of the first row, beside what it gives them itself;
        # images it takes for a prompt's pictures.
        taken = RESERVED | {"image", "images"}
        names = dict.fromkeys(name for row in rows for name in row.columns if name not in taken)
        try:
            return pa.Table.from_pylist(
                [{"prompt": row.prompt, **{name: row.columns.get(name) for name in names}} for row in rows]
            )
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigError(
                f"task {config.task.name!r}: a column holds values of several kinds "
                f"({str(error).splitlines()[0][:200]}); make them all text, say"
            ) from error

    def facts(self) -> list[tuple[str, str]]:
        rewards = (f"{r.name}{f' × {r.weight:g}' if r.weight != 1 else ''}" for r in self.rewards)
        return [
            ("pattern", f"{self.pattern.regex}  ({self.pattern.kind})"),
            ("rewards", ", ".join(rewards)),
            ("credit", self.credit.scheme),
            ("batch", f"{self.prompts_per_step} prompts × {self.sampling.num_generations}"),
            ("loss", f"β {self.beta:g}, {self.loss_type}"),
        ]

    def less_memory(self, config: SharedConfig) -> str:
        batch = self.rollouts_per_step // config.run.ranks
        return (
            f"try smaller G (method.sampling.num_generations, now {self.sampling.num_generations}), shorter "
            f"completions (method.sampling.max_completion_length, now {self.sampling.max_completion_length}), fewer "
            f"prompts per step (method.prompts_per_step, now {self.prompts_per_step}) or a smaller "
            f"run.micro_batch_size (now {config.run.micro_batch_size or batch})"
        )


def _nearest_divisor(batch: int, target: int) -> int:
    return min((n for n in range(1, batch + 1) if batch % n == 0), key=lambda n: abs(n - target))


def section_of(config: SharedConfig) -> GRPOSection:
    """The settings of a run by GRPO. Raises ConfigError for a run by another method, which has no rollouts."""
    if not isinstance(config.method, GRPOSection):
        raise ConfigError(f"method: this needs a run by grpo, and the method is {config.method.name!r}")
    return config.method


# -- the trainer ------------------------------------------------------------------------------------------------------


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> ProcessGRPOTrainer:
    """Load task, policy and rewards, and put them into a trainer.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    from datasets import Dataset

    from workbench.policies.monte_carlo import monte_carlo_reward
    from workbench.rewards import RewardWorker, load_reward
    from workbench.rewards.models.local import LocalModels
    from workbench.tasks import load_task
    from workbench.training.accuracy import HeldOut, HeldOutAccuracy
    from workbench.training.common import load_trained_policy, lora_config
    from workbench.training.prompts import within_context
    from workbench.training.trainer import ProcessGRPOTrainer
    from workbench.training.watching import WatchedPrompts

    method = section_of(config)
    policy = load_trained_policy(config)
    task = load_task(config.task.name)
    task = within_context(task, policy, config, method.sampling, method.rows_wanted(config))
    worker = RewardWorker(method.reward_deadline)
    models = LocalModels(config.run.device, kept=sum(reward.model is not None for reward in method.rewards))
    rewards = [
        load_reward(reward, worker, models=models, pattern=method.pattern)
        if reward.monte_carlo is None
        else monte_carlo_reward(reward, policy, method.sampling, config.seed)
        for reward in method.rewards
    ]
    budget = error_budget(method)
    trainer = ProcessGRPOTrainer(
        model=policy.model,
        reward_funcs=[reward for reward in rewards if reward.kind == "outcome"],
        args=trainer_arguments(config, output_dir),
        step_rewards=[reward for reward in rewards if reward.kind == "step"],
        policy_name=config.policy.path,
        train_dataset=Dataset(method.rows_of(config, task)),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.policy),
        is_right=task.answer_is_right if task.can_check else None,
        on_rollouts=_every(method, listeners.on_rollouts),
        reward_worker=worker,
        error_budget=budget,
        callbacks=list(listeners.callbacks),
    )
    if config.run.eval_every and task.can_check:
        HeldOut.add_to(trainer, config.run, [HeldOutAccuracy(trainer, trainer.sample, task, config.run)])
    if config.run.watch_prompts and (on_watched := listeners.on_watched) is not None:
        trainer.add_callback(WatchedPrompts(trainer, task, config, method.sampling, rewards, worker, on_watched))
    return trainer


def _every(method: GRPOSection, on_rollouts: OnCredit | None) -> OnCredit | None:
    """The credits of every ``rollouts_every``-th generation."""
    if on_rollouts is None or method.rollouts_every == 1:
        return on_rollouts

    def filtered(step: int, credits: Any) -> None:
        if (step - 1) // method.num_iterations % method.rollouts_every == 0:
            on_rollouts(step, credits)

    return filtered


def error_budget(method: GRPOSection) -> ErrorBudget | None:
    """None where the first error of a reward function stops the run; each error let pass is a line in the log."""
    from workbench.rewards import ErrorBudget

    if method.on_reward_error == "stop":
        return None
    return ErrorBudget(method.max_reward_errors, lambda error: print(f"unscored: {error}", flush=True))


def trainer_arguments(config: SharedConfig, output_dir: Path) -> ProcessGRPOConfig:
    """TRL's arguments, with the fields that process supervision adds."""
    from workbench.training.common import shared_arguments
    from workbench.training.config import ProcessGRPOConfig

    method = section_of(config)
    sampling, credit = method.sampling, method.credit
    return ProcessGRPOConfig(
        **shared_arguments(config, output_dir, method.rollouts_per_step // config.run.ranks),
        activation_checkpointing=config.optimiser.gradient_checkpointing,
        num_iterations=method.num_iterations,
        num_generations=sampling.num_generations,
        remove_unused_columns=False,
        trust_remote_code=config.policy.trust_remote_code,  # for the reference, which TRL loads itself
        # Sampling
        max_completion_length=sampling.max_completion_length,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        # Credit
        step_pattern=method.pattern.regex,
        step_pattern_kind=method.pattern.kind,
        credit_scheme=credit.scheme,
        outcome_weight=credit.outcome_weight,
        credit_clip=credit.clip,
        credit_options=credit.keywords(but=("scheme", "outcome_weight", "clip")),
        # The loss
        loss_type=method.loss_type,
        beta=method.beta,
        use_bias_correction_kl=False,  # k3 itself, as GRPO has it (arXiv 2402.03300, eq. 4), not rho times k3
        epsilon=method.epsilon,
        epsilon_high=method.epsilon_high,
        mask_truncated_completions=method.mask_truncated_completions,
        sync_ref_model=method.sync_ref_model,
        ref_model_mixup_alpha=method.ref_model_mixup_alpha,
        ref_model_sync_steps=method.ref_model_sync_steps,
    )


METHOD = Method(
    GRPOSection,
    build,
    metrics=(
        "accuracy",
        "accuracy/train",
        "step_reward",
        "reward",
        "rewards/<name>/mean",
        "loss",
        "kl/k1",
        "kl/k2",
        "kl/k3",
        "entropy",
        "completions/mean_length",
        "completions/max_length",
        "steps_per_answer",
        "zero_spread_share",
        "unscored_share",
        "no_match_share",
    ),
    has_rollouts=True,
)
