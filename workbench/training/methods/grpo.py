"""GRPO with step rewards and token advantages: its section, its trainer and what its page shows.

The one place that knows both vocabularies: the workbench's configuration and the arguments of TRL's ``GRPOTrainer``.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.config import CreditConfig, SharedConfig
from workbench.credit import SCHEMES, LossType
from workbench.errors import ConfigError
from workbench.training.methods.base import NOBODY, Listeners, Method, SampledSection, Trainer


class GRPOSection(SampledSection):
    """Process-supervised GRPO: groups of sampled answers, every step scored, every token with its own advantage."""

    name: Literal["grpo"] = "grpo"
    """The training method."""
    credit: CreditConfig = Field(default_factory=CreditConfig)
    loss_type: LossType = "dapo"
    """How token losses are averaged (TRL's names)."""
    beta: float = Field(default=0.0, ge=0, le=1000, title="KL weight β")
    """Weight of the KL to the reference policy in the loss; 0 needs no reference."""
    resample_flat: int = Field(title="Replace groups without variance (dynamic sampling)", default=0, ge=0, le=64)
    """Rounds in which groups without spread are replaced by other prompts' groups, at most; 0 for none."""
    epsilon: float = Field(title="Clip ε (low)", default=0.2, ge=0, lt=1)
    """Lower (and, unless set apart, upper) clip range of the ratio."""
    epsilon_high: float | None = Field(title="Clip ε (high)", default=None, ge=0, le=1_000_000)
    """Upper clip range of the ratio."""
    sync_ref_model: bool = False
    """Move the reference policy towards the policy as training goes."""
    ref_model_mixup_alpha: float = Field(title="Reference mix α", default=0.6, ge=0, le=1)
    """alpha in pi_ref <- alpha pi + (1 - alpha) pi_ref."""
    ref_model_sync_steps: int = Field(title="Steps between reference updates", default=512, ge=1, le=1_000_000)
    """Steps between two such moves."""

    @property
    def label(self) -> str:
        return self.credit.scheme

    @property
    def has_reference(self) -> bool:
        return self.beta > 0

    def check(self, config: SharedConfig) -> None:
        super().check(config)
        scheme, kinds = self.credit.scheme, {reward.kind for reward in self.rewards}
        needs = SCHEMES[scheme].needs
        if "outcome" in needs and "outcome" not in kinds:
            raise ValueError(
                f"method.credit.scheme: {scheme!r} needs an outcome reward and every one given scores steps; add one "
                "(answer_correctness, say), or choose a scheme that credits steps"
            )
        if "steps" in needs and "step" not in kinds and not self.credit.outcome_weight:
            raise ValueError(
                f"method.credit.scheme: {scheme!r} needs a step reward and every one given scores whole "
                "completions, so nothing would be learnt; add a step reward, or choose the scheme 'outcome'"
            )
        if self.credit.outcome_weight and "outcome" not in kinds:
            raise ValueError(
                f"method.credit.outcome_weight: {self.credit.outcome_weight} weighs an outcome reward and there is "
                "none; add one, or set it to 0"
            )
        if self.credit.gate == "outcome" and "outcome" not in kinds:
            raise ValueError(
                "method.credit.gate: 'outcome' goes by an outcome reward and there is none; add one "
                "(answer_correctness, with weight 0 to watch it only), or set it to 'none'"
            )
        if self.sync_ref_model and self.beta == 0:
            raise ValueError("method.sync_ref_model: there is no reference policy to move while beta is 0; set beta")
        if self.sync_ref_model and config.policy.lora is not None:
            raise ValueError("method.sync_ref_model: an adapter's reference is the policy without it; turn one off")
        if self.loss_type == "cispo" and (self.epsilon_high is None or self.epsilon_high < 1):
            raise ValueError(
                f"method.epsilon_high: {self.epsilon_high} would cap cispo's ratio below 1 and scale every "
                "gradient down; cispo's cap is the ratio itself, set it to 5"
            )

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        return {
            "credit": self.credit.model_dump(exclude_none=True),
            "resample_flat": self.resample_flat,
            "loss_type": self.loss_type,
            "beta": self.beta,
            "epsilon": self.epsilon,
            "epsilon_high": self.epsilon_high,
            "sync_ref_model": self.sync_ref_model,
            "ref_model_mixup_alpha": self.ref_model_mixup_alpha,
            "ref_model_sync_steps": self.ref_model_sync_steps,
        }

    def rows_wanted(self, config: SharedConfig) -> int:
        return super().rows_wanted(config) * (1 + self.resample_flat)

    def facts(self) -> list[tuple[str, str]]:
        return [
            *super().facts(),
            ("credit", self.credit.scheme),
            ("loss", f"β {self.beta:g}, {self.loss_type}"),
        ]


def section_of(config: SharedConfig) -> GRPOSection:
    """Return the settings of a run by GRPO. Raises ConfigError for a run by another method."""
    if not isinstance(config.method, GRPOSection):
        raise ConfigError(f"method: this needs a run by grpo, and the method is {config.method.name!r}")
    return config.method


# -- the trainer ------------------------------------------------------------------------------------------------------


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load task, policy and rewards, and put them into a trainer.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    from workbench.training.building import sampling_trainer, trainer_arguments
    from workbench.training.config import ProcessGRPOConfig
    from workbench.training.trainer import ProcessGRPOTrainer

    arguments = ProcessGRPOConfig(**trainer_arguments(config, output_dir))
    return sampling_trainer(ProcessGRPOTrainer, config, arguments, listeners)


METHOD = Method(
    GRPOSection,
    build,
    metrics=(
        "accuracy",
        "rewards/<name>/mean",
        "completions/mean_length",
        "completions/max_length",
        "accuracy/train",
        "step_reward",
        "reward",
        "loss",
        "kl/k1",
        "kl/k2",
        "kl/k3",
        "entropy",
        "steps_per_answer",
        "zero_spread_share",
        "unscored_share",
        "no_match_share",
        "unsplit_share",
    ),
    has_rollouts=True,
    settings=("prompts_per_step", "beta", "loss_type"),
    when=(
        "On-policy; one model, and a reference where β is above 0. An answer is compared with others to the same "
        "prompt, so there is no critic. For answers that can be checked, where some of a group are right and some "
        "are not."
    ),
    order=1,
)
