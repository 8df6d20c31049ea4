"""Schemes that spread the outcome over tokens by comparing the group's completions token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import comb
from typing import Annotated

import numpy as np

from workbench.credit.batch import END, Batch, Floats, Integers
from workbench.credit.normalise import Normalise, Normalised
from workbench.credit.options import Range
from workbench.credit.schemes.scheme import Part, RightFrom, by_completion, outcomes_of

TokenWeight = Annotated[float, Range("Weight of the tokens' part beside the outcome's", -100.0, 100.0)]


def lambda_grpo(batch: Batch, *, normalise: Normalise = "pooled", scale: bool = True) -> Part:
    """The normalised outcome, divided by the number of completions that are the same up to and with this token.

    A_{i,t} = z(R_i) / |{j : o_{j,1..t} = o_{i,1..t}}|: a start that several answers share would count once for each of
    them. The j are the group's completions with an outcome. lambda-GRPO (arXiv 2509.21154), ``InfPRMTree.loss_scales``
    in ``lambda_grpo/utils.py`` of https://github.com/coli-saar/grpo-prm, which scales all of a token's loss so, its KL
    term too; here the KL term stays whole.
    """
    outcomes = outcomes_of(batch)
    whole = by_completion(batch, outcomes, normalise, scale)
    scored = np.flatnonzero(~np.isnan(outcomes))
    sharing = [np.ones(len(ids)) for ids in _ids(batch)]
    for group in np.unique(batch.group[scored]):
        _count_sharing(_ids(batch), scored[batch.group[scored] == group], sharing)
    counts = [count[tokens] for count, tokens in zip(sharing, batch.sampled, strict=True)]
    values = _of_tokens(batch, whole)
    return Part("outcome", "own", values, 1.0 / np.concatenate([*counts, np.zeros(0)]), unit="token")


def _count_sharing(ids: Sequence[Integers], members: Integers, sharing: Sequence[Floats]) -> None:
    """Set ``sharing[i][t]`` to how many of ``members`` begin with what i begins with up to t, where it is not 1."""
    open_prefixes = [list(members)]
    t = 0
    while open_prefixes:
        longer = []
        for prefix in open_prefixes:
            by_token: dict[int, list[int]] = {}
            for i in prefix:
                if t < len(ids[i]):
                    by_token.setdefault(int(ids[i][t]), []).append(i)
            for same in by_token.values():
                if len(same) > 1:
                    longer.append(same)
                    for i in same:
                        sharing[i][t] = len(same)
        open_prefixes, t = longer, t + 1


def ktae(
    batch: Batch,
    *,
    normalise: Normalise = "pooled",
    scale: bool = True,
    token_weight: TokenWeight = 1.0,
    right_from: RightFrom = 1.0,
) -> Part | tuple[Part, ...]:
    """The normalised outcome plus what the token's presence has to do with right answers in the group, -1 to 1.

    A_{i,t} = z(R_i) + token_weight * w(o_{i,t}), w = 2 sigmoid(x (F + IG) / 2) - 1 of a token: F = exp(-2p) of Fisher's
    exact test (0 for p = 1) and IG the information gain in bits, both of the table of answers with and without the
    token, right (R_i >= right_from) and wrong; x = h + f+/(f- + 1e-5) - f-/(f+ + 1e-5), h the difference of
    asin(sqrt(.)) of the shares of right and wrong answers with the token (Cohen's h without its 2), f+ and f- its
    saturated frequencies there: 3q / (q + 1 + T+- / mean T), q its share of their T+- tokens. The end-of-sequence token
    has w = 0, and every token where all answers are right or wrong. KTAE (arXiv 2505.16826),
    ``verl/workers/actor/compute_key_tokens.py`` of https://github.com/xiaolizh1/KTAE, where R > 0 is right and Fisher's
    test is computed in float32: its rounding moves the numbers of many tokens; here p is exact.
    """
    outcomes = outcomes_of(batch)
    ids = [known[tokens] for known, tokens in zip(_ids(batch), batch.sampled, strict=True)]
    weights = [np.zeros(len(known)) for known in ids]
    right = outcomes >= right_from
    for group in np.unique(batch.group):
        members = batch.group == group
        tables = [np.flatnonzero(members & kind) for kind in (right, ~right & ~np.isnan(outcomes))]
        if all(len(table) for table in tables):
            weight = _key_tokens([ids[i] for i in tables[0]], [ids[i] for i in tables[1]])
            for i in np.concatenate(tables):
                weights[i] = np.array([weight[token] for token in ids[i].tolist()])
    raw = np.concatenate([*weights, np.zeros(0)])
    unscored = np.repeat(np.isnan(outcomes), np.diff(batch.token_offsets))
    value, unknown = np.where(unscored, np.nan, raw), np.full_like(raw, np.nan)
    statistic = Normalised(value, unknown, unknown, value, raw != 0)
    return (
        Part("outcome", "all", by_completion(batch, outcomes, normalise, scale)),
        Part("token", "own", statistic, np.full_like(raw, token_weight), unit="token"),
    )


def _key_tokens(right: Sequence[Integers], wrong: Sequence[Integers]) -> dict[int, float]:
    """w of each token id in the answers, which are of both kinds."""
    answers = [Counter(token for ids in kind for token in set(ids.tolist())) for kind in (right, wrong)]
    tokens = [Counter(token for ids in kind for token in ids.tolist()) for kind in (right, wrong)]
    totals = [max(sum(counts.values()), 1) for counts in tokens]
    weights = {END: 0.0}
    for token in (answers[0].keys() | answers[1].keys()) - {END}:
        a, b = answers[0][token], answers[1][token]
        p, gain = _association(a, b, len(right) - a, len(wrong) - b)
        plus, minus = (
            3.0 * q / (q + 1.0 + total / (sum(totals) / 2))
            for q, total in ((counts[token] / total, total) for counts, total in zip(tokens, totals, strict=True))
        )
        h = float(np.arcsin(np.sqrt(a / len(right))) - np.arcsin(np.sqrt(b / len(wrong))))
        x = h + plus / (minus + 1e-5) - minus / (plus + 1e-5)
        strength = (0.0 if p > 1 - 1e-9 else float(np.exp(-2 * p))) + gain
        weights[token] = float(np.tanh(x * strength / 4))  # 2 sigmoid(y) - 1 = tanh(y / 2)
    return weights


@lru_cache(maxsize=4096)  # of few tables: they are made of counts of a group's answers
def _association(a: int, b: int, c: int, d: int) -> tuple[float, float]:
    """p of Fisher's exact test (two-sided) and the information gain in bits of a table of counts.

    a right and b wrong answers with the token, c right and d wrong ones without.
    """
    rows, column, n = a + b, a + c, a + b + c + d
    likelihood = {
        k: comb(column, k) * comb(n - column, rows - k) for k in range(max(0, rows + column - n), min(rows, column) + 1)
    }
    p = sum(ways for ways in likelihood.values() if ways <= likelihood[a]) / comb(n, rows)
    inside = sum(size / n * _bits(part / size) for part, size in ((a, a + b), (c, c + d)) if size)
    return p, _bits(column / n) - inside


def _bits(share: float) -> float:
    """Entropy of a coin that falls right with probability ``share``."""
    return float(-sum(q * np.log2(q) for q in (share, 1 - share) if q > 0))


def _ids(batch: Batch) -> tuple[Integers, ...]:
    assert batch.token_ids is not None, "what a scheme needs is checked before it is computed"
    return batch.token_ids


def _of_tokens(batch: Batch, whole: Normalised) -> Normalised:
    """A completion's values at each of its sampled tokens."""
    owner = np.repeat(np.arange(batch.completions), np.diff(batch.token_offsets))
    return Normalised(whole.raw[owner], whole.mean[owner], whole.std[owner], whole.value[owner], whole.spread[owner])
