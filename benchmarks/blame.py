"""Who gets the blame: how every scheme spreads its advantages over answers whose culprit is known (``planted``).

A cell is ``labels/scheme/task``. The labels are the step rewards: ``right`` is the truth, ``noise10`` and ``noise30``
have that share of it turned (in ``--repeat`` ways), ``implicit`` is the process reward model of ``benchmarks schemes``
(trained first if the workspace lacks it; ``--stored`` leaves it out). ``belief`` is how much each step raised the
shipped policy's belief in the right answer, ``monte_carlo`` the share of its continuations from a step that end right,
``monte_carlo_progress`` what a step changed in that share. ``outcome`` has no step rewards; only schemes that read none
stand there. The answer's correctness is beside the steps everywhere.

Two more tables follow: ``counterfactuals`` says what changing each culprit does, ``learning`` how far each number goes
with the final accuracies of ``benchmarks schemes``. A call for all cells writes ``RESULTS``, from which the
documentation's tables are made, ``BLAME`` for the page, and two pictures.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.drawings import dots, scatter
from benchmarks.planted import (
    POLICIES,
    Counterfactual,
    Planted,
    Truth,
    counterfactuals,
    pattern_of,
    planted_groups,
)
from benchmarks.schemes import OUTCOME, first_group, judge_run, sees_labels, step_reward, stored_results
from benchmarks.trained import Where, say
from workbench.assets import BLAME
from workbench.checks import probe
from workbench.config import SamplingConfig
from workbench.credit import SCHEMES, credit_groups
from workbench.policies.belief import beliefs
from workbench.policies.load import Policy, load_policy
from workbench.policies.monte_carlo import step_values
from workbench.policies.step_values import StepValues
from workbench.rewards import RewardConfig, score_group
from workbench.schema import RewardSummary, ScoredGroup
from workbench.training.methods import RunConfig

GROUPS = 40
"""Of each task."""
CONTINUATIONS = 4
"""Of each step, for its Monte-Carlo value."""
TASKS = {"chains": "chain-arithmetic", "turns": "calculator"}
NOISE = {"right": 0.0, "noise10": 0.1, "noise30": 0.3}
LABELS = (*NOISE, "implicit", "belief", "monte_carlo", "monte_carlo_progress", "outcome")
OF_TURNS = (*NOISE, "belief", "outcome")
"""The reward model is one of chains, and Monte-Carlo values do not go with an environment."""
EVEN = "even"
"""In place of a scheme: all tokens of all answers are pushed down alike. What chance gives."""
TRAINED = {"right": "right", "noise10": "noise10", "noise30": "noise30", "implicit": "prm"}
"""Labels here, and those of the runs of ``benchmarks schemes``."""
RESULTS = Path(__file__).with_name("blame.jsonl")
PICTURES = Path(__file__).parents[1] / "docs" / "_static"
SAMPLING = SamplingConfig(max_completion_length=160)
Array = npt.NDArray[Any]
Values = Sequence[Sequence[float | None]] | RewardConfig | None


@dataclass(frozen=True)
class BlameRow:
    """One scheme under one kind of labels. Blame is what is pushed down: -A of each token with A < 0.

    Over answers with a culprit: ``step`` and ``token`` are the shares of an answer's blame on its wrong steps and on
    their culprit tokens (0 if nothing is blamed), ``auc`` how well -A tells the culprit tokens from all others.
    Over all steps: ``wrong_down`` is the share of wrong steps with a mean A below 0, ``right_up`` of right steps with
    one above 0. In units of the group's mean |A|: ``push`` is the mean A of its wrong steps and ``variance`` that of
    this over groups; ``position`` is the A of the first step less that of the last one in answers without an error, and
    ``length`` the mean A of an answer with a line twice less that of the same answer without it; both should be 0.
    """

    labels: str
    scheme: str
    task: str
    groups: int
    step: float
    token: float
    auc: float
    wrong_down: float
    right_up: float
    push: float
    variance: float
    position: float
    length: float


NUMBERS = tuple(field.name for field in fields(BlameRow))[4:]


@dataclass(frozen=True)
class Learning:
    """Spearman's correlation of a number of the chains' rows with final accuracy, over the schemes that were trained.

    ``low`` and ``high`` hold 95 % of 2,000 draws of as many schemes with replacement.
    """

    TABLE: ClassVar[str] = "learning"
    labels: str
    number: str
    schemes: int
    correlation: float
    low: float
    high: float


def measure(repeat: int, where: Where = Where()) -> list[Any]:  # noqa: B008  # frozen
    chosen = where.chosen(cells())
    planted = {name: planted_groups(task, GROUPS) for name, task in TASKS.items()}
    rows: list[BlameRow] = []
    for labels in LABELS:
        for name, groups in planted.items():
            cell = [scheme for scheme in (*SCHEMES, EVEN) if f"{labels}/{scheme}/{name}" in chosen]
            scored = labelled(labels, groups, repeat, where) if cell else None
            if scored is not None:
                truths = [group.truths for group, _ in scored]
                rows += [
                    BlameRow(labels, scheme, name, len(groups), **row_of(_credited(scheme, scored), truths))
                    for scheme in cell
                ]
                say(f"{labels}, {name}: {len(cell)} schemes on {len(scored)} groups")
    checked = [row for name, groups in planted.items() for row in counterfactuals(name, groups)]
    learning = learning_of(rows)
    if where.only is None:
        _write(rows, checked, learning)
    return [*rows, *checked, *learning]


def cells() -> list[str]:
    """All labels of a task, of each the schemes that read them; ``EVEN`` stands beside the schemes without labels."""
    schemes = {labels: [s for s in SCHEMES if sees_labels(s) == (labels != "outcome")] for labels in LABELS}
    schemes["outcome"].append(EVEN)
    known = {"chains": LABELS, "turns": OF_TURNS}
    return [f"{labels}/{s}/{task}" for task in TASKS for labels in known[task] for s in schemes[labels]]


# --- a row ----------------------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What one answer adds to a row; a number that it has nothing to say of is NaN."""

    step: float
    token: float
    auc: float
    wrong: list[float]
    right: list[float]


def row_of(advantages: Sequence[Array], truths: Sequence[Sequence[Truth]]) -> dict[str, float]:
    """Return the numbers of a row from the advantages of some groups, (G, T) each, and the truth of their answers."""
    answers: list[_Answer] = []
    pushes: list[float] = []
    positions: list[float] = []
    lengths: list[float] = []
    for of_group, group in zip(advantages, truths, strict=True):
        sampled = [row[list(truth.sampled)] for row, truth in zip(of_group, group, strict=True)]
        scale = float(np.abs(np.concatenate(sampled)).mean())
        if scale == 0:
            continue
        means = [_means(*one) for one in zip(of_group, group, strict=True)]
        found = [_answer(*one) for one in zip(of_group, means, group, strict=True)]
        answers += found
        pushes.append(float(np.mean([value for one in found for value in one.wrong])) / scale)
        clean = [i for i, truth in enumerate(group) if truth.kind == "right"]
        positions += [(means[i][0] - means[i][-1]) / scale for i in clean]
        whole = {truth.kind: float(row.mean()) for truth, row in zip(group, sampled, strict=True)}
        if "detour" in whole:
            lengths.append((whole["detour"] - whole["right"]) / scale)
    wrong, right = (np.array([m for one in answers for m in getattr(one, kind)]) for kind in ("wrong", "right"))
    shares = {name: float(np.nanmean([getattr(one, name) for one in answers])) for name in ("step", "token", "auc")}
    return shares | {
        "wrong_down": float((wrong < 0).mean()),
        "right_up": float((right > 0).mean()),
        "push": float(np.mean(pushes)),
        "variance": float(np.var(pushes, ddof=1)) if len(pushes) > 1 else 0.0,
        "position": float(np.mean(positions)),
        "length": float(np.mean(lengths)) if lengths else 0.0,
    }


def _means(advantages: Array, truth: Truth) -> list[float]:
    return [float(advantages[first : last + 1].mean()) for first, last in truth.spans]


def _answer(advantages: Array, means: Sequence[float], truth: Truth) -> _Answer:
    by_label = {
        label: [m for m, other in zip(means, truth.labels, strict=True) if other is label] for label in (False, True)
    }
    if not truth.culprits:
        return _Answer(np.nan, np.nan, np.nan, by_label[False], by_label[True])
    blame = np.where(np.isin(np.arange(len(advantages)), truth.sampled), np.maximum(-advantages, 0.0), 0.0)
    wrong = [span for span, label in zip(truth.spans, truth.labels, strict=True) if not label]
    on_steps = sum(float(blame[first : last + 1].sum()) for first, last in wrong)
    total, tokens = float(blame.sum()), list(truth.culprits)
    shares = (on_steps / total, float(blame[tokens].sum()) / total) if total else (0.0, 0.0)
    rest = advantages[sorted({*truth.sampled} - {*tokens})]
    told = np.mean([(rest > advantages[token]).mean() + (rest == advantages[token]).mean() / 2 for token in tokens])
    return _Answer(*shares, float(told), by_label[False], by_label[True])


def _credited(scheme: str, scored: Sequence[tuple[Planted, ScoredGroup]]) -> list[Array]:
    if scheme == EVEN:
        return [-np.ones((len(group.lengths), max(group.lengths))) for _, group in scored]
    return [credit.advantages for credit in credit_groups([group for _, group in scored], scheme)]


# --- labels ---------------------------------------------------------------------------------------------------------


def labelled(
    labels: str, groups: Sequence[Planted], repeat: int, where: Where
) -> list[tuple[Planted, ScoredGroup]] | None:
    """Score the groups with the step rewards that ``labels`` names; None if their reward model is not there."""
    if labels in NOISE:
        ways = range(repeat if NOISE[labels] else 1)
        return [(one, _scored(one, _turned(one, NOISE[labels], seed))) for one in groups for seed in ways]
    if labels == "outcome":
        return [(one, _scored(one, None)) for one in groups]
    if labels == "implicit":
        judge = judge_run(0, where)
        if judge is None:
            return None
        model = {"path": str(judge.dir.checkpoints / "final"), "format": "implicit"}
        reward = RewardConfig.parse({"name": "judge", "kind": "step", "model": model})
        return [(one, _scored(one, reward)) for one in groups]
    return [(one, _scored(one, values)) for one, values in zip(groups, _asked(labels, groups), strict=True)]


def _scored(planted: Planted, values: Values) -> ScoredGroup:
    """Return the group with these step rewards, or with a reward model's, beside the outcome."""
    base = _base(planted)
    if values is None:
        return base
    if isinstance(values, RewardConfig):
        return score_group(planted.group, pattern_of(planted.task), [values, OUTCOME])
    scored = [
        replace(row, scores={"planted": tuple(own)}, rewards=tuple(own))
        for row, own in zip(base.scored, values, strict=True)
    ]
    return replace(base, scored=tuple(scored), rewards=(RewardSummary("planted", "step", 1.0), *base.rewards))


@cache
def _base(planted: Planted) -> ScoredGroup:
    return score_group(planted.group, pattern_of(planted.task), [OUTCOME])


def _turned(planted: Planted, share: float, seed: int) -> list[list[float]]:
    """Return the truth with a share of it turned; which follows from the text up to the step's end, and a seed."""
    values = []
    for answer in planted.answers:
        read, row = str(planted.group.prompt), list[float]()
        for line, label in zip(answer.lines, answer.labels, strict=True):
            read += f"{line}\n"
            row.append(float(label is not (random.Random(f"{seed} {read}").random() < share)))
        values.append(row)
    return values


def _asked(labels: str, groups: Sequence[Planted]) -> list[list[list[float | None]]]:
    """Return what the shipped policy says of the steps: its belief in the right answer, or its continuations."""
    if labels == "belief":
        return [beliefs(_policy(one.task), one.group, pattern_of(one.task)).progress() for one in groups]
    found = [_continued(one) for one in groups]
    return [one.progress() if labels == "monte_carlo_progress" else [*map(list, one.values)] for one in found]


@cache
def _policy(task: str) -> Policy:
    return load_policy(POLICIES[task])


@cache
def _continued(planted: Planted) -> StepValues:
    pattern = pattern_of(planted.task)
    values = step_values(_policy(planted.task), planted.group, pattern, k=CONTINUATIONS, sampling=SAMPLING)
    assert values is not None
    return values


# --- does blame predict learning ------------------------------------------------------------------------------------


def learning_of(rows: Sequence[BlameRow]) -> list[Learning]:
    """Correlate each number of the chains' rows with the mean final accuracy of the schemes' trained runs."""
    found: list[Learning] = []
    for labels in TRAINED:
        of_schemes, ends = trained(rows, labels)
        for number in NUMBERS if len(ends) > 3 else ():
            values = [row[number] for row in of_schemes]
            found.append(Learning(labels, number, len(ends), *spearman(values, ends)))
    return found


def trained(rows: Sequence[BlameRow], labels: str) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the rows of the schemes that were trained under such labels, and their mean final accuracies.

    A scheme that reads no labels has one row and one set of runs; it stands with the right ones.
    """
    own = (labels, "outcome") if labels == "right" else (labels,)
    ends: dict[str, list[float]] = {}
    for result in stored_results().values():
        if result.labels == TRAINED[labels]:
            ends.setdefault(result.scheme, []).append(result.final)
    chosen = [asdict(r) for r in rows if r.task == "chains" and r.labels in own and r.scheme in ends]
    return chosen, [float(np.mean(ends[row["scheme"]])) for row in chosen]


def spearman(x: Sequence[float], y: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """Return the rank correlation and the bounds of the middle 95 % of it over draws with replacement (seed 0)."""
    pairs = np.array([x, y], dtype=float)  # (2, n)
    picked = np.random.default_rng(0).integers(pairs.shape[1], size=(draws, pairs.shape[1]))
    low, high = np.nanquantile(_correlate_ranks(pairs[:, picked]), (0.025, 0.975))
    return float(_correlate_ranks(pairs)), float(low), float(high)


def _correlate_ranks(pairs: Array) -> Array:
    """Correlate the ranks along the last axis of two arrays, ties at their mean rank; NaN if all of one are equal."""
    above = (pairs[..., :, None] > pairs[..., None, :]).sum(-1)
    equal = (pairs[..., :, None] == pairs[..., None, :]).sum(-1)
    ranks = above + equal / 2
    a, b = ranks - ranks.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))


# --- what is kept ---------------------------------------------------------------------------------------------------


def _write(rows: Sequence[BlameRow], checked: Sequence[Counterfactual], learning: Sequence[Learning]) -> None:
    """Write the rows, rounded, and from these the page's file and the two pictures."""
    rows = [BlameRow(**_rounded(asdict(row))) for row in rows]
    tables: list[tuple[str, Any]] = [(getattr(row, "TABLE", "rows"), row) for row in (*rows, *checked, *learning)]
    lines = [{"table": table, **_rounded(asdict(row))} for table, row in tables]
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    BLAME.write_text(json.dumps(for_page(rows, learning), indent=1) + "\n", encoding="utf-8")
    by_scheme = {labels: shares(rows, labels) for labels in NOISE}
    order = sorted(SCHEMES, key=lambda scheme: round(by_scheme["right"][scheme], 3))
    (PICTURES / "blame.svg").write_text(dots(by_scheme, order, by_scheme["right"][EVEN]), encoding="utf-8")
    points = []
    for labels in TRAINED:
        pairs = zip(*trained(rows, labels), strict=True)
        points += [(labels, row["scheme"], row["step"], accuracy) for row, accuracy in pairs]
    (PICTURES / "blame-learning.svg").write_text(scatter(points), encoding="utf-8")


def shares(rows: Sequence[BlameRow], labels: str) -> dict[str, float]:
    """Return each scheme's share of blame on the wrong steps of chains; one that reads no labels has one share."""
    return {r.scheme: r.step for r in rows if r.task == "chains" and r.labels in (labels, "outcome")}


def for_page(rows: Sequence[BlameRow], learning: Sequence[Learning]) -> dict[str, Any]:
    """Return each scheme's shares under right labels and with 30 % turned, and the edits without content that pay.

    Beside them stands how far the shares under right labels go with final accuracy.
    """
    right, turned = shares(rows, "right"), shares(rows, "noise30")
    report: Any = probe(first_group(), RunConfig().grpo.pattern, [step_reward("right"), OUTCOME], list(SCHEMES))
    schemes = {
        scheme: {
            "right": round(right[scheme], 2),
            "noise30": round(turned[scheme], 2),
            "pays": [edit for edit, row in report.results.items() if scheme in row and row[scheme].pays],
        }
        for scheme in SCHEMES
    }
    correlations = {row.labels: _rounded(asdict(row)) for row in learning if row.number == "step"}
    return {"learning": correlations, "schemes": schemes}


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def stored_rows() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of ``RESULTS`` by table."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tables.setdefault(row.pop("table"), []).append(row)
    return tables
