"""The messages to the heatmap's scripts, as typed dictionaries; their own types are made of them at lint time.

Offsets count UTF-16 units, as JavaScript does.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from workbench.schema import ASSISTANT, LossSettings, Rollout, Term, TokenMeasure, Turn

Scores = Mapping[str, float | None]
"""Score by reward function; None where none was given."""


Said = Sequence[tuple[str, str | None]]
"""A sentence in pieces, each with what it points at."""


class ExplainedPayload(TypedDict):
    """The value of the tokens ``first`` to ``last``, whose terms are the same, and the sentence about it."""

    first: int
    last: int
    total: float
    clip: float | None
    said: Said


class WhyPayload(ExplainedPayload):
    """The terms of one token."""

    list: Sequence[Mapping[str, Any]]


class StretchPayload(ExplainedPayload):
    """Tokens with the same terms; ``terms`` are runs of indices into the rollout's."""

    terms: Sequence[Sequence[int]]


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


class LossPassesPayload(TypedDict):
    """A loss's name, and the optimiser steps over a group; its settings have the names of ``schema.LossSettings``."""

    type: str
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
    loss: NotRequired[Mapping[str, Any]]
    other: NotRequired[OtherPayload]
    measures: NotRequired[Sequence[TokenMeasure]]
    facts: NotRequired[Sequence[FactPayload]]
    step: NotRequired[int]
    before: NotRequired[int | None]


DATACLASSES = {
    "TermPayload": Term,
    "MeasurePayload": TokenMeasure,
    "LossPayload": (LossSettings, LossPassesPayload),
}
"""Sent field by field, several as one."""


# --- values as the scripts read them ----------------------------------------------------------------------------------


def rounded(values: Sequence[float] | npt.NDArray[np.float32] | None, digits: int = 5) -> list[float] | None:
    return None if values is None else np.round(np.asarray(values, np.float64), digits).tolist()


def utf16_offsets(text: str) -> Callable[[int], int]:
    """Return a function from character offsets of ``text`` to UTF-16 offsets: each astral character counts twice."""
    astral = [i for i, character in enumerate(text) if ord(character) > 0xFFFF]
    return lambda position: position + bisect_right(astral, position - 1)


OBSERVATION = "observation"
"""The role of a stretch that nothing but a mask tells of."""
_LINE = re.compile(r"[ \t]*call:(.*)")
_TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_END = re.compile(r"\s*(?:<[^<>\s]{1,40}>)?\s*")  # what may follow a call: an end-of-sequence token
_LONGEST_NAME = 60


def turns_payload(rollout: Rollout) -> list[TurnPayload]:
    """Return every stretch of an episode, in order; of a completion that is none, nothing."""
    if not rollout.is_episode:
        return []
    return [_turn_payload(turn, "".join(rollout.texts[turn.start : turn.end])) for turn in _turns(rollout)]


def _turns(rollout: Rollout) -> Iterable[Turn]:
    """Return an episode's turns; a mask says no more than where they are."""
    if rollout.turns or rollout.mask is None:
        return rollout.turns
    runs = [(sampled, [*run]) for sampled, run in groupby(range(len(rollout)), key=rollout.is_sampled)]
    return [Turn(ASSISTANT if sampled else OBSERVATION, run[0], run[-1] + 1) for sampled, run in runs]


def _turn_payload(turn: Turn, text: str) -> TurnPayload:
    payload: TurnPayload = {
        "role": turn.role,
        "sampled": turn.is_sampled,
        "start": turn.start,
        "end": turn.end,
        "seconds": round(turn.seconds, 4),
        "error": turn.error,
        "note": turn.note,
    }
    if turn.is_sampled and (names := find_calls(text)):
        payload["calls"] = names
        payload["isCall"] = bool(_END.fullmatch(_LINE.sub("", _TOOL_CALL.sub("", text))))
    return payload


def find_calls(text: str) -> list[str]:
    """Return the tool that each call of a turn names, "" where it names none."""
    names = ["" for line in text.splitlines() if _LINE.match(line)]
    for call in _TOOL_CALL.findall(text):
        try:
            name = json.loads(call)["name"]
        except (ValueError, RecursionError, LookupError, TypeError):
            name = None
        names.append(name[:_LONGEST_NAME] if isinstance(name, str) else "")
    return names
