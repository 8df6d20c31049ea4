"""A group's tokens coloured by what each was credited: one drawing for the page, the notebook and a file of its own.

A ``Credit`` becomes a plain payload (numbers, texts and offsets); ``drawing/`` draws it, text by text node, so that
nothing a model wrote is ever read as markup. What is drawn is the advantage tensor itself: every float32 is written
with the digits that give back the same 32 bits.

This module knows nothing of pages, runs or how the numbers came about.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, chain, groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit import (
    GAE,
    LENS_LOSSES,
    LOGGED,
    SCHEMES,
    Comparison,
    compare_credits,
    credit_group,
    group_normalisers,
    logged_credit,
    pass_losses,
    pass_normalisers,
    what_counts,
    why_no_spread,
)
from workbench.credit.assign import FORMULA as GAE_FORMULA
from workbench.errors import CreditError
from workbench.rewards.answers import goes_wrong_at
from workbench.schema import (
    Credit,
    Group,
    LossPass,
    LossSettings,
    Rollout,
    RolloutPass,
    StepScores,
    Term,
    WatchedRow,
    WatchedText,
    prompt_text,
    token_spans,
)
from workbench.steps import StepPattern
from workbench.views.cards import fragment, page
from workbench.views.cards import to_json as to_json
from workbench.views.payloads import (
    BeforePayload,
    FactPayload,
    NoSpreadPayload,
    PassPayload,
    RolloutLossPayload,
    StretchPayload,
    WhyPayload,
    rounded,
    turns_payload,
    utf16_offsets,
)
from workbench.views.sentences import (
    AS_LOGGED,
    about_comparison,
    about_group,
    about_logged,
    about_wronged,
    find_surprises,
    group_facts,
)
from workbench.views.token_sentences import about_explanation

Payload = dict[str, Any]
Spans = Sequence[tuple[int, int]]

DRAW = "mount({element}).draw({text})"
EXPLAINED_AT_ONCE = 1_000
"""Most terms that the page is sent unasked."""
TOKEN_TERMS = 8
"""Terms of a sum over tokens that are listed one by one where every token is explained; the rest is one term."""
DRAWN_LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo")
"""Losses whose weights a file of a group holds."""
OTHER_SCHEMES = ("outcome", "step", "process")
"""Schemes under which a step's advantage is said beside that under the drawn one."""
WITH_ANSWER = "answer"
"""What stands among them for the drawn scheme with the final answer counted."""
SOURCE_CHARACTERS = 400
"""Of a prompt, in what says where a drawing comes from."""


@dataclass(frozen=True, repr=False)
class Heatmap:
    """A drawn credit or watched row: shows itself in Jupyter, and ``html()`` is a page that needs nothing else."""

    title: str
    about: str
    payload: Callable[[], Payload]
    """What ``drawing/heatmap.js`` draws."""

    def html(self) -> str:
        """A whole HTML document, which its own content policy keeps from asking the network for anything."""
        return page(self._repr_html_(), title=self.title, kind="wh")

    def _repr_html_(self) -> str:
        return fragment("wh", "drawing/heatmap.js", DRAW, self.payload(), style="drawing/heatmap.css")

    def __repr__(self) -> str:
        return f"<Heatmap: {self.about}>"


def heatmap(
    shown: Credit | Comparison | WatchedRow,
    matches: Sequence[Spans] | None = None,
    *,
    other: Credit | None = None,
    loss: DrawnLoss | None = None,
) -> Heatmap:
    """Draw a credit, two of one group, or a watched row; a notebook cell shows it, ``.html()`` gives a page to keep.

    ``matches[i]`` are the character spans of rollout i to underline, usually where the step pattern matched; ``other``
    is a second credit of the same group to show beside the first. ``loss`` is what the advantages are put into, by
    default dapo on policy.
    """
    if isinstance(shown, WatchedRow):
        return Heatmap(f"{shown.measures[0].label} at step {shown.step}", repr(shown), partial(row_payload, shown))
    if isinstance(shown, Comparison):
        return heatmap(shown.a, matches, other=shown.b, loss=loss)
    scored = shown.scored
    steps = sum(len(step_scores.steps) for step_scores in scored.scored)
    about = (
        f"{len(scored.group)} rollouts, {steps} steps, scheme {shown.scheme!r}{'' if shown.spread else ', no spread'}"
    )
    return Heatmap(f"{shown.scheme} credit", about, partial(credit_payload, shown, matches, other=other, loss=loss))


def credit_payload(
    credit: Credit,
    matches: Sequence[Spans] | None = None,
    *,
    other: Credit | None = None,
    explain_at_most: int | None = None,
    loss: DrawnLoss | None = None,
) -> Payload:
    """Everything the drawing needs, as plain JSON values.

    Every token is explained, unless that takes more than ``explain_at_most`` terms: then none is, and ``why_payload``
    answers for a single token. ``other`` is a second credit of the same rollouts, to be drawn beside the first, and
    ``loss`` what the advantages are put into, by default dapo on policy.
    Raises CreditError where it is of other rollouts.
    """
    group = credit.scored.group
    if any(part.unit == "token" for part in credit.parts):
        work = TOKEN_TERMS * sum(len(rollout) for rollout in group.rollouts)
    else:  # about how many terms: a stretch of tokens for each step, half the steps in each
        work = sum(len(step_scores.steps) ** 2 for step_scores in credit.scored.scored)
    explained = explain_at_most is None or work <= explain_at_most
    normalisers, loss = even_shares(credit, LENS_LOSSES), loss or DrawnLoss.on_policy(credit)
    surprises, under = find_surprises(credit), other_credits(credit)
    payload: Payload = {
        **group_payload(group),
        **_scheme_payload(credit),
        "source": [list(part) for part in source_of(credit, other)],
        "rewards": [{"name": r.name, "kind": r.kind, "weight": r.weight} for r in credit.scored.rewards],
        "judges": {"outcome": credit.scored.judge("outcome"), "step": credit.scored.judge("step")},
        "normalisers": True,
        "said": [sentence.parts for sentence in about_group(credit, uncounted=False)],
        "order": surprises.order,
        "opens": surprises.opens,
        "loss": loss.payload(),
    }
    for i, rollout in enumerate(payload["rollouts"]):
        ends = [last for _, last in credit.scored.scored[i].spans] if len(credit.of(i)) else []
        rollout |= {
            **_credited_payload(credit, i, matches[i] if matches else (), explained),
            "remark": surprises.remarks[i],
            "under": {name: _shortest(one.of(i)[ends]) for name, one in under.items()},
            "loss": loss.of_rollout(credit, i),
            "normalisers": {name: values[i] for name, values in normalisers.items()},
        }
        if credit.values:
            rollout["values"] = {name: _shortest(values[i]) for name, values in credit.values.items()}
    flipped, tokens = None, sum(credit.in_loss.lengths)
    if (logged := logged_credit(credit)) is not None:
        between = compare_credits(credit, logged)
        off, turned = float(abs(between.difference).max(initial=0)), between.flipped.sum(axis=1).tolist()
        payload["said"].append(about_logged(off, turned, tokens).parts)
        if off > AS_LOGGED and (wronged := about_wronged(logged)).markdown:
            payload["said"].append(wronged.parts)
    if other is not None:
        compared = compare_credits(credit, other)
        payload["other"] = _scheme_payload(other) | {"names": list(compared.names)}
        for i, rollout in enumerate(payload["rollouts"]):
            rollout["twin"] = _credited_payload(other, i, (), explained and other.scheme != LOGGED)
    if other is not None and other.scheme != LOGGED:
        by_rollout = compared.flipped.sum(axis=1).tolist()
        payload["said"].append(about_comparison(compared.names[1], by_rollout, tokens, compared.correlation).parts)
        flipped = (compared.names[1], compared.flipped_share)
    elif (name := next((name for name in ("outcome", "process") if name in under), None)) is not None:
        flipped = (name, compare_credits(credit, under[name]).flipped_share)
    payload["glance"] = [
        {"said": fact.said.parts, "detail": fact.detail.parts, "action": fact.action, "label": fact.label}
        for fact in group_facts(credit, flipped, compared=other is not None and other.scheme != LOGGED)
    ]
    return payload


def other_credits(credit: Credit) -> dict[str, Credit]:
    """The same scores under other schemes, by name, and with the final answer counted, if these teach anything."""
    scored, found = credit.scored, dict[str, Credit]()
    tried: list[tuple[str, str, dict[str, Any]]] = [(name, name, {}) for name in OTHER_SCHEMES if name != credit.scheme]
    is_counted = credit.scheme not in SCHEMES or SCHEMES[credit.scheme].counts_outcome
    if not (is_counted or credit.options.get("outcome_weight")) and any(R is not None for R in scored.outcomes or ()):
        names = {option.name for option in SCHEMES[credit.scheme].options} & credit.options.keys()
        tried.append(
            (WITH_ANSWER, credit.scheme, {name: credit.options[name] for name in names} | {"outcome_weight": 1.0})
        )
    for name, scheme, options in tried:
        with suppress(CreditError):
            batch = {name: credit.options.get(name) for name in ("drop_duplicates", "each_reward", "gate")}
            if (other := credit_group(scored, scheme, **batch, **options)).spread:
                found[name] = other
    return found


def source_of(credit: Credit, other: Credit | None = None) -> list[tuple[str, str]]:
    """Say where a drawing or a file of a credit comes from: prompt, policy, pattern, rewards, scheme and version."""
    scored = credit.scored
    prompt, sampling = prompt_text(scored.group.prompt).strip(), scored.group.sampling
    how = [f"{name} {sampling[name]:g}" for name in ("temperature", "seed") if name in sampling]
    rewards = [f"{r.name}{'' if r.weight == 1 else f' × {r.weight:g}'} ({r.kind})" for r in scored.rewards]
    parts = {
        "prompt": prompt if len(prompt) <= SOURCE_CHARACTERS else f"{prompt[:SOURCE_CHARACTERS]}…",
        "policy": ", ".join(filter(None, [scored.group.policy, *how])),
        "pattern": str(StepPattern(**scored.pattern)) if scored.pattern else "",
        "rewards": ", ".join(rewards),
        "scheme": _in_words(credit) if other is None else f"A: {_in_words(credit)}; B: {_in_words(other)}",
        "version": f"Process-GRPO workbench {_installed()}".strip(),
    }
    return [(name, text) for name, text in parts.items() if text]


@cache
def _installed() -> str:
    """Return the version of this package, "" where it is run from its folder."""
    try:
        return version("workbench")
    except PackageNotFoundError:
        return ""


def _in_words(credit: Credit) -> str:
    scheme = SCHEMES.get(credit.scheme)
    defaults = {option.name: option.default for option in scheme.options} if scheme else {}
    changed = {name: value for name, value in credit.options.items() if value not in (None, defaults.get(name, 0))}
    return ", ".join([credit.scheme, *(f"{name} {value}" for name, value in changed.items())])


def _scheme_payload(credit: Credit) -> Payload:
    scheme = SCHEMES.get(credit.scheme)
    formula = scheme.formula if scheme else GAE_FORMULA if credit.scheme == GAE else ""
    return credit.facts() | {
        "formula": formula,
        "counts": what_counts(credit),
        "carry": next((part.carry for part in credit.parts[:1] if part.unit == "step"), "all"),
        "noSpread": no_spread_payload(credit),
    }


def no_spread_payload(credit: Credit) -> NoSpreadPayload | None:
    """None for a group with spread."""
    flat = why_no_spread(credit)
    if flat is None:
        return None
    return {"reason": str(flat), "advice": flat.advice, "remedies": [remedy.label for remedy in flat.remedies]}


def even_shares(credit: Credit, losses: Sequence[str] = DRAWN_LOSSES) -> dict[str, list[float]]:
    """Return each loss's factor of each completion's advantages; 1 is an even share of the group's tokens."""
    tokens = sum(rollout.policy_length for rollout in credit.scored.group.rollouts)
    return {loss: [round(c * tokens, 6) for c in group_normalisers(credit, loss)] for loss in losses}


def group_payload(group: Group) -> Payload:
    """Return a group that nothing has scored: its texts, drawn without colour."""
    return {
        "prompt": prompt_text(group.prompt),
        "policy": group.policy,
        "rollouts": [_rollout_payload(group, i) for i in range(len(group))],
    }


def _rollout_payload(group: Group, i: int) -> Payload:
    rollout = group.rollouts[i]
    sampled, reference = rounded(rollout.logprobs), rounded(rollout.ref_logprobs) or None
    raw = rounded(group.raw_logprobs(i)) or None
    there: Payload = {
        "stop": rollout.stop,
        "copyOf": group.copy_of[i],
        "turns": turns_payload(rollout) or None,
        "reference": reference,
        "raw": raw if reference or raw != sampled else None,
    }
    return {
        "ids": list(rollout.token_ids),
        "texts": list(rollout.texts),
        "finished": rollout.finished,
        "logprobs": sampled,
        "entropies": rounded(rollout.entropies),
        **{name: value for name, value in there.items() if value is not None},
    }


def _credited_payload(credit: Credit, i: int, matches: Spans, explained: bool) -> Payload:
    scored = credit.scored.scored[i]
    offset = utf16_offsets(credit.scored.group.rollouts[i].text)
    steps: list[Payload] = [
        {
            "start": offset(row["start"]),
            "end": offset(row["end"]),
            "first": row["first_token"],
            "last": row["last_token"],
            "reward": row["reward"],
            "normalised": row["normalised"],
            "scores": row["scores"],
            "label": credit.scored.labels[i][k] if credit.scored.labels else None,
            **({} if culprit is None else {"culprit": culprit}),
            **({"logged": logged} if (logged := scored.logged_of(k)) else {}),
        }
        for k, (row, culprit) in enumerate(zip(credit.rows(i), _culprits(credit, i), strict=True))
    ]
    there = {"unsplit": scored.unsplit, "logged": scored.logged_of(None), "extracted": scored.extracted_said}
    payload: Payload = {
        "advantages": _shortest(credit.of(i)),
        "matched": scored.matched,
        "steps": steps,
        "outcome": scored.outcome,
        "outcomes": dict(scored.outcome_scores),
        "matches": [[offset(start), offset(end)] for start, end in matches],
        "counted": credit.is_counted[i],
        **{name: value for name, value in there.items() if value},
    }
    if explained:
        payload["terms"], payload["why"] = _explanations(credit, i, scored)
    return payload


def _culprits(credit: Credit, i: int) -> Iterator[int | None]:
    """Yield the token at which each step goes wrong, of those that ``step_correctness`` calls wrong."""
    rollout, columns = credit.scored.group.rollouts[i], credit.scored.group.columns
    text, ends = rollout.text, list(accumulate(map(len, rollout.texts)))
    for row in credit.rows(i):
        at = None
        if row["scores"].get("step_correctness") == 0:
            chain = columns.get("start"), columns.get("operations")
            at = goes_wrong_at(text[: row["start"]], text[row["start"] : row["end"]], *chain)
        yield None if at is None else min(bisect_right(ends, row["start"] + at), len(ends) - 1)


def why_payload(credit: Credit, rollout: int, token: int) -> WhyPayload:
    """Say why one token has its advantage. Raises IndexError when there is no such token."""
    explanation = credit.explain(rollout, token)
    return {
        "first": token,
        "last": token,
        "list": [dict(vars(term)) for term in explanation.terms],
        "total": explanation.total,
        "clip": explanation.clip,
        "said": about_explanation(credit, explanation).parts,
    }


def _explanations(credit: Credit, i: int, scored: StepScores) -> tuple[list[Payload], list[StretchPayload]]:
    """The distinct terms of a rollout, and for each stretch of tokens which of them add up to its advantage.

    Terms change only where a step or what the policy sampled starts or ends, so one explanation a stretch explains
    every token of it. Where tokens are summed over, each has terms of its own.
    """
    rollout = credit.scored.group.rollouts[i]
    at_most = TOKEN_TERMS if any(part.unit == "token" for part in credit.parts) else None
    spans = token_spans(len(rollout)) if at_most else _stretches(scored.spans, rollout)
    explained = [(first, credit.explain(i, last, at_most)) for first, last in spans]
    keys = [[(t.source, t.step, t.token, t.factor, t.value) for t in found.terms] for _, found in explained]
    terms: dict[Any, Term] = {}
    for row, (_, found) in zip(keys, explained, strict=True):
        terms |= zip(row, found.terms, strict=True)
    places = {key: place for place, key in enumerate(terms)}
    stretches: list[StretchPayload] = [
        {
            "first": first,
            "last": found.token,
            "terms": _ranges([places[key] for key in row]),
            "total": found.total,
            "clip": found.clip,
            "said": [] if at_most else about_explanation(credit, found).parts,
        }
        for row, (first, found) in zip(keys, explained, strict=True)
    ]
    return [dict(vars(term)) for term in terms.values()], stretches


def _ranges(indices: Sequence[int]) -> list[list[int]]:
    """Return runs of consecutive indices as [first, last]: a suffix sum of a hundred terms is written as one."""
    runs = [[index for _, index in run] for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0])]
    return [[run[0], run[-1]] for run in runs]


def _stretches(spans: Spans, rollout: Rollout) -> list[tuple[int, int]]:
    """Return the (first, last) tokens between the borders of steps, and of what the policy sampled."""
    sampled = [rollout.is_sampled(t) for t in range(len(rollout))]
    borders = {0, len(rollout), *chain(*((first, last + 1) for first, last in spans))}
    borders |= {t for t in range(1, len(rollout)) if sampled[t] != sampled[t - 1]}
    return [(first, after - 1) for first, after in pairwise(sorted(borders))]


def _shortest(values: npt.NDArray[np.float32]) -> list[float]:
    """Doubles whose shortest decimal form is the float32's own: rounding them to float32 gives back the same bits."""
    different, places = np.unique(values.view(np.uint32), return_inverse=True)  # by bits: a step's tokens share theirs
    short = np.array([float(str(value)) for value in different.view(np.float32)])
    return list(short[places].tolist())


@dataclass(frozen=True)
class DrawnLoss:
    """A group's loss: in each of ``passes``, or on policy where there is none.

    ``coefficients[loss][i]`` is what rollout i's tokens are multiplied with; ``rollouts[n]`` is what pass n saw.
    """

    settings: LossSettings
    coefficients: Mapping[str, Sequence[float]]
    passes: Sequence[PassPayload] = ()
    rollouts: Sequence[Sequence[RolloutPass]] = ()

    @classmethod
    def on_policy(cls, credit: Credit, settings: LossSettings | None = None) -> DrawnLoss:
        """Return the loss of a first pass with the group as the whole batch."""
        settings = settings or LossSettings()
        limit = settings.max_completion_length
        return cls(
            settings,
            {loss: group_normalisers(credit, loss, max_completion_length=limit).tolist() for loss in LENS_LOSSES},
        )

    @classmethod
    def of_passes(cls, credits: Sequence[Credit], group: int, passes: Sequence[LossPass]) -> DrawnLoss:
        """Group number ``group`` of a stored generation in the passes over it; at least one."""
        settings = passes[0].settings
        start = sum(len(credit.scored.group) for credit in credits[:group])
        rows = slice(start, start + len(credits[group].scored.group))
        of_losses = {
            loss: pass_normalisers(credits, passes[0], replace(settings, loss_type=loss)) for loss in LENS_LOSSES
        }
        drawn: list[PassPayload] = []
        for seen in passes:
            total = seen.router + sum(float(row.contribution.sum()) for row in pass_losses(credits, seen))
            router, logged = seen.router, seen.loss
            drawn.append({"step": seen.step, "number": seen.number, "total": total, "logged": logged, "router": router})
        return cls(
            settings,
            {loss: values[rows].tolist() for loss, values in of_losses.items()},
            drawn,
            [seen.rollouts[rows] for seen in passes],
        )

    def payload(self) -> Payload:
        return {"type": self.settings.loss_type, **dataclasses.asdict(self.settings), "passes": self.passes}

    def of_rollout(self, credit: Credit, i: int) -> RolloutLossPayload:
        payload: RolloutLossPayload = {
            "coefficients": {loss: values[i] for loss, values in self.coefficients.items()},
            # With six decimals a ratio of two is off by a millionth at most.
            "passes": [
                {"logprobs": rounded(rows[i].logprobs, 6), "old": rounded(rows[i].old_logprobs, 6)}
                for rows in self.rollouts
            ],
        }
        for seen, rows in zip(payload["passes"], self.rollouts, strict=True):
            if (weights := rounded(rows[i].weights, 6)) is not None:
                seen["weights"] = weights
            if (bonus := rows[i].bonus) is not None:
                seen["bonus"] = [float(f"{value:.6g}") for value in bonus]
        if mask := credit.scored.group.rollouts[i].mask:
            payload["sampled"] = list(mask)
        return payload


def row_payload(row: WatchedRow) -> Payload:
    """Everything the drawing needs of a watched row, as plain JSON values."""
    before = row.before
    payload: Payload = {
        **group_payload(Group(row.prompt, tuple(text.rollout for text in row.texts))),
        "measures": [dataclasses.asdict(measure) for measure in row.measures],
        "facts": _facts(row.numbers, None if before is None else before.numbers),
        "step": row.step,
        "before": None if before is None else before.step,
    }
    for i, text in enumerate(row.texts):
        payload["rollouts"][i].pop("copyOf", None)  # chosen and rejected may be cut to the same tokens
        payload["rollouts"][i] |= _text(text, None if before is None else before.texts[i])
    return payload


def _text(text: WatchedText, before: WatchedText | None) -> Payload:
    offset, scored = utf16_offsets(text.rollout.text), text.scored
    payload: Payload = {
        "name": text.name,
        "values": {key: rounded(values) for key, values in text.values.items()},
        "facts": _facts(text.numbers, None if before is None else before.numbers),
        "matched": scored.matched,
        "outcome": None,
        "outcomes": {},
        "matches": [],
        "steps": [
            {
                "start": offset(row["start"]),
                "end": offset(row["end"]),
                "first": row["first_token"],
                "last": row["last_token"],
                "reward": row["reward"],
                "normalised": None,
                "scores": {},
            }
            for row in scored.rows(text.rollout.text)
        ],
    }
    if before is not None:
        values: dict[str, Any] = {key: rounded(values) for key, values in before.values.items()}
        was: BeforePayload = {"values": values, "logprobs": rounded(before.rollout.logprobs)}
        if was["logprobs"] and (reference := rounded(before.rollout.ref_logprobs)):
            was |= {"reference": reference, "raw": was["logprobs"]}
        payload["before"] = was
    return payload


def _facts(numbers: Mapping[str, float], before: Mapping[str, float] | None) -> list[FactPayload]:
    return [
        {"name": name, "value": value, "before": None if before is None else before.get(name)}
        for name, value in numbers.items()
    ]
