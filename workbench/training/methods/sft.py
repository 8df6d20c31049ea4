"""Supervised fine-tuning on demonstrations, through TRL's ``SFTTrainer``: its section, its trainer, its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.config import SamplingConfig, SharedConfig
from workbench.data.rows import Demonstration
from workbench.policies.prompts import encode_prompt
from workbench.schema import TokenMeasure, say_count
from workbench.training.methods.base import NOBODY, Listeners, Method, Seen, StoredSection, Trainer

if TYPE_CHECKING:
    import torch


class SFTSection(StoredSection):
    """Supervised fine-tuning: the policy learns to write the demonstrations' completions."""

    kind = "demonstrations"
    trl_config, usual_learning_rate = "SFTConfig", 2e-5
    name: Literal["sft"] = "sft"
    """The training method."""
    loss_type: Literal["nll", "dft"] = "nll"
    """nll: the mean negative log-likelihood of a completion's tokens; dft: weighted by each token's probability."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """How held-out answers are sampled, to measure accuracy."""

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        return {"max_length": self.max_length, "loss_type": self.loss_type, "completion_only_loss": True}

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("method", "sft: supervised fine-tuning"),
            ("batch", say_count(self.batch_size, "demonstration")),
            ("loss", f"{self.loss_type} of the completions"),
            ("rollouts", "none: sft trains on demonstrations"),
        ]


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load task and policy, and put them into TRL's trainer; nothing is sampled but held-out answers."""
    from trl import SFTConfig, SFTTrainer

    from workbench.training.building import load_trained_policy, lora_config, stored_trainer
    from workbench.training.saving import Resumable

    class ResumableSFTTrainer(Resumable, SFTTrainer):
        pass

    policy = load_trained_policy(config)
    return stored_trainer(
        ResumableSFTTrainer,
        SFTConfig,
        config,
        output_dir,
        listeners,
        model=policy.model,
        tokenizer=policy.tokenizer,
        policy=policy,
        tokens=partial(token_rows, policy.tokenizer, template_kwargs=config.prompt.template_kwargs),
        measure=SURPRISAL,
        view=view,
        peft_config=lora_config(config.policy),
    )


def token_rows(
    tokenizer: Any, demonstrations: Sequence[Demonstration], template_kwargs: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Rows for TRL. Texts become token ids, the prompt's those of sampling; conversations are left to TRL's templates.

    Tokenised together, as TRL would, the end of a prompt may merge with the completion: the policy would be trained on
    a prompt that it never sees.
    """
    from workbench.training.building import as_conversation

    if not all(isinstance(row.prompt, str) and isinstance(row.completion, str) for row in demonstrations):
        return [
            as_conversation(tokenizer, template_kwargs, row.prompt, completion=row.completion) for row in demonstrations
        ]
    rows = []
    for row in demonstrations:
        prompt = encode_prompt(tokenizer, row.prompt)
        completion = [*tokenizer(row.completion, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append({"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion})
    return rows


SURPRISAL = TokenMeasure(
    "surprisal", "−log p", "Σ −log p", "how unlikely the policy finds each token, in nats", additive=True
)


def view(trainer: Any, demonstration: Demonstration, batch: Mapping[str, torch.Tensor]) -> Seen:
    """Return a watched demonstration: each token's −log p."""
    from workbench.training.watching import completion

    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    logits = trainer.model_wrapped(**inputs, use_cache=False).logits[0, :-1].float()
    logprobs = logits.log_softmax(-1).gather(-1, batch["input_ids"][0, 1:, None])[:, 0]  # (T - 1,)
    prompt, ids, (values,) = completion(batch["input_ids"][0], batch["labels"][0] != -100, logprobs)
    total = -sum(values)
    numbers = {"−log p": total, "mean −log p": total / len(ids)} if ids else {}
    shown = {SURPRISAL.key: [-value for value in values]}
    text = {"name": "demonstration", "ids": ids, "values": shown, "numbers": numbers, "logprobs": values}
    return trainer.processing_class.decode(prompt), [text], {}


METHOD = Method(
    SFTSection,
    build,
    metrics=("accuracy", "match_share", "loss", "mean_token_accuracy", "entropy", "grad_norm"),
    when=(
        "Off-policy; one model, cheapest and steadiest. For good answers that are there already, to teach a "
        "format or to begin with; it learns nothing from bad ones."
    ),
    order=3,
)
