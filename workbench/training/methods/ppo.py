"""PPO with a critic and token rewards: its section, its trainer, its metrics."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.config import SamplingConfig, SharedConfig
from workbench.rewards import RewardConfig
from workbench.training.methods.base import NOBODY, Listeners, Method, SampledSection, Trainer


class PPOSampling(SamplingConfig):
    num_generations: int = Field(default=8, ge=1, le=64)
    """G, the rollouts of one prompt; 1 is enough, as they are compared with the critic's values."""


class PPOSection(SampledSection):
    """PPO: every token's advantage is estimated from token rewards and a critic's values (GAE)."""

    name: Literal["ppo"] = "ppo"
    """The training method."""
    rewards: list[RewardConfig] = Field(
        default_factory=lambda: [RewardConfig(name="answer_correctness", kind="outcome")]
    )
    """The reward functions: an outcome's is added at the last token, a step's at the step's last token."""
    sampling: PPOSampling = Field(default_factory=PPOSampling)
    gamma: float = Field(default=1.0, ge=0, le=1, title="Discount γ")
    """Discount of later token rewards."""
    lam: float = Field(default=0.95, ge=0, le=1, title="GAE λ")
    """lambda of GAE: 1 sums rewards, 0 trusts the critic's values alone."""
    kl_coef: float = Field(default=0.05, ge=0, le=1000, title="KL weight")
    """Weight of log pi - log pi_ref, which each token's reward is lowered by; 0 needs no reference."""
    score_clip: float = Field(title="Clip scores at", default=5.0, gt=0, le=1_000_000)
    """Bound on the size of a completion's outcome reward."""
    whiten: bool = True
    """Give the advantages of a batch's tokens mean 0 and standard deviation 1."""
    epsilon: float = Field(title="Clip ε (low)", default=0.2, ge=0, lt=1)
    """Clip range of the policy's ratio."""
    target_kl: float | None = Field(default=None, gt=0, le=1000, title="Target KL")
    """Skip a step where the mean of log pi_old - log pi is above 1.5 times this; None for never. The first pass over a
    batch has 0 there, so it needs num_iterations of 2 or more."""
    critic: Literal["shared", "separate"] = "shared"
    """Where values come from: a linear head on the policy's last hidden state, or on that of a copy of the policy."""
    value_coef: float = Field(title="Weight of the value loss", default=0.1, ge=0, le=1000)
    """Weight of the value loss."""
    epsilon_value: float = Field(title="Clip ε (values)", default=0.2, gt=0, le=1_000_000)
    """How far a value may leave what it was when the batch was sampled."""

    @property
    def has_reference(self) -> bool:
        return self.kl_coef > 0

    def check(self, config: SharedConfig) -> None:
        super().check(config)
        if self.target_kl is not None and self.num_iterations == 1:
            raise ValueError(
                "method.target_kl: it skips no step while num_iterations is 1, as the policy is then the one that "
                "sampled; set num_iterations to 2 or more, or leave target_kl out"
            )
        if self.rollouts_per_step < 2:
            raise ValueError(
                "method.prompts_per_step: one completion a step is no batch; set it, or "
                "method.sampling.num_generations, to 2 or more"
            )

    def own_arguments(self, config: SharedConfig) -> dict[str, Any]:
        names = ("gamma", "lam", "score_clip", "whiten", "epsilon", "critic", "target_kl", "value_coef")
        own = {name: getattr(self, name) for name in (*names, "epsilon_value")}
        return {**own, "beta": self.kl_coef, "loss_type": "dapo"}  # dapo: the mean over the batch's tokens

    def facts(self) -> list[tuple[str, str]]:
        return [
            *super().facts(),
            ("credit", f"GAE, γ {self.gamma:g}, λ {self.lam:g}"),
            ("loss", f"KL {self.kl_coef:g} in the rewards, {self.critic} critic × {self.value_coef:g}"),
        ]


def build(config: SharedConfig, output_dir: Path, listeners: Listeners = NOBODY) -> Trainer:
    """Load task, policy and rewards, and put them with a critic into a trainer.

    Raises:
        WorkbenchError: for anything in the configuration that cannot be loaded or cannot work together.
    """
    from workbench.training.building import sampling_trainer, trainer_arguments
    from workbench.training.ppo import ProcessPPOConfig, ProcessPPOTrainer

    arguments = ProcessPPOConfig(**trainer_arguments(config, output_dir))
    return sampling_trainer(ProcessPPOTrainer, config, arguments, listeners)


METHOD = Method(
    PPOSection,
    build,
    metrics=(
        "accuracy",
        "rewards/<name>/mean",
        "completions/mean_length",
        "completions/max_length",
        "accuracy/train",
        "reward",
        "step_reward",
        "loss",
        "value_loss",
        "explained_variance",
        "value_clip_share",
        "score_clamped_share",
        "skipped_steps",
        "token_kl",
        "entropy",
        "steps_per_answer",
    ),
    has_rollouts=True,
    settings=("prompts_per_step", "kl_coef", "gamma", "lam", "critic"),
    when=(
        "On-policy; policy, critic and, for its KL, a reference. The critic says what to expect at each token, so "
        "one answer to a prompt is enough. For rewards that compare badly within a group; dearest, and the most "
        "to set."
    ),
    order=2,
)
