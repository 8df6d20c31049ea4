"""Which columns of TRL's log of completions are rewards, and their sum.

``GRPOTrainer.log`` (TRL 1.16) writes ``step``, ``prompt``, ``completion``, a column a reward function, then the
columns of ``log_extra``, which may be numbers too, and ``advantage``. So the rewards are the first columns of numbers,
and their sum goes up and down with the logged advantage within each group. The trainer writes rewards as floats: whole
numbers are none where the floats alone explain the advantages. Weights are not in the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from workbench.rollouts.records import Record, is_number

_AGREES = 0.99
"""Least mean correlation of the sum with the logged advantage that counts as the same."""
_BESIDE = ("logged_advantage", "training_step")


def with_rewards(records: Sequence[Record]) -> tuple[list[Record], str]:
    """Return the records with ``reward``, the sum of their reward columns that have a value, and a note about it."""
    names = [name for name in dict.fromkeys(n for record in records for n in record.columns) if name not in _BESIDE]
    values = {name: [record.columns.get(name) for record in records] for name in names}
    numeric = [
        name
        for name in names
        if any(map(is_number, values[name])) and all(value is None or is_number(value) for value in values[name])
    ]
    if not numeric:
        return list(records), "no column of numbers can be a reward; 'reward' is not set"
    whole = {name for name in numeric if not any(isinstance(value, float) for value in values[name])}
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.series + json.dumps(record.prompt), []).append(record)
    agreement = {count: _agreement(numeric[:count], list(groups.values())) for count in range(1, len(numeric) + 1)}
    best = max(agreement.values())

    def rank(count: int) -> tuple[bool, bool, int]:
        return agreement[count] >= best - (1 - _AGREES), whole.isdisjoint(numeric[:count]), count

    rewards = numeric[: max(agreement, key=rank)]
    said = f"reward is the sum of {', '.join(rewards)}"
    if agreement[len(rewards)] >= _AGREES:
        said += ", which the logged advantages agree with"
    else:
        said += ", but the logged advantages are not of this sum: they may have weights, which the file does not hold"
    if others := numeric[len(rewards) :]:
        said += f"; taken for no reward: {', '.join(others)}"
    return [_with_reward(record, rewards) for record in records], said


def _with_reward(record: Record, rewards: Sequence[str]) -> Record:
    columns = dict(record.columns)
    if "reward" in columns:  # a function of that name is one of them
        columns["logged_reward"] = columns["reward"]
    return replace(record, columns=columns | {"reward": _sum(record, rewards)})


def _sum(record: Record, rewards: Sequence[str]) -> float | None:
    scores = [record.columns[name] for name in rewards if record.columns.get(name) is not None]
    return sum(scores) if scores else None


def _agreement(rewards: Sequence[str], groups: Sequence[Sequence[Record]]) -> float:
    """Return the mean correlation of the rewards' sum with the advantage, over the groups that show one; else 1."""
    found = []
    for group in groups:
        pairs = [(_sum(record, rewards), record.columns["logged_advantage"]) for record in group]
        known = [(total, advantage) for total, advantage in pairs if total is not None and is_number(advantage)]
        if len(known) > 1:
            found.append(_correlation(*zip(*known, strict=True)))
    return sum(found) / len(found) if found else 1.0


def _correlation(sums: Sequence[Any], advantages: Sequence[Any]) -> float:
    """Pearson's; 1 where neither varies, 0 where one does."""
    x, y = _centred(sums), _centred(advantages)
    if not any(x) or not any(y):
        return float(any(x) == any(y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))


def _centred(values: Sequence[float]) -> list[float]:
    """The differences from the mean, those of rounding (a float32 divided by TRL's 1e-4) being 0."""
    mean = sum(values) / len(values)
    differences = [value - mean for value in values]
    return differences if max(map(abs, differences)) > 1e-3 else [0.0] * len(values)
