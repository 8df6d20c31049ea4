"""What a model makes of a stored row at one step of training: a number for each token of each of its texts.

A row's texts are fixed (a demonstration, the two sides of a pair, a labelled answer), so that two looks at it differ by
the model alone. What the numbers are is said by ``TokenMeasure``; how they are computed is the training method's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.schema.rollouts import Rollout
from workbench.schema.scores import StepScores


@dataclass(frozen=True)
class TokenMeasure:
    """What tokens are coloured by: ``label`` and (on chips) ``short`` name it, ``meaning`` explains the colours.

    ``signed``: the colours have two sides; ``additive``: a step's number is the sum of its tokens', not their mean.
    """

    key: str
    label: str
    short: str
    meaning: str
    signed: bool = False
    additive: bool = False


@dataclass(frozen=True)
class WatchedText:
    """One text of a watched row.

    ``rollout`` holds its tokens, ``scored`` its steps, whose rewards are their labels where the row has any.
    ``values[key]`` has one number a token, and ``numbers`` what is known of the whole text, by name.
    """

    name: str
    rollout: Rollout
    scored: StepScores
    values: Mapping[str, Sequence[float]]
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class WatchedRow:
    """A stored row as the model sees it after training step ``step``, beside ``before``: as it saw it at first."""

    prompt: str
    texts: tuple[WatchedText, ...]
    measures: tuple[TokenMeasure, ...]
    numbers: Mapping[str, float]
    step: int
    before: WatchedRow | None = None

    def __repr__(self) -> str:
        names = ", ".join(text.name for text in self.texts)
        since = "" if self.before is None else f" beside step {self.before.step}"
        return f"<WatchedRow: {names} at step {self.step}{since}>"


OnRows = Callable[[int, list[WatchedRow]], None]
"""Called with the optimiser step just done (0 before the first) and all watched rows as the model sees them."""
