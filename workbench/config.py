"""The configuration of one run: a tree of typed fields that is YAML, command line and form at once.

Every field carries its help text and its range; a value out of range is refused with the field's name, the value and
what would fit. A field's default is what a laptop's CPU runs well on the embedded policy. This module knows nothing
of torch, gradio or TRL: ``training`` turns a ``RunConfig`` into a trainer's arguments.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from workbench.errors import ConfigError
from workbench.redact import redact, redact_known
from workbench.schema import RewardKind

LossType = Literal["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo"]
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _without_secrets(cls, value: Any) -> Any:
        """Taken out before anything is kept, so that what is shown, stored and run is one and the same."""
        return redact_known(value) if isinstance(value, str) else value


class PatternConfig(Section):
    regex: str = Field(default=r"(?m)^(?:Step \d+|Answer):", max_length=10_000)
    """Regular expression (the `regex` package's syntax) that finds the steps of an answer."""
    kind: Literal["starts", "ends", "is"] = "starts"
    """What a match is: it starts a step, ends one, or is one."""


ModelFormat = Literal["classifier", "stepwise", "ki", "extra-0", "turns"]
Reduction = Literal["last", "min", "product"]
LabelFormat = Literal["trl", "math-shepherd", "processbench"]


class ModelConfig(Section):
    path: str = Field(min_length=1)
    """The reward model: a folder saved by save_pretrained, or a Hub id. Only safetensors are read."""
    format: ModelFormat
    """What it reads and answers: classifier (whole completions), or a process reward model's format."""
    reduce: Reduction = "last"
    """How a process reward model's step scores become one score where it is used as an outcome reward."""
    output: Literal["score", "probability"] = "score"
    """Of a classifier: its logit (log-odds, with several labels), or a probability."""
    label: str | None = None
    """Of a classifier with several labels: the one that is good, by name or number."""
    separator: str | None = None
    """What stands after each step; None for the format's own."""
    batch_size: int = Field(default=16, ge=1, le=4096)
    """Completions in one forward pass."""
    trust_remote_code: bool = False
    """Run the modelling code that the model's repository brings, with your rights."""


class MonteCarloConfig(Section):
    continuations: int = Field(default=8, ge=1, le=1024)
    """Completions sampled from the end of each step."""
    outcome: str = "answer_correctness"
    """The built-in outcome reward whose mean over the continuations is the step's value."""
    progress: bool = False
    """Score a step by what it adds: its value less that of the step before it, the first less the prompt's."""


class RewardConfig(Section):
    name: str
    """A built-in reward's name, or the name of your own function in `code`."""
    kind: RewardKind = "step"
    """Whether it scores single steps or whole completions."""
    weight: float = Field(default=1.0, ge=-1000, le=1000, allow_inf_nan=False)
    """Weight of this function in the weighted sum."""
    code: str | None = None
    """Python source that defines the function; None for a built-in."""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """A built-in's options, by name: `{target_length: 80}` for `length_target`, say."""
    model: ModelConfig | None = None
    """A reward model that scores in place of a function."""
    monte_carlo: MonteCarloConfig | None = None
    """Score a step by the outcomes of completions that the policy samples from its end."""

    @property
    def is_builtin(self) -> bool:
        """Whether the name alone says what it is."""
        return self.code is None and self.model is None and self.monte_carlo is None

    @property
    def foreign(self) -> str | None:
        """What this reward runs with its user's rights: its code, or its model's repository's; None for neither."""
        if self.model is not None and self.model.trust_remote_code:
            return f"# model.trust_remote_code runs the modelling code that {self.model.path} brings"
        return self.code

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum(part is not None for part in (self.code, self.model, self.monte_carlo)) > 1:
            raise ValueError(f"reward {self.name!r}: give one of code, model and monte_carlo")
        if self.monte_carlo is not None and self.kind != "step":
            raise ValueError(f"reward {self.name!r}: monte_carlo values are a step reward's; set kind to step")
        if self.model is not None and self.model.format == "classifier" and self.kind != "outcome":
            raise ValueError(
                f"reward {self.name!r}: a classifier scores whole completions; set kind to outcome, or format to that "
                "of a process reward model"
            )
        return self


class CreditConfig(Section):
    scheme: str = "process"
    """How step rewards become token advantages: a name in `workbench.credit.SCHEMES`."""
    normalise: Literal["pooled", "per_completion", "leave_one_out", "batch", "none"] | None = None
    """What a reward is compared with; None for the scheme's own choice (mostly pooled, all steps of the group)."""
    scale: bool | None = None
    """Divide by the standard deviation (off is Dr. GRPO's choice); None for the scheme's own choice (mostly on)."""
    gamma: float | None = Field(default=None, ge=0, le=1)
    """Discount of a step for each step before it, in schemes that carry steps to earlier tokens; None for 1."""
    outcome_weight: float = Field(default=0.0, ge=-100, le=100, allow_inf_nan=False)
    """Weight of the normalised outcome reward added to every token."""
    clip: float | None = Field(default=None, gt=0)
    """Bound on the size of an advantage; None for no bound."""
    options: dict[str, float] = Field(default_factory=dict)
    """Options that only this scheme has, by name (`threshold` of first_error, `temperature` of min)."""

    def keywords(self, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
        """Everything that is set, as `assign_credit` and `credit_group` take it, without what is named in `but`."""
        given = self.model_dump(exclude={"options"}) | self.options
        return {name: value for name, value in given.items() if value is not None and name not in but}


class SamplingConfig(Section):
    num_generations: int = Field(default=8, ge=2, le=64)
    """G, the rollouts of one prompt."""
    max_completion_length: int = Field(default=128, ge=1, le=32_768)
    """Tokens after which a completion is truncated."""
    temperature: float = Field(default=1.0, gt=0, le=10)
    """Divides the logits before sampling."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this much probability."""
    top_k: int = Field(default=0, ge=0)
    """Sample from the k likeliest tokens; 0 for all."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = Field(default=1.0, gt=0, le=10)
    """Above 1 makes tokens already used less likely."""


class LoraConfig(Section):
    r: int = Field(default=16, ge=1, le=1024)
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1, le=4096)
    """Scale of the adapter."""


class TrainingConfig(Section):
    steps: int = Field(default=60, ge=1, le=1_000_000)
    """Optimiser steps."""
    prompts_per_step: int = Field(default=6, ge=1, le=4096)
    """Distinct prompts in one generation; the batch is this times G."""
    micro_batch_size: int | None = Field(default=None, ge=1)
    """Completions in one forward and backward pass; None for the whole batch."""
    learning_rate: float = Field(default=5e-4, gt=0, le=1)
    """Peak learning rate."""
    warmup_steps: int = Field(default=5, ge=0)
    """Steps over which the rate rises from 0."""
    lr_scheduler: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    """How the rate falls after warm-up."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's first decay."""
    adam_beta2: float = Field(default=0.99, ge=0, lt=1)
    """Adam's second decay."""
    adam_epsilon: float = Field(default=1e-6, gt=0)
    """Added to Adam's denominator."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(default=0.5, ge=0)
    """Gradient norm above which gradients are scaled down."""
    loss_type: LossType = "dapo"
    """How token losses are averaged (TRL's names)."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the reference policy in the loss; 0 needs no reference."""
    epsilon: float = Field(default=0.2, ge=0, lt=1)
    """Lower (and, unless set apart, upper) clip range of the ratio."""
    epsilon_high: float | None = Field(default=None, ge=0)
    """Upper clip range of the ratio."""
    num_iterations: int = Field(default=1, ge=1, le=64)
    """mu, the optimiser passes over one generation."""
    mask_truncated_completions: bool = False
    """Leave truncated completions out of the loss."""
    sync_ref_model: bool = False
    """Move the reference policy towards the policy as training goes."""
    ref_model_mixup_alpha: float = Field(default=0.6, ge=0, le=1)
    """alpha in pi_ref <- alpha pi + (1 - alpha) pi_ref."""
    ref_model_sync_steps: int = Field(default=512, ge=1)
    """Steps between two such moves."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the backward pass."""
    lora: LoraConfig | None = None
    """Train an adapter instead of all weights."""
    eval_every: int = Field(default=4, ge=0)
    """Steps between two measures of held-out accuracy; 0 for none."""
    eval_prompts: int = Field(default=200, ge=1)
    """Held-out prompts in one measure."""
    watch_prompts: int = Field(default=2, ge=0, le=64)
    """Prompts whose answers are sampled again and again with the same seed, to be looked at; 0 for none."""
    watch_every: int = Field(default=10, ge=1)
    """Steps between two such looks."""
    save_every: int = Field(default=20, ge=0)
    """Steps between two checkpoints to resume from, a multiple of num_iterations; 0 for none."""
    keep_checkpoints: int = Field(default=2, ge=1, le=1000)
    """Newest checkpoints that are kept."""
    rollouts_every: int = Field(default=1, ge=1)
    """Store the rollouts of every n-th generation."""
    reward_deadline: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds one reward function's code may take for a rank's whole batch."""
    on_reward_error: Literal["stop", "unscored"] = "stop"
    """When a reward function fails: stop the run, or leave what it failed on unscored."""
    max_reward_errors: int = Field(default=20, ge=0)
    """Such failures a run survives, over all ranks, if on_reward_error is unscored."""
    ranks: int = Field(default=1, ge=1, le=64)
    """Processes that share the batch."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a GPU where there is one."""
    report_to: list[Literal["trackio", "wandb", "tensorboard"]] = Field(default_factory=list)
    """Trackers that get the metrics too, beside the run's own directory; each must be installed."""


class RunConfig(Section):
    """Everything a run is made of; a run's ``run.yaml`` is this, whole."""

    name: str | None = None
    """Name of the run; None for one made from the date."""
    task: str = "chain-arithmetic"
    """A task's name, a JSONL or Parquet file of prompts and columns, or a data set of the Hub: ``hub:openai/gsm8k``."""
    policy: str = "tiny"
    """The embedded policy's name, a Hub id, or a local folder."""
    adapter: str | None = None
    """A PEFT adapter to put on the policy: a Hub id or a local folder."""
    trust_remote_code: bool = False
    """Run modelling code that the policy's own repository brings, with your rights; read it first."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of prompts order, sampling and new weights."""
    pattern: PatternConfig = Field(default_factory=PatternConfig)
    rewards: list[RewardConfig] = Field(
        default_factory=lambda: [
            RewardConfig(name="step_correctness", kind="step"),
            RewardConfig(name="answer_correctness", kind="outcome"),
        ]
    )
    credit: CreditConfig = Field(default_factory=CreditConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)

    @field_validator("name")
    @classmethod
    def _name_fits_a_folder(cls, name: str | None) -> str | None:
        if name is not None and not RUN_NAME.fullmatch(name):
            raise ValueError("use 1 to 80 letters, digits, dots, dashes and underscores, a letter or digit first")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        training, generations = self.training, self.sampling.num_generations
        if not self.rewards:
            raise ValueError("rewards: give at least one reward function")
        names = [reward.name for reward in self.rewards]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"rewards: {sorted(twice)[0]!r} is given twice; give each function its own name")
        batch = training.prompts_per_step * generations
        if batch % training.ranks:
            raise ValueError(
                f"training.ranks: a batch of {batch} completions ({training.prompts_per_step} prompts x {generations}) "
                f"does not divide over {training.ranks} ranks; make training.prompts_per_step a multiple of it"
            )
        micro = training.micro_batch_size
        if micro is not None and (batch // training.ranks) % micro:
            raise ValueError(
                f"training.micro_batch_size: {micro} does not divide the {batch // training.ranks} completions of a "
                f"rank's batch; try {_nearest_divisor(batch // training.ranks, micro)}"
            )
        kinds = {reward.kind for reward in self.rewards}
        if self.credit.scheme == "outcome" and "outcome" not in kinds:
            raise ValueError(
                "credit.scheme: 'outcome' needs an outcome reward and every one given scores steps; add one "
                "(answer_correctness, say), or choose a scheme that credits steps"
            )
        if self.credit.scheme != "outcome" and "step" not in kinds and not self.credit.outcome_weight:
            raise ValueError(
                f"credit.scheme: {self.credit.scheme!r} needs a step reward and every one given scores whole "
                "completions, so nothing would be learnt; add a step reward, or choose the scheme 'outcome'"
            )
        if self.credit.outcome_weight and "outcome" not in kinds:
            raise ValueError(
                f"credit.outcome_weight: {self.credit.outcome_weight} weighs an outcome reward and there is none; "
                "add one, or set it to 0"
            )
        if self.adapter is not None and training.lora is not None:
            raise ValueError(
                f"training.lora: the policy has the adapter {self.adapter!r} already, which is trained on; leave "
                "training.lora out, or the adapter"
            )
        if training.ranks > 1 and training.prompts_per_step % training.ranks:
            split = [one.name for one in self.rewards if one.monte_carlo is not None and one.monte_carlo.progress]
            if split:
                raise ValueError(
                    f"training.prompts_per_step: {training.prompts_per_step} prompts on {training.ranks} ranks split a "
                    f"group, and {split[0]!r} needs its whole group on one; make it a multiple of {training.ranks}"
                )
        if training.sync_ref_model and training.beta == 0:
            raise ValueError("training.sync_ref_model: there is no reference policy to move while beta is 0; set beta")
        if training.sync_ref_model and training.lora is not None:
            raise ValueError("training.sync_ref_model: an adapter's reference is the policy without it; turn one off")
        if training.loss_type == "cispo" and (training.epsilon_high is None or training.epsilon_high < 1):
            raise ValueError(
                f"training.epsilon_high: {training.epsilon_high} would cap cispo's ratio below 1 and scale every "
                "gradient down; cispo's cap is the ratio itself, set it to 5"
            )
        every = training.num_iterations
        if training.save_every % every:
            nearest = max(1, round(training.save_every / every)) * every
            if "save_every" in training.model_fields_set:
                raise ValueError(
                    f"training.save_every: {training.save_every} falls inside a generation of {every} iterations; "
                    f"the nearest that does not is {nearest}"
                )
            training.save_every = nearest
        return self

    def to_yaml(self) -> str:
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        return text

    @classmethod
    def from_yaml(cls, text: str) -> RunConfig:
        """Raises ConfigError, with a line for every field that does not fit."""
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"the configuration is not YAML: {error}") from error
        return cls.parse(data if data is not None else {})

    @classmethod
    def parse(cls, data: Any) -> RunConfig:
        """``model_validate`` whose refusal is a ConfigError a person can read."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ConfigError("\n".join(_readable(one) for one in error.errors())) from error

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        return cls.from_yaml(path.read_text(encoding="utf-8"))


def _nearest_divisor(batch: int, wanted: int) -> int:
    return min((n for n in range(1, batch + 1) if batch % n == 0), key=lambda n: abs(n - wanted))


_SHOWN = 120  # characters of a wrong value


def _readable(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    message: str = error["msg"].removeprefix("Value error, ")
    if error["type"] in _OUT_OF_RANGE and (limits := _limits(error["loc"])):
        message = f"out of range, which is {limits}"
    if not where:
        return redact(message)
    if isinstance(error["input"], dict):
        return redact(f"{where}: {message}")
    _, _, value = redact(f"{where}={error['input']!r}").partition("=")  # a field's name may say that it is a secret
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…, {len(value):,} characters"
    return f"{where}: {message} (got {shown})"


_OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
_LIMITS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))


def _limits(place: tuple[str | int, ...]) -> str:
    """A field's whole range in words, whichever end of it a value missed."""
    model: Any = RunConfig
    for name in place[:-1]:
        field = model.model_fields.get(name)
        model = next((kind for kind in (field.annotation, *get_args(field.annotation)) if _is_section(kind)), None)
        if model is None:
            return ""
    rules = model.model_fields[place[-1]].metadata
    found = [f"{word} {getattr(rule, key):g}" for rule in rules for key, word in _LIMITS if hasattr(rule, key)]
    return " and ".join(found) or "any finite number"


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
