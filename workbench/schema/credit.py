"""The nouns of credit: token advantages, the parts they are the sum of, and the explanation of one of them; and what a
policy loss is computed from beside the advantages.

A ``CreditPart`` is a number for each step (or for each completion) and the way it is carried to tokens. The advantages
are the sum of a credit's parts laid out in tokens, and an explanation walks the same parts in the same order, so that
it adds up to the very bits it explains. How a scheme arrives at its numbers is ``credit``'s to know, how the numbers of
a ``LossPass`` make a loss is ``credit.explain``'s.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.schema.numbers import is_varied
from workbench.schema.scores import JUDGES, ScoredGroup, to_verdict

Floats = npt.NDArray[np.float64]
Spans = Sequence[tuple[int, int]]

Carry = Literal["suffix", "mean", "own", "all"]
"""How a part reaches tokens. ``suffix``: a token gets the (discounted) sum over all steps that end at or after it;
``mean``: their mean; ``own``: the value of the step that holds it; ``all``: the completion's one value."""
PartKind = Literal["step", "outcome", "sum", "mean", "return", "token", "delta", "later", "centre", "importance"]
"""What a part normalised: step rewards, outcome rewards, each completion's summed step rewards, their mean, its outcome
with what its steps gained (``return``), what a token has to do with right answers (``token``), or the temporal
differences of tokens (``delta``; ``later`` sums those of many tokens in one term), less their batch's mean
(``centre``); ``importance`` is what a token's weight adds to what the other parts gave it."""
Unit = Literal["step", "token"]
"""What a part has a number for; with the carry ``all`` it has one for each completion instead."""
EVEN = 0.05
"""An answer, or a step, is pushed where its advantages sum to more than this share of the group's largest such sum."""


@dataclass(frozen=True)
class CreditPart:
    """An additive part of a group's advantages.

    All arrays are float64 over the group's steps in order (over its sampled tokens where ``unit`` is ``token``, over
    its completions for the carry ``all``); those of completion i are ``offsets[i]`` to ``offsets[i + 1]``. ``raw`` is
    what was normalised, NaN where nothing was scored; ``mean`` and ``std`` those of its pool (NaN where nothing was
    subtracted or divided by); ``normalised`` the result; ``factor`` what that is multiplied with before it is carried
    (a weight, a share). ``centre`` is what ``mean`` is called.
    """

    kind: PartKind
    carry: Carry
    offsets: npt.NDArray[np.int64]  # (G + 1,)
    raw: Floats  # (N,)
    mean: Floats
    std: Floats
    normalised: Floats
    factor: Floats
    gamma: float = 1.0
    unit: Unit = "step"
    centre: str = "mean"

    def amounts(self, i: int) -> Floats:
        """Return what completion i's steps (or completion i itself) carry, 0 where unscored: (K_i,) or (1,)."""
        entries = slice(self.offsets[i], self.offsets[i + 1])
        amounts = self.normalised[entries] * self.factor[entries]
        return np.where(np.isnan(self.normalised[entries]), 0.0, amounts)

    def has_values(self, i: int) -> npt.NDArray[np.bool_]:
        return np.asarray(~np.isnan(self.normalised[self.offsets[i] : self.offsets[i + 1]]))

    def carried(self, i: int, only: Sequence[int] | None = None) -> Floats:
        """Return what a token whose first step to end at or after it (or whose own step) is k gets: (K_i,) or (1,).

        ``only`` are the entries that are not counted as 0, by default all.
        """
        amounts = self.amounts(i)
        if only is not None:
            kept = np.zeros_like(amounts)
            kept[list(only)] = amounts[list(only)]
            amounts = kept
        if self.carry in ("own", "all"):
            return amounts
        sums = suffix_sums(amounts, self.gamma)
        if self.carry == "mean":
            sums = sums / np.maximum(np.cumsum(self.has_values(i)[::-1])[::-1], 1)
        return np.asarray(sums)

    def laid_out(self, i: int, spans: Spans, length: int, only: Sequence[int] | None = None) -> Floats:
        """This part in the tokens of completion i, (T_i,): ``spans`` are its units' (first, last) tokens, ``only`` as
        for ``carried``."""
        carried = self.carried(i, only)
        if self.carry == "all":
            return np.full(length, carried[0])
        row = np.zeros(length)
        if self.carry == "own" and self.unit == "token":
            row[[first for first, _ in spans]] = carried
        elif self.carry == "own":
            for value, (first, last) in zip(carried.tolist(), spans, strict=True):
                row[first : last + 1] = value
        elif spans:
            borders = np.array([-1, *(last for _, last in spans)])
            row[: borders[-1] + 1] = np.repeat(carried, np.diff(borders))
        return row


def suffix_sums(amounts: Floats, gamma: float) -> Floats:
    """S_k = a_k + gamma S_{k+1}: of each entry and those after it, discounted. (K,)."""
    if gamma == 1.0:
        return np.cumsum(amounts[::-1])[::-1]
    sums, total = np.empty_like(amounts), 0.0
    for k in range(len(amounts) - 1, -1, -1):
        total = float(amounts[k]) + gamma * total
        sums[k] = total
    return sums


def token_spans(length: int, mask: Sequence[int] | npt.NDArray[np.bool_] | None = None) -> list[tuple[int, int]]:
    """(t, t) for each token t that the policy sampled."""
    return [(t, t) for t in range(length) if mask is None or mask[t]]


@dataclass(frozen=True)
class Term:
    """One summand of a token's advantage: ``value`` = ``normalised`` × ``factor``.

    ``step`` is the step whose reward it carries (0-based), or None for a whole completion's; ``token`` is the token
    whose statistic or temporal difference it carries, or the first of those that a term of source ``later`` sums.
    ``scores`` and ``weights`` are each reward function's score and weight and ``reward`` their weighted sum; ``raw`` is
    what the scheme made of it and normalised with ``mean`` and ``std`` (None where it was not); ``centre`` is what the
    former is called. ``factor`` holds weight, discount and share.
    """

    source: PartKind
    step: int | None
    scores: Mapping[str, float | None]
    weights: Mapping[str, float]
    reward: float | None
    raw: float
    mean: float | None
    std: float | None
    normalised: float
    factor: float
    value: float
    token: int | None = None
    centre: str = "mean"


@dataclass(frozen=True)
class Explanation:
    """The terms of one token's advantage: ``total`` is their sum, ``advantage`` its float32, bounded by ``clip``."""

    rollout: int
    token: int
    terms: tuple[Term, ...]
    total: float
    advantage: np.float32
    clip: float | None = None


@dataclass(frozen=True)
class Judged:
    """An answer (``step`` is None), or a step, known to be right or wrong, and its ``push`` (``Credit.pushes``)."""

    rollout: int
    step: int | None
    right: bool
    push: float

    @property
    def is_wronged(self) -> bool:
        """Return whether it is right and pushed down, or wrong and pushed up."""
        return self.push < 0 if self.right else self.push > 0


@dataclass(frozen=True, repr=False)
class Credit:
    """A scored group with its token advantages.

    ``advantages`` is (G, T_max) float32, 0 on padding: the very tensor the loss uses. ``parts`` are what it is the sum
    of. ``normalised[i][k]`` is what step k of completion i carries (``None`` if unscored, or if the scheme carries no
    step's number), ``mean`` and ``std`` those of the group's pool where there is just one.
    """

    scored: ScoredGroup
    scheme: str
    options: Mapping[str, Any]
    advantages: npt.NDArray[np.float32]  # (G, T_max)
    normalised: Sequence[Sequence[float | None]]
    mean: float | None
    std: float | None
    warnings: tuple[str, ...] = ()
    parts: tuple[CreditPart, ...] = ()
    values: Mapping[str, Sequence[npt.NDArray[np.float32]]] = field(default_factory=dict)
    """Further numbers of each rollout's tokens, (T_i,) float32 by name: a critic's values, say."""

    def __repr__(self) -> str:
        return f"<Credit: {self.scored.counts}, scheme {self.scheme!r}{'' if self.spread else ', no spread'}>"

    @cached_property
    def is_counted(self) -> tuple[bool, ...]:
        """Return whether the loss counts each rollout; all that is said, measured or drawn is of these alone.

        It leaves out truncated ones under ``mask_truncated_completions`` and exact copies under ``drop_duplicates``.
        A rollout that nothing scored is in the loss with advantage 0, and has no verdict that is counted.
        """
        group = self.scored.group
        masks, drops = group.sampling.get("mask_truncated_completions"), self.options.get("drop_duplicates")
        return tuple(
            not (masks and rollout.truncated) and not (drops and first is not None)
            for rollout, first in zip(group.rollouts, group.copy_of, strict=True)
        )

    @cached_property
    def in_loss(self) -> ScoredGroup:
        """The counted rollouts alone, numbered anew."""
        scored, kept = self.scored, self.is_counted
        return replace(
            scored,
            group=replace(scored.group, rollouts=tuple(compress(scored.group.rollouts, kept))),
            scored=tuple(compress(scored.scored, kept)),
            labels=tuple(compress(scored.labels, kept)),
        )

    @cached_property
    def loss_rows(self) -> npt.NDArray[np.float32]:
        """The advantages with 0 where the loss does not count the rollout, (G, T_max) float32."""
        return self.advantages * np.array(self.is_counted, dtype=np.float32)[:, None]

    @property
    def spread(self) -> bool:
        """Return whether a counted rollout has an advantage: a group without spread cannot teach anything."""
        return bool(self.loss_rows.any())

    @cached_property
    def gate_reason(self) -> str:
        """Say why ``gate`` gives a group advantage 0 that the rewards tell apart, in words; "" if it does not.

        A group that is gated is in the loss and counts in its divisor.
        """
        if self.options.get("gate") != "outcome" or not any(np.nan_to_num(p.normalised).any() for p in self.parts):
            return ""
        judge = self.scored.outcome_judge
        judged = self.scored.judged_outcomes(drop_duplicates=bool(self.options.get("drop_duplicates"))) or []
        if judge is None or is_varied(judged):
            return ""
        verdicts = {to_verdict(score) for score in judged}
        if judge.name in JUDGES and len(verdicts) == 1 and None not in verdicts:
            return "every answer is right" if True in verdicts else "no answer is right"
        return f"`{judge.name}` tells no answers apart"

    def deciding(self, answers_right: Sequence[bool | None] | None = None) -> list[str]:
        """The outcome rewards that alone push the answers of a group which are all right, or all wrong; mostly none.

        ``answers_right`` says which are, else the group's own judge does. Steps decide with them where their rewards
        reach the advantages.
        """
        counted = self.in_loss
        verdicts = {*compress(answers_right or self.scored.answers_right or (), self.is_counted)}
        pushing = {part.kind for part in self.parts if np.nan_to_num(part.normalised * part.factor).any()}
        of_steps = any(reward.kind == "step" and reward.weight for reward in counted.rewards)
        by_steps = {"step", "sum", "mean", *(("return", "delta") if of_steps else ())}
        if not self.spread or verdicts not in ({True}, {False}) or pushing & by_steps:
            return []
        varied = [r for r in counted.rewards if r.kind == "outcome" and is_varied(counted.scores(r))]
        return [r.name for r in varied if r.weight] if not any(r.name in JUDGES for r in varied) else []

    @cached_property
    def pushes(self) -> tuple[list[float], list[list[float]]]:
        """The sums of the advantages of each rollout's tokens, and of each of its steps': which way training pushes it.

        0 for what barely moves (``EVEN``), or what the loss does not count.
        """
        rows = self.loss_rows.astype(np.float64)  # 0 on padding
        answers = rows.sum(axis=1).tolist()
        steps = [
            [float(row[first : last + 1].sum()) for first, last in scored.spans]
            for row, scored in zip(rows, self.scored.scored, strict=True)
        ]
        rounding = 1e-6 * float(np.abs(self.advantages).max(initial=0)) * self.advantages.shape[1]  # of float32
        least, of_steps = (
            max(rounding, EVEN * max(map(abs, sums), default=0.0)) for sums in (answers, [*chain(*steps)])
        )
        return (
            [push if abs(push) > least else 0.0 for push in answers],
            [[push if abs(push) > of_steps else 0.0 for push in row] for row in steps],
        )

    def of(self, rollout: int) -> npt.NDArray[np.float32]:
        """The advantages of one rollout's own tokens, (T_i,) float32."""
        return self.advantages[rollout, : len(self.scored.group.rollouts[rollout])]

    def judged(self, answers_right: Sequence[bool | None] | None = None) -> list[Judged]:
        """Every counted answer, then every step, that is known to be right or wrong, with where it is pushed.

        ``answers_right`` says which answers are right, else the group's own judge does (``ScoredGroup.answers_right``);
        of steps their judge does, or the labels they came with. Step-wise Rubric Rewards (arXiv 2605.17291) counts the
        same under outcome credit: of the steps of right answers 18.2 % are wrong and pushed up, of those of wrong
        answers 49.9 % are right and pushed down.
        """
        answers, steps = self.pushes
        known: list[tuple[int, int | None, bool | None, float]] = [
            (i, None, right, answers[i]) for i, right in enumerate(answers_right or self.scored.answers_right or ())
        ]
        of_steps = enumerate(self.scored.steps_right or ())
        known += [(i, k, right, steps[i][k]) for i, row in of_steps for k, right in enumerate(row)]
        return [Judged(i, k, right, push) for i, k, right, push in known if right is not None and self.is_counted[i]]

    def facts(self) -> dict[str, Any]:
        """Return what concerns the whole group, as plain values."""
        return {
            "scheme": self.scheme,
            "options": dict(self.options),
            "mean": self.mean,
            "std": self.std,
            "spread": self.spread,
            "warnings": list(self.warnings),
        }

    def rows(self, rollout: int) -> list[dict[str, Any]]:
        """One row a step of a rollout (0-based): ``StepScores.rows`` with ``normalised`` and the ``advantage`` of the
        step's last token (None where the rollout has no tokens)."""
        advantages = self.of(rollout)
        return [
            row
            | {
                "normalised": self.normalised[rollout][k],
                "advantage": float(advantages[row["last_token"]]) if len(advantages) else None,
            }
            for k, row in enumerate(self.scored.rows(rollout))
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything but the parts, as plain values: prompt, columns, ``facts``, and each rollout with its ``rows``."""
        group = self.scored.group
        return {
            "prompt": group.prompt,
            "columns": dict(group.columns),
            **self.facts(),
            "rollouts": [
                {
                    **rollout.to_json(),
                    "text": rollout.text,
                    "steps": self.rows(i),
                    "outcome_scores": dict(scored.outcome_scores),
                    "outcome": scored.outcome,
                    "extracted_answers": scored.extracted,
                    "advantages": self.of(i).tolist(),
                    **(
                        {"values": {name: rows[i].tolist() for name, rows in self.values.items()}}
                        if self.values
                        else {}
                    ),
                }
                for i, (rollout, scored) in enumerate(zip(group.rollouts, self.scored.scored, strict=True))
            ],
        }

    def spans(self, part: CreditPart, rollout: int) -> Spans:
        """The (first, last) tokens of what ``part`` has numbers for in a rollout."""
        if part.unit == "step":
            return self.scored.scored[rollout].spans
        sampled = self.scored.group.rollouts[rollout]
        return token_spans(len(sampled), sampled.mask)

    def explain(self, rollout: int, token: int, at_most: int | None = None) -> Explanation:
        """The terms whose sum is the advantage of ``token`` in ``rollout`` (both 0-based). Linear in the steps.

        A token that the policy did not sample has advantage 0 and no terms. Of a part that sums over tokens, those
        after the first ``at_most`` are one term.

        Raises IndexError when there is no such rollout or token.
        """
        length = len(self.scored.group.rollouts[rollout])
        if not 0 <= token < length:
            raise IndexError(f"rollout {rollout} has tokens 0 to {length - 1}, not {token}")
        terms: list[Term] = []
        total = 0.0
        for part in self.parts if self.scored.group.rollouts[rollout].is_sampled(token) else ():
            spans = self.spans(part, rollout)
            units = _units_of(part, spans, token)
            if not units:
                continue
            carried = part.carried(rollout)
            total += float(carried[units[0]])
            # S_k = sum of a_j gamma^(j - k) over j < n, plus gamma^(n - k) S_n
            one_by_one = units[:at_most] if part.unit == "token" else units
            terms += self._terms(part, rollout, one_by_one, spans)
            if later := units[len(one_by_one) :]:
                rest, factor, first = float(carried[later[0]]), part.gamma ** len(one_by_one), spans[later[0]][0]
                terms.append(Term("later", None, {}, {}, None, rest, None, None, rest, factor, rest * factor, first))
        advantage = self.advantages[rollout, token]
        return Explanation(rollout, token, tuple(terms), total, advantage, self.options.get("clip"))

    def _terms(self, part: CreditPart, rollout: int, steps: range, spans: Spans) -> list[Term]:
        """Return the scored terms; ``steps`` are indices into what the completion has of the part, of any unit."""
        scored = self.scored.scored[rollout]
        known = part.has_values(rollout)
        share = 1.0 / max(int(known[steps.start :].sum()), 1) if part.carry == "mean" else 1.0
        kind = "outcome" if part.kind in ("outcome", "return") else "step"
        is_of_token = part.kind in ("token", "importance", "delta")
        weights = {r.name: r.weight for r in self.scored.rewards if r.kind == kind and part.kind != "delta"}
        terms = []
        for j, k in enumerate(steps):
            if not known[k]:
                continue
            at = int(part.offsets[rollout]) + k
            discount = part.gamma**j if part.carry in ("suffix", "mean") else 1.0
            factor = float(part.factor[at]) * discount * share
            step = None if part.carry == "all" or part.unit == "token" else k
            scores: Mapping[str, float | None] = {}
            summed = [reward for reward in scored.rewards if reward is not None]
            reward = sum(summed) / (len(summed) if part.kind == "mean" else 1) if summed else None
            if kind == "outcome":
                scores, reward = dict(scored.outcome_scores), scored.outcome
            elif step is not None:
                scores, reward = {name: values[step] for name, values in scored.scores.items()}, scored.rewards[step]
            mean, std = (None if np.isnan(value) else float(value) for value in (part.mean[at], part.std[at]))
            terms.append(
                Term(
                    source=part.kind,
                    step=step,
                    scores=scores,
                    weights=weights,
                    reward=None if is_of_token or part.kind == "centre" else reward,
                    raw=float(part.raw[at]),
                    mean=mean,
                    std=std,
                    normalised=float(part.normalised[at]),
                    factor=factor,
                    value=float(part.normalised[at]) * factor,
                    token=spans[k][0] if is_of_token else None,
                    centre=part.centre,
                )
            )
        return terms


def _units_of(part: CreditPart, spans: Spans, token: int) -> range:
    """Return which of a completion's values a token gets: indices into ``CreditPart.carried``, its own one first."""
    if part.carry == "all":
        return range(1)
    if part.unit == "token" and part.carry == "own":
        k = bisect_left(spans, (token, token))
        return range(k, k + 1)
    if part.carry == "own":
        holding = [k for k, (first, last) in enumerate(spans) if first <= token <= last]
        return range(holding[-1], holding[-1] + 1) if holding else range(0)
    first_to_end = next((k for k, (_, last) in enumerate(spans) if last >= token), len(spans))
    return range(first_to_end, len(spans))


OnCredit = Callable[[int, list[Credit]], None]
"""Called with an optimiser step and all its groups' credit: of training groups with the step they are for (1-based), of
watched prompts with the step just done (0 before the first)."""


Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LossSettings:
    """A loss as TRL's ``GRPOConfig`` has it.

    ``epsilon_high`` is the upper clip range (cispo: the cap of the ratio itself), ``delta`` the bound of two-sided
    clipping, ``kl_times_ratio`` TRL's ``use_bias_correction_kl``, ``sequence_ratio`` whether a completion has one
    ratio, the geometric mean of its tokens'. Temperatures are for A > 0 and others, k and lambda for A >= 0 and others.
    """

    loss_type: str = "dapo"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    beta: float = 0.0
    kl_times_ratio: bool = False
    sequence_ratio: bool = False
    max_completion_length: int | None = None
    sapo_temperatures: tuple[float, float] = (1.0, 1.05)
    vespo_k: tuple[float, float] = (2.0, 3.0)
    vespo_lambda: tuple[float, float] = (3.0, 2.0)


@dataclass(frozen=True, eq=False)
class RolloutPass:
    """One pass over one rollout, a number a token, each (T_i,).

    ``logprobs`` are the policy's in this pass; None for a rollout that was left out, since its advantages are all 0 and
    nothing else would add to the loss. ``old_logprobs`` are those that the ratio is taken to; None where they are the
    pass's own. ``weights`` is what else multiplies the policy term (a mask by entropy, an importance weight); None for
    1. ``bonus`` is what the entropy bonus adds to the loss; None where there is none. ``micro_batch`` numbers the part
    of the step that the rollout was in, over all ranks, from 0.
    """

    micro_batch: int
    logprobs: Numbers | None
    old_logprobs: Numbers | None = None
    weights: Numbers | None = None
    bonus: Numbers | None = None


@dataclass(frozen=True, eq=False)
class LossPass:
    """One optimiser step over a stored generation: the ``number``-th pass over that of step ``generation``, from 1.

    ``rollouts`` are in the generation's order, all groups' one after another. ``tokens`` is what the losses that divide
    by the generation's tokens divide by. ``loss`` is the step's loss as the trainer computed it, over all micro-batches
    and ranks, and ``router`` the part of it that keeps a mixture of experts balanced, which is no token's. Files
    of version 0.4 have no ``loss`` where it had an entropy bonus or a router's part.
    """

    step: int
    generation: int
    number: int
    settings: LossSettings
    rollouts: tuple[RolloutPass, ...]
    tokens: float
    loss: float | None
    router: float = 0.0


OnPass = Callable[[LossPass], None]
"""Called with every optimiser step over a generation that is stored."""
