"""Sections of reward functions: built-in ones, code, reward models, judges, Monte-Carlo values and beliefs."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import numpy as np
from pydantic import Field, field_validator, model_validator

from workbench.config.section import Section
from workbench.schema import RewardKind

Point = tuple[int, float]
"""A step, and the weight there."""
MOST_POINTS = 1000


def weight_at(schedule: Sequence[Point], step: int) -> float:
    """Return the weight at a step: linear between two points, before the first and behind the last what it is there."""
    steps, weights = zip(*schedule, strict=True)
    return float(np.interp(step, steps, weights))


def schedule_text(schedule: Sequence[Point]) -> str:
    """Return the points as ``--reward-schedule`` takes them: ``0:1,60:0``."""
    return ",".join(f"{step}:{weight:g}" for step, weight in schedule)


def read_schedule(text: str) -> list[Any]:
    """Return the points of ``STEP:WEIGHT,…`` as they stand there. Raises ValueError for what is not so written."""
    points = []
    for part in text.split(","):
        step, colon, weight = part.strip().partition(":")
        if not colon:
            raise ValueError(f"schedule: {part.strip()[:80]!r} is no STEP:WEIGHT; write 0:1,60:0, say")
        points.append([step, weight])
    return points


ModelFormat = Literal["classifier", "stepwise", "ki", "extra-0", "turns", "implicit"]
Reduction = Literal["last", "min", "product"]
LabelFormat = Literal["trl", "processbench"]


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
    end_token: bool | None = None
    """Of a classifier: plain text ends with the end token, as in TRL's RewardTrainer; None: as its files say."""
    separator: str | None = None
    """What stands after each step; None for the format's own."""
    batch_size: int = Field(default=16, ge=1, le=4096)
    """Completions in one forward pass."""
    quantisation: Literal["none", "8bit", "4bit"] = "none"
    """Hold its weights, but for the head, in 4 or 8 bits, by bitsandbytes."""
    trust_remote_code: bool = False
    """Run the modelling code that the model's repository brings, with your rights."""


class MonteCarloConfig(Section):
    continuations: int = Field(default=8, ge=1, le=1024)
    """Completions sampled from the end of each step."""
    outcome: str = "answer_correctness"
    """The built-in outcome reward whose mean over the continuations is the step's value."""
    progress: bool = False
    """Score a step by what it adds: its value less that of the step before it, the first less the prompt's."""


BeliefForm = Literal["value", "difference", "watermark"]


class BeliefConfig(Section):
    form: BeliefForm = "difference"
    """What a step scores: the belief after it (value), its change by the step, or its rise above the best so far."""
    of: Literal["answer", "reference"] = "answer"
    """Belief in the column `answer`, or in what the reference solution has after as many steps."""
    per_token: bool = Field(default=True, title="Mean over its tokens")
    """The mean log-probability of a token, in place of the sum over the tokens."""
    log: bool = Field(default=False, title="Log-probabilities")
    """Score log-probabilities, in place of probabilities."""
    introduction: str | None = Field(default=None, title="Text before the answer", max_length=1000)
    """The text before the answer, "\\n#### " say; None for what the prompt or the reference solution asks for."""
    policy: str | None = Field(default=None, title="Belief of another policy")
    """Whose belief: a folder saved by save_pretrained, a Hub id or run:NAME with the policy's tokenizer; None: the
    policy's own."""


RUBRIC = "Is the reasoning correct? Judge each step by itself: is what it says true, and does it follow?"


class JudgeConfig(Section):
    base_url: str = Field(title="Endpoint (base URL)", max_length=500)
    """An OpenAI-compatible endpoint, a local server's too: http://127.0.0.1:8000/v1, say."""
    model: str = Field(min_length=1, max_length=200)
    """The judge's name at that endpoint."""
    rubric: str = Field(default=RUBRIC, min_length=1, max_length=20_000)
    """What it is to judge by; {answer} stands for the column `answer` of the data's row."""
    key_variable: str | None = Field(default=None, title="Variable with its key")
    """Name of the environment variable with the API key (leave empty if none)."""
    lowest: float = Field(title="Worst score", default=0.0, ge=-1000, le=1000)
    """The worst score it may give."""
    highest: float = Field(title="Best score", default=1.0, ge=-1000, le=1000)
    """The best score it may give."""
    temperature: float | None = Field(default=0.0, ge=0, le=10)
    """Temperature of its answers; None leaves it to the endpoint."""
    max_tokens: int = Field(default=2048, ge=16, le=1_000_000)
    """Most tokens of its answer."""
    extra: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further fields of the request; max_completion_tokens takes the place of max_tokens."""
    max_calls: int = Field(title="Most requests", default=1000, ge=1, le=10_000_000)
    """Requests that a run, or an open page, sends it at most, retries included."""
    concurrency: int = Field(title="At once", default=8, ge=1, le=256)
    """Requests that are under way at once, for each rank."""
    timeout: float = Field(title="Timeout (s)", default=60.0, gt=0, le=3600)
    """Seconds one request may take."""
    retries: int = Field(default=4, ge=0, le=20)
    """Times that a request is sent again after a timeout, status 429 or a server's error."""
    cache: bool = Field(default=True, title="Keep its answers")
    """Keep its answers in the workspace and ask the same only once."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("give an address such as https://api.openai.com/v1, or http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ValueError("leave the password out; key_variable names the variable that holds a key")
        return url.rstrip("/")

    @field_validator("key_variable")
    @classmethod
    def _is_a_variable(cls, name: str | None) -> str | None:
        if not name:
            return None
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,79}", name):
            raise ValueError("give the name of an environment variable, OPENAI_API_KEY say, never the key itself")
        return name

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest: {self.lowest:g} is not below highest, {self.highest:g}; swap them")
        return self


ScheduledWeight = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]


class RewardSection(Section):
    """A reward function. ``rewards.RewardConfig`` also reads it from a file and finds its kind."""

    name: str
    """A built-in reward's name, the name of your own function in `code`, or FILE.py::NAME to read it from a file."""
    kind: RewardKind = "step"
    """Whether it scores single steps or whole completions; by default what its function does."""
    weight: float = Field(default=1.0, ge=-1000, le=1000, allow_inf_nan=False)
    """Weight of this function in the weighted sum."""
    schedule: list[tuple[int, ScheduledWeight]] = Field(default_factory=list, max_length=MOST_POINTS)
    """Weights by the step of training, in place of `weight`: [[step, weight], …], straight lines between them."""
    code: str | None = None
    """Python source that defines the function; None for a built-in."""
    folder: str | None = None
    """The folder of modules that `code` imports: that of the file it was read from."""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """A built-in's options, by name: `{target_length: 80}` for `length_target`, say."""
    model: ModelConfig | None = None
    """A reward model that scores in place of a function."""
    judge: JudgeConfig | None = None
    """A language model at an endpoint that scores steps or whole completions by a rubric."""
    monte_carlo: MonteCarloConfig | None = None
    """Score a step by the outcomes of completions that the policy samples from its end."""
    belief: BeliefConfig | None = None
    """Score a step by the policy's own log-probability of the right answer at its end."""

    def weight_at(self, step: int) -> float:
        """Its weight after so many optimiser steps."""
        return weight_at(self.schedule, step) if self.schedule else self.weight

    @property
    def weight_text(self) -> str:
        """Its weight behind its name: " × 0.5", " × 1 at step 0 → 0 at step 60"; "" for 1."""
        if not self.schedule:
            return "" if self.weight == 1 else f" × {self.weight:g}"
        return " × " + " → ".join(f"{weight:g} at step {step}" for step, weight in self.schedule)

    @property
    def points(self) -> tuple[Point, ...]:
        """The schedule; none where its weight is always the same."""
        return tuple(self.schedule)

    @property
    def is_builtin(self) -> bool:
        """Return whether the name alone says what it is."""
        return not any(part is not None for part in self._parts)

    @property
    def asks_policy(self) -> bool:
        """Return whether the policy scores, by what it samples or by its log-probabilities."""
        return self.monte_carlo is not None or self.belief is not None

    @property
    def _parts(self) -> tuple[object, ...]:
        """Return the fields of which one at most is set; without any, the name says what it is."""
        return self.code, self.model, self.judge, self.monte_carlo, self.belief

    @model_validator(mode="after")
    def _has_one_weight(self) -> Self:
        if self.schedule and self.schedule[0][0] < 0:
            raise ValueError(f"schedule: step {self.schedule[0][0]} is before the first one; begin at 0 or later")
        for (before, _), (after, _) in pairwise(self.schedule):
            if after <= before:
                raise ValueError(f"schedule: step {after} follows step {before}; give each step once, in rising order")
        if self.schedule and self.weight != 1:
            raise ValueError(
                f"reward {self.name!r}: weight {self.weight:g} stands beside a schedule, which says the weight at "
                "every step; leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum(part is not None for part in self._parts) > 1:
            raise ValueError(f"reward {self.name!r}: give one of code, model, judge, monte_carlo and belief")
        if self.asks_policy and self.kind != "step":
            raise ValueError(f"reward {self.name!r}: what the policy scores is a step reward's; set kind to step")
        if self.model is not None and self.model.format == "classifier" and self.kind != "outcome":
            raise ValueError(
                f"reward {self.name!r}: a classifier scores whole completions; set kind to outcome, or format to that "
                "of a process reward model"
            )
        return self
