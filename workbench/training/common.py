"""What every method's trainer is built with: the policy to train, its adapter, and transformers' arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from workbench.assets import EMBEDDED
from workbench.config import PolicySection, SharedConfig
from workbench.errors import ConfigError
from workbench.policies.load import Policy, load_policy, pick_device, prepared
from workbench.policies.prompts import check_template_kwargs
from workbench.policies.stacked import local_adapter, read_lora
from workbench.schema import Prompt


def load_trained_policy(config: SharedConfig) -> Policy:
    """The policy on the CPU, from where the trainer places it; its weights are float32 unless the run says otherwise.

    What is quantised, or spread over several GPUs, lies where it is trained.
    """
    section = config.policy
    is_placed = section.quantisation != "none" or section.device_map != "none"
    policy = load_policy(
        section.path,
        section.adapter,
        merge=section.merge,
        device=_device_of_rank(config.run.device) if is_placed else "cpu",
        quantisation=section.quantisation,
        device_map=section.device_map,
        trainable=True,
        **trained_weights(section),
    )
    if section.lora is not None:
        prepared(policy.model)
    if section.lora is not None and hasattr(policy.model, "peft_config"):
        raise ConfigError(
            f"policy.lora: the policy {section.path!r} is an adapter already, which is trained on; leave "
            "policy.lora out, or name the adapter's base as the policy and it in policy.merge"
        )
    if section.merge and section.adapter is not None:
        read_lora(section.adapter, local_adapter(section.adapter))  # its checkpoints are a sum with the others
    return policy


def trained_weights(policy: PolicySection) -> dict[str, Any]:
    """How the weights to train are loaded: in float32 unless something else is said, or they are quantised."""
    in_full = policy.dtype == "auto" and policy.quantisation == "none"
    return {
        "dtype": "float32" if in_full else policy.dtype,
        "attention": policy.attention,
        "trust_remote_code": policy.trust_remote_code,
    }


def held_weights(config: SharedConfig) -> dict[str, Any]:
    """How a reward model to train is loaded: as ``trained_weights``, and where it lies if it is quantised."""
    bits = config.policy.quantisation
    placed = {} if bits == "none" else {"quantisation": bits, "device": _device_of_rank(config.run.device)}
    return trained_weights(config.policy) | placed


def in_full(config: SharedConfig, load: Callable[..., tuple[Any, Any]]) -> Callable[[], Any] | None:
    """How a reward model that is quantised is loaded in full, for its adapter to be put into it; None for another."""
    if config.policy.quantisation == "none":
        return None
    return lambda: load(**trained_weights(config.policy.model_copy(update={"quantisation": "none"})))[0]


def whole_modules_as_loaded(model: Any) -> None:
    """Give modules that are trained whole their own values again: over quantised weights TRL makes them bfloat16."""
    from peft.utils import ModulesToSaveWrapper

    for module in model.modules():
        if isinstance(module, ModulesToSaveWrapper):
            ours, loaded = module.modules_to_save["default"], module.original_module
            for weight, value in zip(ours.parameters(), loaded.parameters(), strict=True):
                weight.data = value.detach().clone()


def _device_of_rank(device: str) -> str:
    name = pick_device(device).type
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name


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


def with_template(tokenizer: Any, template_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The column of a row by which TRL's trainers learn the chat template's arguments; empty where there are none.

    Raises PolicyError for one that the template does not read.
    """
    if not template_kwargs:
        return {}
    check_template_kwargs(tokenizer.chat_template, template_kwargs)
    return {"chat_template_kwargs": dict(template_kwargs)}


def lora_config(policy: PolicySection, task_type: str | None = "CAUSAL_LM", **more: Any) -> Any:
    """peft's configuration of the adapter to train, and a classifier's head (SEQ_CLS); None for all weights."""
    lora = policy.lora
    if lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        target_modules=lora.names or lora.targets,
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        bias=lora.bias,
        task_type=task_type,
        **{"modules_to_save": lora.modules_to_save or None} | more,
    )


def with_lora(model: Any, policy: PolicySection) -> Any:
    """The model with the adapter to train, where one is asked for; what is not the body, a head, is trained whole."""
    if policy.lora is None:
        return model
    from peft import get_peft_model

    heads = [] if model.get_output_embeddings() is not None else _heads(model)
    inside = [name for head in heads for name, _ in model.named_modules() if name.split(".")[0] == head]
    whole = [*heads, *policy.lora.modules_to_save]
    return get_peft_model(
        model, lora_config(policy, None, exclude_modules=inside or None, modules_to_save=whole or None)
    )


def _heads(model: Any) -> list[str]:
    """A classifier's modules beside its body that have weights."""
    return [
        name
        for name, child in model.named_children()
        if name != model.base_model_prefix and any(True for _ in child.parameters())
    ]


def with_trl(config: SharedConfig, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the method's trainer, with those that its ``trl`` sets. Raises ConfigError."""
    return arguments | config.method.trl_values()


def _mixed_precision(policy: PolicySection, device: torch.device) -> dict[str, bool]:
    """What the trainer computes in: bfloat16 where a GPU can and nothing else is said, else as the weights are."""
    if policy.dtype == "float16":
        return {"bf16": False, "fp16": True}
    half = device.type == "cuda" and torch.cuda.is_bf16_supported() and policy.path not in EMBEDDED
    return {"bf16": policy.dtype == "bfloat16" or (policy.dtype == "auto" and half)}


def shared_arguments(config: SharedConfig, output_dir: Path, rank_batch: int) -> dict[str, Any]:
    """Arguments of transformers' ``TrainingArguments`` that any method takes; a step has ``rank_batch`` rows a rank."""
    optimiser, run = config.optimiser, config.run
    device = pick_device(run.device)
    micro_batch = run.micro_batch_size or rank_batch
    return {
        "output_dir": str(output_dir),
        "seed": config.seed,
        "use_cpu": device.type == "cpu",
        **_mixed_precision(config.policy, device),
        "max_steps": run.steps,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": rank_batch // micro_batch,
        # The optimiser
        "optim": optimiser.optim,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.lr_scheduler,
        "warmup_steps": optimiser.warmup(run.steps),
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
        "report_to": "none",  # what trackers get, the run's process gives them
        "disable_tqdm": True,
        "dataloader_pin_memory": device.type == "cuda",
    }
