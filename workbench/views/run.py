"""The sentences about a run: what it gained on the problems that were held out, and whether that may be chance."""

import math
from collections.abc import Mapping, Sequence

from workbench.errors import RunError
from workbench.runs import Run
from workbench.schema import whole_percent
from workbench.views.curves import Columns, columns_of
from workbench.views.wording import Sentence, course, join_words, number, sentence

ALPHA = 0.05
"""A change in accuracy is told from chance by McNemar's exact test at this level."""
MOST, SOON = 0.8, 0.5
"""Most of a gain "came by" a step where this share of it did in less than this share of the run."""
_TOLD = {
    "answer length": "completions/mean_length",
    "steps per answer": "steps_per_answer",
    "entropy": "entropy",
    "KL": "kl",
}
"""Measures that are told of a run where they moved, and their columns."""
_GAINS = {
    "pair_accuracy": "share of held-out pairs told right",
    "step_accuracy": "share of held-out steps told right",
    "reward": "outcome reward",
    "step_reward": "step reward",
    "loss": "loss",
}
"""What is told of a run without held-out answers: columns by what they are called."""


def run_sentences(run: Run, columns: Columns | None = None) -> list[Sentence]:
    """Say what a run gained on the held-out problems, when, and what else moved.

    Where no problem was measured twice: what its reward or its loss did. No gain is told if the stored answers are
    damaged, or if not all of them are stored, so that the curve says another number. ``columns`` are those of its
    metrics, if they were read already.
    """
    steps = run.dir.answers.steps()
    try:
        measured = [run.dir.answers.read(step) for step in steps]
        columns = columns_of(run.metrics_rows()[0]) if columns is None else columns
    except RunError:
        return []
    if len(steps) < 2:
        return about_measures({name: columns[key][1] for key, name in _GAINS.items() if key in columns})
    if not measured[0] or len({tuple(row.prompt for row in rows) for rows in measured}) > 1:
        return []
    before, after = ([row.right for row in answers] for answers in measured)
    curve = [(int(step), share) for step, share in zip(*columns.get("accuracy", ((), ())), strict=True)]
    if not math.isclose(dict(curve).get(steps[-1], -1), sum(after) / len(after), abs_tol=1e-6):
        return []
    return about_run(before, after, curve, {name: columns[key][1] for name, key in _TOLD.items() if key in columns})


def about_run(
    before: Sequence[bool],
    after: Sequence[bool],
    curve: Sequence[tuple[int, float]],
    measures: Mapping[str, Sequence[float]] | None = None,
) -> list[Sentence]:
    """At most four sentences on a run: what it gained and whether that may be chance, when, and what else moved.

    ``before`` and ``after`` say which held-out problems were answered right at the first and the newest measure, one
    answer a problem; ``curve`` is (training step, accuracy) of every measure; ``measures`` are further columns. A
    change may be chance if McNemar's exact test, or 0 in ``paired_interval``, does not rule it out; the interval
    that is said reaches to 0 then. Raises ValueError where the two are of different length or empty.
    """
    n = len(before)
    gained = sum(now and not was for was, now in zip(before, after, strict=True))
    lost = sum(was and not now for was, now in zip(before, after, strict=True))
    if not n:
        raise ValueError("a run is told by at least one held-out problem")
    start, end = (whole_percent(sum(side) / n) for side in (before, after))
    low, high = paired_interval(gained, lost, n)
    sure = mcnemar(gained, lost) < ALPHA and (low > 0 or high < 0)
    if not sure:
        low, high = min(low, 0.0), max(high, 0.0)
    better = f"[{number(gained) if gained else 'none'}](problems:became-right) fixed"
    worse = f"[{number(lost) if lost else 'none'}](problems:became-wrong) broken"
    change = f"{better}, {worse}" if sure else f"may be chance on {n} problems"
    by, least, most = (f"{points:+.0f}".replace("-", "−") for points in (end - start, 100 * low, 100 * high))
    said = [f"held-out accuracy {start} % → {end} % ({by} points, 95 % interval {least} to {most}): {change}."]
    said += _when(curve, end / 100, n, sure)
    said += [f"{moved}." for name, values in (measures or {}).items() if (moved := course(name, values))]
    return [sentence(text) for text in said[:4]]


def about_measures(measures: Mapping[str, Sequence[float]]) -> list[Sentence]:
    """Say where the measures of a run without held-out problems went, those that moved beyond their noise."""
    moved = [text for name, values in measures.items() if (text := course(name, values))]
    return [sentence(f"{join_words(moved)}.")] if moved else []


def _when(curve: Sequence[tuple[int, float]], end: float, problems: int, sure: bool) -> list[str]:
    if len(curve) < 3:
        return []
    (best_step, best), (last_step, _) = max(curve, key=lambda measure: measure[1]), curve[-1]
    error = math.sqrt(max(end * (1 - end), 1 / problems) / problems)
    if best - end > 2 * error:
        return [f"best at step {best_step}, {100 * (best - end):.0f} points above the end."]
    gain = end - curve[0][1]
    soon = next((step for step, accuracy in curve if accuracy - curve[0][1] >= MOST * gain), last_step)
    if sure and gain > 0 and soon < SOON * last_step:
        return [f"most of the gain came by step {soon} of {last_step}."]
    return []


def mcnemar(gained: int, lost: int) -> float:
    """Return how probable a difference at least as large is by chance, two-sided: the exact test of discordant pairs.

    McNemar (Psychometrika 12, 1947); the exact form is the sign test on ``gained + lost`` pairs.
    """
    pairs = gained + lost
    tail: float = sum(math.comb(pairs, k) for k in range(min(gained, lost) + 1)) / 2**pairs
    return min(1.0, 2.0 * tail)


def paired_interval(gained: int, lost: int, pairs: int) -> tuple[float, float]:
    """Return the 95 % interval of a difference of paired shares, (gained − lost) / pairs.

    Wald's with half a pair added to each of the four cells: Wald+2 of Agresti and Min (Statistics in Medicine 24, 2005,
    729–740), also where Wald's own has no width.
    """
    change = (gained - lost) / (pairs + 2)
    half = 1.959964 * math.sqrt(gained + lost + 1 - (gained - lost) * change) / (pairs + 2)
    return max(change - half, -1.0), min(change + half, 1.0)
