"""Rewards that a credit does not use, and why a group has no spread under a scheme.

A scheme reads step rewards or outcome rewards; the others reach tokens through ``outcome_weight`` or not at all. Where
only rewards that are left out differ in a group, every advantage is 0 although there is something to learn. A remedy is
a change of settings that was tried on the group and gives it spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.credit.assign import credit_group
from workbench.credit.critic import COUNTS, GAE
from workbench.credit.options import SHARED
from workbench.credit.schemes import SCHEMES, find_scheme
from workbench.errors import CreditError
from workbench.schema import Credit, PartKind, RewardKind

NO_SPREAD = "No spread: every advantage is 0, there is nothing to learn from this group"


@dataclass(frozen=True)
class Remedy:
    """Settings of the credit, by name, under which the group has spread; ``label`` says them in words."""

    label: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class NoSpread:
    """Why every advantage of a group is 0. ``cause`` is "" where all rewards are equal, which no setting changes."""

    cause: str = ""
    remedies: tuple[Remedy, ...] = ()

    @property
    def advice(self) -> str:
        """The remedies in a line: "outcome weight 1, or scheme outcome"."""
        return ", or ".join(f"{remedy.label[:1].lower()}{remedy.label[1:]}" for remedy in self.remedies)

    def __str__(self) -> str:
        return f"Every advantage is 0: {self.cause}" if self.cause else NO_SPREAD


def unused_rewards(credit: Credit) -> dict[str, str]:
    """Why a reward function plays no part in the advantages, by the names of those that do not."""
    read = _kinds_read(credit)
    unused = {}
    for reward in credit.scored.rewards:
        if reward.weight == 0:
            unused[reward.name] = "its weight is 0"
        elif reward.kind not in read:
            left_out = "outcome weight is 0" if reward.kind == "outcome" else f"{credit.scheme} reads outcomes alone"
            unused[reward.name] = left_out
    return unused


def what_counts(credit: Credit) -> str:
    """What a token's advantage is made of, in words, and whether the outcome is part of it."""
    scheme = SCHEMES.get(credit.scheme)
    counts = scheme.counts if scheme else COUNTS if credit.scheme == GAE else ""
    outcomes = [reward for reward in credit.scored.rewards if reward.kind == "outcome" and reward.weight != 0]
    if not outcomes or (scheme and "outcome" in scheme.needs):
        return counts
    used = "outcome" in _kinds_read(credit)
    return f"{counts}{', and the outcome R' if used else '; the outcome R is not in it'}".lstrip(",; ")


def why_no_spread(credit: Credit) -> NoSpread | None:
    """None for a group with spread."""
    if credit.spread:
        return None
    read = _kinds_read(credit)
    kinds: tuple[RewardKind, ...] = ("outcome", "step")
    for kind in kinds:
        names = [r.name for r in credit.scored.rewards if r.kind == kind and r.weight != 0]
        if names and kind not in read and (remedies := tuple(_that_help(credit, kind))):
            several = len(names) > 1
            what = f"{kind} reward{'s' if several else ''} ({', '.join(names)}) differ{'' if several else 's'}"
            setting = f"{credit.scheme} with outcome weight 0" if kind == "outcome" else credit.scheme
            unused = f"the {what}, and {setting} does not use {'them' if several else 'it'}"
            return NoSpread(f"{_equal_steps(credit) or 'only '}{unused}", remedies)
    return NoSpread()


def _equal_steps(credit: Credit) -> str:
    """That the rewards of steps tell none of them apart, which may be the fault of the pattern."""
    names = [reward.name for reward in credit.scored.rewards if reward.kind == "step" and reward.weight != 0]
    values = {reward for row in credit.scored.step_rewards for reward in row if reward is not None}
    if not names or len(values) > 1:
        return ""
    says = f"scores every step {values.pop():g}" if values else "scores no step"
    return f"{' + '.join(names)} {says} (does the pattern cut what it judges?); "


def _kinds_read(credit: Credit) -> set[RewardKind]:
    """The kinds of rewards that the advantages are made of; a completion's sum is one of its steps' rewards."""
    of_parts: dict[PartKind, set[RewardKind]] = {"outcome": {"outcome"}, "token": {"outcome"}}
    both: set[RewardKind] = {"step", "outcome"}  # of returns, and of the temporal differences of token rewards
    of_parts |= dict.fromkeys(("return", "delta", "later", "centre"), both)
    return {kind for part in credit.parts for kind in of_parts.get(part.kind, {"step"})}


def _that_help(credit: Credit, kind: RewardKind) -> Iterator[Remedy]:
    """The settings that bring in rewards of ``kind``, as far as they give the group spread."""
    if kind == "outcome":
        tried = [Remedy("Outcome weight 1", {"outcome_weight": 1.0}), Remedy("Scheme outcome", {"scheme": "outcome"})]
    else:
        tried = [Remedy("Scheme process", {"scheme": "process"})]
    for remedy in tried:
        settings = {**credit.options, "scheme": credit.scheme, **remedy.settings}
        scheme = settings.pop("scheme")
        names = {option.name for option in find_scheme(scheme).options} | set(SHARED)
        try:
            changed = credit_group(credit.scored, scheme, **{name: settings[name] for name in names & settings.keys()})
        except CreditError:  # rewards too large for the scheme, for example
            continue
        if changed.spread:
            yield remedy
