"""A reward function evaluated on labelled data: agreement, AUC, first-error F1 and the worst disagreements.

Labels are a file's own (see ``data.formats``): ``labels`` of its steps, or a column that says whether a whole
completion is right. A score counts as "right" from a threshold on. Whatever the reward left unscored is counted and
left out, never taken for 0.

First-error F1 (ProcessBench, Zheng et al. 2024, arXiv 2412.06559) is the harmonic mean of two accuracies: of finding
exactly the first wrong step in completions that have one, and of finding none in those that have none. AUC is
scikit-learn's. This module does not know how groups were read or where rewards run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import harmonic_mean
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.checks.difficulty import auc
from workbench.checks.findings import Finding
from workbench.errors import ConfigError, RewardError, TaskError
from workbench.rewards import RewardConfig
from workbench.rewards.builtin.steps import given_labels
from workbench.rewards.reward import Models, Reward, load_reward, score_completions
from workbench.sandbox.client import Sandbox
from workbench.schema import Group, RewardKind, StepScores, say_count
from workbench.steps import PRESETS, StepPattern, step_texts

OUTCOME_LABELS = ("correct", "is_correct", "final_answer_correct", "label")
"""Columns that may say whether a completion is right, in the order in which they are looked for."""
STEP_LABELS = "labels"

Labels = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Share of the labelled items that a score from ``threshold`` on says the right thing about."""

    threshold: float
    share: float


@dataclass(frozen=True)
class Labelled:
    """A labelled step, or a whole completion, whose ``step`` is None; all indices count from 0."""

    group: int
    rollout: int
    step: int | None
    score: float | None
    label: bool
    text: str


@dataclass(frozen=True)
class RewardCheck:
    """A reward held against labelled data.

    ``items`` says what is labelled, steps or completions. Of them ``count`` have a label and a score, ``right`` of
    these are labelled right, and ``unscored`` have a label and no score. ``auc`` is None where all labels are the same.
    ``best`` has the threshold with the most agreement, ``given`` the one that was asked for.
    """

    reward: str
    kind: RewardKind
    items: Literal["steps", "completions"]
    labels: str
    count: int
    right: int
    unscored: int
    auc: float | None
    best: Agreement | None
    given: Agreement | None
    first_error: FirstError | None
    worst: tuple[Labelled, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite threshold, from which nothing counts as right, is None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    @property
    def findings(self) -> list[Finding]:
        """Return the numbers, and what is to be known of them."""
        wrong_way = self.auc is not None and self.auc < 0.5
        scores = [("best agreement", self.best), ("agreement", self.given)]
        return [
            Finding(self.items, "ok", f"{self.count:,}", f"labelled and scored, {self.right:,} of them right"),
            Finding("unscored", "ok", f"{self.unscored:,}", f"labelled {self.items} got no score"),
            Finding(
                "AUC",
                "check" if wrong_way else "ok",
                "undefined" if self.auc is None else f"{self.auc:.3f}",
                "right ones against wrong ones",
                "turn the reward's sign round" if wrong_way else "",
            ),
            *(Finding(n, "ok", f"{a.share:.1%}", threshold_text(a.threshold)) for n, a in scores if a is not None),
            *([Finding("first-error F1", "ok", *self.first_error.summary)] if self.first_error else []),
            *(Finding("note", "ok", "", note) for note in self.notes),
        ]


def check_reward(
    groups: Sequence[Group],
    reward: str | Callable[..., Any] | RewardConfig | Reward,
    *,
    labels: str | None = None,
    pattern: StepPattern | None = None,
    threshold: float | None = None,
    worst: int = 20,
    worker: Sandbox | None = None,
    models: Models | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> RewardCheck:
    """Evaluate a reward function on labelled groups.

    ``labels`` is the column to believe: ``labels`` for steps or one of whole completions (true and false, or 1 and 0);
    by default a step reward is held against steps' labels where there are any, and all else against the first of
    ``correct``, ``is_correct``, ``final_answer_correct`` and ``label``. Where a completion is labelled, a step reward's
    score of it is that of its worst step. ``pattern`` finds the steps; by default the one that finds the file's own, or
    lines. The reward's code and the pattern run in ``worker`` as ``score_completions`` says; a reward model is held by
    ``models``.
    ``on_progress(done, of)`` counts groups; once ``cancelled`` says True, what is scored by then is judged.

    Raises:
        TaskError: for data without labels, or labels that are not true or false.
        ConfigError: for a column that cannot be used with this reward.
        RewardError: for a reward that cannot be loaded or fails, naming the group.
    """
    preset = next((group.sampling.get("preset") for group in groups), None)
    cutter = pattern or PRESETS[preset if preset in PRESETS else "line"].pattern
    loaded = load_reward(reward, worker, models=models, pattern=cutter)
    if threshold is not None and not np.isfinite(threshold):
        raise ConfigError(f"threshold is {threshold}; give a finite number, or leave it out to have the best one found")
    column = _column(groups, loaded.kind, labels)
    items: list[Labelled] = []
    chains: list[Chain] = []
    done = 0
    for g, group in enumerate(groups):
        rows = [{**group.columns, **rollout.columns} for rollout in group.rollouts]
        prompts = [group.prompt] * len(group)
        try:
            scored, _ = score_completions(prompts, group.rollouts, rows, cutter, [loaded], worker=worker)
        except RewardError as error:
            error.args = (f"group {g + 1}: {error}",)
            raise
        if column == STEP_LABELS:
            of_steps, of_chains = _step_items(g, group, scored, loaded.name)
            items += of_steps
            chains += of_chains
        else:
            items += _completion_items(g, group, scored, loaded, column)
        done = g + 1
        if on_progress is not None:
            on_progress(done, len(groups))
        if cancelled is not None and cancelled():
            break
    notes = [f"cancelled after {done} of {len(groups)} groups"] if done < len(groups) else []
    if loaded.kind == "step" and column != STEP_LABELS:
        notes.append("a completion's score is the least of its steps' scores")
    return _judge(loaded, column, items, chains, threshold, worst, notes)


# --- scores and labels ---------------------------------------------------------------------------------------------


def _column(groups: Sequence[Group], kind: RewardKind, column: str | None) -> str:
    known = {name for group in groups for rollout in group.rollouts for name in {**group.columns, **rollout.columns}}
    if column is not None:
        if column not in known:
            raise TaskError(f"no completion has the column {column!r}; there are {', '.join(sorted(known)) or 'none'}")
        if column == STEP_LABELS and kind == "outcome":
            raise ConfigError("labels of steps say nothing of an outcome reward's scores; name a column of completions")
        return column
    usual = [*([STEP_LABELS] if kind == "step" else []), *OUTCOME_LABELS]
    if not (there := [name for name in usual if name in known]):
        raise TaskError(
            f"the data has no labels to hold the reward against: none of {', '.join(usual)} among its columns "
            f"({', '.join(sorted(known)) or 'none'})"
        )
    return there[0]


def _step_items(g: int, group: Group, scored: Sequence[StepScores], name: str) -> tuple[list[Labelled], list[Chain]]:
    items, chains = [], []
    for r, (rollout, step_scores) in enumerate(zip(group.rollouts, scored, strict=True)):
        columns = {**group.columns, **rollout.columns}
        labels_given = columns.get(STEP_LABELS)
        if labels_given is None:  # of labelled rollouts, one without
            continue
        texts = step_texts(rollout.text, step_scores.steps)
        known = columns.get("labelled_steps") or texts
        if len(known) != len(labels_given):
            raise TaskError(
                f"group {g + 1}, rollout {r + 1}: {len(labels_given)} labels for {len(known)} steps; give one each"
            )
        labels = given_labels([""], [""], [texts], labelled_steps=[known], labels=[labels_given])[0]
        scores = step_scores.scores[name]
        for k, (text, score, label) in enumerate(zip(texts, scores, labels, strict=True)):
            if label is not None:
                items.append(Labelled(g, r, k, score, _truth(label, g, r), text))
        wrong = [label is not None and not _truth(label, g, r) for label in labels]
        if any(label is not None for label in labels):
            # A wrong step that the pattern cuts otherwise than it was labelled cannot be found.
            lost = sum(wrong) < sum(label is not None and not _truth(label, g, r) for label in labels_given)
            chains.append(Chain(scores, wrong.index(True) if any(wrong) else -1, lost))
    return items, chains


def _completion_items(
    g: int, group: Group, scored: Sequence[StepScores], reward: Reward, column: str
) -> Iterator[Labelled]:
    for r, (rollout, step_scores) in enumerate(zip(group.rollouts, scored, strict=True)):
        label = rollout.columns.get(column, group.columns.get(column))
        if label is None:
            continue
        if reward.kind == "outcome":
            score = step_scores.outcome_scores[reward.name]
        else:
            score = min((value for value in step_scores.scores[reward.name] if value is not None), default=None)
        yield Labelled(g, r, None, score, _truth(label, g, r), rollout.text)


def _truth(label: Any, g: int, r: int) -> bool:
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, bool | int | float) and label in (0, 1):
        return bool(label)
    raise TaskError(f"group {g + 1}, rollout {r + 1}: the label is {label!r}; give true or false, or 1 or 0")


# --- metrics -------------------------------------------------------------------------------------------------------


def _judge(
    reward: Reward,
    column: str,
    items: Sequence[Labelled],
    chains: Sequence[Chain],
    threshold: float | None,
    worst: int,
    notes: list[str],
) -> RewardCheck:
    held = [item for item in items if item.score is not None]
    scores: Scores = np.array([item.score for item in held], dtype=np.float64)
    labels: Labels = np.array([item.label for item in held], dtype=np.bool_)
    both = len(set(labels.tolist())) == 2
    area = auc(scores, labels) if both else None
    best = _best_agreement(scores, labels) if held else None
    at_threshold = None
    if threshold is not None and held:
        at_threshold = Agreement(threshold, float((labels == (scores >= threshold)).mean()))
    used = threshold if threshold is not None else best.threshold if best is not None else 0.0
    lost = sum(chain.lost for chain in chains)
    silent = sum(all(score is None for score in chain.scores) for chain in chains)
    found = {
        f"every label is {'right' if labels.any() else 'wrong'}, so the AUC is undefined": held and not both,
        "nothing that has a label was scored": not held,
        "wrong ones score higher than right ones more often than not: the reward is the wrong way round": (
            area is not None and area < 0.5
        ),
        f"{say_count(lost, 'completion')} cut otherwise than labelled at a wrong step; left out of first errors": lost,
        f"{say_count(silent, 'completion')} without any score; left out of first errors": silent,
        "the best threshold was chosen on these very data, so its numbers flatter the reward": (
            held and threshold is None
        ),
    }
    return RewardCheck(
        reward=reward.name,
        kind=reward.kind,
        items="steps" if column == STEP_LABELS else "completions",
        labels=column,
        count=len(held),
        right=int(labels.sum()),
        unscored=len(items) - len(held),
        auc=area,
        best=best,
        given=at_threshold,
        first_error=first_error(chains, used) if chains and held else None,
        worst=_worst(held, scores, labels, used, worst),
        notes=(*notes, *(note for note, is_so in found.items() if is_so)),
    )


def _best_agreement(scores: Scores, labels: Labels) -> Agreement:
    """Return the highest of the thresholds with the most agreement; infinity stands for "nothing is right"."""
    order = np.argsort(-scores, kind="stable")
    # A threshold at the k-th highest score counts k items as right: one more agrees for each that is, else one less.
    gained = np.cumsum(np.where(labels[order], 1, -1))
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, [True]))  # of items with one score
    shares = (np.count_nonzero(~labels) + np.append(0, gained[last])) / len(labels)
    best = int(np.argmax(shares))
    return Agreement(float(np.append(np.inf, scores[order][last])[best]), float(shares[best]))


def _worst(
    held: Sequence[Labelled], scores: Scores, labels: Labels, threshold: float, count: int
) -> tuple[Labelled, ...]:
    """Return where score and label disagree, those first whose score is furthest to the wrong side among all scores."""
    if not held:
        return ()
    ordered = np.sort(scores)
    rank = (np.searchsorted(ordered, scores, "left") + 1 + np.searchsorted(ordered, scores, "right")) / 2  # from 1
    badness = np.where(labels, len(scores) + 1 - rank, rank)
    wrong = np.flatnonzero((scores >= threshold) != labels)
    chosen = sorted(wrong.tolist(), key=lambda i: -badness[i])[:count]
    return tuple(held[i] for i in chosen)


# --- the first wrong step, or that there is none ------------------------------------------------------------------


@dataclass(frozen=True)
class FirstError:
    """ProcessBench's numbers at ``threshold``: a step below it is wrong, and the first such is the prediction.

    ``erroneous`` and ``correct`` are accuracies over ``erroneous_count`` and ``correct_count`` completions, None where
    there are none; ``f1`` is their harmonic mean.
    """

    threshold: float
    erroneous: float | None
    correct: float | None
    f1: float | None
    erroneous_count: int
    correct_count: int

    @property
    def summary(self) -> tuple[str, str]:
        """Return the F1, and what it is of."""
        parts = [
            f"{'–' if share is None else f'{share:.1%}'} of {count:,} {what}"
            for share, count, what in (
                (self.erroneous, self.erroneous_count, "with an error"),
                (self.correct, self.correct_count, "without"),
            )
        ]
        f1 = "undefined" if self.f1 is None else f"{self.f1:.1%}"
        return f1, f"{threshold_text(self.threshold)} ({', '.join(parts)})"


@dataclass(frozen=True)
class Chain:
    """A completion's step scores and its first wrong step by the labels, -1 for none."""

    scores: tuple[float | None, ...]
    first: int
    lost: bool = False
    """Whether a wrong step of the labels is not among the completion's steps."""


def first_error(chains: Sequence[Chain], threshold: float) -> FirstError:
    """ProcessBench's numbers for ``chains`` (step ``scores`` and ``first`` wrong step, -1 for none) at a threshold.

    The prediction is the first step that scores below it; a step without a score is never predicted. A chain without
    any score, or whose wrong step is not among its steps (``lost``), is left out.
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for chain in chains:
        if not (chain.lost or all(score is None for score in chain.scores)):
            low = (k for k, score in enumerate(chain.scores) if score is not None and score < threshold)
            hits[chain.first >= 0].append(next(low, -1) == chain.first)
    erroneous, correct = (sum(hit) / len(hit) if hit else None for hit in (hits[True], hits[False]))
    f1 = None if erroneous is None or correct is None else float(harmonic_mean([erroneous, correct]))
    return FirstError(threshold, erroneous, correct, f1, len(hits[True]), len(hits[False]))


def threshold_text(threshold: float) -> str:
    return "with nothing counted right" if threshold == float("inf") else f"from {threshold:g} on"
