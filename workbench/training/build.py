"""From a ``RunConfig`` to a ready ``ProcessGRPOTrainer``.

The one place that knows both vocabularies: the workbench's configuration and the arguments of TRL and transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from datasets import Dataset

from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.policies.load import load_policy, pick_device
from workbench.policies.monte_carlo import monte_carlo_reward
from workbench.rewards import ErrorBudget, RewardWorker, load_reward
from workbench.rewards.models import LocalModels
from workbench.rewards.protocol import RESERVED
from workbench.tasks import Task, load_task
from workbench.training.accuracy import HeldOutAccuracy
from workbench.training.config import ProcessGRPOConfig
from workbench.training.trainer import OnRollouts, ProcessGRPOTrainer
from workbench.training.watching import OnWatched, WatchedPrompts


def build_trainer(
    config: RunConfig,
    output_dir: Path,
    *,
    on_rollouts: OnRollouts | None = None,
    on_watched: OnWatched | None = None,
    callbacks: list[Any] | None = None,
) -> ProcessGRPOTrainer:
    """Load task, policy and rewards, and put them into a trainer.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    task = load_task(config.task)
    policy = load_policy(
        config.policy,
        config.adapter,
        device="cpu",
        dtype="float32",
        trust_remote_code=config.trust_remote_code,
        trainable=True,
    )
    if config.training.lora is not None and hasattr(policy.model, "peft_config"):
        raise ConfigError(
            f"training.lora: the policy {config.policy!r} is an adapter already, which is trained on; leave "
            "training.lora out, or name the adapter's base as the policy"
        )
    worker = RewardWorker(config.training.reward_deadline)
    models = LocalModels(config.training.device, kept=sum(one.model is not None for one in config.rewards))
    rewards = [
        load_reward(reward, worker, models=models, pattern=config.pattern)
        if reward.monte_carlo is None
        else monte_carlo_reward(reward, policy, config.sampling, config.seed)
        for reward in config.rewards
    ]
    steps = [reward for reward in rewards if reward.kind == "step"]
    outcomes = [reward for reward in rewards if reward.kind == "outcome"]
    budget = error_budget(config)
    trainer = ProcessGRPOTrainer(
        model=policy.model,
        reward_funcs=[budget.outcome_function(one) if budget else one.outcome_function for one in outcomes],
        args=trainer_arguments(config, output_dir, [reward.weight for reward in outcomes]),
        step_rewards=steps,
        policy_name=config.policy,
        train_dataset=training_rows(task, config),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config),
        is_right=task.answer_is_right if task.can_check else None,
        on_rollouts=on_rollouts,
        reward_worker=worker,
        error_budget=budget,
        callbacks=list(callbacks or ()),
    )
    if config.training.eval_every and task.can_check:
        # First in line, so that the step's row is complete when it is recorded.
        trainer.callback_handler.callbacks.insert(0, HeldOutAccuracy(trainer, task, config.training))
    if config.training.watch_prompts and on_watched is not None:
        trainer.add_callback(WatchedPrompts(trainer, task, config, rewards, worker, on_watched))
    return trainer


def error_budget(config: RunConfig) -> ErrorBudget | None:
    """None where the first error of a reward function stops the run; each error let pass is a line in the log."""
    if config.training.on_reward_error == "stop":
        return None
    return ErrorBudget(config.training.max_reward_errors, lambda error: print(f"unscored: {error}", flush=True))


def trainer_arguments(config: RunConfig, output_dir: Path, outcome_weights: list[float]) -> ProcessGRPOConfig:
    training, sampling = config.training, config.sampling
    rank_batch = training.prompts_per_step * sampling.num_generations // training.ranks
    micro_batch = training.micro_batch_size or rank_batch
    device = pick_device(training.device)
    bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported() and config.policy != "tiny"
    return ProcessGRPOConfig(
        output_dir=str(output_dir),
        seed=config.seed,
        use_cpu=device.type == "cpu",
        bf16=bf16,
        # The batch
        max_steps=training.steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rank_batch // micro_batch,
        num_iterations=training.num_iterations,
        num_generations=sampling.num_generations,
        # Sampling
        max_completion_length=sampling.max_completion_length,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        # Credit
        step_pattern=config.pattern.regex,
        step_pattern_kind=config.pattern.kind,
        credit_scheme=config.credit.scheme,
        outcome_weight=config.credit.outcome_weight,
        credit_clip=config.credit.clip,
        credit_options=config.credit.keywords(but=("scheme", "outcome_weight", "clip")),
        reward_weights=outcome_weights or None,
        # The loss
        loss_type=training.loss_type,
        beta=training.beta,
        use_bias_correction_kl=False,  # k3 itself, as GRPO has it (arXiv 2402.03300, eq. 4), not rho times k3
        epsilon=training.epsilon,
        epsilon_high=training.epsilon_high,
        mask_truncated_completions=training.mask_truncated_completions,
        sync_ref_model=training.sync_ref_model,
        ref_model_mixup_alpha=training.ref_model_mixup_alpha,
        ref_model_sync_steps=training.ref_model_sync_steps,
        # The optimiser
        learning_rate=training.learning_rate,
        lr_scheduler_type=training.lr_scheduler,
        warmup_steps=training.warmup_steps,
        adam_beta1=training.adam_beta1,
        adam_beta2=training.adam_beta2,
        adam_epsilon=training.adam_epsilon,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        activation_checkpointing=training.gradient_checkpointing,
        # What is kept
        logging_steps=1,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps" if training.save_every else "no",
        save_steps=training.save_every or 1,
        save_total_limit=training.keep_checkpoints,
        report_to=list(training.report_to) or "none",
        disable_tqdm=True,
        dataloader_pin_memory=device.type == "cuda",
        remove_unused_columns=False,
        trust_remote_code=config.trust_remote_code,  # for the reference, which TRL loads itself
    )


_TAKEN = RESERVED | {"image", "images"}
"""Columns that no reward function of a run receives: what it is given anyway, and what TRL takes for pictures."""


def training_rows(task: Task, config: RunConfig) -> Dataset:
    """As many of the task's rows as the run will ask for, at least a thousand where there are that many.

    Raises ConfigError for a task with fewer rows than one generation takes.
    """
    if len(task) < config.training.prompts_per_step:
        raise ConfigError(
            f"training.prompts_per_step: {config.training.prompts_per_step} distinct prompts are asked for and the "
            f"task has {len(task)} training rows; set it to {len(task)} or less, or give more rows"
        )
    wanted = config.training.steps * config.training.prompts_per_step
    rows = [task[i] for i in range(min(len(task), max(wanted, 1000)))]
    # TRL hands columns to reward functions by name, those of the first row, beside what it gives them itself.
    names = dict.fromkeys(name for row in rows for name in row.columns if name not in _TAKEN)
    try:
        return Dataset.from_list(
            [{"prompt": row.prompt, **{name: row.columns.get(name) for name in names}} for row in rows]
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(
            f"task {config.task!r}: a column holds values of several kinds ({str(error).splitlines()[0][:200]}); make "
            "them all text, say"
        ) from error


def lora_config(config: RunConfig) -> Any:
    if config.training.lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.training.lora.r,
        lora_alpha=config.training.lora.alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
