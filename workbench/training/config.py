"""``ProcessGRPOConfig``: TRL's ``GRPOConfig`` and the few fields that process supervision adds.

Some modes of TRL's loss are refused, each with its reason: they would run, and not train what the heatmap shows. Most
assume one advantage a sequence, which schemes that give each token its own do not have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from typing import Any, ClassVar

from trl import GRPOConfig

from workbench.credit import SCHEMES, SHARED, assign_credit
from workbench.errors import ConfigError, CreditError, did_you_mean
from workbench.steps import StepPattern

_log = logging.getLogger(__name__)


def answers_former_names(config: Any) -> Any:
    """Have a class of arguments raise ConfigError for a name that is no field, with today's for a former one."""
    made, known = config.__init__, {one.name for one in fields(config)}

    @wraps(made)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        for name in given.keys() - known:
            near = did_you_mean(name, known - {*config.refused})
            today = f"; it is {config.former[name]}" if name in config.former else near
            raise ConfigError(f"{name}: {config.__name__} has no such field{today}")
        made(self, *args, **given)

    config.__init__ = checked
    return config


@answers_former_names
@dataclass
class ProcessGRPOConfig(GRPOConfig):
    """Arguments of ``ProcessGRPOTrainer``; everything of ``GRPOConfig`` keeps its meaning.

    ``disable_dropout`` and ``use_bias_correction_kl`` have other defaults than there, in a run as in a script.
    ``scale_rewards`` ("group", "batch" or "none") says which standard deviation normalised rewards are divided by,
    unless ``credit_options`` say otherwise, and ``reward_weights`` weighs the outcome rewards, as in TRL.
    """

    former: ClassVar[Mapping[str, str]] = {
        "model_name": "the trainer's argument model",
        "tokenizer": "the trainer's argument processing_class",
        "train_dataset": "the trainer's argument train_dataset",
        "reward_model": "the trainer's arguments reward_funcs and step_rewards",
        "reward_function": "the trainer's arguments reward_funcs and step_rewards",
        "total_steps": "max_steps",
        "warmup_ratio": "warmup_steps, below 1 a share of the steps",
        "max_prompt_length": "gone: leave long prompts out of the data",
        **dict.fromkeys(("max_new_tokens", "response_length"), "max_completion_length"),
        **dict.fromkeys(("num_return_sequences", "group_size"), "num_generations"),
        **dict.fromkeys(("kl_coef", "kl_beta", "init_kl_coef"), "beta"),
        **dict.fromkeys(("clip_eps", "cliprange"), "epsilon"),
        **dict.fromkeys(("mu", "inner_epochs", "ppo_epochs", "num_ppo_epochs"), "num_iterations"),
        "mini_batch_size": "per_device_train_batch_size, or steps_per_generation for a step each",
        "batch_size": "generation_batch_size",
        "kl_penalty": "gone: the KL is that of the sampled tokens, and beta its weight",
        "no_cuda": "use_cpu",
        "evaluation_strategy": "eval_strategy",
        **dict.fromkeys(("logging_dir", "log_with"), "report_to"),
        "step_delimiter": "step_pattern",
    }
    """What articles and earlier versions of TRL call a field → what it is now."""
    refused: ClassVar[tuple[str, ...]] = ()
    """Fields that must be as they are by default."""
    step_pattern: dict[str, Any] | str | StepPattern | None = field(
        default=r"(?m)^Step \d+:",
        metadata={
            "help": "Regular expression that begins each step of a completion, or a StepPattern, or its fields by name."
        },
    )
    stop: list[str] | None = field(
        default=None, metadata={"help": "Texts that end a completion, whose tokens belong to it."}
    )
    credit_scheme: str | None = field(
        default=None,
        metadata={
            "help": "How rewards become token advantages, a name in credit.SCHEMES; by default 'process', or 'outcome' "
            "where there are no step rewards."
        },
    )
    outcome_weight: float = field(
        default=0.0, metadata={"help": "Weight of the normalised outcome reward added to every token."}
    )
    credit_clip: float | None = field(default=None, metadata={"help": "Bound on the size of an advantage."})
    drop_duplicates: bool = field(
        default=False,
        metadata={
            "help": "Compare each distinct completion of a group once: an exact copy has advantage 0 and no part in "
            "the loss."
        },
    )
    each_reward: bool = field(
        default=False,
        metadata={"help": "Normalise each reward function's scores on their own before they are summed (GDPO)."},
    )
    oar: bool = field(
        default=False,
        metadata={
            "help": "Weigh each token's advantage by how much the right answer's probability depends on the token."
        },
    )
    oar_threshold: float = field(
        default=0.25, metadata={"help": "Share of a completion's tokens that oar weakens, those of least importance."}
    )
    oar_boost: float = field(
        default=1.0, metadata={"help": "What oar adds to the weight of a completion's most important token."}
    )
    gate: str = field(
        default="none",
        metadata={
            "help": "'outcome': a group whose completions do not differ in outcome has advantage 0, whatever else "
            "differs; dynamic sampling replaces it, too. By default 'none'."
        },
    )
    credit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "Other options of the scheme (normalise, scale, gamma, …); see credit.SCHEMES[…].options."},
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
        if self.loss_type == "cispo" and (cap := self.epsilon if self.epsilon_high is None else self.epsilon_high) < 1:
            _log.warning(
                "loss_type 'cispo' caps the ratio itself at epsilon_high, here %g, and so scales every gradient down; "
                "set epsilon_high to 5",
                cap,
            )
        if self.generation_kwargs:
            raise ConfigError(
                "generation_kwargs: the group sampler would ignore them; use temperature, top_p, top_k, min_p, "
                "repetition_penalty and stop"
            )
        # Where no scheme is named, the trainer finds the one that fits the rewards, and checks again.
        one_a_completion = self.sequence_modes or self.sums_normalised
        self.check_credit(self.credit_scheme or ("outcome" if one_a_completion else "process"))

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

    def check_credit(self, scheme: str) -> None:
        """Raise ConfigError if the other fields do not fit ``scheme``."""
        if scheme not in SCHEMES:
            raise ConfigError(f"credit_scheme: unknown scheme {scheme!r}; choose one of {', '.join(SCHEMES)}")
        if self.sequence_modes and not SCHEMES[scheme].per_completion:
            *others, last = [repr(name) for name, known in SCHEMES.items() if known.per_completion]
            name = self.sequence_modes[0]
            raise ConfigError(
                f"{name}: {getattr(self, name)!r} needs one advantage a completion, and {scheme!r} gives each token "
                f"its own; leave it out, or choose the credit_scheme {', '.join(others)} or {last}"
            )
        if self.sequence_modes and self.oar:
            raise ConfigError(
                f"{self.sequence_modes[0]}: it needs one advantage a completion, and oar gives each token its own; "
                "leave one of the two out"
            )
        if self.sums_normalised and not SCHEMES[scheme].outcome_only:
            raise ConfigError(
                f"multi_objective_aggregation: 'normalize_then_sum' is about outcome rewards and {scheme!r} credits "
                "steps; choose 'sum_then_normalize', or the credit_scheme 'outcome'"
            )
        if self.sums_normalised and (stated := {"normalise", "scale"} & set(self.credit_options)):
            raise ConfigError(
                f"credit_options: {min(stated)!r} is settled by multi_objective_aggregation='normalize_then_sum', "
                "which divides by the standard deviation of the batch; leave one of the two out"
            )
        if reserved := {"scheme", *SHARED, "step_starts", "outcome_rewards", "masks", "token_ids", "importances"} & set(
            self.credit_options
        ):
            raise ConfigError(f"credit_options: {sorted(reserved)[0]!r} has a field of its own; set that")
        default = {option.name: option.default for option in SCHEMES[scheme].options}.get("normalise", "pooled")
        if self.scale_rewards == "batch" and default != "pooled" and "normalise" not in self.credit_options:
            raise ConfigError(
                f"scale_rewards: 'batch' would replace the {default!r} normalisation of {scheme!r}; leave "
                "it at 'group', or say credit_options={'normalise': 'batch'}"
            )
        try:
            assign_credit([], [], [], scheme, outcome_rewards=[], token_ids=[], states=[], **self.credit_keywords())
        except CreditError as error:
            raise ConfigError(f"credit_options: {error}") from error

    def credit_keywords(self) -> dict[str, Any]:
        """Return ``assign_credit``'s keywords: TRL's ``scale_rewards``, and ``credit_options`` over it."""
        by_trl: dict[str, dict[str, Any]] = {"batch": {"normalise": "batch"}, "none": {"scale": False}}
        scaling = by_trl.get("batch" if self.sums_normalised else str(self.scale_rewards), {})
        weighing = {"oar": self.oar, "oar_threshold": self.oar_threshold, "oar_boost": self.oar_boost}
        modifiers = {"outcome_weight": self.outcome_weight, "clip": self.credit_clip, "gate": self.gate, **weighing}
        return {**scaling, **modifiers, **self.credit_options}
