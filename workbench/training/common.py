"""What every method's trainer is built with: the policy to train, its adapter, and transformers' arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError
from workbench.policies.load import Policy, load_policy, pick_device
from workbench.schema import Prompt
from workbench.sections import PolicySection, SharedConfig


def load_trained_policy(config: SharedConfig) -> Policy:
    """The policy with float32 weights on the CPU, from where the trainer places it."""
    section = config.policy
    policy = load_policy(
        section.path,
        section.adapter,
        device="cpu",
        dtype="float32",
        trust_remote_code=section.trust_remote_code,
        trainable=True,
    )
    if section.lora is not None and hasattr(policy.model, "peft_config"):
        raise ConfigError(
            f"policy.lora: the policy {section.path!r} is an adapter already, which is trained on; leave "
            "policy.lora out, or name the adapter's base as the policy"
        )
    return policy


@contextmanager
def evaluating(trainer: Any) -> Iterator[None]:
    """The trainer's model without dropout and gradients, in its precision: no random number is drawn by measuring."""
    was_training = trainer.model_wrapped.training
    trainer.model_wrapped.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager():
            yield
    finally:
        trainer.model_wrapped.train(was_training)


def as_messages(role: str, text: Prompt) -> Prompt:
    """A text as a conversation of one message; a conversation as it is."""
    return [{"role": role, "content": text}] if isinstance(text, str) else text


def lora_config(policy: PolicySection, task_type: str = "CAUSAL_LM") -> Any:
    """peft's configuration of the adapter to train, and a classifier's head (SEQ_CLS); None for all weights."""
    if policy.lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(r=policy.lora.r, lora_alpha=policy.lora.alpha, target_modules="all-linear", task_type=task_type)


def with_lora(model: Any, policy: PolicySection) -> Any:
    """The model with the adapter to train, where one is asked for; what is not the body, a head, is trained whole."""
    if policy.lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    heads = [] if model.get_output_embeddings() is not None else _heads(model)
    inside = [name for head in heads for name, _ in model.named_modules() if name.split(".")[0] == head]
    return get_peft_model(
        model,
        LoraConfig(
            r=policy.lora.r,
            lora_alpha=policy.lora.alpha,
            target_modules="all-linear",
            exclude_modules=inside or None,
            modules_to_save=heads or None,
        ),
    )


def _heads(model: Any) -> list[str]:
    """A classifier's modules beside its body that have weights."""
    return [
        name
        for name, child in model.named_children()
        if name != model.base_model_prefix and any(True for _ in child.parameters())
    ]


def shared_arguments(config: SharedConfig, output_dir: Path, rank_batch: int) -> dict[str, Any]:
    """Arguments of transformers' ``TrainingArguments`` that any method takes; a step has ``rank_batch`` rows a rank."""
    optimiser, run = config.optimiser, config.run
    device = pick_device(run.device)
    micro_batch = run.micro_batch_size or rank_batch
    return {
        "output_dir": str(output_dir),
        "seed": config.seed,
        "use_cpu": device.type == "cpu",
        "bf16": device.type == "cuda" and torch.cuda.is_bf16_supported() and config.policy.path != "tiny",
        "max_steps": run.steps,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": rank_batch // micro_batch,
        # The optimiser
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.lr_scheduler,
        "warmup_steps": optimiser.warmup_steps,
        "adam_beta1": optimiser.adam_beta1,
        "adam_beta2": optimiser.adam_beta2,
        "adam_epsilon": optimiser.adam_epsilon,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        # What is logged and saved
        "logging_steps": 1,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps" if run.save_every else "no",
        "save_steps": run.save_every or 1,
        "save_total_limit": run.keep_checkpoints,
        "report_to": list(run.report_to) or "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": device.type == "cuda",
    }
