"""``ProcessGRPOConfig``: TRL's ``GRPOConfig`` and the few fields that process supervision adds.

Some modes of TRL's loss are refused, each with its reason: they would run, and not train what the heatmap shows. Most
assume one advantage a sequence, which schemes that give each token its own do not have.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from trl import GRPOConfig

from workbench.config import CreditConfig
from workbench.credit import SCHEMES
from workbench.errors import ConfigError
from workbench.steps import StepPattern


@dataclass
class ProcessGRPOConfig(GRPOConfig):
    """Arguments of ``ProcessGRPOTrainer``; everything of ``GRPOConfig`` keeps its meaning.

    ``disable_dropout`` and ``use_bias_correction_kl`` have other defaults than there, in a run as in a script.
    ``scale_rewards`` ("group", "batch" or "none") says which standard deviation normalised rewards are divided by,
    unless ``credit`` says otherwise, and ``reward_weights`` weighs the outcome rewards, as in TRL.
    """

    step_pattern: dict[str, Any] | str | StepPattern | None = field(
        default=r"(?m)^Step \d+:",
        metadata={
            "help": "Regular expression that begins each step of a completion, or a StepPattern, or its fields by name."
        },
    )
    stop: list[str] | None = field(
        default=None, metadata={"help": "Texts that end a completion, whose tokens belong to it."}
    )
    credit: dict[str, Any] | CreditConfig = field(
        default_factory=dict,
        metadata={
            "help": "How rewards become token advantages: a CreditConfig, or its fields by name (scheme, clip, …)."
            " The scheme is by default 'process', or 'outcome' where there are no step rewards."
        },
    )
    resample_flat: int = field(
        default=0,
        metadata={"help": "Rounds in which groups without spread are replaced by other prompts' groups, at most."},
    )
    use_bias_correction_kl: bool = field(
        default=False,
        metadata={
            "help": "Whether to multiply the KL term by the ratio. Off, it is k3 itself, as GRPO has it (arXiv "
            "2402.03300, eq. 4)."
        },
    )
    disable_dropout: bool = field(
        default=True,
        metadata={"help": "Whether the loss is computed without dropout, as completions are sampled."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.step_pattern, StepPattern):
            self.step_pattern = asdict(self.step_pattern)  # plain values, which are stored and logged as JSON
        if isinstance(self.credit, CreditConfig):
            self.credit = self.credit.model_dump(exclude_none=True)
        if self.generation_kwargs:
            raise ConfigError(
                "generation_kwargs: the group sampler would ignore them; use temperature, top_p, top_k, min_p, "
                "repetition_penalty and stop"
            )
        # Where no scheme is named, the trainer finds the one that fits the rewards, and checks again.
        one_a_completion = self.sequence_modes or self.sums_normalised
        self.credit_by("outcome" if one_a_completion else "process")

    @property
    def pattern(self) -> StepPattern:
        """Return what cuts completions into steps."""
        given = self.step_pattern or {}
        assert not isinstance(given, StepPattern)
        return StepPattern(given) if isinstance(given, str) else StepPattern(**given)

    @property
    def sequence_modes(self) -> list[str]:
        """The fields that put TRL's loss into a mode that needs one advantage a completion, (B,)."""
        modes = {
            "loss_type": self.loss_type == "vespo",
            "off_policy_mask_threshold": self.off_policy_mask_threshold is not None,
            "importance_sampling_level": self.importance_sampling_level != "token",
        }
        return [name for name, is_set in modes.items() if is_set]

    @property
    def sums_normalised(self) -> bool:
        """Return whether outcome rewards are normalised one by one, summed, and normalised over the batch (GDPO)."""
        return self.multi_objective_aggregation == "normalize_then_sum"

    def credit_by(self, scheme: str) -> CreditConfig:
        """Return how rewards are credited, by ``scheme`` unless ``credit`` names one.

        Raises ConfigError if the other fields do not fit it.
        """
        scaling = "batch" if self.sums_normalised else str(self.scale_rewards)
        by_trl: dict[str, dict[str, Any]] = {"batch": {"normalise": "batch"}, "none": {"scale": False}}
        assert isinstance(self.credit, dict)
        given = {"scheme": scheme, **by_trl.get(scaling, {}), **self.credit}
        if self.sums_normalised:
            given["each_reward"] = True
            if stated := {"normalise", "scale"} & set(self.credit):
                raise ConfigError(
                    f"credit: {min(stated)!r} is settled by multi_objective_aggregation='normalize_then_sum', which "
                    "divides by the standard deviation of the batch; leave one of the two out"
                )
        credit = CreditConfig.parse(given, "credit")
        scheme, known = credit.scheme, SCHEMES[credit.scheme]
        if self.sequence_modes and not known.per_completion:
            *others, last = [repr(name) for name, one in SCHEMES.items() if one.per_completion]
            name = self.sequence_modes[0]
            raise ConfigError(
                f"{name}: {getattr(self, name)!r} needs one advantage a completion, and {scheme!r} gives each token "
                f"its own; leave it out, or choose the scheme {', '.join(others)} or {last}"
            )
        if self.sequence_modes and credit.oar:
            raise ConfigError(
                f"{self.sequence_modes[0]}: it needs one advantage a completion, and oar gives each token its own; "
                "leave one of the two out"
            )
        if self.sums_normalised and not known.outcome_only:
            raise ConfigError(
                f"multi_objective_aggregation: 'normalize_then_sum' is about outcome rewards and {scheme!r} credits "
                "steps; choose 'sum_then_normalize', or the scheme 'outcome'"
            )
        default = {option.name: option.default for option in known.options}.get("normalise", "pooled")
        if self.scale_rewards == "batch" and default != "pooled" and "normalise" not in self.credit:
            raise ConfigError(
                f"scale_rewards: 'batch' would replace the {default!r} normalisation of {scheme!r}; leave "
                "it at 'group', or say credit={'normalise': 'batch'}"
            )
        return credit
