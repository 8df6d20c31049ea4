"""Credits read: rewards that one does not use, why a group has no spread, gradient shares, differences of two credits.

A scheme reads step rewards or outcome rewards; the others reach tokens through ``outcome_weight`` or not at all. Where
only rewards that are left out differ in a group, every advantage is 0 although there is something to learn. A remedy is
a change of settings that was tried on the group and gives it spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit.assign import COUNTS, GAE, credit_group
from workbench.credit.loss import TokenLosses
from workbench.credit.schemes import SCHEMES, find_scheme
from workbench.credit.schemes.scheme import SHARED
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
            # The rewards of steps tell none of them apart, which may be the fault of the pattern.
            steps = [r.name for r in credit.scored.rewards if r.kind == "step" and r.weight != 0]
            values = {reward for row in credit.scored.step_rewards for reward in row if reward is not None}
            equal = "only "
            if steps and len(values) < 2:
                says = f"scores every step {values.pop():g}" if values else "scores no step"
                equal = f"{' + '.join(steps)} {says} (does the pattern cut what it judges?); "
            return NoSpread(f"{equal}{unused}", remedies)
    return NoSpread()


def _kinds_read(credit: Credit) -> set[RewardKind]:
    """The kinds of rewards that the advantages are made of; a completion's sum is one of its steps' rewards."""
    of_parts: dict[PartKind, set[RewardKind]] = {"outcome": {"outcome"}, "token": {"outcome"}}
    of_parts["importance"] = set()
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


# --- which answers and which steps the gradient comes from --------------------------------------------------------
#
# A token's push is minus the derivative of the loss by its log-probability (``credit.loss``); the gradient is the sum
# of push times the gradient of the log-probability. The share of a set of tokens is that of the pushes' sizes: how hard
# the loss pulls there, whatever the policy's weights make of it.

NAMED_STEPS = 8
"""Step positions that have a share of their own; later ones share one."""


@dataclass(frozen=True)
class GradientShare:
    """The part ``name``, of ``tokens`` tokens, has ``share`` of all pushes' sizes, ``up`` of it upwards."""

    name: str
    tokens: int
    share: float
    up: float


def gradient_shares(credits: Sequence[Credit], losses: Sequence[TokenLosses]) -> list[GradientShare]:
    """Of right and of wrong answers, where an outcome reward tells them apart, then of each step position.

    ``losses`` are the rollouts' of all groups, as ``pass_losses`` gives them. Empty where nothing is pushed.
    """
    answers = {True: "right answers", False: "wrong answers", None: "answers without a verdict"}
    steps = [*(f"step {k + 1}" for k in range(NAMED_STEPS)), f"step {NAMED_STEPS + 1} and later", "outside every step"]
    tokens: dict[str, list[float]] = {name: [] for name in (*answers.values(), *steps)}  # in the order of the answer
    rows = iter(losses)
    for credit in credits:
        verdicts = credit.scored.answer_verdicts
        for i, scored in enumerate(credit.scored.scored):
            push = next(rows).push
            tokens[answers[verdicts[i]]].extend(push)
            place = np.full(len(push), -1)
            for k, (first, last) in enumerate(scored.spans):
                place[first : last + 1] = min(k, NAMED_STEPS)
            for k in np.unique(place):
                tokens[steps[k]].extend(push[place == k])
    total = sum(abs(push) for name in answers.values() for push in tokens[name])
    if not total:
        return []
    shares = [
        GradientShare(
            name,
            len(pushes),
            float(np.abs(pushes).sum() / total),
            float(np.maximum(pushes, 0).sum() / total),
        )
        for name, pushes in tokens.items()
        if pushes
    ]
    judged = tokens["right answers"] or tokens["wrong answers"]
    return [share for share in shares if judged or share.name != "answers without a verdict"]


# --- two credits of the same rollouts: what a change of scheme does before any training is spent on it ------------


@dataclass(frozen=True)
class StepDifference:
    """One step under both credits: its tokens' mean advantage in each, and how many of them change sign."""

    rollout: int
    step: int
    tokens: int
    mean_a: float
    mean_b: float
    flipped: int


@dataclass(frozen=True)
class Comparison:
    """``a`` and ``b`` credit the same group; ``difference`` = b − a and ``flipped`` are (G, T_max).

    ``names`` are the two schemes', with the rewards behind them where these are what differs. ``flipped_share`` is the
    share of tokens whose advantage is above 0 in one and below 0 in the other; ``correlation`` Pearson's r over all
    tokens, None where one of them is constant.
    """

    a: Credit
    b: Credit
    names: tuple[str, str]
    difference: npt.NDArray[np.float32]
    flipped: npt.NDArray[np.bool_]
    flipped_share: float
    correlation: float | None
    mean_absolute_difference: float
    steps: tuple[StepDifference, ...]


LOGGED = "logged"
"""What a credit made of a file's own advantages has for its scheme's name."""


def logged_credit(credit: Credit) -> Credit | None:
    """Return the advantages that the group's file logged as another credit of it, 0 where it logged none.

    ``logged_advantage`` of a rollout is a number for all tokens that were sampled, or one a token (None for unknown).
    None where no rollout has such a column.
    """
    rollouts = credit.scored.group.rollouts
    logged = [rollout.columns.get("logged_advantage") for rollout in rollouts]
    if all(value is None for value in logged):
        return None
    advantages = np.zeros_like(credit.advantages)
    for i, (rollout, value) in enumerate(zip(rollouts, logged, strict=True)):
        row = value if isinstance(value, list) else [value] * len(rollout)
        for t, one in enumerate(row[: len(rollout)]):
            advantages[i, t] = one if one is not None and rollout.is_sampled(t) else 0.0
    unscored = [[None] * len(row.steps) for row in credit.scored.scored]
    spread = bool(advantages.any())
    return Credit(credit.scored, LOGGED, {}, advantages, unscored, None, None, spread)


def compare_credits(a: Credit, b: Credit) -> Comparison:
    """Raises CreditError unless both credit the same token ids."""
    ids = [[rollout.token_ids for rollout in credit.scored.group.rollouts] for credit in (a, b)]
    if ids[0] != ids[1]:
        raise CreditError("the two credits are of different rollouts; compare credits of one group")
    flipped = np.sign(a.advantages) * np.sign(b.advantages) < 0
    inside = np.arange(a.advantages.shape[1]) < np.array(a.scored.lengths)[:, None]  # (G, T_max)
    x, y = a.advantages[inside].astype(np.float64), b.advantages[inside].astype(np.float64)
    first, second = (
        ", ".join(f"{r.name}{'' if r.weight == 1 else f' × {r.weight:g}'}" for r in credit.scored.rewards)
        for credit in (a, b)
    )
    names = a.scheme, b.scheme
    if a.scored.scored != b.scored.scored or first != second:
        other = ", other scores" if first == second else ""  # the same functions by name: other options, say
        names = f"{a.scheme} on {first or 'no reward'}", f"{b.scheme} on {second or 'no reward'}{other}"
    return Comparison(
        a=a,
        b=b,
        names=names,
        difference=b.advantages - a.advantages,
        flipped=flipped,
        flipped_share=float(flipped[inside].mean()) if len(x) else 0.0,
        correlation=float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and x.std() > 0 and y.std() > 0 else None,
        mean_absolute_difference=float(np.abs(y - x).mean()) if len(x) else 0.0,
        steps=tuple(
            StepDifference(
                rollout=i,
                step=k,
                tokens=last - first + 1,
                mean_a=float(a.advantages[i, first : last + 1].mean()),
                mean_b=float(b.advantages[i, first : last + 1].mean()),
                flipped=int(flipped[i, first : last + 1].sum()),
            )
            for i, scored in enumerate(a.scored.scored)
            for k, (first, last) in enumerate(scored.spans)
        ),
    )
