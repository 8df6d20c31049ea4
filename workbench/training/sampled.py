"""What trainers that sample completions are built with: policy, task, rewards, TRL's arguments, and what is watched.

Shared by the methods whose section is a ``SampledSection``. What a completion's scores are worth to the loss is the
trainer's to know.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from datasets import Dataset

from workbench.config import SharedConfig
from workbench.data import Task, load_task
from workbench.data.tasks import prompted
from workbench.environments import load_environment
from workbench.policies.episodes import Observations
from workbench.policies.load import Policy
from workbench.policies.monte_carlo import monte_carlo_reward
from workbench.policies.prompts import plain_prompt_note, turn_end_note
from workbench.rewards import ErrorBudget, Reward, RewardWorker, load_reward
from workbench.rewards.models.local import LocalModels
from workbench.rewards.protocol import columns_left_out
from workbench.schema import LossPass, OnCredit, OnPass
from workbench.training.accuracy import HeldOut, HeldOutAccuracy
from workbench.training.common import load_trained_policy, lora_config, shared_arguments
from workbench.training.config import ProcessGRPOConfig
from workbench.training.methods.method import Listeners
from workbench.training.methods.sampled import SampledSection, section_of
from workbench.training.prompts import within_context
from workbench.training.trainer import ProcessGRPOTrainer
from workbench.training.watching import WatchedPrompts

AnyTrainer = TypeVar("AnyTrainer", bound=ProcessGRPOTrainer)


def arguments(config: SharedConfig, output_dir: Path) -> dict[str, Any]:
    """The fields of ``ProcessGRPOConfig`` that say how a run samples, cuts steps and goes through a generation."""
    method = section_of(config)
    sampling = method.sampling
    return {
        **shared_arguments(config, output_dir, method.rollouts_per_step // config.run.ranks),
        "activation_checkpointing": config.optimiser.gradient_checkpointing,
        "num_iterations": method.num_iterations,
        "num_generations": sampling.num_generations,
        "remove_unused_columns": False,
        "trust_remote_code": config.policy.trust_remote_code,  # for the reference, which TRL loads itself
        "max_completion_length": sampling.max_completion_length,
        "mask_truncated_completions": method.mask_truncated_completions,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "step_pattern": method.pattern.regex,
        "step_pattern_kind": method.pattern.kind,
        "leave_out_thinking": method.pattern.leave_out_thinking,
        "stop": list(sampling.stop),
        "chat_template_kwargs": dict(config.prompt.template_kwargs) or None,
    }


def build_trainer(
    trainer_class: type[AnyTrainer], config: SharedConfig, args: ProcessGRPOConfig, listeners: Listeners, **own: Any
) -> AnyTrainer:
    """Load task, policy and rewards, and put them into a trainer; ``own`` are the class's further arguments.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    method = section_of(config)
    policy = load_trained_policy(config)
    task = prompted(load_task(config.task), config.prompt)
    wanted = method.rows_wanted(config)
    task = replace(task, examples=task.some("prompts", wanted, config.seed))
    task = within_context(task, policy, config, method.sampling, wanted)
    _name_columns_left_out(task)
    if note := plain_prompt_note(policy.tokenizer.chat_template, config.prompt, task[0].prompt):
        _say(f"note: {note}")
    worker = RewardWorker(method.reward_deadline)
    rewards = _rewards(config, policy, worker)
    environment = load_environment(config.environment, lambda: worker)
    if environment is not None:  # before anything is sampled
        Observations(policy.tokenizer, config.environment, config.prompt.template_kwargs).check(task[0].prompt)
    trainer = trainer_class(
        model=policy.model,
        reward_funcs=[reward for reward in rewards if reward.kind == "outcome"],
        args=args,
        step_rewards=[reward for reward in rewards if reward.kind == "step"],
        policy_name=config.policy.path,
        train_dataset=Dataset(method.rows_of(config, task)),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.policy),
        is_right=task.answer_is_right if task.can_check else None,
        on_rollouts=_every(method, listeners.on_rollouts),
        on_pass=_every_pass(method, listeners.on_pass),
        reward_worker=worker,
        error_budget=error_budget(method),
        environment=environment,
        callbacks=list(listeners.callbacks),
        **own,
    )
    if note := turn_end_note(trainer.sample.record(task[0].prompt)):
        _say(f"note: {note}")
    trainer.under = policy.under
    if policy.merged and trainer.ref_model is not None:  # which TRL reads from the base's files
        as_begun(trainer.accelerator.unwrap_model(trainer.ref_model), policy.model)
    if not len(task.held_out):
        _say("note: the task has one row, which is trained on; nothing is held out, so accuracy is not measured")
    elif config.run.eval_every and task.can_check:
        measure = HeldOutAccuracy(
            trainer, trainer.sample, task, config.run, read=method.pattern, on_answers=listeners.on_answers
        )
        HeldOut.add_to(trainer, config.run, [measure])
    if config.run.watch_prompts and (on_watched := listeners.on_watched) is not None:
        trainer.add_callback(WatchedPrompts(trainer, task, config, method.sampling, rewards, worker, on_watched))
    return trainer


def as_begun(reference: torch.nn.Module, policy: torch.nn.Module) -> None:
    """Give the reference the weights of the policy as it is now."""
    with torch.no_grad():
        for name, weight in reference.named_parameters():
            weight.copy_(policy.get_parameter(name))


def _name_columns_left_out(task: Task) -> None:
    """Say in the run's log which columns no reward function gets."""
    if names := columns_left_out(task[0].columns):
        _say(f"task: {', '.join(map(repr, names))} would hide an argument of reward functions and is left out")


def _say(line: str) -> None:
    """Write a line of the run's log, once for all ranks."""
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)


def _rewards(config: SharedConfig, policy: Policy, worker: RewardWorker) -> list[Reward]:
    method = section_of(config)
    models = LocalModels(config.run.device, kept=sum(reward.model is not None for reward in method.rewards))
    return [
        load_reward(reward, worker, models=models, pattern=method.pattern)
        if reward.monte_carlo is None
        else monte_carlo_reward(
            reward,
            policy,
            method.sampling,
            config.seed,
            template_kwargs=config.prompt.template_kwargs,
            pattern=method.pattern,
        )
        for reward in method.rewards
    ]


def _every(method: SampledSection, on_rollouts: OnCredit | None) -> OnCredit | None:
    """The credits of every ``rollouts_every``-th generation."""
    if on_rollouts is None or method.rollouts_every == 1:
        return on_rollouts

    def filtered(step: int, credits: Any) -> None:
        if _is_stored(method, step):
            on_rollouts(step, credits)

    return filtered


def _every_pass(method: SampledSection, on_pass: OnPass | None) -> OnPass | None:
    """The passes over every ``rollouts_every``-th generation."""
    if on_pass is None or method.rollouts_every == 1:
        return on_pass

    def filtered(seen: LossPass) -> None:
        if _is_stored(method, seen.generation):
            on_pass(seen)

    return filtered


def _is_stored(method: SampledSection, step: int) -> bool:
    """Whether the generation whose first step this is is stored."""
    return (step - 1) // method.num_iterations % method.rollouts_every == 0


def error_budget(method: SampledSection) -> ErrorBudget | None:
    """None where the first error of a reward function stops the run; each error let pass is a line in the log."""
    if method.on_reward_error == "stop":
        return None
    return ErrorBudget(method.max_reward_errors, lambda error: print(f"unscored: {error}", flush=True))
