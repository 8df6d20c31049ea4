"""Supervised fine-tuning on demonstrations, through TRL's ``SFTTrainer``: its section, its trainer, its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.errors import ConfigError
from workbench.schema import Prompt
from workbench.sections import MethodSection, SamplingConfig, SharedConfig
from workbench.training.methods.method import Method, OnRollouts, Trainer

if TYPE_CHECKING:
    from workbench.tasks.kinds import Demonstration


class SFTSection(MethodSection):
    """Supervised fine-tuning: the policy learns to write the demonstrations' completions."""

    name: Literal["sft"] = "sft"
    """The training method."""
    batch_size: int = Field(default=32, ge=1, le=65_536)
    """Demonstrations in one optimiser step, over all ranks."""
    max_length: int = Field(default=1024, ge=2, le=131_072)
    """Tokens of prompt and completion after which a demonstration is cut off."""
    loss_type: Literal["nll", "dft"] = "nll"
    """nll: the mean negative log-likelihood of a completion's tokens; dft: weighted by each token's probability."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """How held-out answers are sampled, to measure accuracy."""

    def check(self, config: SharedConfig) -> None:
        ranks, micro = config.run.ranks, config.run.micro_batch_size
        if self.batch_size % ranks:
            raise ValueError(
                f"run.ranks: a batch of {self.batch_size} demonstrations does not divide over {ranks} ranks"
            )
        if micro is not None and self.batch_size // ranks % micro:
            raise ValueError(
                f"run.micro_batch_size: {micro} does not divide the {self.batch_size // ranks} demonstrations of a "
                "rank's batch"
            )

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("method", "sft: supervised fine-tuning"),
            ("batch", f"{self.batch_size} demonstrations"),
            ("loss", f"{self.loss_type} of the completions"),
            ("rollouts", "none: sft trains on demonstrations"),
        ]

    def less_memory(self, config: SharedConfig) -> str:
        return (
            f"try shorter demonstrations (method.max_length, now {self.max_length}), a smaller method.batch_size (now "
            f"{self.batch_size}) or a smaller run.micro_batch_size "
            f"(now {config.run.micro_batch_size or self.batch_size // config.run.ranks})"
        )


def build(
    config: SharedConfig,
    output_dir: Path,
    *,
    on_rollouts: OnRollouts | None = None,
    on_watched: OnRollouts | None = None,
    callbacks: Sequence[Any] = (),
) -> Trainer:
    """Load task and policy, and put them into TRL's trainer; nothing is sampled but held-out answers."""
    from datasets import Dataset, disable_progress_bars
    from trl import SFTConfig, SFTTrainer

    from workbench.tasks import load_task
    from workbench.training.accuracy import HeldOutAccuracy
    from workbench.training.common import load_trained_policy, lora_config, shared_arguments
    from workbench.training.sampling import PolicySampler
    from workbench.training.saving import Resumable

    class ResumableSFTTrainer(Resumable, SFTTrainer):
        pass

    method = config.method
    assert isinstance(method, SFTSection)
    task = load_task(config.task.name)
    demonstrations = task.rows("demonstrations")
    if len(demonstrations) < method.batch_size:
        raise ConfigError(
            f"method.batch_size: a step takes {method.batch_size} demonstrations and the task has "
            f"{len(demonstrations)}; set it to {len(demonstrations)} or less, or give more rows"
        )
    count = min(len(demonstrations), max(config.run.steps * method.batch_size, 1000))
    rows = [demonstrations[i] for i in range(count)]
    policy = load_trained_policy(config)
    disable_progress_bars()  # nobody who reads a run's log can act on them
    arguments = shared_arguments(config, output_dir, method.batch_size // config.run.ranks)
    trainer = ResumableSFTTrainer(
        model=policy.model,
        args=SFTConfig(
            **arguments,
            max_length=method.max_length,
            loss_type=method.loss_type,
            completion_only_loss=True,
            gradient_checkpointing=config.optimiser.gradient_checkpointing,
        ),
        train_dataset=Dataset.from_list(training_rows(policy.tokenizer, rows)),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.policy),
        callbacks=list(callbacks),
    )
    if config.run.eval_every and task.can_check:
        sampler = PolicySampler(trainer, method.sampling, arguments["per_device_train_batch_size"])
        # First in line, so that the step's row is complete when it is recorded.
        trainer.callback_handler.callbacks.insert(0, HeldOutAccuracy(trainer, sampler, task, config.run))
    return trainer


def training_rows(tokenizer: Any, demonstrations: Sequence[Demonstration]) -> list[dict[str, Any]]:
    """Rows for TRL. Texts become token ids, the prompt's those of sampling; conversations are left to TRL's templates.

    Tokenised together, as TRL would, the end of a prompt may merge with the completion: the policy would be trained on
    a prompt that it never sees.
    """
    from workbench.policies.sampler import encode_prompt

    if not all(isinstance(row.prompt, str) and isinstance(row.completion, str) for row in demonstrations):
        return [
            {"prompt": _messages("user", row.prompt), "completion": _messages("assistant", row.completion)}
            for row in demonstrations
        ]
    rows = []
    for row in demonstrations:
        prompt = encode_prompt(tokenizer, row.prompt)
        completion = [*tokenizer(row.completion, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append({"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion})
    return rows


def _messages(role: str, text: Prompt) -> Prompt:
    return [{"role": role, "content": text}] if isinstance(text, str) else text


METHOD = Method(SFTSection, build, metrics=("loss", "mean_token_accuracy", "accuracy", "entropy", "grad_norm"))
