"""Direct preference optimisation on pairs, through TRL's ``DPOTrainer``: its section, its trainer, its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.config import SamplingConfig, SharedConfig
from workbench.data.rows import Pair
from workbench.policies.prompts import encode_prompt
from workbench.schema import TokenMeasure, say_count
from workbench.training.methods.base import NOBODY, Listeners, Method, Seen, StoredSection, Trainer

if TYPE_CHECKING:
    import torch


PreferenceLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
]
_SMOOTHED = ("robust", "exo_pair", "aot", "aot_unpaired")
"""The losses that TRL smooths labels in."""


class DPOSection(StoredSection):
    """Direct preference optimisation: the policy learns to prefer each pair's chosen completion (arXiv 2305.18290)."""

    kind = "pairs"
    trl_config, usual_learning_rate = "DPOConfig", 1e-6
    name: Literal["dpo"] = "dpo"
    """The training method."""
    beta: float = Field(default=0.1, gt=0, title="KL weight β")
    """How strongly the policy is held to the reference, which is the policy as it is loaded."""
    loss_type: PreferenceLoss = "sigmoid"
    """What is made of a pair's margin (TRL's names); sigmoid is DPO's own, −log σ(margin)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Probability that a pair's sides are swapped; of the losses robust, exo_pair, aot and aot_unpaired."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """How held-out answers are sampled, to measure accuracy."""

    @property
    def has_reference(self) -> bool:
        return True

    def check(self, config: SharedConfig) -> None:
        super().check(config)
        if self.label_smoothing and self.loss_type not in _SMOOTHED:
            raise ValueError(
                f"method.label_smoothing: {self.label_smoothing} has no effect with loss_type {self.loss_type!r}; set "
                f"it to 0, or loss_type to {' or '.join(_SMOOTHED)}"
            )
        if self.loss_type == "exo_pair" and not self.label_smoothing:
            raise ValueError("method.label_smoothing: exo_pair needs it above 0; its paper recommends 0.001")

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        return {
            "max_length": self.max_length,
            "beta": self.beta,
            "loss_type": [self.loss_type],
            "label_smoothing": self.label_smoothing,
            "trust_remote_code": config.policy.trust_remote_code,
        }

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("method", "dpo: direct preference optimisation"),
            ("batch", say_count(self.batch_size, "pair")),
            ("loss", f"β {self.beta:g}, {self.loss_type}"),
            ("rollouts", "none: dpo trains on pairs"),
        ]


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load pairs, policy and reference, and put them into TRL's trainer; nothing is sampled but held-out answers."""
    from trl import DPOConfig, DPOTrainer

    from workbench.training.building import load_trained_policy, lora_config, rename_metrics, stored_trainer
    from workbench.training.saving import Resumable
    from workbench.training.watching import pair_metrics

    class ResumableDPOTrainer(Resumable, DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
            return dataset if "prompt_ids" in dataset.column_names else super()._prepare_dataset(dataset, *args)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            rename_metrics(self, {"rewards/accuracies": "pair_accuracy/train", "rewards/margins": "margin/train"})
            return loss

    method = config.method
    assert isinstance(method, DPOSection)
    policy, kwargs = load_trained_policy(config), config.prompt.template_kwargs
    is_adapter = config.policy.lora is not None or hasattr(policy.model, "peft_config")
    return stored_trainer(
        ResumableDPOTrainer,
        DPOConfig,
        config,
        output_dir,
        listeners,
        model=policy.model,
        ref_model=None if is_adapter else load_trained_policy(config).model,
        tokenizer=policy.tokenizer,
        policy=policy,
        tokens=partial(token_rows, policy.tokenizer, max_length=method.max_length, template_kwargs=kwargs),
        measure=IMPLICIT_REWARD,
        view=view,
        numbers=lambda trainer, batch: margins(trainer, batch).float().tolist(),
        metrics=pair_metrics,
        peft_config=lora_config(config.policy),
    )


def token_rows(
    tokenizer: Any, pairs: Sequence[Pair], max_length: int, template_kwargs: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Rows for TRL. Texts become token ids, the prompt's those of sampling; conversations are left to TRL's templates.

    Tokenised together, as TRL would, the end of a prompt may merge with the completion: the policy would be trained on
    a prompt that it never sees. A pair whose prompt alone has ``max_length`` tokens is left out, as TRL does.
    """
    from workbench.training.building import as_conversation

    if not all(isinstance(text, str) for pair in pairs for text in (pair.prompt, pair.chosen, pair.rejected)):
        return [
            as_conversation(tokenizer, template_kwargs, pair.prompt, chosen=pair.chosen, rejected=pair.rejected)
            for pair in pairs
        ]

    rows = []
    for pair in pairs:
        row = {"prompt_ids": encode_prompt(tokenizer, pair.prompt)}
        for side, text in (("chosen_ids", pair.chosen), ("rejected_ids", pair.rejected)):
            row[side] = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append(row)
    return [row for row in rows if len(row["prompt_ids"]) < max_length]


def log_ratios(trainer: Any, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """log pi and log pi_ref of each token after the first of a batch from TRL's collator, both (2B, T - 1).

    Chosen completions come first; both are 0 on what is no completion. TRL's trainer computes the same inside its loss
    and ``compute_ref_log_probs``, and gives no more of it than sums.
    """
    from trl.trainer.utils import use_adapter

    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    reads = {**inputs, "labels": labels, "fused_lm_head": True, "use_cache": False}
    policy = trainer.model_wrapped(**reads).log_probs
    if trainer.ref_model is not None:
        return policy, trainer.ref_model(**reads).log_probs
    adapted = trainer.accelerator.unwrap_model(trainer.model)
    with use_adapter(adapted, "ref" if "ref" in adapted.peft_config else None):  # as it was when the run began
        return policy, trainer.model_wrapped(**reads).log_probs


def margins(trainer: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """beta [log pi/pi_ref(chosen) - log pi/pi_ref(rejected)] of a batch from TRL's collator, (B,)."""
    policy, reference = log_ratios(trainer, batch)
    chosen, rejected = (trainer.beta * (policy - reference)).sum(dim=1).chunk(2)
    return chosen - rejected


IMPLICIT_REWARD = TokenMeasure(
    "implicit_reward",
    "implicit reward β·log(π/π_ref)",
    "Σ reward",
    "blue: likelier under the policy than under the reference; orange: less likely",
    signed=True,
    additive=True,
)


def view(trainer: Any, pair: Pair, batch: Mapping[str, torch.Tensor]) -> Seen:
    """Return a watched pair: each token's implicit reward (arXiv 2305.18290, section 4), which add up to the margin."""
    from workbench.training.watching import completion, pair_numbers

    policy, reference = log_ratios(trainer, batch)
    texts, prompt = list[dict[str, Any]](), list[int]()
    for i, name in enumerate(("chosen", "rejected")):
        masked = batch["input_ids"][i], batch["completion_mask"][i]
        prompt, ids, (logprobs, of_reference) = completion(*masked, policy[i], reference[i])
        rewards = [trainer.beta * (p - r) for p, r in zip(logprobs, of_reference, strict=True)]
        numbers = {"implicit reward": sum(rewards), "log π": sum(logprobs)}
        values = {IMPLICIT_REWARD.key: rewards}
        texts.append(
            {
                "name": name,
                "ids": ids,
                "values": values,
                "numbers": numbers,
                "logprobs": logprobs,
                "ref_logprobs": of_reference,
            }
        )
    chosen, rejected = (text["numbers"]["implicit reward"] for text in texts)
    return trainer.processing_class.decode(prompt), texts, pair_numbers(chosen - rejected)


METHOD = Method(
    DPOSection,
    build,
    metrics=(
        "pair_accuracy",
        "pair_accuracy/train",
        "margin",
        "margin/train",
        "loss",
        "calibration_error",
        "accuracy",
        "rewards/chosen",
        "rewards/rejected",
        "logps/chosen",
        "logps/rejected",
    ),
    when=(
        "Off-policy; policy and reference, nothing is sampled. For preferences that are there already; the "
        "policy's own later answers are not seen."
    ),
    order=4,
)
