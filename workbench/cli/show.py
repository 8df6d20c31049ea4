"""Runs, groups and comparisons as text for people and as plain data for ``--json``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import WorkbenchError
from workbench.rundir import RunStatus
from workbench.runs import ComparedMethod, ComparedRun, Run, RunSummary
from workbench.views.cards import number, table, visible

_WATCHED = {
    "reward": "reward",
    "accuracy": "accuracy",
    "no_answer_share": "no answer",
    "accuracy/train": "in training",
    "loss": "loss",
}
_TIMES = {"created", "started", "updated", "stop_requested"}
_LISTED = ("name", "state", "step", "total_steps", "task", "scheme", "accuracy", "seconds", "reason")


def progress(run: Run, row: Mapping[str, Any]) -> str:
    """Return one metrics row on one line: the step and the few numbers one watches."""
    numbers = [f"{label} {number(row[name])}" for name, label in _WATCHED.items() if row.get(name) is not None]
    seconds = [f"{row['seconds']:.0f} s"] if row.get("seconds") is not None else []
    return "  ".join([f"{run.name}  step {row.get('step')}/{run.status().total_steps}", *numbers, *seconds])


def run_data(run: Run) -> dict[str, Any]:
    """Return a run's status, configuration and last metrics row."""
    data = run.data()
    status, rows = data.pop("status"), data.pop("metrics")
    return {**data, **status, "metrics": rows[-1] if rows else None}


def run_text(run: Run, status: RunStatus, lines: int) -> str:
    facts = {name: str(value) for name, value in dataclasses.asdict(status).items() if value not in (None, "")}
    for name in _TIMES & facts.keys():
        facts[name] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(facts[name])))
    facts.pop("pid_created", None)
    parts = [table((run.name, ""), [(name, visible(fact, one_line=True)) for name, fact in facts.items()])]
    parts.append(visible(run.config().to_yaml()).rstrip())
    rows, _ = run.metrics_rows()
    if rows:
        last = [
            (name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in rows[-1].items() if name != "step"
        ]
        parts.append(table(("metric", f"at step {rows[-1].get('step')}"), last))
    parts += run.dir.warnings()
    parts.append("\n".join(["log", *(visible(line) for line in run.log_tail(lines))]))
    return "\n\n".join(parts)


def listing_data(run: Run) -> dict[str, Any]:
    """Return a run as a row of a list; an unreadable run is listed with the reason."""
    summary = run.summary()
    try:
        rows = run.metrics_rows()[0] if summary.readable else []
    except WorkbenchError as error:
        summary, rows = RunSummary(run.name, "unreadable", str(error)), []
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    started, updated = summary.started, summary.updated
    return summary.row(*_LISTED[:6]) | {
        "accuracy": accuracies[-1] if accuracies else None,
        "seconds": None if started is None or updated is None else round(updated - started, 1),
        "reason": summary.reason,
    }


def listing_text(listed: Sequence[Mapping[str, Any]]) -> str:
    if not listed:
        return "no runs yet; start one with: python -m workbench train"
    rows = [[visible(v, one_line=True) if isinstance(v := row[name], str) else v for name in _LISTED] for row in listed]
    return table([name.replace("_", " ") for name in _LISTED], rows)


def comparison_text(rows: Sequence[ComparedRun | ComparedMethod]) -> str:
    """Every scheme or method with every seed, then the means over seeds; that to 65 % is over those that got there.

    A mean's line says how many got there, how many ended below the base, and the range of final accuracies.
    """
    if not rows:
        return "nothing was compared"
    group, seed, *names = (field.name for field in dataclasses.fields(rows[0]))
    data = [dataclasses.asdict(row) for row in rows]
    lines = [[row[group], str(row[seed]), *(row[name] for name in names)] for row in data]
    for label in dict.fromkeys(row[group] for row in data):
        mine = [row for row in data if row[group] == label]
        means = []
        for name in names:
            measured = [row[name] for row in mine if row[name] is not None]
            means.append(sum(measured) / len(measured) if measured else None)
        lines.append([label, f"mean ({_ends(mine, rows[0].to_65)})", *means])
    return table([name.replace("_", " ") for name in (group, seed, *names)], lines)


def _ends(rows: Sequence[Mapping[str, Any]], to_65: str) -> str:
    reached = sum(row[to_65] is not None for row in rows)
    ends = [(row["base_accuracy"], row["final_accuracy"]) for row in rows if row["final_accuracy"] is not None]
    parts = [f"{reached} of {len(rows)} reached 65 %"]
    if below := sum(final < base for base, final in ends):
        parts.append(f"{below} ended below the base")
    if len(ends) > 1:
        parts.append(f"from {min(final for _, final in ends):.3f} to {max(final for _, final in ends):.3f}")
    return ", ".join(parts)
