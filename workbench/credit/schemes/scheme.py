"""What a credit scheme is: a function of a batch, the parts that it returns, and what it needs of a group.

Laying parts out in tokens and explaining them is the parts' own business (``schema.credit``). Knows no scheme by name.

Notation of all schemes: completion i has steps k with rewards r_{i,k} that end at token e_{i,k}; R_i is its outcome
reward; r~ and z are the normalisation of ``normalise`` over the group's scored values (or whatever ``normalise``
selects).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from workbench.credit.batch import Batch, Floats
from workbench.credit.normalise import Normalise, Normalised, z_within
from workbench.credit.options import Option, Range, options_of
from workbench.schema import Carry, CreditPart, PartKind
from workbench.schema.credit import Unit

Gamma = Annotated[float, Range("Discount of a step for each step before it", 0.0, 1.0)]
Threshold = Annotated[float, Range("A step with a lower reward is an error", -1e6, 1e6)]
RightFrom = Annotated[float, Range("An answer whose outcome reward is at least this is right", -1e6, 1e6)]

Need = Literal["steps", "outcome", "token_ids", "states"]
"""What a scheme cannot do without: step rewards, outcome rewards, the completions' token ids, the states in which steps
begin."""


@dataclass(frozen=True)
class Part:
    """A ``CreditPart`` of a whole batch, before it is cut into groups.

    ``values`` has an entry a step, a sampled token where that is the ``unit``, or a completion for the carry ``all``;
    ``factor`` (None for 1) multiplies it.
    """

    kind: PartKind
    carry: Carry
    values: Normalised
    factor: Floats | None = None
    gamma: float = 1.0
    warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a completion, by its number in the batch."""
    group_warnings: dict[int, str] = field(default_factory=dict)
    """What to say of a group, by its number in the batch."""
    unit: Unit = "step"

    def of_members(self, batch: Batch, first: int, after: int) -> CreditPart:
        """The part of the completions ``first`` to ``after`` (exclusive) of the batch."""
        offsets = self._offsets(batch)[first : after + 1]
        entries = slice(offsets[0], offsets[-1])
        factor = np.ones(len(self.values.raw)) if self.factor is None else self.factor
        values = self.values
        return CreditPart(
            self.kind,
            self.carry,
            offsets - offsets[0],
            values.raw[entries],
            values.mean[entries],
            values.std[entries],
            values.value[entries],
            factor[entries],
            self.gamma,
            self.unit,
        )

    def has_spread(self, batch: Batch, first: int, after: int) -> bool:
        """Whether anything differs among what the completions ``first`` to ``after`` (exclusive) are compared by."""
        offsets = self._offsets(batch)
        return bool(self.values.spread[offsets[first] : offsets[after]].any())

    def _offsets(self, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Where each completion's entries lie, (B + 1,)."""
        if self.carry == "all":
            return np.arange(batch.completions + 1)
        return batch.token_offsets if self.unit == "token" else batch.offsets


@dataclass(frozen=True)
class Scheme:
    name: str
    formula: str
    reference: str
    compute: Callable[..., Part | tuple[Part, ...]]
    """The parts whose sum an advantage is; the first one's numbers are shown beside the steps."""
    counts: str = ""
    """What a token's advantage is made of, in words."""
    needs: tuple[Need, ...] = ("steps",)
    per_completion: bool = False
    """All tokens of a completion have the same advantage."""

    @property
    def summary(self) -> str:
        return (self.compute.__doc__ or "").strip().splitlines()[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """The scheme's own options, from its signature."""
        return options_of(self.compute)

    @property
    def outcome_only(self) -> bool:
        """It reads outcome rewards alone, so that step rewards teach nothing under it."""
        return "steps" not in self.needs and "states" not in self.needs


def pooled(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a step, compared with all steps of its group."""
    return z_within(values, batch.step_group, batch.completion, how, scale)


def by_completion(batch: Batch, values: Floats, how: Normalise, scale: bool) -> Normalised:
    """One value a completion, compared with all completions of its group."""
    return z_within(values, batch.group, np.arange(batch.completions), how, scale)


def outcomes_of(batch: Batch) -> Floats:
    """R of each completion, (B,), of a batch whose scheme needs it."""
    assert batch.outcomes is not None, "what a scheme needs is checked before it is computed"
    return batch.outcomes
