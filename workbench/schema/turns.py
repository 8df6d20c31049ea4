"""Episodes: completions of several turns, between which a tool or an environment wrote.

A turn of the policy's is a run of tokens that it sampled; an observation is what was written to it in answer, whose
tokens the policy never sampled. Nothing here knows who answers (``environments``) nor how either is sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby
from typing import Any

ASSISTANT, ENVIRONMENT, TOOL = "assistant", "environment", "tool"
"""Roles of a turn; every role but the first is that of an observation."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One stretch of an episode: a turn of the policy's, or an observation.

    ``start`` and ``end`` are token indices into the completion, end exclusive; an empty observation has no token.
    ``role`` says who wrote it: ``assistant`` is the policy. ``seconds`` is what writing it took, and no part of what
    makes two turns equal. ``error`` is why the environment gave no answer to this turn, ``note`` what else is to be
    said of it (an observation that was cut, text that the environment printed). ``state`` is what the environment
    called the state in which this turn began, None where it does not name its states.
    """

    role: str
    start: int
    end: int
    seconds: float = field(default=0.0, compare=False)
    error: str | None = None
    note: str = ""
    state: str | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether the policy wrote it."""
        return self.role == ASSISTANT

    def to_json(self) -> dict[str, Any]:
        """Plain values, without what is as by default."""
        values = asdict(self)
        defaults = {part.name: part.default for part in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """Raises ValueError, KeyError or TypeError for what is no turn."""
        error, state = data.get("error"), data.get("state")
        if type(data["start"]) is not int or type(data["end"]) is not int:
            raise ValueError("'start' and 'end' of a turn must be token indices")
        return cls(
            role=str(data["role"]),
            start=data["start"],
            end=data["end"],
            seconds=float(data.get("seconds", 0.0)),
            error=None if error is None else str(error),
            note=str(data.get("note", "")),
            state=None if state is None else str(state),
        )


def checked_turns(turns: Sequence[Turn], length: int) -> tuple[Turn, ...]:
    """The turns of a completion of ``length`` tokens: in order, without a gap. Raises ValueError for others."""
    at = 0
    for turn in turns:
        if turn.start != at or turn.end < at:
            raise ValueError(f"a turn covers the tokens {turn.start} to {turn.end}; it must begin at token {at}")
        at = turn.end
    if turns and at != length:
        raise ValueError(f"'turns' end at token {at} of {length}")
    return tuple(turns)


def sampled_runs(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The (first, last) tokens of each run of tokens that the policy sampled."""
    for sampled, run in groupby(range(len(mask)), key=lambda token: bool(mask[token])):
        if sampled:
            tokens = list(run)
            yield tokens[0], tokens[-1]


def state_of(observation: str) -> str:
    """What stands for the state that an observation leads to where the environment names none."""
    return hashlib.sha256(observation.encode(errors="surrogatepass")).hexdigest()[:16]
