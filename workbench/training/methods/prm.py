"""A process reward model trained on labelled steps: its section, its trainer, its metrics."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.config import ModelFormat, SharedConfig
from workbench.models.find import base_and_adapters, check_language_model
from workbench.places import STEP_BETA
from workbench.rewards.models.formats import FORMATS
from workbench.training.methods.base import NOBODY, Listeners, Method, StoredSection, Trainer


class PRMSection(StoredSection):
    """Process reward model: the policy's body learns to tell right steps from wrong ones, with a score a step."""

    kind = "labelled_steps"
    name: Literal["prm"] = "prm"
    """The training method."""
    format: Literal["stepwise", "ki", "extra-0", "turns", "implicit"] = "stepwise"
    """What the model reads and where its scores stand: that of TRL, Math-Shepherd, Qwen2.5-Math-PRM or RLHFlow;
    implicit has no head, a step is judged by how far the answer's likelihood has moved (arXiv 2412.01981)."""
    beta: float = Field(default=1.0, gt=0)
    """Of the format implicit: the weight of log π − log π_ref, summed over the answer so far, in a step's logit."""
    separator: str | None = None
    """What stands after each step; None for the format's own."""
    until_first_error: bool = False
    """Train on no step after the first that is wrong, as PRM800K is labelled; what comes after an error is unclear."""

    @property
    def reward_format(self) -> ModelFormat:
        return self.format

    @property
    def unit(self) -> str:
        return "labelled completions"

    @property
    def why_left_out(self) -> str:
        return f"{super().why_left_out}, or the tokenizer merges the separator of format {self.format} with their text"

    def check(self, config: SharedConfig) -> None:
        super().check(config)
        if self.separator is not None and self.format == "turns":
            raise ValueError("method.separator: format 'turns' has turns in place of a separator; leave it out")
        if self.separator is not None and not self.separator.strip() and self.format not in ("stepwise", "implicit"):
            raise ValueError(
                f"method.separator: format {self.format!r} needs one with a visible mark, {self.separator!r} has none"
            )

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        return {"remove_unused_columns": False}

    def facts(self) -> list[tuple[str, str]]:
        steps = "steps up to the first error" if self.until_first_error else "all labelled steps"
        return [
            ("method", "prm: a process reward model"),
            ("batch", f"{self.batch_size} {self.unit}"),
            ("loss", f"cross-entropy of {steps}"),
            ("format", self.format),
            ("rollouts", "none: prm trains on labelled steps"),
        ]


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load labelled steps and the model, with a head of two logits where the format has one, and put them together."""
    from transformers import TrainingArguments, set_seed
    from trl.trainer.utils import disable_dropout_in_model

    from workbench.models.weights import context_length
    from workbench.policies.load import prepared
    from workbench.rewards.models.model import StepHead, load_trained, reference_of
    from workbench.training import labelled
    from workbench.training.building import stored_trainer, trained_weights, with_lora

    method = config.method
    assert isinstance(method, PRMSection)
    if FORMATS[method.format].answer != "head":
        check_language_model(config.policy.path, may_judge=True)
    set_seed(config.seed)  # the weights of a new head
    where, adapters = base_and_adapters(config.policy)
    how = {"separator": method.separator, **trained_weights(config.policy)}
    model, tokenizer = load_trained(config.policy.path, where, adapters, method.format, **how)
    disable_dropout_in_model(model)
    form, longest = FORMATS[method.format], min(method.max_length, context_length(model) or 2**31)
    reference = None
    if form.answer == "likelihood":
        setattr(model.config, STEP_BETA, method.beta)
        reference = reference_of(where, model)
    return stored_trainer(
        labelled.ProcessTrainer,
        TrainingArguments,
        config,
        output_dir,
        listeners,
        model=with_lora(prepared(model), config.policy),
        head=StepHead.of(model, tokenizer, form, reference),
        tokenizer=tokenizer,
        data_collator=partial(labelled.collate, tokenizer.pad_token_id),
        tokens=partial(labelled.token_rows, tokenizer, form=form, separator=method.separator, max_length=longest),
        cut=labelled.until_first_error if method.until_first_error else None,
        measure=labelled.PREDICTED,
        view=labelled.view,
        numbers=lambda trainer, batch: trainer.scores(batch),
        metrics=labelled.step_metrics,
    )


METHOD = Method(
    PRMSection,
    build,
    metrics=(
        "step_accuracy",
        "step_accuracy/train",
        "auc",
        "first_error_f1",
        "loss",
        "calibration_error",
        "grad_norm",
    ),
    when=(
        "Trains no policy. For step rewards where no rule can score a step, but labels of steps are there or can "
        "be made."
    ),
    order=6,
)
