"""The messages to the heatmap's scripts, as typed dictionaries; their own types are made of them at lint time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from workbench.schema.credit import Term

Scores = Mapping[str, float | None]
"""Score by reward function; None where none was given."""


Said = Sequence[tuple[str, str | None]]
"""A sentence in pieces, each with what it points at."""


class WhyPayload(TypedDict):
    """The terms of one token."""

    first: int
    last: int
    list: Sequence[Mapping[str, Any]]
    total: float
    clip: float | None
    said: Said


class StretchPayload(TypedDict):
    """Tokens with the same terms; ``terms`` are runs of indices into the rollout's."""

    first: int
    last: int
    terms: Sequence[Sequence[int]]
    total: float
    clip: float | None
    said: Said


Logged = Sequence[tuple[str, str, Any]]
"""(reward function, column, value) of what was logged beside a score."""


class StepPayload(TypedDict):
    """``start`` and ``end`` are UTF-16 offsets, ``first`` and ``last`` tokens; ``label`` is one given by hand.

    ``culprit`` is the token at which a wrong step goes wrong, where the task says what would be right.
    """

    start: int
    end: int
    first: int
    last: int
    reward: float | None
    normalised: float | None
    scores: Scores
    culprit: NotRequired[int]
    logged: NotRequired[Logged]
    label: NotRequired[bool | None]


class CreditedPayload(TypedDict):
    """A rollout under one scheme; ``counted`` says whether the loss counts it."""

    advantages: Sequence[float]
    matched: bool
    unsplit: NotRequired[bool]
    steps: Sequence[StepPayload]
    outcome: float | None
    outcomes: Scores
    logged: NotRequired[Logged]
    extracted: NotRequired[str]
    matches: Sequence[Sequence[int]]
    counted: NotRequired[bool]
    terms: NotRequired[Sequence[Mapping[str, Any]]]
    why: NotRequired[Sequence[StretchPayload]]


class MeasurePayload(TypedDict):
    """A quantity that a watched row's tokens are coloured by; see ``schema.TokenMeasure``."""

    key: str
    label: str
    short: str
    meaning: str
    signed: bool
    additive: bool


class FactPayload(TypedDict):
    """A number of a watched row or text, now and at the first look (None where that is the one shown)."""

    name: str
    value: float
    before: float | None


class BeforePayload(TypedDict):
    """A watched text as the model saw it at first."""

    values: Mapping[str, Sequence[float]]
    logprobs: Sequence[float] | None
    reference: NotRequired[Sequence[float]]
    raw: NotRequired[Sequence[float]]


class PassPayload(TypedDict):
    """An optimiser step: its ``router`` loss and the contributions of its batch in all, and the trainer's own loss."""

    step: int
    number: int
    total: float
    logged: float | None
    router: float


class LossPayload(TypedDict):
    """A loss, under TRL's names; see ``schema.LossSettings``."""

    type: str
    epsilon: float
    epsilonHigh: float
    delta: float | None
    beta: float
    klTimesRatio: bool
    sequenceRatio: bool
    sapoTemperatures: Sequence[float]
    vespoK: Sequence[float]
    vespoLambda: Sequence[float]
    passes: Sequence[PassPayload]


class SeenPayload(TypedDict):
    """A rollout as a pass saw it; None where it was left out, or the ratio is taken to its own numbers. ``bonus`` is
    what an entropy bonus adds to the loss."""

    logprobs: Sequence[float] | None
    old: Sequence[float] | None
    weights: NotRequired[Sequence[float]]
    bonus: NotRequired[Sequence[float]]


class RolloutLossPayload(TypedDict):
    """``coefficients`` by loss type; ``sampled`` is 0 for what the policy did not sample, where there is any."""

    coefficients: Mapping[str, float]
    passes: Sequence[SeenPayload]
    sampled: NotRequired[Sequence[int]]


class TurnPayload(TypedDict):
    """A stretch of an episode, end exclusive; ``calls`` are the tools it calls, ``isCall`` that it is all calls."""

    role: str
    sampled: bool
    start: int
    end: int
    seconds: float
    error: str | None
    note: str
    calls: NotRequired[Sequence[str]]
    isCall: NotRequired[bool]


class RolloutPayload(TypedDict):
    """A rollout, and where it is scored the fields of ``CreditedPayload``; a watched text has a ``name``.

    ``copyOf`` is the first rollout that an exact copy is one of (0-based), ``remark`` what a card says after the
    verdict, ``under`` the advantage of each step's last token under other schemes.
    """

    ids: Sequence[int]
    texts: Sequence[str]
    finished: bool
    stop: NotRequired[str]
    logprobs: Sequence[float] | None
    entropies: Sequence[float] | None
    copyOf: NotRequired[int]
    turns: NotRequired[Sequence[TurnPayload]]
    raw: NotRequired[Sequence[float]]
    reference: NotRequired[Sequence[float]]
    normalisers: NotRequired[Mapping[str, float]]
    loss: NotRequired[RolloutLossPayload]
    twin: NotRequired[CreditedPayload]
    remark: NotRequired[str]
    under: NotRequired[Mapping[str, Sequence[float]]]
    name: NotRequired[str]
    values: NotRequired[Mapping[str, Sequence[float]]]
    facts: NotRequired[Sequence[FactPayload]]
    before: NotRequired[BeforePayload]


class NoSpreadPayload(TypedDict):
    """The reason that every advantage is 0, and the labels of the remedies."""

    reason: str
    advice: str
    remedies: Sequence[str]


class SchemePayload(TypedDict):
    """``carry`` is how what a step is worth reaches tokens (``schema.Carry``)."""

    scheme: str
    formula: str
    counts: str
    carry: str
    options: Mapping[str, Any]
    mean: float | None
    std: float | None
    spread: bool
    noSpread: NoSpreadPayload | None
    warnings: Sequence[str]


class OtherPayload(SchemePayload):
    """The second scheme, drawn beside the first."""

    names: Sequence[str]


class GlancePayload(TypedDict):
    """A fact about a group, and what a page can do about it."""

    said: Said
    detail: Said
    action: str
    label: str


class GroupPayload(TypedDict):
    """A group, and where it is scored the fields of ``SchemePayload``; a watched row has ``measures``.

    ``order`` are its rollouts, the surprising ones first, ``opens`` the rollout and step that are explained first, and
    ``source`` says where the drawing comes from.
    ``step`` and ``before`` are the training steps of the look that is shown and of the first one.
    """

    prompt: str
    policy: NotRequired[str]
    rollouts: Sequence[RolloutPayload]
    rewards: NotRequired[Sequence[Mapping[str, Any]]]
    judges: NotRequired[Mapping[str, str | None]]
    normalisers: NotRequired[bool]
    said: NotRequired[Sequence[Said]]
    glance: NotRequired[Sequence[GlancePayload]]
    order: NotRequired[Sequence[int]]
    opens: NotRequired[tuple[int, int] | None]
    source: NotRequired[Sequence[tuple[str, str]]]
    loss: NotRequired[LossPayload]
    other: NotRequired[OtherPayload]
    measures: NotRequired[Sequence[MeasurePayload]]
    facts: NotRequired[Sequence[FactPayload]]
    step: NotRequired[int]
    before: NotRequired[int | None]


DATACLASSES = {"TermPayload": Term}
"""Sent field by field."""
