"""Which scheme: the default run under every scheme, with step labels that are right, partly wrong, or a model's.

A cell is ``labels/scheme``: ``right`` is step_correctness, ``noise10`` and ``noise30`` the same with that share of the
labels turned (``rewards.source``), ``prm`` an implicit process reward model trained here on
Monte-Carlo labels of the policy's own steps, one for each seed. Every run is the default one in all else and has
answer_correctness beside the steps. Schemes that credit outcomes alone do not see the labels, and have one cell. A
probe is an edit without content of the group that comes along; it pays where it gains in any of the answers.

What finished is a line of ``RESULTS``, from which the documentation's table is made and the next call goes on;
``--full`` trains that anew, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trained import Rows, Where, last_mean, mean, say
from workbench.assets import FIRST_GROUP
from workbench.checks import probe
from workbench.checks.difficulty import auc
from workbench.config import ModelConfig
from workbench.credit import SCHEMES, compare_credits, credit_group
from workbench.data import load_task
from workbench.data.made import planted_errors
from workbench.places import default_workspace
from workbench.rewards import RewardConfig, score_group
from workbench.rewards.source import with_wrong_labels
from workbench.runs import Run, label_steps, list_runs, train_to_end
from workbench.schema import Group, ScoredGroup
from workbench.training.methods import RunConfig

FIRST = ("outcome", "process", "step", "mean_suffix", "first_error", "prpo", "turn_credit", "papo")
"""Measured before the others."""
NOISE = {"right": 0.0, "noise30": 0.3, "noise10": 0.1}
LABELS = ("right", "prm", "noise30", "noise10")
"""In the order in which they are measured."""
RESULTS = Path(__file__).with_name("schemes.jsonl")
RUN = {"steps": 60, "eval_steps": 60, "watch_prompts": 0}
"""60 steps of the default run, measured before the first and after the last alone; no number shown depends on it."""
OPTIMISER = {"learning_rate": 5e-4}
"""That of every result that is kept; a run's default was that until 0.4.0."""
TURNS = 20
MONTE_CARLO: dict[str, Any] = {
    "prompts": 160,
    "first": 10_000,
    "continuations": 4,
    "estimation": "soft",
}
"""What the process reward model learns from: 1,280 completions of the base policy, of prompts that no run trains on."""
JUDGE: dict[str, Any] = {
    "method": {"name": "prm", "format": "implicit", "batch_size": 16},
    "optimiser": {"learning_rate": 1e-4, "warmup_steps": 20},
    "run": {"steps": 120, "save_steps": 60, "eval_steps": 60, "watch_prompts": 0},
}
OUTCOME = RewardConfig(name="answer_correctness", kind="outcome")


@dataclass(frozen=True)
class RunResult:
    """A finished run; accuracies are shares of 200 held-out problems.

    ``steps_per_answer`` is the mean of the last 5 steps, None where it was not kept.
    """

    labels: str
    scheme: str
    seed: int
    base: float
    final: float
    steps_per_answer: float | None


Results = Mapping[tuple[str, int], RunResult]


@dataclass(frozen=True)
class SchemeRow:
    """A cell over its seeds; accuracies are shares of 200 held-out problems.

    ``agreement`` is what turned labels leave before any training: the mean correlation of the tokens' advantages with
    those under right labels, in the group that comes along, over ``TURNS`` ways to turn them. ``probes`` are the edits
    that pay under right labels, of all that can be made.
    """

    labels: str
    scheme: str
    seeds: int
    base: float | None
    final: float | None
    lowest: float | None
    highest: float | None
    steps_per_answer: float | None
    agreement: float | None
    probes: str


def measure(repeat: int, where: Where = Where(), *, full: bool = False) -> list[SchemeRow]:  # noqa: B008  # frozen
    """Seeds 0 to ``repeat`` - 1; the first seed of all cells before the second."""
    names = where.chosen(cells())
    before = {} if full else stored_results()
    results: dict[str, list[RunResult]] = {cell: [] for cell in names}
    for seed in range(repeat):
        for cell in names:
            result = before.get((cell, seed)) or _trained(cell, seed, where)
            results[cell] += [] if result is None else [result]
    return [_row(cell, seeds) for cell, seeds in results.items()]


def stored_results() -> Results:
    """What finished before, by cell and seed; the last line of each."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    results = [RunResult(**json.loads(line)) for line in lines]
    return {(f"{result.labels}/{result.scheme}", result.seed): result for result in results}


def cells() -> list[str]:
    """One kind of labels after the other, of each the schemes of ``FIRST`` before the others."""
    schemes = [*FIRST, *(name for name in SCHEMES if name not in FIRST)]
    return [f"{labels}/{scheme}" for labels in LABELS for scheme in schemes if labels == "right" or sees_labels(scheme)]


def sees_labels(scheme: str) -> bool:
    return not SCHEMES[scheme].outcome_only


def _trained(cell: str, seed: int, where: Where) -> RunResult | None:
    labels, scheme = cell.split("/")
    if labels in NOISE:
        rewards = [step_reward(labels), OUTCOME]
    elif (judge := judge_run(seed, where)) is not None:
        model = {"path": f"run:{judge.name}", "format": "implicit"}
        rewards = [RewardConfig.parse({"name": "judge", "kind": "step", "model": model}), OUTCOME]
    else:
        return None
    method = {"rewards": [reward.model_dump() for reward in rewards], "credit": {"scheme": scheme}}
    data = {"seed": seed, "method": method, "optimiser": OPTIMISER, "run": RUN}
    config = RunConfig.parse({"name": f"schemes-{labels}", **data})
    rows = where.rows(config, scheme)
    if rows is None:
        return None
    result = _result(labels, scheme, seed, rows)
    if not where.stored:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
    return result


def _result(labels: str, scheme: str, seed: int, rows: Rows) -> RunResult:
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    steps = last_mean(rows, "steps_per_answer")
    return RunResult(labels, scheme, seed, accuracies[0], accuracies[-1], None if steps is None else round(steps, 3))


def step_reward(labels: str) -> RewardConfig:
    share = NOISE[labels]
    return with_wrong_labels("step_correctness", share) if share else RewardConfig(name="step_correctness")


@cache
def judge_run(seed: int, where: Where) -> Run | None:
    """The run of a seed's process reward model, trained on Monte-Carlo labels; None unless it finished."""
    name, workspace = f"schemes-prm.{seed}.judge", (where.workspace or default_workspace()).resolve()
    if where.stored:
        there = next((run for run in list_runs(workspace) if run.name == name), None)
        return there if there is not None and there.status().state == "finished" else None
    labels = workspace / "made" / f"schemes-prm.{seed}.jsonl"
    label_steps(RunConfig(seed=seed), labels, workspace=workspace, again=True, **MONTE_CARLO)
    judge = {**JUDGE, "seed": seed, "task": {"data": str(labels)}}
    run = train_to_end(RunConfig.parse({"name": name, **judge}), workspace)
    say(f"{name}: AUC of planted errors {auc_of_errors(run.dir.checkpoints / 'final'):.3f}")
    return run


def auc_of_errors(folder: Path) -> float:
    """How a process reward model tells the planted errors of 400 held-out answers: of steps up to the first error."""
    from workbench.rewards.models.model import ProcessModel, load_model

    judge = load_model(ModelConfig(path=str(folder), format="implicit"), "cpu")
    assert isinstance(judge, ProcessModel)
    groups = planted_errors(load_task("chain-arithmetic"), 100, seed=1)
    answers = [(group.prompt, rollout.columns) for group in groups for rollout in group.rollouts]
    scores = judge.score([prompt for prompt, _ in answers], [columns["labelled_steps"] for _, columns in answers])
    told: list[tuple[float, bool]] = []
    for of_answer, (_, columns) in zip(scores, answers, strict=True):
        for score, label in zip(of_answer, columns["labels"], strict=True):
            told += [] if score is None else [(score, label == 1)]
            if label != 1:
                break
    return auc([score for score, _ in told], [right for _, right in told])


def _row(cell: str, results: Sequence[RunResult]) -> SchemeRow:
    labels, scheme = cell.split("/")
    ends = [result.final for result in results]
    return SchemeRow(
        labels,
        scheme,
        len(ends),
        mean([result.base for result in results]),
        mean(ends),
        min(ends, default=None),
        max(ends, default=None),
        mean([result.steps_per_answer for result in results if result.steps_per_answer is not None]),
        agreement(labels, scheme) if NOISE.get(labels) else None,
        probes_that_pay(scheme) if labels == "right" else "",
    )


@cache
def first_group() -> Group:
    return Group.from_json(json.loads(FIRST_GROUP.read_text(encoding="utf-8")))


@cache
def _scored(share: float, seed: int) -> ScoredGroup:
    reward = with_wrong_labels("step_correctness", share, seed=seed)
    return score_group(first_group(), RunConfig().grpo.pattern, [reward, OUTCOME])


def agreement(labels: str, scheme: str) -> float:
    right = credit_group(_scored(0.0, 0), scheme)
    turned = [credit_group(_scored(NOISE[labels], seed), scheme) for seed in range(TURNS)]
    return float(np.mean([compare_credits(right, credit).correlation or 0.0 for credit in turned]))


@cache
def _probed() -> Any:
    """Return every scheme's probes: a group is edited and scored once for all of them."""
    return probe(first_group(), RunConfig().grpo.pattern, [step_reward("right"), OUTCOME])


def probes_that_pay(scheme: str) -> str:
    """Edits that pay of those that can be made, in the group that comes with the embedded policy."""
    results = [row[scheme] for row in _probed().results.values() if scheme in row]
    made = [result for result in results if result.worst is not None]
    return f"{sum(result.pays for result in made)} of {len(made)}"
