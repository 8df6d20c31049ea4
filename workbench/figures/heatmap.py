"""A group's tokens coloured by what each was credited: one drawing for the page, the notebook and a file of its own.

A ``Credit`` becomes a plain payload (numbers, texts and offsets); ``drawing/`` draws it, text by text node, so that
nothing a model wrote is ever read as markup. What is drawn is the advantage tensor itself: every float32 is written
with the digits that give back the same 32 bits.

This module knows nothing of pages, runs or how the numbers came about. Offsets in the payload count UTF-16 units, as
JavaScript does.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.credit import SCHEMES, Comparison, compare_credits, group_normalisers
from workbench.schema import Credit, Group, Rollout, StepScores, Term

Payload = dict[str, Any]
Spans = Sequence[tuple[int, int]]

FOLDER = Path(__file__).resolve().parent / "drawing"
DRAWING = ("base.js", "measures.js", "tokens.js", "cards.js", "compare.js", "why.js", "legend.js", "heatmap.js")
"""The scripts that draw, in the order in which they need each other."""
EXPLAINED_AT_ONCE = 1_000
"""Most terms that the page is sent unasked."""
DRAWN_LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo")


class Heatmap:
    """A drawn credit: shows itself in Jupyter, and ``html()`` is a page that needs nothing else.

    ``matches[i]`` are the character spans of rollout i to underline, usually where the step pattern matched; ``other``
    is a second credit of the same group to show beside the first.
    """

    def __init__(self, credit: Credit, matches: Sequence[Spans] | None = None, other: Credit | None = None) -> None:
        self.credit = credit
        self.matches = matches
        self.other = other

    def payload(self) -> Payload:
        return credit_payload(self.credit, self.matches, other=self.other)

    def html(self) -> str:
        """A whole HTML document, which its own content policy keeps from asking the network for anything."""
        return _page(_fragment(self.payload()), title=f"{self.credit.scheme} credit")

    def _repr_html_(self) -> str:
        return _fragment(self.payload())

    def __repr__(self) -> str:
        scored = self.credit.scored
        steps = sum(len(one.steps) for one in scored.scored)
        spread = "" if self.credit.spread else ", no spread"
        return f"<Heatmap: {len(scored.group)} rollouts, {steps} steps, scheme {self.credit.scheme!r}{spread}>"


def heatmap(
    credit: Credit | Comparison, matches: Sequence[Spans] | None = None, *, other: Credit | None = None
) -> Heatmap:
    """Draw a credit, or two of one group; a notebook cell shows it, ``.html()`` gives a page to keep."""
    if isinstance(credit, Comparison):
        return Heatmap(credit.a, matches, credit.b)
    return Heatmap(credit, matches, other)


def credit_payload(
    credit: Credit,
    matches: Sequence[Spans] | None = None,
    *,
    other: Credit | None = None,
    explain_at_most: int | None = None,
) -> Payload:
    """Everything the drawing needs, as plain JSON values.

    Every token is explained, unless that takes more than ``explain_at_most`` terms: then none is, and ``why_payload``
    answers for a single token. ``other`` is a second credit of the same rollouts, to be drawn beside the first.
    Raises CreditError where it is of other rollouts.
    """
    group = credit.scored.group
    explained = explain_at_most is None or _work(credit) <= explain_at_most
    normalisers = even_shares(credit)
    payload = group_payload(group) | _scheme_payload(credit)
    payload["rewards"] = [{"name": r.name, "kind": r.kind, "weight": r.weight} for r in credit.scored.rewards]
    payload["normalisers"] = True
    for i, rollout in enumerate(payload["rollouts"]):
        rollout |= _credited_payload(credit, i, matches[i] if matches else (), explained)
        rollout["normalisers"] = {loss: values[i] for loss, values in normalisers.items()}
    if other is not None:
        compared = compare_credits(credit, other)
        payload["other"] = _scheme_payload(other) | {
            "flippedShare": compared.flipped_share,
            "correlation": compared.correlation,
            "meanDifference": compared.mean_absolute_difference,
        }
        for i, rollout in enumerate(payload["rollouts"]):
            rollout["twin"] = _credited_payload(other, i, (), explained)
    return payload


def _scheme_payload(credit: Credit) -> Payload:
    scheme = SCHEMES.get(credit.scheme)
    return {
        "scheme": credit.scheme,
        "formula": scheme.formula if scheme else "",
        "options": dict(credit.options),
        "mean": credit.mean,
        "std": credit.std,
        "spread": credit.spread,
        "warnings": list(credit.warnings),
    }


def even_shares(credit: Credit) -> dict[str, list[float]]:
    """What each loss multiplies each completion's advantages with, where 1 is an even share of the group's tokens."""
    tokens = sum(credit.scored.lengths)
    group = credit.scored.group
    return {loss: [round(c * tokens, 6) for c in group_normalisers(group, loss)] for loss in DRAWN_LOSSES}


def group_payload(group: Group) -> Payload:
    """A group that nothing has scored: its texts, drawn without colour."""
    return {
        "prompt": group.prompt if isinstance(group.prompt, str) else _conversation(group.prompt),
        "policy": group.policy,
        "rollouts": [_rollout_payload(rollout) for rollout in group.rollouts],
    }


def to_json(payload: Mapping[str, Any]) -> str:
    """Compact JSON that is safe inside a ``<script>`` element: no ``<`` survives unescaped."""
    return json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _conversation(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _rollout_payload(rollout: Rollout) -> Payload:
    return {
        "ids": list(rollout.token_ids),
        "texts": list(rollout.texts),
        "finished": rollout.finished,
        "logprobs": _rounded(rollout.logprobs),
        "entropies": _rounded(rollout.entropies),
        **({} if rollout.ref_logprobs is None else {"reference": _rounded(rollout.ref_logprobs)}),
    }


def _credited_payload(credit: Credit, i: int, matches: Spans, explained: bool) -> Payload:
    scored = credit.scored.scored[i]
    offset = _utf16_offsets(credit.scored.group.rollouts[i].text)
    return {
        "advantages": _shortest(credit.of(i)),
        "matched": scored.matched,
        "steps": [
            {
                "start": offset(step.start),
                "end": offset(step.end),
                "first": first,
                "last": last,
                "reward": reward,
                "normalised": normalised,
                "scores": {name: values[k] for name, values in scored.scores.items()},
            }
            for k, (step, (first, last), reward, normalised) in enumerate(
                zip(scored.steps, scored.spans, scored.rewards, credit.normalised[i], strict=True)
            )
        ],
        "outcome": scored.outcome,
        "outcomes": dict(scored.outcome_scores),
        "matches": [[offset(start), offset(end)] for start, end in matches],
    } | (_explanations(credit, i, scored) if explained else {})


def why_payload(credit: Credit, rollout: int, token: int) -> Payload:
    """Why one token has its advantage. Raises IndexError when there is no such token."""
    explanation = credit.explain(rollout, token)
    return {
        "first": token,
        "last": token,
        "list": [_term_payload(term) for term in explanation.terms],
        "total": explanation.total,
        "clip": explanation.clip,
    }


def _work(credit: Credit) -> int:
    """About how many terms explaining every token takes: a stretch of tokens for each step, half the steps in each."""
    return sum(len(one.steps) ** 2 for one in credit.scored.scored)


def _explanations(credit: Credit, i: int, scored: StepScores) -> Payload:
    """The distinct terms of a rollout, and for each stretch of tokens which of them add up to its advantage.

    Terms change only where a step starts or ends, so one explanation a stretch explains every token of it.
    """
    terms: list[Payload] = []
    places: dict[tuple[str, int | None, float, float], int] = {}
    stretches = []
    for first, last in _stretches(scored.spans, len(credit.scored.group.rollouts[i])):
        explanation = credit.explain(i, last)
        indices = []
        for term in explanation.terms:
            key = (term.source, term.step, term.factor, term.value)
            if key not in places:
                places[key] = len(terms)
                terms.append(_term_payload(term))
            indices.append(places[key])
        stretches.append(
            {
                "first": first,
                "last": last,
                "terms": _ranges(indices),
                "total": explanation.total,
                "clip": explanation.clip,
            }
        )
    return {"terms": terms, "why": stretches}


def _ranges(indices: Sequence[int]) -> list[list[int]]:
    """Runs of consecutive indices as [first, last]: a suffix sum of a hundred terms is written as one."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return runs


def _stretches(spans: Spans, length: int) -> Iterator[tuple[int, int]]:
    borders = {0, length}
    for first, last in spans:
        borders.update((first, last + 1))
    edges = sorted(border for border in borders if 0 <= border <= length)
    for first, after in pairwise(edges):
        yield first, after - 1


def _term_payload(term: Term) -> Payload:
    return {
        "source": term.source,
        "step": term.step,
        "scores": dict(term.scores),
        "weights": dict(term.weights),
        "reward": term.reward,
        "raw": term.raw,
        "mean": term.mean,
        "std": term.std,
        "normalised": term.normalised,
        "factor": term.factor,
        "value": term.value,
    }


def _shortest(values: npt.NDArray[np.float32]) -> list[float]:
    """Doubles whose shortest decimal form is the float32's own: rounding them to float32 gives back the same bits."""
    different, places = np.unique(values.view(np.uint32), return_inverse=True)  # by bits: a step's tokens share theirs
    short = np.array([float(str(value)) for value in different.view(np.float32)])
    found: list[float] = short[places].tolist()
    return found


def _rounded(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else np.round(np.asarray(values, np.float64), 5).tolist()


def _utf16_offsets(text: str) -> Any:
    """A function from character offsets of ``text`` to UTF-16 offsets: each astral character counts twice."""
    astral = [i for i, character in enumerate(text) if ord(character) > 0xFFFF]
    return lambda position: position + bisect_right(astral, position - 1)


@cache
def asset(name: str) -> str:
    """The text of one of the drawing's scripts or style sheets."""
    return (FOLDER / name).read_text(encoding="utf-8")


def _fragment(payload: Payload) -> str:
    scripts = "\n".join(asset(script) for script in DRAWING)
    name = f"workbench-heatmap-{secrets.token_hex(4)}"
    return (
        f"<style>{asset('heatmap.css')}</style>"
        f'<div id="{name}" class="wh mathjax_ignore tex2jax_ignore" data-theme="auto"></div>'
        f'<script type="application/json" id="{name}-data">{to_json(payload)}</script>'
        f"<script>{scripts}\n"
        f"WorkbenchHeatmap.mount(document.getElementById('{name}'))"
        f".draw(document.getElementById('{name}-data').textContent);</script>"
    )


def _page(fragment: str, *, title: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title></head>"
        f'<body class="wh-page">{fragment}</body></html>\n'
    )
