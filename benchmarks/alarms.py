"""How often the alarms of a run are right: raised in healthy runs, and in runs with a fault that was planted.

Healthy runs are those of ``benchmarks schemes`` with right labels that the workspace has, and one with a KL term of
the usual weight; those that end less accurate than they began are counted apart, as "unlearnt". Planted are a reward
that pays for length, one that pays for many numbers beside the right one (hedging), one for every step whatever it says
(splitting), a learning rate ten times the default, and a KL term that holds the policy where it was. Each look is at
the rows up to then, as a page that follows the run has them; a run counts once, however often it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.schemes import OPTIMISER, cells
from benchmarks.trained import Rows, Where
from workbench.checks.alarms import ALARMS, alarms
from workbench.config import RunConfig

HEALTHY_SEEDS = 5
LENGTH = """
def paid_by_length(prompts, completions, **columns):
    return [len(text) / 100 for text in completions]
"""
HEDGING = """
def right_somewhere(prompts, completions, answer, **columns):
    import re
    found = [re.findall(r"[0-9]+", text) for text in completions]
    return [float(str(right) in numbers) + len(numbers) / 20 for numbers, right in zip(found, answer)]
"""
SPLITTING = """
def a_point_a_step(prompts, completions, steps, **columns):
    return [[1.0] * len(row) for row in steps]
"""
RIGHT = [{"name": "step_correctness"}, {"name": "answer_correctness", "kind": "outcome"}]


@dataclass(frozen=True)
class Case:
    """A run by its name, with what it changes in the default; ``scheme`` credits it."""

    scheme: str
    method: Mapping[str, Any]
    optimiser: Mapping[str, Any]
    healthy: bool = False
    steps: int = 40


def _paying(name: str, kind: str, code: str) -> dict[str, Any]:
    """A reward that pays for the wrong thing, alone."""
    return {"rewards": [{"name": name, "kind": kind, "code": code}]}


CASES = {
    "length": Case("outcome", _paying("paid_by_length", "outcome", LENGTH), {}),
    "splitting": Case("sum", _paying("a_point_a_step", "step", SPLITTING), {}),
    "rate": Case("process", {"rewards": RIGHT}, {"learning_rate": 5e-3}),
    "kl": Case("process", {"rewards": RIGHT, "beta": 20.0}, {}, steps=60),
    "usual kl": Case("process", {"rewards": RIGHT, "beta": 0.04}, {}, healthy=True),
    "hedging": Case("outcome", _paying("right_somewhere", "outcome", HEDGING), {}),
}


@dataclass(frozen=True)
class AlarmRow:
    """Of so many runs, in how many each alarm was raised at any look, and the step of the first."""

    case: str
    runs: int
    alarm: str
    raised: int
    first: int | None


def measure(repeat: int, where: Where = Where()) -> list[AlarmRow]:  # noqa: B008  # frozen
    """Seeds 0 to ``repeat`` - 1 of each case; of healthy runs all that there are."""
    stored = [rows for cell in cells() for rows in _stored(cell, where)]
    healthy = [rows for rows in stored if not _unlearnt(rows)]
    planted: dict[str, list[Rows]] = {}
    if len(healthy) < len(stored):
        planted["unlearnt"] = [rows for rows in stored if _unlearnt(rows)]
    for seed in range(repeat):
        for name in where.chosen(list(CASES)):
            rows = where.rows(_config(name, seed), CASES[name].scheme)
            if rows is not None:
                (healthy if CASES[name].healthy else planted.setdefault(name, [])).append(rows)
    return [row for case, runs in {"healthy": healthy, **planted}.items() for row in _of_case(case, runs)]


def _stored(cell: str, where: Where) -> list[Rows]:
    labels, scheme = cell.split("/")
    if labels != "right":
        return []
    stored = Where(where.workspace, stored=True)
    configs = [RunConfig(name="schemes-right", seed=seed) for seed in range(HEALTHY_SEEDS)]
    return [rows for config in configs if (rows := stored.rows(config, scheme)) is not None]


def _unlearnt(rows: Rows) -> bool:
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    return bool(accuracies) and accuracies[-1] < accuracies[0]


def _config(name: str, seed: int) -> RunConfig:
    case = CASES[name]
    run = {"steps": case.steps, "eval_every": 0, "watch_prompts": 0, "save_every": 20}
    method = {"prompts_per_step": 4, "credit": {"scheme": case.scheme}, **case.method}
    data = {"method": method, "optimiser": {**OPTIMISER, **case.optimiser}, "run": run}
    return RunConfig.parse({"name": f"alarms-{name.replace(' ', '-')}", "seed": seed, **data})


def first_raised(rows: Rows) -> dict[str, int]:
    """The step at which each alarm is raised first, looking at every row as it comes."""
    first: dict[str, int] = {}
    for count in range(1, len(rows) + 1):
        for alarm in alarms(rows[:count]):
            first.setdefault(alarm.name, rows[count - 1]["step"])
    return first


def _of_case(case: str, runs: list[Rows]) -> list[AlarmRow]:
    """A row for each alarm, and one for any of them."""
    seen = [first_raised(rows) for rows in runs]
    found = [
        AlarmRow(case, len(runs), name, len(steps), min(steps, default=None))
        for name in ALARMS
        for steps in ([first[name] for first in seen if name in first],)
    ]
    steps = [min(first.values()) for first in seen if first]
    return [*found, AlarmRow(case, len(runs), "any", len(steps), min(steps, default=None))]
