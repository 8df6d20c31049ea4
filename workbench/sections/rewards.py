"""Sections of reward functions: built-in ones, code, reward models and Monte-Carlo values."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from workbench.schema import RewardKind
from workbench.sections.section import Section

ModelFormat = Literal["classifier", "stepwise", "ki", "extra-0", "turns"]
Reduction = Literal["last", "min", "product"]
LabelFormat = Literal["trl", "math-shepherd", "processbench"]


class ModelConfig(Section):
    path: str = Field(min_length=1)
    """The reward model: a folder saved by save_pretrained, a Hub id, or run:NAME. Only safetensors are read."""
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
    trusted: bool = False
    """Run `code` outside the seal: with the network, your files and modules, and your environment's secrets."""
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
        if self.trusted:
            return f"# trusted: runs outside the seal, with the network, your files and your secrets\n{self.code}"
        return self.code

    @property
    def leaves_the_seal(self) -> str | None:
        """What of it the page asks for before it happens, in words; None where there is nothing to ask for."""
        return "asks to run outside the seal, with the network, your files and your secrets" if self.trusted else None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum(part is not None for part in (self.code, self.model, self.monte_carlo)) > 1:
            raise ValueError(f"reward {self.name!r}: give one of code, model and monte_carlo")
        if self.trusted and self.code is None:
            raise ValueError(f"reward {self.name!r}: trusted is for code of your own, and it has none; leave it out")
        if self.monte_carlo is not None and self.kind != "step":
            raise ValueError(f"reward {self.name!r}: monte_carlo values are a step reward's; set kind to step")
        if self.model is not None and self.model.format == "classifier" and self.kind != "outcome":
            raise ValueError(
                f"reward {self.name!r}: a classifier scores whole completions; set kind to outcome, or format to that "
                "of a process reward model"
            )
        return self
